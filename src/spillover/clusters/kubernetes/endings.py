"""How an attempt ended: the Job says that, and the first pod that failed says why."""

from typing import Final

from msgspec import Struct

from spillover.clusters.kubernetes.objects import ContainerStatus, Terminated, moment_of, said
from spillover.clusters.kubernetes.sightings import NO_INDEX, KnownObject, Sighting, last_end
from spillover.core.events import TaskEnd, Usage
from spillover.core.proposals import Outcome
from spillover.core.tasks import state_of_end
from spillover.model.bounds import MOST_EXIT_CODE, MOST_RAN, MOST_SIGNAL, bounded
from spillover.model.units import FOREVER
from spillover.ports.driver import Ending

_DISRUPTED: Final = {
    "PreemptionByScheduler": "its pod made way for one of higher priority",
    "DeletionByTaintManager": "its node does not answer, or was tainted",
    "EvictionByEvictionAPI": "its pod was evicted, as when a node is drained",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node evicted or ended it",
}
"""What the reasons of the condition DisruptionTarget mean."""
_TAKEN: Final = {
    "Evicted": "its node evicted it",
    "NodeLost": "its node does not answer",
    "NodeShutdown": "its node was shut down",
    "Shutdown": "its node was shut down",
    "Terminated": "its node was shut down",
    "Preempting": "its node made way for a pod of higher priority",
    "NodeAffinity": "its node does not fit it any more",
    "UnexpectedAdmissionError": "its node refused it",
}
"""Reasons of pods that failed by no doing of their own; those that begin with OutOf are of nodes that have no room after all."""
_NOT_STARTED: Final = ("StartError", "ContainerCannotRun")
_UNKNOWN: Final = "ContainerStatusUnknown"


class _Failure(Struct, frozen=True):
    """A container that failed."""

    container: ContainerStatus
    end: Terminated

    @property
    def at(self) -> int:
        return moment_of(self.end.finished_at) if self.end.finished_at is not None else FOREVER


def ending_of(known: KnownObject) -> Ending | None:
    """How an attempt ended; None if it has not, or if its pods were not all seen to the end yet.

    A Job and its pods are watched apart: that a Job has ended may be heard before its last pods are, or their end is. How they
    ended counts, so it is waited for, unless the pods were asked for since and there are no more of them.
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
    """One that is to fail and whose pods all stand on nodes that do not answer: nothing more will be heard of them."""
    if known.over is None and known.condition("FailureTarget") is None:
        return None
    living = known.living
    if any(
        each.pod.metadata.deletion_timestamp is None or each.pod.spec.node_name not in known.silent
        for each in living
    ):
        return None
    nodes = ", ".join(sorted({each.pod.spec.node_name for each in living}))
    return _told(known, Outcome.LOST, message=f"its node does not answer: {nodes}")


def _failed(known: KnownObject) -> Ending:
    """Why a Job failed."""
    over = known.over
    assert over is not None  # noqa: S101 - it has ended
    if over.reason == "DeadlineExceeded":
        return _told(known, Outcome.WALLTIME, message=over.message)
    failures = sorted((each for each in known.pods if each.failed), key=_when)
    if not failures:
        why = "its pods are gone, and with them what became of them"
        return _told(known, Outcome.LOST, message=f"{why} ({over.reason}: {over.message})")
    return _blamed(known, failures[0])


def _blamed(known: KnownObject, culprit: Sighting) -> Ending:
    """How a Job ended by the end of one of its pods."""
    how = _how(known, culprit)
    return _told(known, how.outcome, how.exit_code, how.signal, how.message, culprit)


class _How(Struct, frozen=True):
    """How a pod failed."""

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""


def _how(known: KnownObject, culprit: Sighting) -> _How:
    """How a pod failed, as it says itself."""
    status = culprit.pod.status
    if status.reason == "DeadlineExceeded":
        return _How(Outcome.WALLTIME, message=status.message)
    if taken := _taken(culprit):
        return _How(Outcome.LOST, message=taken)
    failure = _failure(culprit)
    if failure is None:
        why = status.message or status.reason or "its pod failed and does not say why"
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
    """Who took a pod away, in words; empty if it failed by itself."""
    status, pod = culprit.pod.status, f"(pod {culprit.name})"
    disrupted = culprit.condition("DisruptionTarget")
    if status.reason in _TAKEN or status.reason.startswith("OutOf"):
        why = _TAKEN.get(status.reason, f"its node has no room after all, {status.reason}")
        return f"{why}: {status.message} {pod}" if status.message else f"{why} {pod}"
    if disrupted is not None and disrupted.holds:
        why = _DISRUPTED.get(disrupted.reason, disrupted.reason or "its pod was taken away")
        return f"{why}: {disrupted.message} {pod}" if disrupted.message else f"{why} {pod}"
    if _was_deleted(culprit):
        return f"its pod was deleted by somebody else {pod}"
    return ""


def _was_deleted(culprit: Sighting) -> bool:
    """Whether a pod ended because somebody deleted it.

    A Job deletes pods whose containers it restarted too often: those ended by themselves.
    """
    if culprit.restarted:
        return False
    return culprit.pod.metadata.deletion_timestamp is not None or not (culprit.there or culprit.pod.is_over)


def _failure(pod: Sighting) -> _Failure | None:
    """The first container of a pod that failed."""
    ends = [_Failure(one, end) for one in pod.containers if (end := last_end(one)) and end.exit_code]
    return min(ends, key=lambda each: each.at, default=None)


def _when(pod: Sighting) -> tuple[int, int]:
    """When a pod failed; of those that do not say, the first by index."""
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
    """An ending with its times: from the first start to the last end of all pods."""
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
        Usage(ran),
        finished,
        said(message),
        _tasks(known, culprit, finished) if finished is not None else (),
    )


def _exit_code(code: int | None) -> int | None:
    return None if code is None else bounded(code, MOST_EXIT_CODE, -MOST_EXIT_CODE)


def _signal(signal: int | None) -> int | None:
    return signal if signal is not None and 0 < signal <= MOST_SIGNAL else None


def _tasks(known: KnownObject, culprit: Sighting | None, finished: int) -> tuple[TaskEnd, ...]:
    """How each task of an attempt that has several ended, by the last pod of its index; nothing of a Job that does not count them."""
    if len({each.index for each in known.pods}) == 1:
        return ()
    last = {each.index: each for each in known.pods if each.index != NO_INDEX and not each.lives}
    return tuple([_task(known, last[rank], culprit, finished) for rank in sorted(last)])


def _task(known: KnownObject, pod: Sighting, culprit: Sighting | None, finished: int) -> TaskEnd:
    """How one task ended; once one has failed, its Job deletes the others."""
    how = _How(Outcome.EXITED, 0)
    if pod.failed:
        how = _How(Outcome.STOPPED) if pod is not culprit and _was_deleted(pod) else _how(known, pod)
    ended = pod.finished if pod.finished is not None else finished
    ran = 0 if pod.started is None else bounded(max(0, ended - pod.started), MOST_RAN)
    code = _exit_code(how.exit_code)
    return TaskEnd(
        pod.index,
        ended,
        state_of_end(how.outcome, code),
        how.outcome,
        code,
        _signal(how.signal),
        Usage(ran),
        said(how.message),
    )
