"""Stories of templates: which whole clusters the plan orders, how they grow and shrink, and when they are given back."""

from typing import Any

import pytest
from msgspec.structs import replace

from spillover.core.events import ClusterSized, MachinesWanted, SeenNode
from spillover.core.invariants import Broken
from spillover.core.pool_proposals import PausePool, SeeGone, SeeMade, SeeRunning
from spillover.core.proposals import DrainCluster, Refusal, RemoveCluster, SeeCluster, SeeNodes
from spillover.core.records.machines import RentedMachine
from spillover.deciding.explain.explain import reason_of
from spillover.deciding.explain.feasibility import too_large
from spillover.deciding.renting import plan
from spillover.deciding.renting.clusters import SETTLED
from spillover.deciding.replay import Replay
from spillover.model.budget import Per
from spillover.model.cluster import Billing, ClusterHealth, ClusterSpec, Leave, Price, Role, pool_price
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineId, MachineState, Offer, Pool, PoolBudget
from spillover.model.reasons import GangTooBig
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, MONEY, SECOND
from spillover.model.where import Where
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

BURST = ClusterName("burst")
FIRST = ClusterName("burst-1")
GIB = 2**30
NODE = Resources(4000, 16 * GIB)
OFFER = Offer("std", NODE, 400_000, nodes=4, least=1, cluster_hour=100_000)


def template(*offers: Offer, billing: Billing | None = None, **pool: Any) -> ClusterSpec:
    chosen = Pool("fake", offers or (OFFER,), **{"max": 2, "boot": 10 * MINUTE, "join_within": HOUR, **pool})
    spec = ClusterSpec(BURST, "kubernetes", Role.RENTED, pool_price(chosen), billing or Billing(), gangs=True)
    return replace(spec, pool=chosen, region="eu")


def world(*offers: Offer, **pool: Any) -> World:
    return World(load, PolicySet(wait=Choice("zero")), (OWNED, template(*offers, **pool)))


def rented(name: str, cpus: float = 4, minutes: float = 30) -> JobBuilder:
    return a_job(name).cpus(cpus).burst(Burst.ALWAYS).expected(minutes=minutes)


def ordered(w: World) -> list[tuple[str, int]]:
    """All clusters that were ordered, with their nodes."""
    return [(str(wish.machine), wish.nodes) for each in w.happened(MachinesWanted) for wish in each.wishes]


def order(w: World, cluster: ClusterName = FIRST) -> RentedMachine:
    return w.state.machines[MachineId(cluster)]


def state_of(w: World, cluster: ClusterName = FIRST) -> MachineState:
    return order(w, cluster).state


def answer(w: World, cluster: ClusterName = FIRST) -> None:
    """Let the maker create a cluster that answers, and the server add it."""
    w.propose(SeeMade(BURST, MachineId(cluster), f"id-{cluster}", w.now))
    own = order(w, cluster)
    price = Price(machines=pool_price(Pool("fake", (own.offer,))).machines)
    spec = ClusterSpec(cluster, "kubernetes", Role.RENTED, price, Billing(step=1), gangs=True, made_by=BURST)
    w.propose(SeeRunning(BURST, MachineId(cluster), replace(spec, region="eu"), "{}"))
    w.propose(SeeCluster(cluster, ClusterHealth.READY))


def nodes(w: World, *names: str, cluster: ClusterName = FIRST) -> None:
    """Let a cluster have exactly these nodes."""
    seen = [SeenNode(NodeName(each), NODE, Resources(), offers=("container",)) for each in names]
    w.propose(SeeNodes(cluster, tuple(seen), whole=True))


def up(w: World, count: int = 1, cluster: ClusterName = FIRST, seconds: float = 300) -> None:
    """Let a cluster that was ordered come up with so many nodes."""
    w.wait(seconds=seconds)
    answer(w, cluster)
    nodes(w, *[f"{cluster}-n{number}" for number in range(count)], cluster=cluster)


def test_a_job_that_no_cluster_can_run_gets_a_cluster_and_starts_there() -> None:
    w = world()
    w.submit(rented("a"))
    assert ordered(w) == [("burst-1", 1)]
    up(w)
    assert state_of(w) is MachineState.READY
    assert w.where("a") == "burst-1/burst-1-n0"
    assert len(ordered(w)) == 1


