"""Determines how an attempt ended: whether, from its Job, and why, from the first pod that failed."""

from typing import Final

from msgspec import Struct

from spillover.clusters.kubernetes.api.objects import ContainerStatus, Terminated, moment_of, said
from spillover.clusters.kubernetes.attempts.sightings import KnownObject, Sighting, last_end
from spillover.core.events import TaskEnd, Usage
from spillover.core.proposals import Outcome
from spillover.core.records.tasks import state_of_end
from spillover.model.bounds import MOST_EXIT_CODE, MOST_RAN, MOST_SIGNAL, bounded
from spillover.model.units import FOREVER
from spillover.ports.driver import Ending

_DISRUPTED: Final = {
    "PreemptionByScheduler": "its pod was preempted by one of higher priority",
    "DeletionByTaintManager": "its node does not answer, or was tainted",
    "EvictionByEvictionAPI": "its pod was evicted, as when a node is drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node evicted or ended it",
}
"""Messages by the reason of the condition DisruptionTarget."""
_TAKEN: Final = {
    "Evicted": "its node evicted it",
    "NodeLost": "its node does not answer",
    "NodeShutdown": "its node was shut down",
    "Shutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Preempting": "its pod was preempted by one of higher priority",
    "NodeAffinity": "its node no longer fits it",
    "UnexpectedAdmissionError": "its node refused it",
}
"""Messages by the reason of pods that failed through no fault of their own. OutOf... means that the node was full."""
_NOT_STARTED: Final = ("StartError", "ContainerCannotRun")
_UNKNOWN: Final = "ContainerStatusUnknown"


class _Failure(Struct, frozen=True):
    """A container that failed, with its end."""

    container: ContainerStatus
    end: Terminated

    @property
    def at(self) -> int:
        return moment_of(self.end.finished_at) if self.end.finished_at is not None else FOREVER


def ending_of(known: KnownObject) -> Ending | None:
    """Return how an attempt ended; None if it has not, or if the end of its pods is not known yet.

    Jobs and pods have separate watches, so the end of a Job may arrive before that of its last pods. How the pods ended
    matters, so this waits for them, unless they were fetched since and there are no more.
    """
    if known.job is None:
        return None
    if known.living:
        return _abandoned(known)
    if known.over is None or known.lacks_pods:
        return None
    if known.over.type == "Complete":
        return _told(known, Outcome.EXITED, exit_code=0)
    return _failed(known)


def _abandoned(known: KnownObject) -> Ending | None:
    """Return LOST if the Job is failing and all its remaining pods are on nodes that do not answer; else None."""
    if known.over is None and known.condition("FailureTarget") is None:
        return None
    living = known.living
    if not all(is_abandoned(each, known) for each in living):
        return None
    nodes = ", ".join(sorted({each.pod.spec.node_name for each in living}))
    return _told(known, Outcome.LOST, message=f"its node does not answer: {nodes}")


def is_abandoned(living: Sighting, known: KnownObject) -> bool:
    """Return whether a pod is deleted, but on a node that does not answer."""
    pod = living.pod
    return pod.metadata.deletion_timestamp is not None and pod.spec.node_name in known.silent


def _failed(known: KnownObject) -> Ending:
    """Return why a Job failed."""
    over = known.over
    assert over is not None  # noqa: S101 - the caller checked it
    if over.reason == "DeadlineExceeded":
        return _told(known, Outcome.WALLTIME, message=over.message)
    failures = sorted((each for each in known.pods if each.failed), key=_when)
    if not failures:
        why = "its pods were deleted, and their outcome is unknown"
        return _told(known, Outcome.LOST, message=f"{why} ({over.reason}: {over.message})")
    return _blamed(known, failures[0])


def _blamed(known: KnownObject, culprit: Sighting) -> Ending:
    """Return the end of a Job that failed because of one pod."""
    how = _how(known, culprit)
    return _told(known, how.outcome, how.exit_code, how.signal, how.message, culprit)


class _How(Struct, frozen=True):
    """How a pod failed."""

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""


def _how(known: KnownObject, culprit: Sighting) -> _How:
    """Return how a pod failed, from its status."""
    status = culprit.pod.status
    if status.reason == "DeadlineExceeded":
        return _How(Outcome.WALLTIME, message=status.message)
    if taken := _taken(culprit):
        return _How(Outcome.LOST, message=taken)
    failure = _failure(culprit)
    if failure is None:
        why = status.message or status.reason or "its pod failed without a reason"
        return _How(Outcome.LOST, message=f"{why} (pod {culprit.name})")
    end = failure.end
    where = f"container {failure.container.name!r} of pod {culprit.name}"
    words = ": ".join(part for part in (where, end.reason, end.message.strip()) if part)
    code, signal = end.exit_code, end.signal or None
    if end.reason == "OOMKilled":
        return _How(Outcome.OUT_OF_MEMORY, code, signal, words)
    if end.reason in _NOT_STARTED:
        return _How(Outcome.NOT_STARTED, message=words)
    if end.reason == _UNKNOWN:
        return _How(Outcome.LOST, message=words)
    over = known.over
    rule = over.message if over is not None and over.reason == "PodFailurePolicy" else ""
    several = len(known.pods) > 1 or len(list(culprit.containers)) > 1
    return _How(Outcome.EXITED, code, signal, rule or (words if several else end.message.strip()))


