"""Which jobs with a deadline use spot machines: those that could boot again and run again after an interruption."""

import pytest
from msgspec.structs import replace

from spillover.core.pool_proposals import SeeGone, SeeMade, SeeRefused
from spillover.model.pools import MachineId, MachineState, RefusalCause
from spillover.model.units import MINUTE
from spillover.testing.world import World
from tests.support.pools.worlds import (
    CLOUD,
    GIB,
    SMALL,
    in_state,
    rented,
    replayed,
    wanted,
    why,
    world,
)

SPOT = replace(SMALL, spot=True, hour=100_000)
ON_DEMAND = "small/a/on-demand"


def joins(w: World, machine: MachineId) -> None:
    """Let the agent of a machine join, with the labels of its offer."""
    offer = w.state.machines[machine].offer
    w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    w.agent(machine, cpus=4, memory=16 * GIB, cluster="cloud", labels=offer.agent_labels)


def with_a_free_spot_machine(**pool: object) -> World:
    """Return a world in which a spot machine has room for 3 CPUs and is there for a long time."""
    w = world(SPOT, SMALL, **pool)
    w.submit(rented("first", 1, minutes=600))
    (machine,) = in_state(w, MachineState.WANTED)
    joins(w, machine)
    w.start("first")
    return w


@pytest.mark.parametrize(("minutes", "offer"), [(109, ON_DEMAND), (111, "small/a/spot")])
def test_an_order_counts_the_boots_of_two_machines_and_three_runtimes(minutes: int, offer: str) -> None:
    w = world(SPOT, SMALL, boot=10 * MINUTE)
    w.submit(rented("a", minutes=30).between(deadline=w.now + minutes * MINUTE))
    assert wanted(w) == [offer]


def test_slow_boots_count_and_not_only_the_usual_one() -> None:
    w = world(SPOT, SMALL, join_within=30 * MINUTE)
    for number, seconds in enumerate((60, 60, 60, 60, 1200)):
        w.submit(rented(f"a{number}", minutes=1))
        (machine,) = in_state(w, MachineState.WANTED)
        w.wait(seconds=seconds)
        joins(w, machine)
        w.start(f"a{number}")
        w.finish(f"a{number}")
        w.wait(seconds=2000)
        w.propose(SeeGone(CLOUD, machine))
    record, pool = w.state.pool(CLOUD), w.state.clusters[CLOUD].pool
    assert pool is not None
    assert record.boot(pool, SPOT.key) < 2 * MINUTE < record.boot(pool, SPOT.key, 90)
    w.submit(rented("b", minutes=30).between(deadline=w.now + 120 * MINUTE))
    assert wanted(w)[-1] == ON_DEMAND


def test_a_job_without_slack_does_not_take_a_spot_machine_that_is_free() -> None:
    w = with_a_free_spot_machine()
    w.submit(rented("hurried", 1, minutes=30).between(deadline=w.now + 80 * MINUTE))
    w.submit(rented("calm", 1, minutes=30).between(deadline=w.now + 100 * MINUTE))
    assert w.where("hurried") is None
    assert w.where("calm") == "cloud/cloud-1"
    assert wanted(w) == ["small/a/spot", ON_DEMAND]
    assert "spot" in why(w, "hurried")
    joins(w, in_state(w, MachineState.WANTED)[0])
    assert w.where("hurried") == "cloud/cloud-2"


def test_slack_is_judged_again_when_the_machine_is_ready() -> None:
    w = world(SPOT, SMALL)
    w.submit(rented("a", minutes=30).between(deadline=w.now + 94 * MINUTE))
    assert wanted(w) == ["small/a/spot"]
    w.wait(seconds=300)
    joins(w, in_state(w, MachineState.WANTED)[0])
    assert w.where("a") is None, "it booted for so long that no time is left to run again"
    assert wanted(w) == ["small/a/spot", ON_DEMAND]


def test_a_job_without_slack_does_not_wait_for_a_spot_machine_that_is_coming() -> None:
    w = world(SPOT, SMALL)
    w.submit(rented("first", 1, minutes=30))
    w.submit(rented("hurried", 1, minutes=30).between(deadline=w.now + 60 * MINUTE))
    assert wanted(w) == ["small/a/spot", ON_DEMAND]


def test_a_job_that_would_be_late_on_demand_takes_the_spot_machine_that_is_there() -> None:
    w = with_a_free_spot_machine(boot=10 * MINUTE)
    w.submit(rented("a", 1, minutes=30).between(deadline=w.now + 35 * MINUTE))
    assert w.where("a") == "cloud/cloud-1"


def test_a_job_takes_the_free_spot_machine_once_it_would_be_late_on_demand() -> None:
    w = with_a_free_spot_machine(boot=5 * MINUTE, join_within=30 * MINUTE)
    w.submit(rented("a", 1, minutes=30).between(deadline=w.now + 45 * MINUTE))
    assert w.where("a") is None
    assert wanted(w)[-1] == ON_DEMAND
    w.wait(seconds=11 * 60)  # the machine that was ordered is late
    assert w.where("a") == "cloud/cloud-1"


def test_a_job_without_slack_goes_to_spot_where_nothing_on_demand_can_be_had() -> None:
    alone = world(SPOT)
    alone.submit(rented("a", minutes=30).between(deadline=alone.now + 60 * MINUTE))
    assert wanted(alone) == ["small/a/spot"]
    refused = with_a_free_spot_machine()
    refused.submit(rented("a", 1, minutes=30).between(deadline=refused.now + 40 * MINUTE))
    assert refused.where("a") is None
    (machine,) = in_state(refused, MachineState.WANTED)
    refused.propose(SeeRefused(CLOUD, machine, RefusalCause.CAPACITY, "none left"))
    refused.wait(seconds=1)
    assert refused.where("a") == "cloud/cloud-1"


def test_a_replay_judges_slack_alike() -> None:
    w = with_a_free_spot_machine(boot=5 * MINUTE)
    w.submit(rented("a", 1, minutes=30).between(deadline=w.now + 45 * MINUTE))
    w.submit(rented("b", 1, minutes=30).between(deadline=w.now + 200 * MINUTE))
    w.wait(seconds=660)
    assert replayed(w).difference is None