def test_a_cluster_is_only_ready_when_it_is_healthy_and_has_a_node() -> None:
    w = world()
    w.submit(rented("a"))
    answer(w)
    assert state_of(w) is MachineState.BOOTING
    nodes(w, "n0")
    assert state_of(w) is MachineState.READY


def test_jobs_of_one_plan_share_nodes_and_the_cluster() -> None:
    w = world()
    w.submit(*[rented(f"a{number}", 2) for number in range(5)])
    assert ordered(w) == [("burst-1", 3)]
    up(w, 3)
    assert len(w.placed()) == 5
    assert not list(w.happened(ClusterSized))


def test_a_second_cluster_is_ordered_when_the_first_has_all_its_nodes() -> None:
    w = world()
    w.submit(*[rented(f"a{number}") for number in range(6)])
    assert ordered(w) == [("burst-1", 4), ("burst-2", 2)]


def test_a_template_never_has_more_clusters_than_max() -> None:
    w = world(max=1)
    w.submit(*[rented(f"a{number}") for number in range(6)])
    assert ordered(w) == [("burst-1", 4)]


def test_a_cluster_that_is_there_grows_for_more_jobs() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    w.submit(rented("b"), rented("c"))
    assert [each.nodes for each in w.happened(ClusterSized)] == [3]
    assert len(ordered(w)) == 1
    w.wait(seconds=60)
    nodes(w, "burst-1-n0", "n1", "n2")
    assert w.where("b") is not None
    assert w.where("c") is not None


def test_a_gang_gets_all_its_nodes_in_one_cluster() -> None:
    w = world()
    w.submit(rented("single"))
    up(w)
    w.submit(rented("gang").tasks(4))
    assert ordered(w) == [("burst-1", 1), ("burst-2", 4)]
    w.wait(seconds=1)
    assert len(ordered(w)) == 2, "its nodes are ordered once"
    up(w, 4, ClusterName("burst-2"))
    assert str(w.where("gang")).startswith("burst-2/")


def test_a_gang_that_fits_lets_the_cluster_grow_once() -> None:
    w = world()
    w.submit(rented("single"))
    up(w)
    w.submit(rented("gang").tasks(3))
    w.submit(rented("later", 1))
    assert [each.nodes for each in w.happened(ClusterSized)][:1] == [4]
    nodes(w, "burst-1-n0", "n1", "n2", "n3")
    assert w.where("gang") is not None


def test_a_gang_uses_the_empty_nodes_of_a_cluster_that_grows_for_it() -> None:
    w = world(replace(OFFER, least=2), max=1)
    w.submit(rented("a"))
    up(w, 2)
    w.finish("a")
    w.submit(rented("gang").tasks(4))
    assert [(each.nodes, each.job) for each in w.happened(ClusterSized)] == [(4, "gang")]
    nodes(w, *[f"burst-1-n{number}" for number in range(4)])
    assert "gang" in w.placed()


def test_one_drained_cluster_is_kept_for_a_gang_and_the_others_end() -> None:
    w = world(replace(OFFER, least=2))
    w.submit(*[rented(f"a{number}") for number in range(8)])
    assert ordered(w) == [("burst-1", 4), ("burst-2", 4)]
    for cluster in (FIRST, ClusterName("burst-2")):
        up(w, 4, cluster)
    for number in range(8):
        w.finish(f"a{number}")
    for _ in range(3600):
        if {state_of(w, each) for each in (FIRST, ClusterName("burst-2"))} == {MachineState.DRAINING}:
            break
        w.wait(seconds=1)
    w.submit(rented("gang").tasks(4))
    w.wait(seconds=60)
    assert state_of(w) is MachineState.READY
    assert state_of(w, ClusterName("burst-2")) is MachineState.ENDING


def test_a_gang_larger_than_any_cluster_is_refused_at_once() -> None:
    w = world()
    shape = rented("gang").tasks(5).spec().shape
    reason = too_large(w.engine.index.capacity.values(), shape)
    assert isinstance(reason, GangTooBig)
    assert reason.most == 4


def test_a_job_may_ask_for_the_template_by_name_and_by_region() -> None:
    w = world()
    w.submit(rented("a").where(Where(clusters=("burst",), regions=("eu",))))
    up(w)
    assert w.where("a") == "burst-1/burst-1-n0"
    w.submit(rented("b", 1).where(Where(regions=("us",))))
    assert w.where("b") is None
    assert len(ordered(w)) == 1


