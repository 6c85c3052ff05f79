"""Stories of advance reservations and maintenance windows: who may use reserved nodes, and when."""

from typing import Any

import pytest
from msgspec import structs

from spillover.core.events import ReservationEnded, ReservationMade
from spillover.core.proposals import (
    AgentGone,
    CancelReservation,
    Done,
    MoveReservation,
    Refusal,
    RefusalKind,
    Submit,
)
from spillover.core.records.jobs import Placed
from spillover.deciding import reserving, stealing
from spillover.deciding.engine import Engine
from spillover.deciding.explain.explain import explain, reason_of
from spillover.deciding.forward import as_expected, run_forward
from spillover.deciding.reserving import Choice as Chosen
from spillover.deciding.reserving import (
    NoChoice,
    Request,
    choose,
    choosing,
    finish,
    lost_nodes,
    replace_lost,
)
from spillover.deciding.whatif import Snapshot
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NoRoom, ReservationClosed, Reserved
from spillover.model.topology import Level, Topology
from spillover.model.units import MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import RENTED, START, World
from spillover.wire.journal import changed_records, load_state

POLICIES = [
    Choice("strict"),
    Choice("out_of_order"),
    Choice("easy"),
    Choice("conservative"),
    Choice("hybrid", {"depth": 2}),
]
RACK = Level("rack", "example.com/rack")
CLUSTER = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True, levels=(RACK,))


def world(backfill: Choice, nodes: int = 1, cpus: int = 2, queue: int = 0) -> World:
    w = World(load, PolicySet(backfill=backfill, wait=Choice("never")), (CLUSTER,))
    for number in range(1, nodes + 1):
        rack = f"r{(number + 1) // 2}"
        w.agent(f"n{number}", cpus=cpus, queue=queue, labels={RACK.label: rack})
    return w


def limited(name: str, seconds: int) -> JobBuilder:
    return a_job(name).terms(walltime=seconds * 10**9)


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_a_job_of_others_starts_on_a_reserved_node_only_if_it_ends_before(backfill: Choice) -> None:
    w = world(backfill)
    assert w.reserve("down", "n1", after=60, lasting=100) == Done()
    w.submit(limited("short", 60))
    w.submit(limited("long", 61))
    assert w.where("short") == "onprem/n1"
    assert w.where("long") is None
    w.finish("short")
    w.wait(seconds=159)
    assert w.where("long") is None
    w.wait(seconds=1)
    assert w.where("long") == "onprem/n1"
    assert [event.name for event in w.happened(ReservationEnded)] == ["down"]
    assert not w.state.reservations


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_jobs_of_the_project_start_inside_and_others_do_not(backfill: Choice) -> None:
    w = world(backfill)
    w.reserve("course", "n1", after=0, lasting=100, project="physics")
    w.submit(a_job("theirs").expected(seconds=1), a_job("ours").project("physics").expected(seconds=500))
    if backfill.name == "strict":  # nothing passes a job that does not fit
        assert w.placed() == []
        w.cancel("theirs")
    assert w.placed() == ["ours"]


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_a_job_that_names_a_reservation_runs_only_there_and_then(backfill: Choice) -> None:
    w = world(backfill, nodes=2)
    w.reserve("course", "n2", after=60, lasting=100, project="physics")
    w.submit(a_job("named").project("physics").reservation("course").expected(seconds=1000))
    w.submit(a_job("behind").expected(seconds=1))
    assert w.placed() == ["behind"], "a job whose time is set blocks nobody"
    w.wait(seconds=60)
    assert w.where("named") == "onprem/n2"


