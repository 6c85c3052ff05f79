"""Jobs that wait for others: as soon as those make way, without anything else happening, they start."""

import pytest

from spillover.core.proposals import Act, Register
from spillover.deciding.cycle import cycle
from spillover.deciding.explain.explain import explain
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NoRoomTogether, RoomSoon
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World

TOGETHER = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True)


def nothing_is_left(w: World) -> None:
    """All was decided that can be, also for a server that starts now."""
    policies = w.engine.policies
    anew = cycle.run(w.state, SchedulingIndex(w.state, policies), policies, w.now, 0).plan
    live = cycle.run(w.state, w.engine.index, policies, w.now, 0).plan
    assert not anew, anew
    assert not live, live


@pytest.mark.parametrize("act", [Act.CANCEL, Act.HOLD])
@pytest.mark.parametrize("backfill", ["strict", "out_of_order"])
def test_a_job_beyond_depth_starts_once_the_one_before_it_is_gone(backfill: str, act: Act) -> None:
    w = World(load, PolicySet(backfill=Choice(backfill), wait=Choice("never"), depth=1), (OWNED,))
    w.agent("n1", cpus=2)
    w.submit(a_job("big").cpus(3), a_job("small"))
    assert w.where("small") is None
    w.act(act, "big")
    assert w.where("small") == "onprem/n1"
    nothing_is_left(w)


def test_room_that_was_gained_is_seen_by_a_lane_that_comes_within_depth_later() -> None:
    w = World(load, PolicySet(wait=Choice("never"), depth=1), (OWNED,))
    w.agent("n1", cpus=1)
    w.submit(a_job("running"))
    w.submit(a_job("big").cpus(3))
    w.submit(a_job("small").memory(1))
    w.finish("running")
    assert w.where("small") is None
    w.cancel("big")
    assert w.where("small") == "onprem/n1"
    nothing_is_left(w)


def test_a_strict_head_that_is_rented_makes_way_for_all_behind_it() -> None:
    w = World(load, PolicySet(backfill=Choice("strict"), wait=Choice("never"), depth=1))
    w.agent("n1", cpus=2)
    w.agent("v1", cpus=8, cluster="cloud")
    w.submit(a_job("big").burst(Burst.ALWAYS), a_job("next"), a_job("last").memory(1))
    assert [w.where(each) for each in ("big", "next", "last")] == ["cloud/v1", "onprem/n1", "onprem/n1"]
    nothing_is_left(w)


@pytest.mark.parametrize("depth", [1, 2])
def test_leases_ahead_of_room_are_handed_out_beyond_depth_once_others_make_way(depth: int) -> None:
    w = World(load, PolicySet(wait=Choice("zero"), depth=depth))
    w.agent("n1", cpus=1, queue=4)
    w.submit(a_job("short"))
    w.finish("short", ran=0.01)
    w.submit(a_job("running"))
    w.submit(*(a_job(f"never-{number}").cpus(64 + number) for number in range(2)), a_job("soon").memory(1))
    w.cancel("never-0")
    w.cancel("never-1")
    assert w.where("soon") == "onprem/n1"
    nothing_is_left(w)


def test_a_short_job_starts_when_one_that_the_head_waits_for_outruns_its_estimate() -> None:
    w = World(load, PolicySet(backfill=Choice("easy"), wait=Choice("never")), (OWNED,))
    w.agent("n1", cpus=2)
    w.submit(a_job("running").expected(seconds=30))
    w.submit(a_job("head").cpus(2).expected(minutes=5), a_job("short").expected(seconds=45))
    assert w.where("short") is None  # it would delay the head
    w.wait(seconds=29)
    assert w.where("short") is None
    w.wait(seconds=1)
    assert w.where("short") == "onprem/n1"  # the head is now expected to start a minute from now
    nothing_is_left(w)


