"""Builds Kubernetes objects for tests, as an API server would send them."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import msgspec

from spillover.clusters.kubernetes.api.objects import KubeEvent, KubeJob, KubeNode, Pod
from spillover.clusters.kubernetes.attempts.naming import INDEX, labels_of, name_of
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.units import time_of

OWNER: Final = "0123456789ab"
NAMESPACE: Final = "batch"
LEASE: Final = Lease(JobId("abcdefghijkl"), 1, 2)
START: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
"""Time at which stories begin."""
_versions = count(1000)


class Leading:
    """The lead of a server, as set by a test."""

    def __init__(self, epoch: int = 3) -> None:
        self.epoch = epoch
        self.surely = True

    def leads(self) -> bool:
        """See Lead."""
        return self.surely


def at(seconds: float) -> datetime:
    """Return the time at some seconds after START."""
    return START + timedelta(seconds=seconds)


def when(seconds: float) -> int:
    """Return the same time in nanoseconds."""
    return time_of(at(seconds))


def a_condition(
    kind: str, reason: str = "", message: str = "", *, holds: bool = True, since: float = 0
) -> Any:
    """Return a condition of an object."""
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(since),
    }


def a_container(name: str = "main", restarts: int = 0, before: Any = None, **state: Any) -> Any:
    """Return the status of a container (`running`, `waiting` or `terminated`), and its state before a restart."""
    said: dict[str, Any] = {"name": name, "state": state, "restartCount": restarts}
    return said if before is None else said | {"lastState": {"terminated": before}}


def ended(code: int, start: float = 1, end: float = 5, reason: str = "", message: str = "") -> Any:
    """Return the end of a container."""
    return {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "message": message,
        "startedAt": at(start),
        "finishedAt": at(end),
    }


def a_pod(
    phase: str = "Pending",
    *containers: Any,
    lease: Lease | None = LEASE,
    name: str = "",
    node: str = "node-1",
    index: int | None = None,
    requests: dict[str, str] | None = None,
    deleted: float | None = None,
    made: float = 0,
    namespace: str = NAMESPACE,
    spec: dict[str, Any] | None = None,
    finalizers: tuple[str, ...] = (),
    **status: Any,
) -> Pod:
    """Return a pod; without a lease it belongs to somebody else."""
    labels = labels_of(lease, OWNER) if lease is not None else {}
    labels |= {} if index is None else {INDEX: str(index)}
    stem = name_of(lease) if lease is not None else "other"
    name = name or (f"{stem}-x" if index is None else f"{stem}-{index}-x")
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": str(next(_versions)),
        "labels": labels,
        "creationTimestamp": at(made),
        "finalizers": finalizers,
    }
    meta |= {} if deleted is None else {"deletionTimestamp": at(deleted)}
    wanted = {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests or {}}}]}
    return msgspec.convert(
        {
            "metadata": meta,
            "spec": wanted | (spec or {}),
            "status": {"phase": phase, "containerStatuses": containers, **status},
        },
        Pod,
    )


def a_job(
    *conditions: Any,
    lease: Lease = LEASE,
    uid: str = "",
    deleted: float | None = None,
    spec: dict[str, int] | None = None,
    **status: Any,
) -> KubeJob:
    """Return a Job of ours."""
    meta: dict[str, Any] = {
        "name": name_of(lease),
        "namespace": NAMESPACE,
        "uid": uid or f"uid-{name_of(lease)}",
        "resourceVersion": str(next(_versions)),
        "labels": labels_of(lease, OWNER),
        "creationTimestamp": at(0),
    }
    meta |= {} if deleted is None else {"deletionTimestamp": at(deleted)}
    return msgspec.convert(
        {"metadata": meta, "spec": spec or {}, "status": {"conditions": conditions, **status}}, KubeJob
    )


def a_node(
    name: str = "node-1",
    *,
    ready: bool = True,
    labels: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    **spec: Any,
) -> KubeNode:
    """Return a node."""
    conditions = [a_condition("Ready", holds=ready)]
    has = {"cpu": "4", "memory": "8Gi", "pods": "110"} if allocatable is None else allocatable
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels or {}},
            "spec": spec,
            "status": {"allocatable": has, "conditions": conditions},
        },
        KubeNode,
    )


def a_note(reason: str, message: str, about: str, since: float = 0) -> KubeEvent:
    """Return an event of Kubernetes about an object."""
    return msgspec.convert(
        {
            "metadata": {"name": f"{about}.{reason}"},
            "involvedObject": {"name": about},
            "reason": reason,
            "message": message,
            "firstTimestamp": at(since),
        },
        KubeEvent,
    )
