"""What nodes of whole clusters would mean for jobs that no machine takes, and what break_even makes of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from spillover.core.events import ClusterSized, MachinesWanted, SeenNode
from spillover.core.pool_proposals import SeeMade, SeeRunning
from spillover.core.proposals import SeeCluster, SeeNodes
from spillover.core.records.machines import PoolRecord, node_boots
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.protocols import Rental
from spillover.deciding.renting.rentals import Rentals
from spillover.deciding.replay import Replay
from spillover.model.cluster import Billing, ClusterHealth, ClusterSpec, Price, Role, pool_price
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineId, MachineState, Offer, Pool
from spillover.model.reasons import NotInTime
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from spillover.model.where import Where
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

BURST = ClusterName("burst")
FIRST = ClusterName("burst-1")
GIB = 2**30
UNIT = 1_000_000
NODE = Resources(4000, 64 * GIB)
STD = Offer("std", NODE, 4 * UNIT, nodes=4, least=1, cluster_hour=2 * UNIT)
"""Nodes of four CPUs, for 1 a CPU and hour; a full cluster adds an eighth of that."""
BOOT = 10 * MINUTE


def template(*offers: Offer, billing: Billing | None = None, **pool: Any) -> ClusterSpec:
    chosen = Pool("fake", offers or (STD,), **{"max": 1, "boot": BOOT, "join_within": HOUR, **pool})
    spec = ClusterSpec(BURST, "kubernetes", Role.RENTED, pool_price(chosen), billing or Billing(), gangs=True)
    return replace(spec, pool=chosen, region="eu")


def machines(**pool: Any) -> ClusterSpec:
    offer = Offer("four", Resources(2000, 64 * GIB), 90 * UNIT, "a")
    chosen = Pool("process", (offer,), **{"max": 10, "boot": 2 * MINUTE, **pool})
    return replace(
        ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, pool_price(chosen), pool=chosen), region="us"
    )


def world(*clusters: ClusterSpec, coefficient: float = 0.5, rules: int | None = None) -> World:
    """A lab with one owned CPU, and a template."""
    wait = Choice("break_even", {"coefficient": coefficient})
    owned = replace(OWNED, gangs=True)
    w = World(load, PolicySet(order=Choice("priority"), wait=wait), (owned, *(clusters or (template(),))))
    if rules is not None:
        w.engine.rules = rules
    w.agent("n1", cpus=1)
    return w


def rented(name: str, cpus: float = 4, minutes: float = 60) -> JobBuilder:
    """A job that is rented whatever it costs."""
    return a_job(name).cpus(cpus).burst(Burst.ALWAYS).expected(minutes=minutes)


def rental(w: World, job: JobBuilder, minutes: float) -> Rental | None:
    """What renting a job would mean now that asked to start tomorrow, so that no cycle touches it."""
    (waiting,) = w.submit(job.between(not_before=w.now + DAY))
    found = Rentals(Draft(w.state, w.now, 0), w.engine.index, w.engine.policies)
    return found.of(w.state.jobs[waiting], int(minutes * MINUTE))


def nodes(w: World, count: int) -> None:
    """Let the first cluster have so many nodes."""
    seen = [
        SeenNode(NodeName(f"{FIRST}-n{at}"), NODE, Resources(), offers=("container",)) for at in range(count)
    ]
    w.propose(SeeNodes(FIRST, tuple(seen), whole=True))


def up(w: World, count: int, seconds: float = 600) -> None:
    """Let the first cluster be made now, and come up with so many nodes after a time."""
    w.propose(SeeMade(BURST, MachineId(FIRST), f"id-{FIRST}", w.now))
    w.wait(seconds=seconds)
    own = w.state.machines[MachineId(FIRST)]
    price = Price(machines=pool_price(Pool("fake", (own.offer,))).machines)
    spec = ClusterSpec(FIRST, "kubernetes", Role.RENTED, price, Billing(step=1), gangs=True, made_by=BURST)
    w.propose(SeeRunning(BURST, MachineId(FIRST), replace(spec, region="eu"), "{}"))
    w.propose(SeeCluster(FIRST, ClusterHealth.READY))
    nodes(w, count)


def ordered(w: World) -> list[int]:
    return [wish.nodes for each in w.happened(MachinesWanted) for wish in each.wishes]


# --- what renting means


def test_a_job_that_no_machine_takes_waits_for_a_cluster_and_pays_its_part_of_a_full_one() -> None:
    found = rental(world(), a_job("a").cpus(4), 50)
    # An hour with its boot: a node, and a quarter of what the cluster costs besides.
    assert found == Rental(BOOT, BOOT, 4 * UNIT + UNIT // 2, 4 * UNIT * 50 // 60)
    half = rental(world(), a_job("a").cpus(2), 50)
    assert half is not None
    assert half.price == found.price // 2


def test_billing_steps_of_clusters_count() -> None:
    found = rental(world(template(billing=Billing(HOUR))), a_job("a").cpus(4), 20)
    assert found is not None
    assert found.price == 4 * UNIT + UNIT // 2


def test_a_machine_goes_first_whatever_it_costs_as_in_the_plan() -> None:
    w = world(machines(), template())
    dear, large = rental(w, a_job("dear").cpus(2), 58), rental(w, a_job("large").cpus(4), 50)
    assert dear is not None
    assert (dear.boot, dear.price) == (2 * MINUTE, 90 * UNIT)
    assert large is not None
    assert large.boot == BOOT


def test_nodes_that_are_coming_have_room_and_cost_nothing_while_others_run_there() -> None:
    w = world()
    w.submit(rented("first", cpus=2, minutes=60))
    w.wait(seconds=60)
    assert rental(w, a_job("beside").cpus(2), 30) == Rental(9 * MINUTE, 9 * MINUTE, 0, UNIT)


def test_a_cluster_that_is_coming_may_have_another_node_at_the_same_time() -> None:
    w = world()
    w.submit(rented("first", cpus=4))
    w.wait(seconds=60)
    found = rental(w, a_job("next").cpus(4), 51)
    assert found is not None
    assert (found.boot, found.price) == (9 * MINUTE, 4 * UNIT), "the cluster is paid anyway"


def test_another_node_of_a_cluster_that_is_there_takes_as_long_as_its_nodes_did() -> None:
    w = world()
    w.submit(rented("first", cpus=4))
    up(w, 1)
    assert w.where("first") == "burst-1/burst-1-n0"
    boots = {STD.key: (9 * MINUTE,) * 3, node_boots(STD.key): tuple(at * SECOND for at in (80, 90, 100, 200))}
    w.state.pools[BURST] = replace(w.state.pools.get(BURST, PoolRecord(BURST)), boots=boots)
    found = rental(w, a_job("next").cpus(4), 58)
    assert found is not None
    assert (found.boot, found.boot_p90) == (100 * SECOND, 200 * SECOND)
    assert found.price == -(-4 * UNIT * (58 * 60 + 100) // 3600)


def test_a_cluster_that_is_full_and_the_last_leaves_nothing_to_rent() -> None:
    w = world()
    w.submit(*[rented(f"a{number}") for number in range(4)])
    assert ordered(w) == [4]
    assert rental(w, a_job("next").cpus(4), 60) is None
    more = world(template(max=2))
    more.submit(*[rented(f"a{number}") for number in range(4)])
    found = rental(more, a_job("next").cpus(4), 50)
    assert found is not None
    assert found.price == 4 * UNIT + UNIT // 2


def test_a_gang_pays_for_all_of_its_nodes() -> None:
    found = rental(world(), a_job("gang").cpus(4).tasks(3), 50)
    assert found is not None
    assert (found.boot, found.price) == (BOOT, 3 * (4 * UNIT + UNIT // 2))
    assert rental(world(), a_job("gang").cpus(4).tasks(5), 50) is None


def test_nodes_that_were_ordered_for_a_gang_have_no_room_for_others() -> None:
    w = world()
    w.submit(rented("gang", cpus=2).tasks(3))
    found = rental(w, a_job("a").cpus(1), 50)
    assert found is not None
    assert found.price == UNIT, "on another node"


def test_a_job_that_may_not_run_there_rents_nothing() -> None:
    w = world()
    w.submit(rented("first", cpus=2))
    assert rental(w, a_job("far").cpus(2).where(Where(regions=("us",))), 50) is None


# --- what break_even makes of it


@pytest.mark.parametrize(("rules", "rents"), [(5, [1]), (6, [])])
def test_a_job_is_not_rented_if_owned_capacity_is_free_before_a_cluster_is_ready(
    rules: int, rents: list[int]
) -> None:
    w = world(coefficient=0.01, rules=rules)
    w.submit(a_job("running").expected(minutes=9))
    w.submit(a_job("next").expected(minutes=30))  # its patience is 18 s
    assert ordered(w) == rents


def test_a_job_is_rented_if_a_cluster_is_ready_long_before_owned_capacity_is_free() -> None:
    w = world(coefficient=0.01)
    w.submit(a_job("running").expected(minutes=30))
    w.submit(a_job("next").expected(minutes=30))
    assert ordered(w) == [1]
    up(w, 1)
    assert isinstance(w.placed_because("next"), NotInTime)


@pytest.mark.parametrize(("jobs", "rents"), [(1, []), (4, [1])])
def test_a_job_waits_longer_if_it_would_pay_for_all_of_a_cluster(jobs: int, rents: list[int]) -> None:
    w = world()
    w.submit(a_job("running").expected(minutes=65))
    # Each has a patience of 30 minutes besides the boot. Alone in a cluster, renting costs seven times as much.
    w.submit(*[a_job(f"a{number}").expected(minutes=60) for number in range(jobs)])
    assert ordered(w) == rents


@pytest.mark.parametrize(("fee", "rents"), [(0, [1]), (12 * UNIT, [])])
def test_a_gang_that_needs_a_cluster_of_its_own_waits_by_its_price(fee: int, rents: list[int]) -> None:
    w = world(template(replace(STD, cluster_hour=fee)), coefficient=0.03)
    for name in ("n2", "n3"):
        w.agent(name, cpus=2)
    w.submit(*[a_job(f"running{at}").cpus(2).expected(minutes=21) for at in range(2)])
    # Its patience is 7.2 minutes besides the boot, and up to twice that.
    w.submit(a_job("gang").cpus(2).tasks(2).expected(minutes=60))
    assert ordered(w) == rents


@pytest.mark.parametrize("rules", [5, 6])
def test_a_journal_with_whole_clusters_leads_to_the_same_plans(rules: int) -> None:
    w = world(template(max=2), machines(max=1), coefficient=0.1, rules=rules)
    w.submit(rented("a99", minutes=90))
    for number in range(24):
        w.submit(
            a_job(f"a{number}")
            .cpus(1 + number % 4)
            .priority(number % 3)
            .expected(minutes=5 + 9 * (number % 7))
        )
        if number == 8:
            up(w, w.state.machines[MachineId(FIRST)].nodes, seconds=120)
        if number > 8 and FIRST in w.state.clusters:
            nodes(w, w.state.machines[MachineId(FIRST)].nodes)
        w.wait(seconds=200)
        for each in [*w.state.jobs.values()]:
            if w.where(each.id) is not None and (int(each.id.removeprefix("a")) + number) % 3 == 0:
                w.finish(each.id, ran=200)
    assert w.state.machines[MachineId(FIRST)].state is not MachineState.WANTED
    assert list(w.happened(ClusterSized))
    replay = Replay(load)
    for revision, event in enumerate(w.events, 1):
        assert replay.take(revision, event), replay.difference
    replay.end(len(w.events))
    assert replay.difference is None