def test_a_head_that_leaves_lets_those_start_that_it_kept_waiting() -> None:
    w = World(load, PolicySet(backfill=Choice("easy"), wait=Choice("never")), (OWNED,))
    w.agent("n1", cpus=2)
    w.submit(a_job("running").expected(seconds=30))
    w.submit(a_job("head").cpus(2), a_job("long").expected(minutes=45))
    assert w.where("long") is None
    w.cancel("head")
    assert w.where("long") == "onprem/n1"
    nothing_is_left(w)


def test_a_machine_that_holds_more_than_it_has_takes_no_room_from_others() -> None:
    w = World(load, clusters=(TOGETHER,))
    w.agent("n1", cpus=8, memory=8)
    w.submit(a_job("wide").memory(8))
    held = (w.job("wide").lease,)
    w.propose(Register(ClusterName("onprem"), NodeName("n1"), 2, Resources(8000, 1), (), {}, 0, held))
    w.agent("n2", cpus=2, memory=8)
    w.submit(a_job("gang").tasks(2).memory(4))
    assert w.where("gang") == "onprem/n2"


def test_members_of_an_array_of_gangs_start_in_turn_before_others() -> None:
    w = World(load, PolicySet(backfill=Choice("strict"), wait=Choice("never")), (TOGETHER,))
    w.agent("n1", cpus=4)
    w.submit(a_job("array").tasks(2).array(1, 3), a_job("gang").tasks(2))
    assert [w.where(each) for each in ("array.1", "array.2")] == ["onprem/n1", "onprem/n1"]
    assert w.where("gang") is None
    assert isinstance(_why(w, "array"), NoRoomTogether)
    w.finish("array.1")
    assert w.where("array.3") == "onprem/n1"
    w.finish("array.2")
    assert w.where("gang") == "onprem/n1"


def _why(w: World, job: str) -> object:
    return explain(w.engine, w.job(job)).reason


def test_looking_ahead_past_jobs_that_start_together_on_machines_of_one_name() -> None:
    lab = ClusterSpec(ClusterName("lab"), "agents", Role.OWNED)
    break_even = Choice("break_even", {"coefficient": 0.5})
    w = World(load, PolicySet(wait=break_even), (OWNED, lab, RENTED))
    for cluster in ("onprem", "lab"):
        w.agent("n1", cpus=1, cluster=cluster)
    w.submit(*(a_job(f"job-{number}").expected(minutes=1) for number in range(3)))
    assert [w.where(f"job-{number}") for number in range(2)] == ["onprem/n1", "lab/n1"]


def test_an_agent_that_came_back_with_less_than_it_holds_is_still_given_leases_ahead_of_room() -> None:
    w = World(load, PolicySet(wait=Choice("never")), (OWNED,))
    w.agent("n1", cpus=2, queue=4)
    w.submit(a_job("short"))
    w.finish("short", ran=0.01)
    w.submit(a_job("one"), a_job("two").cpus(0.5))
    held = tuple(w.job(each).lease for each in ("one", "two"))
    assert w.agent("n1", cpus=1, queue=4, held=held) == held
    w.submit(a_job("soon"))
    assert isinstance(w.placed_because("soon"), RoomSoon)
    nothing_is_left(w)
    w.finish("one", ran=0.01)
    assert "soon" in w.state.nodes["onprem/n1"].ahead
    w.finish("two", ran=0.01)
    assert "soon" in w.state.nodes["onprem/n1"].holding


def test_a_job_beyond_depth_starts_once_the_one_before_it_is_rented_as_its_wait_is_over() -> None:
    w = World(load, PolicySet(wait=Choice("constant", {"wait": 5 * SECOND}), depth=1))
    w.agent("n1", cpus=2)
    w.agent("v1", cpus=8, cluster="cloud")
    w.submit(a_job("big").cpus(3), a_job("small").burst(Burst.NEVER))
    assert w.where("small") is None
    w.wait(seconds=5)
    assert (w.where("big"), w.where("small")) == ("cloud/v1", "onprem/n1")
    nothing_is_left(w)
