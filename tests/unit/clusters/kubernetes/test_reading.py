"""A Job and its pods are read as one attempt: how far it is, what keeps it, and how it ended."""

from typing import Any

import pytest

from spillover.clusters.kubernetes.api.objects import Pod
from spillover.clusters.kubernetes.attempts.reading import read
from spillover.clusters.kubernetes.attempts.sightings import KnownObject, Sighting
from spillover.core.events import JobState, TaskEnd, Usage
from spillover.core.proposals import Outcome
from spillover.model.ids import NodeName
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.driver import Ending, Gap, Hindrance, Pending, Seen, Stage
from tests.support.kubernetes import (
    LEASE,
    a_condition,
    a_container,
    a_job,
    a_note,
    a_pod,
    at,
    ended,
    when,
)

COMPLETE = a_condition("Complete", since=9)
TOO_OFTEN = a_condition("Failed", "BackoffLimitExceeded", "too often", since=9)
RUNNING = a_container(running={"startedAt": at(1)})


def seen(*pods: Pod, conditions: tuple[Any, ...] = (), gone: tuple[Pod, ...] = (), **more: Any) -> Seen:
    """What is told of an attempt with these pods."""
    job = more.pop("job", a_job(*conditions))
    sightings = [Sighting(pod) for pod in pods] + [Sighting(pod, there=False) for pod in gone]
    return read(LEASE, KnownObject(job, tuple(sightings), **more))


def ending(*pods: Pod, conditions: tuple[Any, ...] = (TOO_OFTEN,), **more: Any) -> Ending:
    told = seen(*pods, conditions=conditions, **more)
    assert told.stage is Stage.ENDED
    assert told.ending is not None
    return told.ending


def failed(*containers: Any, **more: Any) -> Pod:
    return a_pod("Failed", *containers, **more)


# --- on its way


def test_a_job_without_pods_is_pending_and_nothing_keeps_it() -> None:
    assert seen() == Seen(LEASE, Stage.PENDING)


def test_a_pod_that_is_bound_takes_room_before_it_runs() -> None:
    told = seen(a_pod(requests={"cpu": "2"}))
    assert told.stage is Stage.PENDING
    assert told.nodes == ("node-1",)
    assert told.uses == ((NodeName("node-1"), Resources(2000)),)


def test_a_pod_that_runs_says_since_when() -> None:
    told = seen(a_pod("Running", RUNNING))
    assert told.stage is Stage.RUNNING
    assert told.started == when(1)


def test_an_init_container_that_ran_is_a_start() -> None:
    told = seen(
        a_pod(
            "Pending",
            a_container(waiting={}),
            initContainerStatuses=[a_container(running={"startedAt": at(3)})],
        )
    )
    assert (told.stage, told.started) == (Stage.RUNNING, when(3))


def test_a_job_whose_pod_failed_and_is_tried_again_by_kubernetes_runs() -> None:
    told = seen(failed(a_container(terminated=ended(1))), a_pod("Pending", name="next"))
    assert (told.stage, told.started) == (Stage.RUNNING, when(1))
    assert seen(job=a_job(failed=1)).stage is Stage.RUNNING


def test_tasks_are_told_in_their_order_and_their_use_by_node() -> None:
    pods = [a_pod("Running", RUNNING, index=n, node=f"node-{n % 2}", requests={"cpu": "1"}) for n in range(3)]
    told = seen(*pods)
    assert told.nodes == ("node-0", "node-1", "node-0")
    assert dict(told.uses) == {"node-0": Resources(2000), "node-1": Resources(1000)}


def test_what_is_deleted_is_going_and_so_are_pods_without_a_job() -> None:
    assert seen(job=a_job(deleted=5)).going
    told = seen(a_pod("Running", RUNNING), job=None)
    assert told.going
    assert told.stage is Stage.RUNNING
    assert not seen().going


# --- gangs that run in part


UNBOUND = a_condition("PodScheduled", "Unschedulable", "0/3 nodes", holds=False, since=2)
GANG = {"parallelism": 3, "completions": 3}