def test_a_job_that_names_a_reservation_and_has_a_walltime_must_end_in_it() -> None:
    w = world(Choice("out_of_order"))
    w.reserve("course", "n1", after=0, lasting=100, project="physics")
    w.submit(a_job("first").project("physics").cpus(2))
    w.start("first")
    w.submit(limited("late", 60).project("physics").reservation("course"))
    w.submit(limited("in-time", 50).project("physics").reservation("course"))
    w.wait(seconds=50)
    w.finish("first")
    assert w.placed() == ["in-time"]
    w.wait(seconds=100)
    assert w.where("late") is None


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_a_gang_uses_the_nodes_that_are_left(backfill: Choice) -> None:
    w = world(backfill, nodes=4)
    w.reserve("down", "n1", after=60, lasting=100)
    w.submit(a_job("long").tasks(3).cpus(2).expected(seconds=100))
    assert [task.node for task in w.job("long").tasks] == ["n2", "n3", "n4"]
    w.submit(a_job("too-long").tasks(2).cpus(1).expected(seconds=61))
    assert w.where("too-long") is None
    w.cancel("too-long")
    w.submit(a_job("short").tasks(2).cpus(1).expected(seconds=60))
    assert [task.node for task in w.job("short").tasks] == ["n1", "n1"]


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_a_gang_within_a_rack_avoids_a_rack_with_too_few_nodes_left(backfill: Choice) -> None:
    w = world(backfill, nodes=4)
    w.reserve("down", "n2", after=10, lasting=100)
    w.submit(a_job("gang").tasks(2).cpus(2).together(Topology(within="rack")).expected(seconds=50))
    assert [task.node for task in w.job("gang").tasks] == ["n3", "n4"]


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_an_array_fills_up_to_the_reservation(backfill: Choice) -> None:
    w = world(backfill, nodes=2, cpus=2)
    w.reserve("down", "n1", after=60, lasting=100)
    w.submit(a_job("many").array(1, 6).expected(seconds=90))
    assert sorted(w.where(each) or "" for each in w.placed()) == ["onprem/n2", "onprem/n2"]


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_a_job_with_a_node_for_itself_avoids_a_reserved_one(backfill: Choice) -> None:
    w = world(backfill, nodes=2)
    w.reserve("down", "n1", after=60, lasting=100)
    w.submit(a_job("alone").together(Topology(exclusive=True)).expected(seconds=61))
    assert w.where("alone") == "onprem/n2"


def test_a_node_prefetches_no_lease_that_may_run_into_a_reservation() -> None:
    for seconds, where in ((56, "onprem/n1"), (58, None)):
        w = world(Choice("out_of_order"), cpus=1, queue=4)
        w.submit(a_job("quick"))
        w.start("quick")
        w.finish("quick", ran=0.001)  # nodes with short tasks prefetch
        w.reserve("down", "n1", after=60, lasting=100)
        w.submit(a_job("running").expected(seconds=10))
        w.submit(a_job("next").expected(seconds=seconds))
        assert w.where("next") == where


def test_easy_reserves_for_the_head_behind_the_reservation_of_a_person() -> None:
    w = world(Choice("easy"), nodes=2)
    w.reserve("down", "n1", after=60, lasting=100)
    w.submit(a_job("head").tasks(2).cpus(2).expected(seconds=80))  # both nodes are free from 160 s on
    w.submit(a_job("until-then").cpus(2).expected(seconds=160))
    assert w.where("until-then") == "onprem/n2"
    w.cancel("until-then")
    w.finish("until-then")
    w.submit(a_job("too-long").cpus(2).expected(seconds=161))
    assert w.where("too-long") is None


@pytest.mark.parametrize("backfill", [Choice("conservative"), Choice("hybrid", {"depth": 2})], ids=str)
def test_later_reservations_are_booked_around_it(backfill: Choice) -> None:
    w = world(backfill, nodes=2)
    w.reserve("down", "n1", after=60, lasting=100)
    w.submit(a_job("running").cpus(2).expected(seconds=100))
    assert w.where("running") == "onprem/n2"
    w.submit(a_job("second").cpus(2).expected(seconds=70))  # on n2 after 100 s
    w.submit(a_job("delays").cpus(2).expected(seconds=61), a_job("fills").cpus(2).expected(seconds=60))
    assert w.placed() == ["running", "fills"]


def test_a_cancelled_reservation_frees_its_nodes_at_once() -> None:
    w = world(Choice("out_of_order"))
    w.reserve("down", "n1", after=0, lasting=100)
    w.submit(a_job())
    assert w.placed() == []
    assert w.propose(CancelReservation("down", "ada")) == Done()
    assert w.placed() == ["job"]


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_a_job_does_not_use_a_later_reservation_of_the_same_name_for_another_project(
    backfill: Choice,
) -> None:
    w = world(backfill)
    w.reserve("course", "n1", after=100, lasting=100, project="physics")
    w.submit(a_job("named").project("physics").reservation("course"))
    w.propose(CancelReservation("course", "ada"))
    w.reserve("course", "n1", after=100, lasting=100, project="biology")
    w.wait(seconds=150)
    assert w.where("named") is None
    assert reason_of(w.engine, w.job("named")) == ReservationClosed("course", None, None)


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_a_gang_in_one_rack_sees_that_its_reservation_got_another_node(backfill: Choice) -> None:
    w = world(backfill, nodes=2)
    w.reserve("course", "n1", after=0, lasting=1000, project="physics")
    gang = a_job("gang").project("physics").reservation("course").tasks(4).together(Topology(within="rack"))
    w.submit(gang)
    assert w.placed() == []
    w.propose(MoveReservation("course", (NodeName("n1"),), (NodeName("n1"), NodeName("n2"))))
    assert w.placed() == ["gang"]