def _taken(culprit: Sighting) -> str:
    """Return what removed a pod; empty if it failed by itself."""
    status, pod = culprit.pod.status, f"(pod {culprit.name})"
    disrupted = culprit.condition("DisruptionTarget")
    if status.reason in _TAKEN or status.reason.startswith("OutOf"):
        why = _TAKEN.get(status.reason, f"its node had no capacity left, {status.reason}")
        return f"{why}: {status.message} {pod}" if status.message else f"{why} {pod}"
    if disrupted is not None and disrupted.holds:
        why = _DISRUPTED.get(disrupted.reason, disrupted.reason or "its pod was disrupted")
        return f"{why}: {disrupted.message} {pod}" if disrupted.message else f"{why} {pod}"
    if _was_deleted(culprit):
        return f"its pod was deleted by someone else {pod}"
    return ""


def _was_deleted(culprit: Sighting) -> bool:
    """Return whether a pod ended because someone deleted it.

    Not if its containers were restarted: a Job itself deletes pods that restarted too often.
    """
    if culprit.restarted:
        return False
    return culprit.pod.metadata.deletion_timestamp is not None or not (culprit.there or culprit.pod.is_over)


def _failure(pod: Sighting) -> _Failure | None:
    """Return the first container of a pod that failed."""
    ends = [_Failure(one, end) for one in pod.containers if (end := last_end(one)) and end.exit_code]
    return min(ends, key=lambda each: each.at, default=None)


def _when(pod: Sighting) -> tuple[int, int]:
    """Sort key: when a pod failed, then its index."""
    failure = _failure(pod)
    ended = failure.at if failure is not None else pod.finished
    deleted = pod.pod.metadata.deletion_timestamp
    if ended is None or ended == FOREVER:
        ended = moment_of(deleted) if deleted is not None else FOREVER
    return ended, pod.index


def _told(
    known: KnownObject,
    outcome: Outcome,
    exit_code: int | None = None,
    signal: int | None = None,
    message: str = "",
    culprit: Sighting | None = None,
) -> Ending:
    """Return an ending with its runtime, from the first start to the last end of all pods."""
    starts = [time for each in known.pods if (time := each.started) is not None]
    ends = [time for each in known.pods if (time := each.finished) is not None]
    job, over = known.job, known.over
    times = [
        job.status.completion_time if job is not None else None,
        over.last_transition_time if over else None,
    ]
    finished = max(ends, default=None)
    if finished is None:
        finished = next((moment_of(time) for time in times if time is not None), None)
    ran = bounded(finished - min(starts), MOST_RAN) if starts and finished is not None else 0
    return Ending(
        outcome,
        _exit_code(exit_code),
        _signal(signal),
        usage_of(known, ran),
        finished,
        said(message),
        _tasks(known, culprit, finished) if finished is not None else (),
    )


def usage_of(known: KnownObject, ran: int) -> Usage:
    """Return the usage of an attempt that ran for so long: the CPU time of all pods, and the highest peak memory."""
    used = [known.uses.over(each.name, _ran(known, each)) for each in known.pods if each.started is not None]
    if not used:
        return Usage(ran)
    return Usage(ran, bounded(sum([each.cpu for each in used])), max([each.peak_memory for each in used]))


def _ran(known: KnownObject, pod: Sighting) -> int:
    """Return how long a pod ran, as far as known; 0 if it did not."""
    if pod.started is None:
        return 0
    until = pod.finished if pod.finished is not None else known.uses.last(pod.name)
    return max(0, until - pod.started)


def _exit_code(code: int | None) -> int | None:
    return None if code is None else bounded(code, MOST_EXIT_CODE, -MOST_EXIT_CODE)


def _signal(signal: int | None) -> int | None:
    return signal if signal is not None and 0 < signal <= MOST_SIGNAL else None


def _tasks(known: KnownObject, culprit: Sighting | None, finished: int) -> tuple[TaskEnd, ...]:
    """Return how each task of a gang ended, by the last pod of its rank; nothing for a Job of one pod."""
    if known.size == 1 and len({each.index for each in known.pods}) == 1:
        return ()
    last = [(rank, pod) for rank, pod in sorted(known.ranked.items()) if not pod.lives]
    return tuple([_task(known, rank, pod, culprit, finished) for rank, pod in last])


def _task(known: KnownObject, rank: int, pod: Sighting, culprit: Sighting | None, finished: int) -> TaskEnd:
    """Return how one task ended. Tasks that the Job deleted after another one failed count as stopped."""
    how = _How(Outcome.EXITED, 0)
    if pod.failed:
        how = _How(Outcome.STOPPED) if pod is not culprit and _was_deleted(pod) else _how(known, pod)
    ended = pod.finished if pod.finished is not None else finished
    ran = 0 if pod.started is None else bounded(max(0, ended - pod.started), MOST_RAN)
    code = _exit_code(how.exit_code)
    return TaskEnd(
        rank,
        ended,
        state_of_end(how.outcome, code),
        how.outcome,
        code,
        _signal(how.signal),
        known.uses.over(pod.name, ran),
        said(how.message),
    )
