"""Stories of hundreds of machines that boot at the same time: plans of machines are few, and nothing waits long for one."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from spillover.core.events import Decided, MachinesWanted
from spillover.core.pool_proposals import SeeMade
from spillover.core.records.machines import PoolRecord
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.queue.index import FEW, LONGEST_PAUSE
from spillover.deciding.renting import plan
from spillover.deciding.whatif import Snapshot
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineState, Offer, OfferKey, Pool
from spillover.model.units import MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from tests.support.pools.worlds import (
    CLOUD,
    GIB,
    LARGE,
    SMALL,
    cluster,
    in_state,
    rented,
    replayed,
    wanted,
    world,
)

MANY = 150
MILLISECOND = SECOND // 1000


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times at which machines were planned."""
    made: list[int] = []
    real: Callable[..., object] = plan.rent

    def rent(draft: Draft, *given: object, **named: object) -> object:
        made.append(draft.now)
        return real(draft, *given, **named)

    monkeypatch.setattr(cycle, "rent", rent)
    return made


def booting(machines: int = MANY) -> World:
    """Return a world in which so many machines boot, each for one of as many jobs."""
    w = world(SMALL, replace(LARGE, hour=9_000_000), max=2 * machines)
    w.submit(*[rented(f"a{number}") for number in range(machines)])
    w.wait(seconds=5)
    assert len(in_state(w, MachineState.WANTED)) == machines
    return w


def spot_world(*offers: Offer, most: int) -> World:
    """Return a world with a pool of these offers, whose wait policy compares renting with waiting."""
    wait = Choice("break_even", {"coefficient": 0.5})
    return World(load, PolicySet(wait=wait), (OWNED, cluster(*offers, max=most)))


def join(w: World, milliseconds: int) -> None:
    """Let all machines be made and join, one after the other, in the same order, with a pause after each."""
    ordered = in_state(w, MachineState.WANTED)
    for each in ordered:
        w.propose(SeeMade(CLOUD, each, f"i-{each}", w.now))
        w.now += milliseconds * MILLISECOND
    for each in ordered:
        w.agent(each, cpus=4, memory=16 * GIB, cluster="cloud")
        w.now += milliseconds * MILLISECOND


def test_machines_that_boot_and_join_are_not_planned_anew_each_time(plans: list[int]) -> None:
    w = booting()
    plans.clear()
    join(w, milliseconds=10)
    assert all(w.where(f"a{number}") is not None for number in range(MANY))
    assert len(plans) < MANY // 2, "300 changes in 3 seconds"


def test_a_job_starts_at_once_on_the_machine_that_joined_although_no_machines_are_planned(
    plans: list[int],
) -> None:
    w = booting()
    w.agent("cloud-1", cpus=4, memory=16 * GIB, cluster="cloud")
    plans.clear()
    w.now += MILLISECOND
    w.agent("cloud-2", cpus=4, memory=16 * GIB, cluster="cloud")
    assert w.where("a1") == "cloud/cloud-2"
    assert plans == []
    assert not list(w.happened(Decided))[-1].machines


def test_a_job_that_comes_while_many_machines_boot_gets_its_own_within_a_second(plans: list[int]) -> None:
    w = booting()
    w.agent("cloud-1", cpus=4, memory=16 * GIB, cluster="cloud")
    before, came = len(wanted(w)), w.now
    w.submit(rented("b", 16))
    assert len(wanted(w)) == before
    w.wait(seconds=1)
    assert wanted(w)[before:] == ["large/a/on-demand"]
    assert list(w.happened(MachinesWanted))[-1].at <= came + LONGEST_PAUSE
    assert plans[-1] > came


def test_a_few_machines_are_planned_at_every_change(plans: list[int]) -> None:
    w = booting(FEW // 2)
    plans.clear()
    join(w, milliseconds=1)
    assert len(plans) >= FEW // 2
    assert all(each.machines for each in w.happened(Decided))


def test_a_plan_that_orders_as_many_as_it_may_is_continued_at_once() -> None:
    w = world(SMALL, max=1000)
    w.submit(*[rented(f"a{number}") for number in range(600)])
    assert len(wanted(w)) == 600


def test_the_plan_that_was_left_out_is_made_although_nothing_else_happens() -> None:
    w = booting()
    w.agent("cloud-1", cpus=4, memory=16 * GIB, cluster="cloud")
    w.submit(rented("b", 16))
    assert w.now < w.engine.next_time() <= w.now + SECOND


def test_a_replay_leaves_out_the_plans_that_were_left_out() -> None:
    w = booting()
    w.agent("n1", cpus=64)
    join(w, milliseconds=3)
    for number in range(10):
        w.submit(rented(f"b{number}", 16), a_job(f"c{number}").cpus(1))
        w.now += 20 * MILLISECOND
    w.wait(seconds=3)
    assert len(wanted(w)) == MANY + 10
    assert not all(each.machines for each in w.happened(Decided))
    again = replayed(w)
    assert again.difference is None
    assert again.plans == len(list(w.happened(Decided)))


def test_who_asks_what_would_be_planned_gets_the_answer_at_once() -> None:
    w = booting()
    w.agent("cloud-1", cpus=4, memory=16 * GIB, cluster="cloud")
    before = len(wanted(w))
    w.submit(rented("b", 16))
    assert len(wanted(w)) == before
    step = Snapshot(w.engine).step(w.now)
    assert [len(each.wishes) for each in step.events if isinstance(each, MachinesWanted)] == [1]


@pytest.mark.parametrize("state", [MachineState.BOOTING, MachineState.DRAINING, MachineState.READY])
def test_what_a_decision_looks_up_of_spot_offers_does_not_grow_with_machines(
    monkeypatch: pytest.MonkeyPatch, state: MachineState
) -> None:
    looked_up: list[str] = []
    real: Callable[..., int] = PoolRecord.boot

    def boot(record: PoolRecord, pool: Pool, offer: OfferKey, part: int = 50) -> int:
        if part > 50:
            looked_up.append(offer)
        return real(record, pool, offer, part)

    def decides(machines: int) -> int:
        """How many late boots a decision about one job looks up, with so many spot machines."""
        spot = [replace(SMALL, hour=100_000 + number, zone=f"z{number}", spot=True) for number in range(9)]
        w = spot_world(*spot, most=2 * machines)
        w.submit(*[rented(f"a{number}") for number in range(machines)])
        for each in in_state(w, MachineState.WANTED):
            w.propose(SeeMade(CLOUD, each, f"i-{each}", w.now))
        w.wait(seconds=5)
        if state is not MachineState.BOOTING:
            for each in in_state(w, MachineState.BOOTING):
                w.agent(each, cpus=4, memory=16 * GIB, cluster="cloud")
            for number in range(machines):
                w.finish(f"a{number}")
        while not in_state(w, state):
            w.wait(seconds=1)
        assert len(in_state(w, state)) == machines
        looked_up.clear()
        w.submit(a_job("late").cpus(4).expected(minutes=10).between(deadline=w.now + 25 * MINUTE))
        return len(looked_up)

    monkeypatch.setattr(PoolRecord, "boot", boot)
    assert 0 < decides(40) <= decides(4) + 9