def task(index: int | None, node: str = "node-1", **more: Any) -> Pod:
    """A task of a gang that runs; without a node, one that waits for it."""
    name = "" if index is not None else more.pop("name", "x")
    if node:
        return a_pod("Running", RUNNING, index=index, node=node, name=name, **more)
    return a_pod(index=index, node="", name=name, conditions=[UNBOUND], **more)


def test_a_gang_of_which_a_pod_has_no_node_says_what_is_missing() -> None:
    told = seen(task(0), task(1), task(2, ""), job=a_job(spec=GANG))
    assert told.stage is Stage.RUNNING
    assert told.gap == Gap(3, 2, 2, when(0), when(0))
    assert told.pending == Pending(Hindrance.UNSCHEDULABLE, "0/3 nodes", when(2))


def test_a_gang_whose_pods_all_run_or_have_succeeded_is_whole() -> None:
    assert seen(task(0), task(1), task(2), job=a_job(spec=GANG)).gap is None
    over = a_pod("Succeeded", a_container(terminated=ended(0)), index=2)
    assert seen(task(0), task(1), over, job=a_job(spec=GANG)).gap is None
    assert seen(task(0), task(1), job=a_job(spec=GANG, succeeded=1)).gap is None, "its pod is gone already"


def test_a_pod_that_is_bound_and_does_not_run_is_missing() -> None:
    told = seen(task(0), task(1), a_pod(index=2), job=a_job(spec=GANG))
    assert told.gap == Gap(3, 3, 2, when(0), when(0))


def test_pods_that_were_not_even_created_are_missing() -> None:
    assert seen(task(0), job=a_job(spec=GANG)).gap == Gap(3, 1, 1, when(0), when(0))


def test_a_pod_that_is_being_deleted_is_missing_from_then_on() -> None:
    told = seen(task(0), task(1), task(2, deleted=7), job=a_job(spec=GANG))
    assert told.gap == Gap(3, 2, 2, when(0), when(7))


def test_the_pod_that_replaces_a_lost_one_is_missing_since_it_was_created() -> None:
    lost = a_pod("Failed", a_container(terminated=ended(1)), index=2)
    told = seen(task(0), task(1), lost, task(2, "", made=8), job=a_job(spec=GANG, failed=1))
    assert told.gap == Gap(3, 2, 2, when(0), when(8))


def test_a_gang_whose_pods_fail_each_for_itself_is_a_gang_until_all_have_begun() -> None:
    each = GANG | {"backoffLimitPerIndex": 0}
    assert seen(task(0), task(1), task(2, ""), job=a_job(spec=each)).gap == Gap(3, 2, 2, when(0), when(0))
    failed = a_pod("Failed", a_container(terminated=ended(1)), index=2)
    assert seen(task(0), task(1), failed, job=a_job(spec=each)).gap is None


def test_a_job_of_one_pod_has_no_gap() -> None:
    assert seen(task(None, "")).gap is None


def test_a_job_that_runs_its_pods_one_after_the_other_is_a_gang_until_they_have_begun() -> None:
    many = {"parallelism": 2, "completions": 9}
    assert seen(task(0), task(1, ""), job=a_job(spec=many)).gap == Gap(2, 1, 1, when(0), when(0))
    over = a_pod("Succeeded", a_container(terminated=ended(0)), index=0)
    assert seen(over, task(1), task(2, ""), job=a_job(spec=many, succeeded=1)).gap is None


def test_pods_without_indexes_have_ranks_by_age_and_that_of_the_pod_that_they_replace() -> None:
    pair = {"parallelism": 2}
    told = seen(task(None, name="a"), task(None, "", name="b"), job=a_job(spec=pair))
    assert (told.began, told.gap) == ((0,), Gap(2, 1, 1, when(0), when(0)))
    lost = a_pod("Failed", a_container(terminated=ended(1)), name="b")
    told = seen(task(None, name="a"), lost, task(None, name="c", made=8), job=a_job(spec=pair, failed=1))
    assert (told.began, told.gap) == ((0, 1), None)