def test_a_node_that_joins_again_is_still_reserved() -> None:
    w = world(Choice("out_of_order"))
    w.reserve("down", "n1", after=10, lasting=100)
    w.agent("n1", cpus=4, labels={RACK.label: "r1"})
    w.submit(a_job().expected(seconds=20))
    assert w.placed() == []


def test_what_cannot_be_reserved_is_refused() -> None:
    w = world(Choice("out_of_order"), nodes=2)
    w.reserve("down", "n1", after=60, lasting=100)
    kinds = {
        "twice": w.reserve("down", "n2", after=60, lasting=100),
        "over another": w.reserve("other", "n2", "n1", after=159, lasting=100),
        "no nodes": w.reserve("none", after=60, lasting=100),
        "ends before it begins": w.reserve("back", "n2", after=60, lasting=-10),
        "in the past": w.reserve("past", "n2", after=-60, lasting=10),
        "unknown node": w.reserve("unknown", "n9", after=60, lasting=10),
    }
    assert all(isinstance(reply, Refusal) for reply in kinds.values()), kinds
    assert w.reserve("after", "n1", after=160, lasting=100) == Done()
    assert len(list(w.happened(ReservationMade))) == 2
    unknown = w.propose(CancelReservation("nothing", "ada"))
    assert isinstance(unknown, Refusal)
    assert unknown.kind is RefusalKind.UNKNOWN


def test_a_job_that_can_never_run_in_the_reservation_it_names_is_refused() -> None:
    w = world(Choice("out_of_order"))
    w.reserve("course", "n1", after=60, lasting=100, project="physics")
    w.reserve("down", "n1", after=200, lasting=100)
    assert "no reservation other" in w.refused(a_job().reservation("other")).message
    foreign = w.refused(a_job().reservation("course")).message
    assert foreign.startswith("project default has no reservation course, or it has ended")
    assert "physics" not in foreign, "whose it is, is not for everybody to know"
    assert "maintenance" in w.refused(a_job().reservation("down")).message
    long = a_job().project("physics").reservation("course").terms(walltime=2 * MINUTE)
    assert "less than the walltime" in w.refused(long).message


def test_reservations_are_in_the_checkpoint_and_the_rebuilt_engine_decides_alike() -> None:
    w = world(Choice("easy"), nodes=2)
    w.reserve("down", "n1", after=60, lasting=100)
    w.reserve("course", "n2", after=60, lasting=100, project="physics")
    w.propose(CancelReservation("course", "ada"))
    records = changed_records(w.state, w.state.dirty)
    kept = [(kind, key, body) for (kind, key), body in records.items() if body is not None]
    state = load_state(kept)
    assert state.reservations == w.state.reservations
    assert list(state.reservations) == ["down"]
    engine = Engine(state, load, now=w.now)
    engine.step(w.now, [Submit((limited("long", 61).cpus(2).build(), limited("short", 60).build()), "ada")])
    assert [job.phase.node for job in state.jobs.values() if isinstance(job.phase, Placed)] == ["n2", "n1"]
    assert engine.next_time() == w.now + 60 * 10**9


def test_a_snapshot_has_the_reservations_and_cancels_none_of_the_live_ones() -> None:
    w = world(Choice("out_of_order"))
    w.reserve("down", "n1", after=60, lasting=100)
    for cancelled in (False, True):
        snapshot = Snapshot(w.engine)
        job = limited("long", 61).build()
        snapshot.step(w.now, [CancelReservation("down", "ada")] if cancelled else [])
        snapshot.step(w.now, [Submit((job,), "ada")])
        assert isinstance(snapshot.state.jobs[job.job].phase, Placed) is cancelled
    w.submit(limited("long", 61))
    assert w.placed() == []


# --- reasons


def test_a_job_that_waits_says_which_reservation_is_in_the_way_and_what_would_help() -> None:
    w = world(Choice("out_of_order"))
    w.reserve("down", "n1", after=60, lasting=100)
    w.submit(limited("long", 61))
    found = explain(w.engine, w.job("long"))
    start = START + 60 * SECOND
    assert found.reason == Reserved("down", CLUSTER.name, start, start + 100 * SECOND, "", 60 * SECOND)
    assert "walltime of at most 1m" in str(found.reason)
    w.wait(seconds=60)
    inside = reason_of(w.engine, w.job("long"))
    assert isinstance(inside, Reserved)
    assert "until" in str(inside)


