"""What is to be told of an attempt: how far it is, where it is, what keeps it and how it ended."""

from typing import Final

from spillover.clusters.kubernetes.accounting import used_by
from spillover.clusters.kubernetes.endings import ending_of
from spillover.clusters.kubernetes.objects import KubeEvent, moment_of, said
from spillover.clusters.kubernetes.sightings import NO_INDEX, KnownObject, Sighting
from spillover.core.events import Lease
from spillover.forms.pods import GPU
from spillover.model.ids import NodeName
from spillover.model.resources import Resources
from spillover.ports.driver import Hindrance, Pending, Seen, Stage

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
"""Finalizers that Kubernetes itself takes away."""
NOTED: Final = {"FailedCreate": Hindrance.REFUSED, "FailedMount": Hindrance.CONFIG}
"""What of all that Kubernetes notes is read, as objects do not say it themselves."""


def read(lease: Lease, known: KnownObject, gpu: str = GPU) -> Seen:
    """An attempt as it is seen."""
    job = known.job
    ending = ending_of(known)
    started = min([time for each in known.pods if (time := each.started) is not None], default=None)
    ran = started is not None or (job is not None and bool(job.status.succeeded or job.status.failed))
    stage = Stage.ENDED if ending is not None else Stage.RUNNING if ran else Stage.PENDING
    living = [each for each in known.living if each.pod.spec.node_name]
    going = job is None or job.metadata.deletion_timestamp is not None
    return Seen(
        lease,
        stage,
        going,
        started,
        tuple([NodeName(each.pod.spec.node_name) for each in living]),
        () if ending is not None else _uses(living, gpu),
        _pending(known) if stage is Stage.PENDING else None,
        ending,
        going and not any(_may_run(each) for each in known.living),
        _held(known) if going else "",
        tuple(sorted({each.index for each in known.pods if each.started is not None} - {NO_INDEX})),
    )


def _may_run(living: Sighting) -> bool:
    """Whether a pod that is not over may run: no scheduler gives a node to one that is being deleted."""
    return bool(living.pod.spec.node_name) or living.pod.metadata.deletion_timestamp is None


def _held(known: KnownObject) -> str:
    """What keeps objects that are being deleted; empty if they are on their way."""
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
            words.append(f"{kind} {meta.name} is deleted and kept by its finalizers {', '.join(foreign)}")
    return said("; ".join(dict.fromkeys(words)))


def _uses(living: list[Sighting], gpu: str) -> tuple[tuple[NodeName, Resources], ...]:
    """What pods take of each node."""
    uses: dict[NodeName, Resources] = {}
    for each in living:
        node, used = NodeName(each.pod.spec.node_name), used_by(each.pod, gpu)
        uses[node] = uses[node] + used if node in uses else used
    return tuple(uses.items())


def _pending(known: KnownObject) -> Pending | None:
    """What keeps an attempt from starting; None if it is on its way."""
    suspended = known.condition("Suspended")
    if suspended is not None:
        since = suspended.last_transition_time
        why = said(f"somebody has suspended its Job: {suspended.message}")
        return Pending(Hindrance.REFUSED, why, moment_of(since) if since is not None else 0)
    for each in known.living:
        if found := _hindered(each):
            return found
    for note in reversed(known.notes):
        if note.reason == "FailedMount" or not known.living:
            return _noted(note)
    return None


def _hindered(each: Sighting) -> Pending | None:
    """What keeps a pod from starting, as it says itself."""
    made = each.pod.metadata.creation_timestamp
    since = moment_of(made) if made is not None else 0
    scheduled = each.condition("PodScheduled")
    if scheduled is not None and scheduled.last_transition_time is not None:
        since = moment_of(scheduled.last_transition_time)
    if scheduled is not None and scheduled.status == "False":
        words = scheduled.message or scheduled.reason or "its pod is not bound to a node"
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
    """What keeps an attempt from starting, as somebody noted."""
    why = NOTED[note.reason]
    if "error looking up service account" in note.message:
        why = Hindrance.CONFIG
    message = note.message.removeprefix("Error creating: ")
    return Pending(why, said(message), moment_of(note.began) if note.began is not None else 0)