def test_pods_without_indexes_have_exit_codes_and_times_of_their_own() -> None:
    job = a_job(TOO_OFTEN, spec={"parallelism": 2, "completions": 2}, succeeded=1, failed=1)
    well = a_pod("Succeeded", a_container(terminated=ended(0, 1, 4)), name="a")
    bad = failed(a_container(terminated=ended(3, 2, 5)), name="b")
    told = ending(well, bad, job=job)
    assert [(each.rank, each.state, each.exit_code, each.usage.ran) for each in told.tasks] == [
        (0, JobState.SUCCEEDED, 0, 3 * SECOND),
        (1, JobState.FAILED, 3, 3 * SECOND),
    ]


def test_a_gang_that_is_deleted_with_pods_on_silent_nodes_only_is_stranded() -> None:
    silent = frozenset(("node-2",))
    left = task(2, "node-2", deleted=7)
    assert seen(left, job=a_job(deleted=7, spec=GANG), silent=silent).stranded
    assert not seen(task(1, deleted=7), left, job=a_job(deleted=7, spec=GANG), silent=silent).stranded
    assert not seen(left, job=a_job(spec=GANG), silent=silent).stranded, "it is not being deleted"


# --- what keeps it


def test_a_pod_that_no_node_takes_says_so_in_the_words_of_the_scheduler() -> None:
    unbound = a_condition("PodScheduled", "Unschedulable", "0/3 nodes", holds=False, since=2)
    told = seen(a_pod(node="", conditions=[unbound]))
    assert told.pending == Pending(Hindrance.UNSCHEDULABLE, "0/3 nodes", when(2))
    assert told.nodes == ()


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("ErrImagePull", Hindrance.IMAGE),
        ("ImagePullBackOff", Hindrance.IMAGE),
        ("InvalidImageName", Hindrance.IMAGE),
        ("CreateContainerConfigError", Hindrance.CONFIG),
        ("CreateContainerError", Hindrance.CONFIG),
    ],
)
def test_a_container_that_cannot_be_made_says_why(reason: str, why: Hindrance) -> None:
    scheduled = a_condition("PodScheduled", since=2)
    told = seen(
        a_pod("Pending", a_container(waiting={"reason": reason, "message": "no"}), conditions=[scheduled])
    )
    assert told.pending == Pending(why, f"{reason}: no", when(2))


def test_a_container_that_is_being_made_is_kept_by_nothing() -> None:
    assert seen(a_pod("Pending", a_container(waiting={"reason": "ContainerCreating"}))).pending is None


def test_pods_that_are_refused_are_told_from_what_is_noted() -> None:
    quota = a_note("FailedCreate", 'Error creating: pods "x" is forbidden: exceeded quota: q', "x", 3)
    told = seen(notes=(quota,))
    assert told.pending == Pending(Hindrance.REFUSED, 'pods "x" is forbidden: exceeded quota: q', when(3))
    account = a_note("FailedCreate", "Error creating: error looking up service account b/x: not found", "x")
    pending = seen(notes=(quota, account)).pending
    assert pending is not None
    assert pending.why is Hindrance.CONFIG
    assert seen(a_pod(), notes=(quota,)).pending is None


def test_a_volume_that_is_not_there_is_told_from_what_is_noted() -> None:
    note = a_note("FailedMount", 'secret "s" not found', "x", 3)
    told = seen(a_pod("Pending", a_container(waiting={"reason": "ContainerCreating"})), notes=(note,))
    assert told.pending == Pending(Hindrance.CONFIG, 'secret "s" not found', when(3))


def test_a_job_that_somebody_suspended_says_so() -> None:
    pending = seen(conditions=(a_condition("Suspended", message="Job suspended", since=4),)).pending
    assert pending == Pending(Hindrance.REFUSED, "its Job is suspended: Job suspended", when(4))


# --- how it ended


def test_a_job_that_succeeded_ran_from_its_first_start_to_its_last_end() -> None:
    pods = (
        a_pod("Succeeded", a_container(terminated=ended(0, 1, 5)), index=0),
        a_pod("Succeeded", a_container(terminated=ended(0, 2, 8)), index=1),
    )
    told = seen(*pods, conditions=(COMPLETE,))
    tasks = (
        TaskEnd(0, when(5), JobState.SUCCEEDED, Outcome.EXITED, 0, None, Usage(4 * SECOND)),
        TaskEnd(1, when(8), JobState.SUCCEEDED, Outcome.EXITED, 0, None, Usage(6 * SECOND)),
    )
    assert told.ending == Ending(Outcome.EXITED, 0, None, Usage(7 * SECOND), when(8), tasks=tasks)
    assert told.began == (0, 1)
    assert told.uses == ()
    assert told.started == when(1)