def test_a_job_that_does_not_fit_for_other_reasons_says_those() -> None:
    w = world(Choice("out_of_order"), nodes=2)
    w.reserve("down", "n1", after=60, lasting=100)
    w.submit(a_job("full").array(1, 2).cpus(2).expected(seconds=10), limited("long", 10))
    assert isinstance(reason_of(w.engine, w.job("long")), NoRoom)


def test_a_job_for_which_all_nodes_are_reserved_says_so_although_some_are_full_too() -> None:
    w = world(Choice("out_of_order"), nodes=2)
    w.submit(a_job("full").cpus(2).expected(seconds=10))
    w.reserve("down", "n1", "n2", after=0, lasting=100)
    w.submit(a_job("gang").tasks(3).expected(seconds=10), a_job("single").cpus(2).expected(seconds=10))
    for job in ("gang", "single"):
        reason = reason_of(w.engine, w.job(job))
        assert isinstance(reason, Reserved), job
        assert reason.name == "down"


def test_a_job_that_names_a_reservation_says_when_that_begins_and_that_it_is_over() -> None:
    w = world(Choice("out_of_order"))
    w.reserve("course", "n1", after=60, lasting=100, project="physics")
    w.submit(limited("named", 90).project("physics").reservation("course"))
    assert "begins at" in str(reason_of(w.engine, w.job("named")))
    w.submit(a_job("busy").project("physics").cpus(2).expected(seconds=60))
    w.start("busy")
    w.wait(seconds=60)
    assert isinstance(reason_of(w.engine, w.job("named")), NoRoom)
    w.wait(seconds=11)
    assert "before its walltime would be over" in str(reason_of(w.engine, w.job("named")))
    w.wait(seconds=100)
    assert reason_of(w.engine, w.job("named")) == ReservationClosed("course", None, None)


# --- choosing nodes


def asked(ahead: int, lasting: int, count: int = 0, **more: Any) -> Request:
    return Request(START + ahead * SECOND, lasting * SECOND, count, **more)


def test_nodes_are_chosen_in_one_rack_and_beside_running_jobs() -> None:
    w = world(Choice("out_of_order"), nodes=4)
    w.submit(limited("long", 100).cpus(2))
    assert w.where("long") == "onprem/n1"
    found = choose(w.engine.index, asked(50, 10, 2, within="rack"), w.now)
    assert found == Chosen(CLUSTER.name, (NodeName("n3"), NodeName("n4")))
    after = choose(w.engine.index, asked(100, 10, 2, within="rack"), w.now)
    assert after == Chosen(CLUSTER.name, (NodeName("n1"), NodeName("n2")))
    ignoring = choose(w.engine.index, asked(50, 10, 2, within="rack", ignore_jobs=True), w.now)
    assert ignoring == after


def test_jobs_that_start_between_two_steps_are_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserving, "STEP", 1)
    w = world(Choice("out_of_order"), nodes=3)
    steps = choosing(w.engine.index, asked(50, 10, 2), w.now)
    for _ in range(3):  # the machines to choose from, and then one after the other
        next(steps)
    w.submit(limited("long", 100).cpus(2))
    assert w.where("long") == "onprem/n1"
    assert finish(steps) == Chosen(CLUSTER.name, (NodeName("n2"), NodeName("n3")))


def test_a_conflict_tells_the_earliest_other_time() -> None:
    w = world(Choice("out_of_order"), nodes=4)
    w.submit(limited("long", 100).cpus(2))
    w.reserve("down", "n3", after=80, lasting=50)
    cases = {
        (0, 50, 4): 130,  # after both
        (0, 50, 3): 0,
        (0, 81, 3): 100,  # n3 has too little time before its reservation
        (70, 20, 3): 100,
        (70, 10, 3): 70,
    }
    for (ahead, lasting, count), earliest in cases.items():
        found = choose(w.engine.index, asked(ahead, lasting, count), w.now)
        if earliest == ahead:
            assert isinstance(found, Chosen), found
        else:
            assert isinstance(found, NoChoice), found
            assert found.earliest == START + earliest * SECOND
    racks = choose(w.engine.index, asked(0, 50, 2, within="rack"), w.now)
    assert racks == Chosen(CLUSTER.name, (NodeName("n3"), NodeName("n4")))
    later = choose(w.engine.index, asked(0, 81, 2, within="rack"), w.now)
    assert isinstance(later, NoChoice)
    assert later.earliest == START + 100 * SECOND
    named = choose(w.engine.index, asked(0, 10, named=(NodeName("n1"),)), w.now)
    assert isinstance(named, NoChoice)
    assert "long may still run" in named.message