def test_empty_nodes_are_dropped_and_the_others_stay() -> None:
    w = world()
    w.submit(rented("a"), rented("b"), rented("c"))
    up(w, 3)
    w.wait(seconds=60)
    w.finish("b")
    w.finish("c")
    w.wait(seconds=3600)
    (sized,) = w.happened(ClusterSized)
    assert sized.nodes == 1
    busy = str(w.where("a")).partition("/")[2]
    assert busy not in sized.drop
    assert len(sized.drop) == 2


def test_nodes_that_come_late_are_used_and_not_dropped_at_once() -> None:
    w = world()
    w.submit(rented("a", minutes=600))
    up(w)
    w.submit(rented("b"), rented("c"))
    w.wait(seconds=3600)
    nodes(w, "burst-1-n0", "n1", "n2")
    assert {w.where("b"), w.where("c")} == {"burst-1/n1", "burst-1/n2"}
    w.step()
    assert [each.nodes for each in w.happened(ClusterSized)] == [3]


def test_a_node_that_is_to_be_dropped_gets_no_more_tasks() -> None:
    w = world(replace(OFFER, nodes=2))
    w.submit(rented("a", minutes=600), rented("b"))
    up(w, 2)
    w.finish("b")
    w.wait(seconds=3600)
    (sized,) = w.happened(ClusterSized)
    (node,) = sized.drop
    w.step()
    assert not w.engine.index.capacity[FIRST].by_name[node].ready
    w.submit(rented("c"))
    again = list(w.happened(ClusterSized))[-1]
    assert (again.nodes, again.drop) == (2, (node,)), "the provider may have been told already"
    assert w.where("c") is None
    w.wait(seconds=SETTLED / SECOND)
    again = list(w.happened(ClusterSized))[-1]
    assert (again.nodes, again.drop) == (2, ()), "it was not told in time"
    assert w.where("c") == f"burst-1/{node}"


def test_a_cluster_without_jobs_is_drained_ended_and_removed() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    w.finish("a")
    w.wait(seconds=3600)
    assert state_of(w) is MachineState.ENDING
    assert w.state.lives[FIRST].leaving is Leave.FINISH
    w.propose(SeeGone(BURST, MachineId(FIRST)))
    assert state_of(w) is MachineState.GONE
    assert FIRST not in w.state.lives
    assert FIRST not in w.state.clusters


def test_a_job_that_comes_while_a_cluster_is_drained_keeps_it() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    w.finish("a")
    for _ in range(3600):
        if state_of(w) is MachineState.DRAINING:
            break
        w.wait(seconds=1)
    w.submit(rented("b"))
    w.wait(seconds=1)
    assert state_of(w) is MachineState.READY
    assert w.where("b") == "burst-1/burst-1-n0"


def test_a_cluster_that_disappears_gives_its_jobs_back_and_another_is_ordered() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    w.start("a")
    w.propose(SeeGone(BURST, MachineId(FIRST), "the cloud took it"))
    assert FIRST not in w.state.lives
    assert w.where("a") is None
    assert ordered(w) == [("burst-1", 1), ("burst-2", 1)]


def failed(w: World, cluster: ClusterName = FIRST) -> None:
    """Let a cluster be unreachable for so long that it counts as failed."""
    w.propose(SeeCluster(cluster, ClusterHealth.DEGRADED, "no answer"))
    w.propose(SeeCluster(cluster, ClusterHealth.FAILED, "no answer"))


def test_a_cluster_that_has_failed_is_ended_after_a_while() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    failed(w)
    w.wait(seconds=2 * 3600)
    assert state_of(w) is MachineState.ENDING
    w.propose(SeeGone(BURST, MachineId(FIRST)))
    assert w.where("a") is None, "it goes back to the queue"
    assert [name for name, _ in ordered(w)] == ["burst-1", "burst-2"]


def test_a_job_does_not_undo_the_drain_of_a_cluster_that_has_failed() -> None:
    w = world(max=1)
    w.submit(rented("a"))
    up(w)
    w.start("a")
    failed(w)
    w.submit(rented("b"))
    w.wait(seconds=2 * 3600)
    assert state_of(w) is MachineState.ENDING
    assert order(w).why == "it has failed"
    w.propose(SeeGone(BURST, MachineId(FIRST)))
    assert [name for name, _ in ordered(w)] == ["burst-1", "burst-2"]