def test_each_task_is_told_with_its_own_end() -> None:
    """The first that fails has the Job delete the others."""
    stopped = a_pod("Failed", a_container(terminated=ended(137, 1, 6)), index=2, name="third", deleted=5)
    told = ending(
        a_pod("Succeeded", a_container(terminated=ended(0, 1, 3)), index=0),
        failed(a_container(terminated=ended(7, 1, 4)), index=1, name="second"),
        stopped,
    )
    assert (told.outcome, told.exit_code) == (Outcome.EXITED, 7)
    assert [(each.rank, each.state, each.exit_code) for each in told.tasks] == [
        (0, "SUCCEEDED", 0),
        (1, "FAILED", 7),
        (2, "CANCELLED", None),
    ]
    assert "second" in told.tasks[1].message


def test_of_one_task_and_of_pods_that_are_not_counted_nothing_more_is_told() -> None:
    assert ending(failed(a_container(terminated=ended(3)))).tasks == ()
    assert ending(failed(a_container(terminated=ended(3)), index=0)).tasks == ()
    pods = [failed(a_container(terminated=ended(3)), name=name) for name in ("a", "b")]
    assert ending(*pods).tasks == ()


def test_tasks_that_run_are_told_by_rank() -> None:
    pods = (a_pod("Running", RUNNING, index=2), a_pod("Pending", index=0), a_pod("Running", RUNNING, index=1))
    assert seen(*pods).began == (1, 2)


def test_the_end_of_pods_is_waited_for_as_it_may_be_heard_later_than_that_of_the_job() -> None:
    assert seen(a_pod("Running", RUNNING), conditions=(COMPLETE,)).stage is Stage.RUNNING
    assert seen(conditions=(TOO_OFTEN,)).ending is None
    assert ending(conditions=(COMPLETE,), settled=True).exit_code == 0
    lost = ending(settled=True)
    assert lost.outcome is Outcome.LOST
    assert "its pods were deleted" in lost.message
    assert lost.finished == when(9)


def test_an_exit_code_comes_back() -> None:
    told = ending(failed(a_container(terminated=ended(3))))
    assert told == Ending(Outcome.EXITED, 3, None, Usage(4 * SECOND), when(5))


def test_of_several_pods_the_first_that_failed_speaks() -> None:
    told = ending(
        failed(a_container(terminated=ended(143, 1, 8)), index=0, deleted=7),
        failed(a_container(terminated=ended(5, 1, 6, message="broken")), index=1),
    )
    assert (told.outcome, told.exit_code, told.finished) == (Outcome.EXITED, 5, when(8))
    assert told.message == "container 'main' of pod spill-abcdefghijkl-1-2-1-x: Error: broken"


def test_of_several_containers_the_first_that_failed_speaks() -> None:
    told = ending(
        failed(a_container("a", terminated=ended(9, 1, 7)), a_container("b", terminated=ended(4, 1, 3)))
    )
    assert told.exit_code == 4
    assert "container 'b'" in told.message


def test_a_container_that_used_too_much_memory_is_out_of_memory() -> None:
    told = ending(failed(a_container(terminated=ended(137, reason="OOMKilled"))))
    assert (told.outcome, told.exit_code) == (Outcome.OUT_OF_MEMORY, 137)


def test_a_container_that_could_not_be_started_says_why() -> None:
    told = ending(
        failed(a_container(terminated=ended(128, reason="StartError", message="exec: no such file")))
    )
    assert told.outcome is Outcome.NOT_STARTED
    assert "exec: no such file" in told.message


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("Evicted", "The node was low on resource: memory.", "its node evicted it: The node was low"),
        ("NodeLost", "", "its node does not answer"),
        ("OutOfcpu", "Node didn't have enough", "its node had no capacity left, OutOfcpu"),
    ],
)
def test_a_pod_that_its_node_gave_up_is_lost(reason: str, message: str, words: str) -> None:
    told = ending(failed(a_container(terminated=ended(137)), reason=reason, message=message))
    assert told.outcome is Outcome.LOST
    assert told.message.startswith(words)
    assert told.exit_code is None