def test_a_refusal_names_the_cluster_that_comes_closest() -> None:
    w = World(load, clusters=(CLUSTER, RENTED))
    w.agent("n1", labels={RACK.label: "r1"})
    w.agent("v1", cluster="cloud")
    w.agent("v2", cluster="cloud")
    index, later = w.engine.index, w.now + MINUTE
    found = choose(index, Request(later, MINUTE, 3), w.now)
    assert isinstance(found, NoChoice)
    assert found.message == "cluster cloud has only 2 ready nodes; you ask for 3"
    found = choose(index, Request(later, MINUTE, 2, within="rack"), w.now)
    assert isinstance(found, NoChoice)
    assert found.message == "cluster onprem has only 1 ready node in one rack; you ask for 2"


def test_a_lost_node_is_replaced_by_one_that_is_free_in_the_same_rack() -> None:
    w = world(Choice("out_of_order"), nodes=4)
    w.agent("n5", cpus=2, labels={RACK.label: "r1"})
    w.reserve("course", "n1", "n2", after=60, lasting=100, project="physics")
    course = structs.replace(w.state.reservations["course"], within="rack")
    assert replace_lost(w.engine.index, course, w.now) is None
    gone = w.state.nodes["onprem/n1"].incarnation
    w.propose(AgentGone(CLUSTER.name, NodeName("n1"), gone))
    assert lost_nodes(course, w.state.nodes) == ("n1",)
    assert replace_lost(w.engine.index, course, w.now) == ("n2", "n5")
    assert replace_lost(w.engine.index, structs.replace(course, named=True), w.now) is None
    w.reserve("other", "n5", after=150, lasting=100)
    assert replace_lost(w.engine.index, course, w.now) == ("n3", "n4"), "it may still move to another rack"
    assert replace_lost(w.engine.index, course, course.start) is None
    nodes = (NodeName("n2"), NodeName("n3"))
    assert w.propose(MoveReservation("course", course.nodes, nodes)) == Done()
    w.submit(limited("long", 61))
    assert w.where("long") == "onprem/n4"


def test_an_idle_agent_steals_nothing_that_may_run_into_its_reservation() -> None:
    for seconds, stolen in ((10, True), (58, False)):
        w = world(Choice("out_of_order"), cpus=1, queue=4)
        w.submit(a_job("quick"))
        w.start("quick")
        w.finish("quick", ran=0.001)
        names = ["running", "next", "second", "third"]
        w.submit(*[a_job(name).expected(seconds=seconds) for name in names])
        w.start("running")
        w.agent("n2", cpus=1, queue=4)
        w.reserve("down", "n2", after=60, lasting=100)
        asks = stealing.choose(w.state, w.engine.index, w.now, 0)
        assert bool(asks) is stolen


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_expected_starts_are_around_reservations_and_inside_of_them(backfill: Choice) -> None:
    w = world(backfill, cpus=1)
    w.reserve("course", "n1", after=60, lasting=100, project="physics")
    w.submit(
        limited("named", 40).project("physics").reservation("course"),
        limited("short", 50),
        limited("long", 70),
    )
    snapshot = Snapshot(w.engine)
    wanted = [JobId("named"), JobId("long")]
    found = run_forward(snapshot, w.now, wanted, as_expected(snapshot), 100).at
    assert {job: (at - START) // SECOND for job, at in found.items() if job in wanted} == {
        "named": 60,
        "long": 160,
    }


# --- renting


@pytest.mark.parametrize("backfill", POLICIES, ids=str)
def test_break_even_rents_a_job_at_once_that_a_reservation_delays_beyond_its_patience(
    backfill: Choice,
) -> None:
    wait = Choice("break_even", {"coefficient": 2.0})  # twice the runtime of a job of one CPU
    for seconds, rented in ((70, True), (130, False)):
        w = World(load, PolicySet(backfill=backfill, wait=wait), (CLUSTER, RENTED))
        w.agent("n1", cpus=1)
        w.agent("v1", cpus=8, cluster="cloud")
        w.reserve("down", "n1", after=60, lasting=140)  # open again in 200 s
        w.submit(a_job("waits").expected(seconds=seconds))
        assert w.where("waits") == ("cloud/v1" if rented else None)
