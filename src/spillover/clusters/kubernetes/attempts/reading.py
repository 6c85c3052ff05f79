"""Derives what the driver reports of an attempt: its stage, its nodes, what delays it, and how it ended."""

from typing import Final

from spillover.clusters.kubernetes.accounting import used_by
from spillover.clusters.kubernetes.api.objects import KubeEvent, moment_of, said
from spillover.clusters.kubernetes.attempts.endings import ending_of, is_abandoned, usage_of
from spillover.clusters.kubernetes.attempts.sightings import NO_INDEX, KnownObject, Sighting
from spillover.core.events import Lease, Usage
from spillover.forms.jobs.pods import GPU
from spillover.model.ids import NodeName
from spillover.model.resources import Resources
from spillover.ports.driver import Gap, Hindrance, Pending, Seen, Stage

_NO_IMAGE: Final = frozenset(
    (
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    )
)
_NO_CONTAINER: Final = frozenset(
    (
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CreatePodSandboxError",
        "ConfigPodSandboxError",
        "PreCreateHookError",
        "PostStartHookError",
    )
)
_OF_KUBERNETES: Final = frozenset(("foregroundDeletion", "orphan", "batch.kubernetes.io/job-tracking"))
"""Finalizers that Kubernetes removes itself."""
NOTED: Final = {"FailedCreate": Hindrance.REFUSED, "FailedMount": Hindrance.CONFIG}
"""Reasons of Kubernetes events to read, because the objects do not show these problems."""


def read(lease: Lease, known: KnownObject, gpu: str = GPU) -> Seen:
    """Return an attempt as the driver reports it."""
    job = known.job
    ending = ending_of(known)
    started = min([time for each in known.pods if (time := each.started) is not None], default=None)
    ran = started is not None or (job is not None and bool(job.status.succeeded or job.status.failed))
    stage = Stage.ENDED if ending is not None else Stage.RUNNING if ran else Stage.PENDING
    living = [each for each in known.living if each.pod.spec.node_name]
    going = job is None or job.metadata.deletion_timestamp is not None
    gap = None if ending is not None else gap_of(known)
    return Seen(
        lease,
        stage,
        going,
        started,
        tuple([NodeName(each.pod.spec.node_name) for each in living]),
        () if ending is not None else _uses(living, gpu),
        _pending(known) if stage is Stage.PENDING or gap is not None else None,
        ending,
        going and not any(_may_run(each) for each in known.living),
        _held(known) if going else "",
        _began(known),
        gap,
        going and bool(known.living) and all(is_abandoned(each, known) for each in known.living),
        usage_of(known, 0) if going else Usage(),
    )


def _began(known: KnownObject) -> tuple[int, ...]:
    """Return the ranks of tasks that run or ran; nothing for a Job with one pod."""
    indexed = {each.index for each in known.pods if each.started is not None} - {NO_INDEX}
    if indexed or known.size == 1:
        return tuple(sorted(indexed))
    return tuple(rank for rank, each in sorted(known.ranked.items()) if each.started is not None)


def gap_of(known: KnownObject) -> Gap | None:
    """Return which pods are missing of a gang; None if none is.

    A Job with more completions than pods at a time runs them one after the other. It is a gang only until it has begun.
    """
    job, size = known.job, known.size
    if job is None or size == 1 or known.over is not None:
        return None
    ranked = known.ranked
    begun_once = len([1 for each in known.pods if each.started]) >= size
    if (job.spec.completions or size) > size and begun_once:
        return None
    if job.spec.backoff_limit_per_index is not None and begun_once:
        return None  # pods that fail for good are not replaced, and the others go on
    well = max(job.status.succeeded, sum(each.succeeded for each in ranked.values()))
    if job.spec.completions is None and well:
        return None  # it makes no more pods
    there = [each for each in ranked.values() if each.lives and each.pod.metadata.deletion_timestamp is None]
    running = min(size, well + sum(each.started is not None for each in there))
    if running == size:
        return None
    made = job.metadata.creation_timestamp
    begun = moment_of(made) if made is not None else 0
    bound = min(size, well + sum(bool(each.pod.spec.node_name) for each in there))
    return Gap(size, bound, running, begun, max(begun, _missing_since(known, there)))