def test_cycles_that_do_not_come_to_an_end_are_noticed_and_leave_turns_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "has_failed", lambda *_: False)
    w = world(max=1)
    w.submit(rented("a"))
    up(w)
    w.start("a")
    failed(w)
    w.submit(rented("b"))
    with pytest.raises(Broken, match="did not come to an end"):
        w.wait(seconds=2 * 3600)
    w.engine.debug = False
    assert w.engine.step(w.now, short=True).more


def test_jobs_get_no_nodes_of_a_cluster_that_has_failed() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    w.start("a")
    failed(w)
    w.submit(rented("b"))
    assert not list(w.happened(ClusterSized))
    assert ordered(w) == [("burst-1", 1), ("burst-2", 1)]


def test_a_cluster_that_cannot_run_jobs_in_time_is_ended() -> None:
    w = world()
    w.submit(rented("a"))
    answer(w)
    w.wait(seconds=3601)
    assert order(w).why == "it could not run jobs within 1h"
    assert state_of(w) in {MachineState.ENDING, MachineState.GONE}


def test_pausing_with_end_stops_its_jobs_and_ends_it() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    w.start("a")
    w.propose(PausePool(BURST, "ada", end=True))
    assert state_of(w) is MachineState.ENDING
    assert w.state.lives[FIRST].leaving is Leave.FINISH


def test_people_drain_such_a_cluster_and_the_pool_ends_it() -> None:
    w = world()
    w.submit(rented("a"))
    up(w)
    refused = w.propose(RemoveCluster(FIRST, "ada", Leave.MOVE))
    assert isinstance(refused, Refusal)
    assert "drain it" in refused.message
    w.propose(DrainCluster(FIRST, "ada"))
    assert state_of(w) is MachineState.READY
    w.finish("a")
    w.wait(seconds=10)
    assert state_of(w) is MachineState.ENDING


def test_nodes_and_the_cluster_are_billed_for_the_time_they_are_there() -> None:
    w = world(billing=Billing(step=1))
    w.submit(rented("a", minutes=600))
    up(w, seconds=0)
    began = w.now
    w.wait(seconds=1800)
    w.submit(rented("b"))
    nodes(w, "burst-1-n0", "n1")
    w.wait(seconds=1800)
    cost = order(w).bill(Billing(step=1), began + HOUR)
    assert cost == 100_000 + 400_000 + 200_000


def test_jobs_pay_their_share_of_nodes() -> None:
    w = world()
    w.submit(rented("a", 2))
    up(w)
    w.start("a")
    w.wait(seconds=3600)
    w.finish("a", ran=3600)
    assert order(w).used == 200_000


def test_a_budget_limits_clusters_and_nodes() -> None:
    w = world(budget=PoolBudget(Per.DAY, int(0.6 * MONEY)))
    w.submit(*[rented(f"a{number}") for number in range(6)])
    ((name, size),) = ordered(w)
    assert name == "burst-1"
    assert size < 4
    period = next(iter(w.state.budget_periods.values()))
    assert 0 < period.held <= 600_000
    w.wait(seconds=24 * 3600)
    w.propose(SeeGone(BURST, MachineId(FIRST)))
    assert all(each.over == 0 for each in w.state.budget_periods.values())


def test_some_clusters_are_always_there() -> None:
    w = world(replace(OFFER, least=2), min=1)
    w.step()
    assert ordered(w) == [("burst-1", 2)]
    up(w, 2)
    w.wait(seconds=24 * 3600)
    assert state_of(w) is MachineState.READY
    assert order(w).nodes == 2


def test_why_names_the_cluster_that_a_job_waits_for() -> None:
    w = world()
    w.submit(rented("a"))
    assert "waits for cluster burst-1 (1 x std), which was ordered" in str(reason_of(w.engine, w.job("a")))
    up(w)
    w.submit(rented("b"))
    assert "waits for cluster burst-1 (2 x std), which grows" in str(reason_of(w.engine, w.job("b")))


def test_a_replay_orders_and_sizes_the_same_clusters() -> None:
    w = world()
    w.submit(rented("a"), rented("b"), rented("gang").tasks(2))
    up(w, 4)
    w.finish("b")
    w.wait(seconds=7200)
    w.submit(rented("c"))
    w.wait(seconds=60)
    replay = Replay(load)
    assert all(replay.take(number, event) for number, event in enumerate(w.events, 1)), replay.difference
    assert replay.difference is None
