"""Kubernetes objects as received from a cluster, with only the fields that we read. Decoding skips all others.

Manifests that people write have a separate model in `wire/manifest.py`, which says why.

All content is untrusted. Decoding checks the form (`decoding.py`). The code that converts it to our values limits
numbers, text and times: amounts in `quantities.py` and `accounting.py`, the rest in `moment_of` and `said`.
"""

import re
from datetime import datetime
from typing import Annotated, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from spillover.model.bounds import bounded, plain
from spillover.model.units import time_of

T = TypeVar("T")

MOST_MESSAGE: Final = 2000
"""Most characters of a cluster's message to pass on; it may repeat all of its input."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoding may raise, whatever the bytes are."""
MOST_NAME: Final = 253
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=MOST_NAME, pattern=rf"\A(?:{_NAME})?\Z")]
"""Name of a node, pod or Job; empty if it has none."""
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
_NAMES: Final = re.compile(_NAME, re.ASCII)


def is_object_name(name: object) -> bool:
    """Return whether a node, pod or Job may have this name; it must also be safe in a URL path."""
    return isinstance(name, str) and len(name) <= MOST_NAME and _NAMES.fullmatch(name) is not None


def moment_of(when: datetime) -> int:
    """Convert a time to nanoseconds UTC, between 1970 and 2262."""
    return bounded(time_of(when))


def said(text: str) -> str:
    """Trim and sanitize a message of a cluster."""
    return plain(text.strip(), MOST_MESSAGE)


class _Object(Struct, frozen=True, rename="camel"):
    """Base of all objects; the JSON names are in camel case."""


class Meta(_Object, frozen=True):
    """Metadata of an object."""

    name: Name = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    """When its grace period after a deletion ends; None if it is not being deleted."""
    finalizers: tuple[str, ...] = ()
    """Finalizers that must be removed before the object can go."""


class Requirements(_Object, frozen=True):
    """Resource requests of a container or a pod."""

    requests: dict[str, str] = {}


class ContainerSpec(_Object, frozen=True):
    """Spec of a container."""

    name: str = ""
    resources: Requirements = Requirements()
    restart_policy: str = ""
    """`Always` for an init container that keeps running beside the others."""


class PodSpec(_Object, frozen=True):
    """Spec of a pod."""

    node_name: Name = ""
    termination_grace_period_seconds: int = 30
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    overhead: dict[str, str] = {}
    resources: Requirements = Requirements()
    """Requests of the pod as a whole, if it has any."""


class ContainerWaiting(_Object, frozen=True):
    """State of a container that does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerRunning(_Object, frozen=True):
    """State of a container that runs."""

    started_at: Moment | None = None


class Terminated(_Object, frozen=True):
    """State of a container that has ended."""

    exit_code: int = 0
    signal: int = 0
    """0 if unknown."""
    reason: str = ""
    message: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None


class ContainerState(_Object, frozen=True):
    """State of a container: one of these, or none if unknown."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True):
    """Status of a container."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """State before its last restart."""
    restart_count: int = 0
    resources: Requirements = Requirements()
    """Actual resources; they differ from the spec while a pod is resized."""


class ObjectCondition(_Object, frozen=True):
    """A condition of an object."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Moment | None = None

    @property
    def holds(self) -> bool:
        """Whether the condition is true."""
        return self.status == "True"


class PodStatus(_Object, frozen=True):
    """Status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: Moment | None = None
    conditions: tuple[ObjectCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Object, frozen=True):
    """A pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_over(self) -> bool:
        """Whether it has ended and will not run again."""
        return self.status.phase in {"Succeeded", "Failed"}


class NodeTaint(_Object, frozen=True):
    """A taint that keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True):
    """Spec of a node."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class NodeStatus(_Object, frozen=True):
    """Status of a node."""

    allocatable: dict[str, str] = {}
    conditions: tuple[ObjectCondition, ...] = ()


class KubeNode(_Object, frozen=True):
    """A node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class JobStatus(_Object, frozen=True):
    """Status of a Job."""

    succeeded: int = 0
    failed: int = 0
    start_time: Moment | None = None
    completion_time: Moment | None = None
    conditions: tuple[ObjectCondition, ...] = ()


class KubeJobSpec(_Object, frozen=True):
    """Spec of a Job: how many pods it runs."""

    parallelism: int = 1
    """Most pods at a time."""
    completions: int | None = None
    """How many pods must succeed; None if one success ends the Job once all pods have ended."""
    backoff_limit_per_index: int | None = None
    """How often each pod is retried by itself; None if a failure counts for the whole Job."""


class KubeJob(_Object, frozen=True):
    """A Job of `batch/v1`."""

    metadata: Meta = Meta()
    spec: KubeJobSpec = KubeJobSpec()
    status: JobStatus = JobStatus()


class Reference(_Object, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    name: str = ""


class KubeEvent(_Object, frozen=True):
    """A Kubernetes event about an object."""

    metadata: Meta = Meta()
    involved_object: Reference = Reference()
    reason: str = ""
    message: str = ""
    first_timestamp: Moment | None = None
    event_time: Moment | None = None

    @property
    def began(self) -> datetime | None:
        """When it first occurred."""
        return self.first_timestamp or self.event_time or self.metadata.creation_timestamp


class ListMeta(_Object, frozen=True):
    """Version of a list, and the token of its next page."""

    resource_version: str = ""
    more: str = field(default="", name="continue")
    """Token for the next page; empty on the last one."""


MOST_VERSION: Final = 20
"""Digits of a 64-bit number."""


def version_of(meta: Meta | ListMeta) -> int:
    """Return the position of an object or list in the order of all changes of a cluster; 0 if unknown."""
    version = meta.resource_version
    return int(version) if version.isascii() and version.isdigit() and len(version) <= MOST_VERSION else 0


class Page(_Object, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()


class ObjectChange(_Object, Generic[T], frozen=True):
    """One line of a watch."""

    type: str
    """`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`."""
    object: T


class Cause(_Object, frozen=True):
    """One cause of a refusal."""

    reason: str = ""
    message: str = ""


class Details(_Object, frozen=True):
    """Details of a refusal."""

    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(_Object, frozen=True):
    """A refusal of the API server."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details = Details()


class Complaint(_Object, frozen=True):
    """The line of a watch that reports an error."""

    object: Status = Status()