def _missing_since(known: KnownObject, there: list[Sighting]) -> int:
    """Return when the first pod was created that does not run, else when the last one ended; 0 if unknown."""
    times = [each.pod.metadata.creation_timestamp for each in there if each.started is None]
    if made := [moment_of(time) for time in times if time is not None]:
        return min(made)
    ends = [each.pod.metadata.deletion_timestamp for each in known.pods]
    known_ends = [moment_of(time) for time in ends if time is not None]
    known_ends += [time for each in known.pods if not each.lives and (time := each.finished) is not None]
    return max(known_ends, default=0)


def _may_run(living: Sighting) -> bool:
    """Return whether a pod that has not ended may run: a scheduler binds no pod that is being deleted."""
    return bool(living.pod.spec.node_name) or living.pod.metadata.deletion_timestamp is None


def _held(known: KnownObject) -> str:
    """Return what blocks the deletion of objects; empty if nothing is known."""
    words = [
        f"its node {each.pod.spec.node_name} does not answer"
        for each in known.living
        if each.pod.spec.node_name in known.silent
    ]
    pods = [each.pod.metadata for each in known.pods if each.there and not (each.lives and _may_run(each))]
    for kind, meta in (
        ("Job", known.job.metadata if known.job is not None else None),
        *(("pod", each) for each in pods),
    ):
        foreign = [name for name in meta.finalizers if name not in _OF_KUBERNETES] if meta is not None else []
        if meta is not None and foreign:
            words.append(
                f"{kind} {meta.name} is being deleted but blocked by its finalizers {', '.join(foreign)}"
            )
    return said("; ".join(dict.fromkeys(words)))


def _uses(living: list[Sighting], gpu: str) -> tuple[tuple[NodeName, Resources], ...]:
    """Return what pods use of each node."""
    uses: dict[NodeName, Resources] = {}
    for each in living:
        node, used = NodeName(each.pod.spec.node_name), used_by(each.pod, gpu)
        uses[node] = uses[node] + used if node in uses else used
    return tuple(uses.items())


def _pending(known: KnownObject) -> Pending | None:
    """Return what keeps an attempt from starting; None if nothing does."""
    suspended = known.condition("Suspended")
    if suspended is not None:
        since = suspended.last_transition_time
        why = said(f"its Job is suspended: {suspended.message}")
        return Pending(Hindrance.REFUSED, why, moment_of(since) if since is not None else 0)
    for each in known.living:
        if found := _hindered(each):
            return found
    for note in reversed(known.notes):
        if note.reason == "FailedMount" or not known.living:
            return _noted(note)
    return None


def _hindered(each: Sighting) -> Pending | None:
    """Return what keeps a pod from starting, from its status."""
    made = each.pod.metadata.creation_timestamp
    since = moment_of(made) if made is not None else 0
    scheduled = each.condition("PodScheduled")
    if scheduled is not None and scheduled.last_transition_time is not None:
        since = moment_of(scheduled.last_transition_time)
    if scheduled is not None and scheduled.status == "False":
        words = scheduled.message or scheduled.reason or "its pod has no node yet"
        return Pending(Hindrance.UNSCHEDULABLE, said(words), since)
    for one in each.containers:
        waiting = one.state.waiting
        if waiting is None:
            continue
        why = Hindrance.IMAGE if waiting.reason in _NO_IMAGE else Hindrance.CONFIG
        if waiting.reason in _NO_IMAGE or waiting.reason in _NO_CONTAINER:
            return Pending(why, said(f"{waiting.reason}: {waiting.message}"), since)
    return None


def _noted(note: KubeEvent) -> Pending:
    """Return what keeps an attempt from starting, from a Kubernetes event."""
    why = NOTED[note.reason]
    if "error looking up service account" in note.message:
        why = Hindrance.CONFIG
    message = note.message.removeprefix("Error creating: ")
    return Pending(why, said(message), moment_of(note.began) if note.began is not None else 0)
