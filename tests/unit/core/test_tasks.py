"""Tasks of an attempt: who may report them, what they hold, and how the end of a gang follows from theirs."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from spillover.core import invariants
from spillover.core.apply import apply
from spillover.core.events import (
    Back,
    JobEnded,
    JobRequeued,
    JobStarted,
    JobState,
    JobStopping,
    Outcome,
    SeenNode,
    Stop,
    TaskEnd,
    TaskRestarted,
    TasksEnded,
    TasksStarted,
    Usage,
)
from spillover.core.proposals import (
    DRIVER,
    Done,
    GangOverdue,
    HandBack,
    Reclaim,
    Refusal,
    Result,
    SeeCluster,
    SeeNodes,
    Started,
    StartEpoch,
    Submit,
    Verdict,
)
from spillover.core.records.jobs import Ended
from spillover.core.records.tasks import deciding_end, usage_of
from spillover.core.state import State
from spillover.core.transitions import TERMINAL
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, split_task, task_key
from spillover.model.job import OnTaskFailure, OnTaskSuccess, Retry
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import CancelledBy, CouldNotStart, Exited
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from spillover.wire.journal import decode_event, load_state
from tests.support.sameness import Checkpoints, said_by

GANGS = structs.replace(OWNED, gangs=True)
FIXTURES = Path(__file__).parents[2] / "fixtures"


def two_nodes(
    *,
    retry: Retry | None = None,
    failure: OnTaskFailure = OnTaskFailure.FAIL,
    success: OnTaskSuccess = OnTaskSuccess.WAIT,
) -> World:
    """A gang of three on two nodes: ranks 0 and 1 on the first, 2 on the second."""
    w = World(load, clusters=(GANGS,))
    w.agent("n1", cpus=2)
    w.agent("n2", cpus=2)
    gang = a_job("g").tasks(3).terms(retry=retry or Retry(0, 0))
    w.submit(gang.on_task(failure=failure, success=success))
    assert [(task.rank, task.node) for task in w.job("g").tasks] == [(0, "n1"), (1, "n1"), (2, "n2")]
    return w


def held(w: World, node: str) -> list[tuple[str, int, int]]:
    """Job, attempt and rank of all that a node holds."""
    return [split_task(key) for key in w.state.nodes[f"onprem/{node}"].held]


def states(w: World, job: str = "g") -> list[JobState]:
    return [task.state for task in w.job(job).tasks]


def said(w: World, node: str, rank: int, code: int = 0, job: str = "g") -> object:
    """What a node is answered that says how a task ended."""
    lease = w.job(job).lease_of(rank)
    return w.propose(Result(NodeKey(f"onprem/{node}"), lease, Outcome.EXITED, code, None, Usage(SECOND), 0))


# --- keys


@pytest.mark.parametrize(("attempt", "rank"), [(1, 0), (1, 7), (2, 0), (12, 345)])
def test_the_key_of_a_task_says_which_it_is(attempt: int, rank: int) -> None:
    assert split_task(task_key(JobId("abc.3"), attempt, rank)) == ("abc.3", attempt, rank)


def test_the_first_task_of_a_first_attempt_goes_by_the_id_of_its_job() -> None:
    job = JobId("abc")
    assert id(task_key(job, 1)) == id(job), "it costs no memory"


# --- jobs with one task


def test_a_job_with_one_task_has_it_in_its_phase() -> None:
    w = World(load)
    w.agent("n1")
    w.submit(a_job("a"))
    assert [(task.rank, task.node, task.state) for task in w.job("a").tasks] == [(0, "n1", "PLACED")]
    w.start("a")
    (task,) = w.job("a").tasks
    assert (task.state, task.started, task.lives) == ("RUNNING", w.now, True)
    w.finish("a", 3)
    (task,) = w.job("a").tasks
    assert task.end is not None
    assert (task.state, task.end.exit_code, task.end.usage.ran) == ("FAILED", 3, SECOND)
    assert w.job("a").extra.gang is None
    w.submit(a_job("b").cpus(9))
    assert w.job("b").tasks == ()


def test_nobody_speaks_for_a_task_that_there_is_not() -> None:
    w = World(load)
    w.agent("n1")
    w.submit(a_job("a"))
    assert said(w, "n1", 1, job="a") is Verdict.FENCED
    assert isinstance(w.propose(Started(NodeKey("onprem/n1"), w.job("a").lease_of(1), 0)), Refusal)
    assert w.state_of("a") == "PLACED"


def test_another_attempt_holds_by_another_key() -> None:
    w = World(load)
    w.agent("n1")
    w.submit(a_job("a").terms(retry=Retry(1, 0)))
    assert held(w, "n1") == [("a", 1, 0)]
    w.finish("a", 1)
    assert held(w, "n1") == [("a", 2, 0)]


# --- who may report


def test_each_task_of_a_gang_is_reported_by_its_own_node() -> None:
    w = two_nodes()
    for node, rank in (("n2", 0), ("n2", 1), ("n1", 2), ("n1", 3), ("n1", -1)):
        assert said(w, node, rank) is Verdict.FENCED
        assert isinstance(
            w.propose(Started(NodeKey(f"onprem/{node}"), w.job("g").lease_of(rank), 0)), Refusal
        )
    assert states(w) == ["PLACED"] * 3
    assert said(w, "n2", 2) is Verdict.ACCEPTED
    assert said(w, "n2", 2) is Verdict.DUPLICATE
    assert said(w, "n1", 0) is Verdict.ACCEPTED
    assert said(w, "n1", 1) is Verdict.ACCEPTED
    assert w.state_of("g") == "SUCCEEDED"
    assert said(w, "n1", 1) is Verdict.DUPLICATE


def test_a_gang_runs_with_the_first_of_its_tasks() -> None:
    w = two_nodes()
    w.start("g", 2)
    assert w.state_of("g") == "RUNNING"
    assert states(w) == ["PLACED", "PLACED", "RUNNING"]
    w.start("g", 2)
    w.wait(seconds=5)
    w.start("g", 0, 1)
    assert [event.rank for event in w.happened(JobStarted)] == [2]
    assert [event.ranks for event in w.happened(TasksStarted)] == [(0,), (1,)]
    assert [task.started for task in w.job("g").tasks] == [w.now, w.now, w.now - 5 * SECOND]


# --- what is held


def test_a_task_that_ended_gives_back_its_room_while_the_others_go_on() -> None:
    w = two_nodes()
    w.submit(a_job("next").cpus(2))
    assert w.where("next") is None
    assert held(w, "n1") == [("g", 1, 0), ("g", 1, 1)]
    w.finish_task("g", 0)
    assert held(w, "n1") == [("g", 1, 1)]
    w.finish_task("g", 1)
    assert w.where("next") == "onprem/n1"
    assert w.state_of("g") == "PLACED"
    assert held(w, "n2") == [("g", 1, 2)]


def test_the_last_task_of_a_gang_may_hold_less() -> None:
    w = World(load, clusters=(GANGS,))
    w.agent("n1", cpus=4)
    job = a_job("g").tasks(3).build()
    rest = structs.replace(job.spec.shape, rest=Resources(500))
    w.submit(a_job("other").cpus(0.1))
    spec = structs.replace(job.spec, shape=rest)
    w.propose(Submit((structs.replace(job, spec=spec),), "ada"))
    node = w.state.nodes["onprem/n1"]
    assert [node.holding[task_key(JobId("g"), 1, rank)].cpu for rank in range(3)] == [1000, 1000, 500]


# --- how a gang ends


def test_a_gang_ends_well_with_the_last_of_its_tasks() -> None:
    w = two_nodes()
    w.start("g")
    for rank in (2, 0):
        w.finish_task("g", rank)
        assert w.state_of("g") == "RUNNING"
    w.wait(seconds=3)
    w.finish_task("g", 1, ran=9)
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.rank, ended.exit_code, ended.why) == ("SUCCEEDED", 1, 0, None)
    assert (ended.usage.ran, ended.usage.cpu) == (9 * SECOND, 11 * SECOND)
    assert not list(w.happened(JobStopping))
    assert states(w) == ["SUCCEEDED"] * 3


def test_the_first_failure_stops_the_others_and_decides() -> None:
    w = two_nodes()
    w.start("g")
    w.finish_task("g", 1, 7)
    (stopping,) = w.happened(JobStopping)
    assert (stopping.why, w.state_of("g")) == (Stop.TASK_FAILED, "RUNNING")
    w.wait(seconds=1)
    w.finish_task("g", 0, 1)
    w.finish_task("g", 2, outcome=Outcome.STOPPED)
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.rank, ended.exit_code, ended.why) == ("FAILED", 1, 7, Exited(7, None, 1))
    assert states(w) == ["FAILED", "FAILED", "CANCELLED"]
    assert len(list(w.happened(JobStopping))) == 1


def test_a_task_that_cannot_start_is_named_with_its_node() -> None:
    w = two_nodes()
    w.finish_task("g", 2, outcome=Outcome.NOT_STARTED)
    w.finish_task("g", 0, outcome=Outcome.STOPPED)
    w.finish_task("g", 1, outcome=Outcome.STOPPED)
    (ended,) = w.happened(JobEnded)
    assert ended.why == CouldNotStart("no reason was given", "onprem/n2")


def test_a_gang_that_one_node_cannot_prepare_goes_back_with_the_reason_and_a_pause() -> None:
    w = two_nodes(retry=Retry(0, 1))
    for _ in range(2):
        lease = w.job("g").lease_of(2)
        failed = Result(NodeKey("onprem/n2"), lease, Outcome.NOT_STARTED, None, None, Usage(), 0, "disk full")
        w.propose(failed)
        (*_, stopping) = w.happened(JobStopping)
        assert stopping.why is Stop.TASK_FAILED
        w.finish_task("g", 0, outcome=Outcome.STOPPED, ran=0)
        w.finish_task("g", 1, outcome=Outcome.STOPPED, ran=0)
        if w.state_of("g") == "QUEUED":
            w.wait(seconds=4)
            assert w.state_of("g") == "QUEUED", "it does not try the same node again at once"
            w.wait(seconds=2)
    (back,) = w.happened(JobRequeued)
    assert (back.why, back.attempt, back.because) == (Back.UNPREPARED, 2, "disk full")
    assert (back.backing_off, back.until) == ("onprem", back.at + 5 * SECOND)
    (ended,) = w.happened(JobEnded)
    assert ended.why == CouldNotStart("disk full", "onprem/n2"), "it used up its retries"


@pytest.mark.parametrize("backfill", ["out_of_order", "easy", "conservative"])
def test_a_gang_that_a_node_could_not_prepare_uses_other_nodes_if_they_have_room(backfill: str) -> None:
    w = World(load, PolicySet(wait=Choice("never"), backfill=Choice(backfill)), (GANGS,))
    w.agent("large", cpus=4)
    w.submit(a_job("old").cpus(4).expected(minutes=60))
    w.submit(a_job("waits").cpus(4).expected(minutes=60))  # with a reservation, if there are any
    for name in ("n1", "n2", "n3", "n4"):
        w.agent(name, cpus=2)
    w.submit(a_job("g").cpus(2).tasks(2).terms(retry=Retry(0, 9)).expected(minutes=1))
    failed: list[str] = []
    for pause in (6, 11):
        bad, _ = [task.node for task in w.job("g").tasks]
        assert bad not in failed
        failed.append(bad)
        w.finish_task("g", 0, outcome=Outcome.NOT_STARTED, ran=0)
        w.finish_task("g", 1, outcome=Outcome.STOPPED, ran=0)
        w.wait(seconds=pause)
        assert not {task.node for task in w.job("g").tasks} & set(failed), "there is room on others"
        (*_, back) = w.happened(JobRequeued)
        assert back.unprepared == (bad,)


def test_a_gang_uses_a_node_that_could_not_prepare_it_if_there_is_no_other() -> None:
    w = two_nodes(retry=Retry(0, 9))
    nodes = [task.node for task in w.job("g").tasks]
    for rank, outcome in ((2, Outcome.NOT_STARTED), (0, Outcome.STOPPED), (1, Outcome.STOPPED)):
        w.finish_task("g", rank, outcome=outcome, ran=0)
    w.wait(seconds=6)
    assert [task.node for task in w.job("g").tasks] == nodes


def test_a_gang_that_somebody_cancels_while_a_node_cannot_prepare_is_not_tried_again() -> None:
    w = two_nodes(retry=Retry(0, 9))
    w.cancel("g")
    w.finish_task("g", 2, outcome=Outcome.NOT_STARTED)
    w.finish_task("g", 0, outcome=Outcome.STOPPED, ran=0)
    w.finish_task("g", 1, outcome=Outcome.STOPPED, ran=0)
    assert len(list(w.happened(JobEnded))) == 1


def test_a_gang_that_ignores_failures_goes_on_and_succeeds_by_the_others() -> None:
    w = two_nodes(failure=OnTaskFailure.IGNORE)
    w.start("g")
    w.finish_task("g", 0, 7)
    w.propose(Reclaim(NodeKey("onprem/n2"), (w.job("g").lease_of(2),)))
    assert not list(w.happened(JobStopping))
    w.finish_task("g", 1)
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.rank, ended.exit_code) == ("SUCCEEDED", 1, 0)
    assert states(w) == ["FAILED", "SUCCEEDED", "FAILED"]


def test_a_gang_that_ignores_failures_and_is_cancelled_has_not_succeeded() -> None:
    w = two_nodes(failure=OnTaskFailure.IGNORE)
    w.start("g")
    w.finish_task("g", 2)
    w.cancel("g")
    w.finish_task("g", 0, outcome=Outcome.STOPPED)
    w.finish_task("g", 1, outcome=Outcome.STOPPED)
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.why) == ("CANCELLED", CancelledBy("ada"))


def test_a_gang_of_which_a_task_never_starts_is_given_back_in_time() -> None:
    w = two_nodes(retry=Retry(0, 1))
    w.start("g", 0)
    w.finish_task("g", 0)
    w.propose(GangOverdue(w.job("g").lease))
    (stopping,) = w.happened(JobStopping)
    assert stopping.why is Stop.UNPREPARED
    w.finish_task("g", 1, outcome=Outcome.STOPPED, ran=0)
    w.finish_task("g", 2, outcome=Outcome.STOPPED, ran=0)
    (back,) = w.happened(JobRequeued)
    assert (back.why, back.because) == (Back.UNPREPARED, "not all of its nodes prepared their tasks in time")


def test_a_gang_that_runs_as_a_whole_is_never_overdue() -> None:
    w = two_nodes()
    w.start("g")
    w.propose(GangOverdue(w.job("g").lease))
    assert not list(w.happened(JobStopping))


def test_a_gang_that_ignores_failures_fails_if_all_tasks_do() -> None:
    w = two_nodes(failure=OnTaskFailure.IGNORE)
    w.start("g")
    for rank in (1, 0, 2):
        w.finish_task("g", rank, 3 + rank)
        w.wait(seconds=1)
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.rank, ended.exit_code) == ("FAILED", 1, 4), "the first failure decides"


def test_a_gang_that_ignores_failures_still_starts_as_a_whole_or_not_at_all() -> None:
    w = two_nodes(failure=OnTaskFailure.IGNORE)
    w.propose(HandBack(NodeKey("onprem/n2"), (w.job("g").lease_of(2),)))
    (stopping,) = w.happened(JobStopping)
    assert stopping.why is Stop.TASK_FAILED


def test_a_gang_may_end_with_the_success_of_its_first_task() -> None:
    w = two_nodes(success=OnTaskSuccess.END)
    w.start("g")
    w.finish_task("g", 2)
    assert not list(w.happened(JobStopping)), "only the first task leads"
    w.finish_task("g", 0)
    (stopping,) = w.happened(JobStopping)
    assert stopping.why is Stop.TASK_SUCCEEDED
    w.cancel("g")
    w.finish_task("g", 1, outcome=Outcome.STOPPED)
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.rank, ended.why) == ("SUCCEEDED", 0, None)
    assert states(w) == ["SUCCEEDED", "CANCELLED", "SUCCEEDED"]


def test_a_gang_with_a_lost_task_is_tried_again_when_all_have_ended() -> None:
    w = two_nodes(retry=Retry(0, 1))
    w.start("g")
    w.propose(Reclaim(NodeKey("onprem/n2"), (w.job("g").lease_of(2),)))
    assert (w.state_of("g"), held(w, "n2")) == ("RUNNING", [])
    w.finish_task("g", 0, outcome=Outcome.STOPPED)
    w.finish_task("g", 1, outcome=Outcome.STOPPED)
    (back,) = w.happened(JobRequeued)
    assert (back.why, back.attempt) == (Back.LOST, 2)
    assert held(w, "n1") == [("g", 2, 0), ("g", 2, 1)]
    assert states(w) == ["PLACED"] * 3


def test_a_gang_whose_agent_is_lost_before_any_task_began_goes_back_unharmed() -> None:
    w = two_nodes()
    w.propose(Reclaim(NodeKey("onprem/n2"), (w.job("g").lease_of(2),)))
    w.hand_back("g")
    (back,) = w.happened(JobRequeued)
    assert (back.why, back.attempt) == (Back.RELEASED, 1)


def test_a_gang_that_one_agent_hands_back_goes_back_unharmed() -> None:
    w = two_nodes()
    w.hand_back("g")
    (back,) = w.happened(JobRequeued)
    assert (back.why, back.attempt) == (Back.RELEASED, 1)


def test_a_gang_that_had_begun_elsewhere_is_not_unharmed() -> None:
    w = two_nodes()
    w.start("g", 2)
    reply = w.propose(HandBack(NodeKey("onprem/n1"), (w.job("g").lease_of(0), w.job("g").lease_of(1))))
    assert isinstance(reply, Done)
    assert len(list(w.happened(TasksEnded))) == 1, "both at once"
    w.finish_task("g", 2, outcome=Outcome.STOPPED)
    (back,) = w.happened(JobRequeued)
    assert (back.why, back.attempt) == (Back.REQUESTED, 2)


def test_an_agent_that_comes_back_without_a_task_has_lost_it() -> None:
    w = two_nodes()
    w.start("g")
    kept = w.agent("n1", cpus=2, held=(w.job("g").lease_of(1),))
    assert kept == (w.job("g").lease_of(1),)
    assert states(w) == ["FAILED", "RUNNING", "RUNNING"]
    assert held(w, "n1") == [("g", 1, 1)]


def test_a_cancelled_gang_is_cancelled_when_all_have_stopped() -> None:
    w = two_nodes()
    w.start("g")
    w.cancel("g")
    w.finish("g", outcome=Outcome.STOPPED)
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.why) == ("CANCELLED", CancelledBy("ada"))


def test_somebody_may_cancel_a_gang_of_which_a_task_failed() -> None:
    w = two_nodes(retry=Retry(5, 5))
    w.finish_task("g", 0, 1)
    w.cancel("g")
    w.finish("g", outcome=Outcome.STOPPED)
    assert w.state_of("g") == "FAILED", "it is not tried again"


def test_a_cancelled_gang_that_never_began_ends_by_the_first_that_was_given_up() -> None:
    w = two_nodes()
    w.propose(Reclaim(NodeKey("onprem/n2"), (w.job("g").lease_of(2),)))
    w.wait(seconds=1)
    w.cancel("g")
    w.propose(HandBack(NodeKey("onprem/n1"), (w.job("g").lease_of(0), w.job("g").lease_of(1))))
    (ended,) = w.happened(JobEnded)
    assert (ended.state, ended.rank, ended.why) == ("CANCELLED", 2, CancelledBy("ada"))


def test_jobs_that_wait_for_a_gang_are_told_of_its_end() -> None:
    w = two_nodes()
    w.submit(a_job("after").after("g"))
    w.finish("g")
    assert w.where("after") is not None


# --- the rule itself


def end(rank: int, at: int, outcome: Outcome = Outcome.EXITED, code: int | None = 0) -> TaskEnd:
    states = {Outcome.STOPPED: JobState.CANCELLED}
    well = outcome is Outcome.EXITED and code == 0
    state = JobState.SUCCEEDED if well else states.get(outcome, JobState.FAILED)
    return TaskEnd(rank, at, state, outcome, code, usage=Usage(at, 1, rank))


@pytest.mark.parametrize(
    ("ends", "decides"),
    [
        ([end(0, 5), end(1, 9), end(2, 7)], 1),
        ([end(0, 5), end(1, 9, code=1), end(2, 7, code=2)], 2),
        ([end(0, 7, code=1), end(1, 7, code=1)], 0),
        ([end(0, 5, Outcome.STOPPED, None), end(1, 9, Outcome.LOST, None), end(2, 7)], 1),
        ([end(0, 5), end(1, 9, Outcome.STOPPED, None), end(2, 7, Outcome.STOPPED, None)], 2),
    ],
)
def test_the_end_of_a_gang_follows_from_those_of_its_tasks(ends: list[TaskEnd], decides: int) -> None:
    assert deciding_end(ends).rank == decides
    assert deciding_end(ends[::-1]).rank == decides, "in whatever order they are told"
    assert usage_of(ends) == Usage(max(each.at for each in ends), len(ends), len(ends) - 1)


# --- external clusters


def watched() -> World:
    lab = ClusterSpec(ClusterName("onprem"), "kubernetes", Role.OWNED, gangs=True)
    w = World(load, clusters=(lab,))
    nodes = tuple(SeenNode(NodeName(name), Resources(2000), Resources()) for name in ("n1", "n2"))
    w.propose(SeeNodes(lab.name, nodes, whole=True))
    w.propose(SeeCluster(lab.name, ClusterHealth.READY))
    w.submit(a_job("g").tasks(3).terms(retry=Retry(0, 0)))
    return w


def test_a_driver_says_which_tasks_run() -> None:
    w = watched()
    w.propose(Started(DRIVER, w.job("g").lease, 0, (1, 2, 9)))
    assert states(w) == ["PLACED", "RUNNING", "RUNNING"]
    w.propose(Started(DRIVER, w.job("g").lease, 0, (0, 1, 2)))
    assert states(w) == ["RUNNING"] * 3
    w.propose(Started(DRIVER, w.job("g").lease, 0))
    assert len(list(w.happened(TasksStarted))) == 2


def test_a_driver_says_how_all_tasks_ended() -> None:
    w = watched()
    ends = (end(0, w.now), end(1, w.now, code=4), end(2, w.now, Outcome.STOPPED, None))
    w.propose(
        Result(DRIVER, w.job("g").lease, Outcome.EXITED, 4, None, Usage(SECOND), 0, tasks=(*ends, end(7, 0)))
    )
    assert states(w) == ["SUCCEEDED", "FAILED", "CANCELLED"]
    (ended,) = w.happened(JobEnded)
    assert (ended.rank, ended.exit_code) == (1, 4)


def test_tasks_of_which_a_driver_says_nothing_end_with_their_job() -> None:
    w = watched()
    w.finish("g")
    assert states(w) == ["SUCCEEDED"] * 3
    w.submit(a_job("h").tasks(2).terms(retry=Retry(0, 0)))
    w.finish("h", 1)
    assert states(w, "h") == ["FAILED", "CANCELLED"]


# --- checkpoints


def test_a_checkpoint_keeps_tasks() -> None:
    w, checkpoints = two_nodes(), Checkpoints()
    w.start("g", 1)
    w.finish_task("g", 1, 1)
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)


def test_checkpoints_of_release_0_4_are_read_with_the_tasks_of_their_gangs() -> None:
    """In them jobs held room: by their id, and all tasks of a gang on one node together."""
    journal = msgspec.msgpack.decode(
        (FIXTURES / "journals" / "v0.4.0.msgpack").read_bytes(), type=list[bytes]
    )
    kept = msgspec.msgpack.decode(
        (FIXTURES / "checkpoints" / "v0.4.0.msgpack").read_bytes(),
        type=dict[str, list[tuple[str, str, bytes]]],
    )
    gangs = 0
    for revision, records in kept.items():
        replayed = State()
        for event in journal[: int(revision)]:
            apply(replayed, decode_event(event))
        loaded = load_state(records)
        assert not invariants.breaches(loaded)
        for key, node in loaded.nodes.items():
            same = replayed.nodes[key]
            assert (node.holding, node.used, node.places) == (same.holding, same.used, same.places)
        for job_id, job in loaded.jobs.items():
            if job.state not in TERMINAL:  # of a gang that had ended only the first node was known
                assert job.tasks == replayed.jobs[job_id].tasks
                gangs += len(job.tasks) > 1
    assert gangs > 2


def test_an_agent_keeps_its_task_of_a_gang_after_a_restart() -> None:
    w, checkpoints = two_nodes(), Checkpoints()
    w.start("g")
    w.propose(StartEpoch(2, (GANGS,), w.state.facts.policies))
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)
    assert w.agent("n2", cpus=2, held=(w.job("g").lease_of(2),)) == (w.job("g").lease_of(2),)


# --- tasks that start again in their place


def a_gang_that_restarts(exits: int = 2) -> World:
    w = World(load, clusters=(GANGS,))
    w.agent("n1", cpus=3)
    w.submit(a_job("g").tasks(3).on_task(failure=OnTaskFailure.RESTART).terms(retry=Retry(exits, 1)))
    w.start("g")
    return w


def fails(w: World, rank: int, *, run: int = 0, waits: bool = True, code: int = 4) -> object:
    """A task fails, and its agent asks whether it starts again."""
    job = w.job("g")
    usage = Usage(2 * SECOND, SECOND, 5)
    result = Result(w.speaker(job, rank), job.lease_of(rank), Outcome.EXITED, code, None, usage, 0)
    return w.propose(structs.replace(result, run=run, waits=waits))


def test_a_task_that_failed_starts_again_while_the_others_go_on() -> None:
    w = a_gang_that_restarts()
    assert fails(w, 1) is Verdict.RESTART
    job = w.job("g")
    assert (job.state, job.attempt, job.exits) == (JobState.RUNNING, 1, 1)
    assert [task.run for task in job.tasks] == [0, 1, 0]
    assert [task.state for task in job.tasks] == [JobState.RUNNING] * 3
    assert len(w.state.nodes["onprem/n1"].holding) == 3, "it keeps its room"
    w.finish("g", ran=3)
    assert w.state_of("g") is JobState.SUCCEEDED


def test_an_answer_that_was_missed_is_given_again_and_counts_once() -> None:
    w = a_gang_that_restarts()
    assert fails(w, 1) is Verdict.RESTART
    assert fails(w, 1) is Verdict.RESTART
    assert fails(w, 1, waits=False) is Verdict.RESTART, "also to an agent that has lost it meanwhile"
    assert w.job("g").exits == 1
    assert len(list(w.happened(TaskRestarted))) == 1


def test_restarts_of_all_tasks_count_together_and_then_the_gang_fails() -> None:
    w = a_gang_that_restarts(exits=2)
    assert fails(w, 1) is Verdict.RESTART
    assert fails(w, 2) is Verdict.RESTART
    assert fails(w, 1, run=1) is Verdict.ACCEPTED
    assert [event.why for event in w.happened(JobStopping)] == [Stop.TASK_FAILED]
    for rank in (0, 2):
        w.finish_task("g", rank, outcome=Outcome.STOPPED)
    assert w.state_of("g") is JobState.FAILED
    phase = w.job("g").phase
    assert isinstance(phase, Ended)
    assert phase.exit_code == 4


def test_usage_of_a_task_is_that_of_all_its_runs() -> None:
    w = a_gang_that_restarts()
    fails(w, 1)
    w.finish_task("g", 1, ran=3)
    end = w.job("g").tasks[1].end
    assert end is not None
    assert end.usage == Usage(5 * SECOND, 4 * SECOND, 2**20)


def test_a_task_that_was_lost_or_stopped_does_not_start_again() -> None:
    w = a_gang_that_restarts()
    w.finish_task("g", 1, outcome=Outcome.LOST)
    assert not list(w.happened(TaskRestarted))
    assert [event.why for event in w.happened(JobStopping)] == [Stop.TASK_FAILED]
    assert fails(w, 2) is Verdict.ACCEPTED, "the gang is being stopped"


def test_a_task_that_failed_before_its_start_was_reported_has_started() -> None:
    w = World(load, clusters=(GANGS,))
    w.agent("n1", cpus=3)
    w.submit(a_job("g").tasks(3).on_task(failure=OnTaskFailure.RESTART).terms(retry=Retry(1, 1)))
    assert fails(w, 1) is Verdict.RESTART
    assert w.state_of("g") is JobState.RUNNING