def test_a_pod_that_was_taken_away_is_lost() -> None:
    taken = a_condition("DisruptionTarget", "PreemptionByScheduler", "preempted to accommodate")
    told = ending(failed(a_container(terminated=ended(143)), conditions=[taken]))
    assert told.outcome is Outcome.LOST
    assert told.message.startswith("its pod was preempted by one of higher priority: preempted")


def test_a_pod_that_somebody_deleted_is_lost() -> None:
    for told in (
        ending(failed(a_container(terminated=ended(143)), deleted=4)),
        ending(gone=(a_pod("Running", RUNNING),)),
    ):
        assert told.outcome is Outcome.LOST
        assert "deleted by someone else" in told.message


def test_a_pod_that_was_restarted_too_often_and_deleted_by_its_job_failed_by_itself() -> None:
    waiting = a_container(restarts=3, before=ended(2, 1, 6), waiting={"reason": "CrashLoopBackOff"})
    told = ending(gone=(a_pod("Running", waiting, deleted=7),))
    assert (told.outcome, told.exit_code) == (Outcome.EXITED, 2)


def test_time_limits_of_pods_and_of_jobs_are_walltimes() -> None:
    of_pod = ending(
        failed(a_container(terminated=ended(137)), reason="DeadlineExceeded", message="longer than")
    )
    of_job = ending(conditions=(a_condition("Failed", "DeadlineExceeded", "longer than"),), settled=True)
    assert of_pod.outcome is of_job.outcome is Outcome.WALLTIME
    assert of_pod.message == of_job.message == "longer than"


def test_a_failure_policy_says_which_rule_it_was() -> None:
    rule = a_condition("Failed", "PodFailurePolicy", "exit code 42 matching FailJob rule at index 0")
    told = ending(failed(a_container(terminated=ended(42))), conditions=(rule,))
    assert (told.outcome, told.exit_code) == (Outcome.EXITED, 42)
    assert told.message == "exit code 42 matching FailJob rule at index 0"


def test_a_pod_whose_containers_are_not_known_any_more_is_lost() -> None:
    told = ending(failed(a_container(terminated=ended(137, reason="ContainerStatusUnknown"))))
    assert told.outcome is Outcome.LOST


def test_a_job_that_is_to_fail_and_whose_node_does_not_answer_is_lost() -> None:
    pod = a_pod("Running", RUNNING, deleted=5)
    target = a_condition("FailureTarget", "BackoffLimitExceeded")
    assert seen(pod, conditions=(target,)).ending is None
    assert seen(a_pod("Running", RUNNING), conditions=(target,), silent=frozenset({"node-1"})).ending is None
    assert seen(pod, silent=frozenset({"node-1"})).ending is None
    told = ending(pod, conditions=(target,), silent=frozenset({"node-1"}))
    assert told.outcome is Outcome.LOST
    assert told.message == "its node does not answer: node-1"


def test_messages_are_bounded() -> None:
    told = ending(failed(a_container(terminated=ended(1, message="x" * 10_000))))
    assert len(told.message) == 2000


# --- deleted, and still there


def test_pods_that_a_finalizer_keeps_are_named_and_run_no_more() -> None:
    held = ("example.com/hold", "foregroundDeletion")
    told = seen(failed(deleted=5, finalizers=held, name="p"), job=a_job(deleted=5))
    assert (told.going, told.vacant, told.ending) == (True, True, None)
    assert told.held == "pod p is being deleted but blocked by its finalizers example.com/hold"
    unbound = seen(a_pod(node="", deleted=5, finalizers=held, name="p"), job=a_job(deleted=5))
    assert (unbound.vacant, unbound.held) == (True, told.held)


def test_a_pod_that_is_deleted_and_runs_says_whose_fault_that_may_be() -> None:
    pod = a_pod("Running", RUNNING, deleted=5)
    told = seen(pod, job=a_job(deleted=5), silent=frozenset({"node-1"}))
    assert (told.vacant, told.held) == (False, "its node node-1 does not answer")
    assert seen(pod, job=a_job(deleted=5)).held == ""
    assert not seen(pod).vacant
