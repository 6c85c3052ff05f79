"""Objects of Kubernetes, as much of each as is read here. Everything else in them is passed over undecoded.

These are watched on a cluster. Manifests that people write have a model of their own in `wire/manifest.py`, which says why.

What they say comes from outside. Their form is checked when they are decoded (`decoding.py`); numbers, texts and times are brought within
bounds where they are read into our values: amounts in `quantities.py` and `accounting.py`, the rest by `moment_of` and `said`.
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
"""Characters of what a cluster says that are passed on; it may show all that it was given."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding may raise, whatever the bytes are."""
MOST_NAME: Final = 253
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=MOST_NAME, pattern=rf"\A(?:{_NAME})?\Z")]
"""What a node, a pod or a Job may be called; empty if nobody says."""
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
_NAMES: Final = re.compile(_NAME, re.ASCII)


def is_object_name(name: object) -> bool:
    """Whether a node, a pod or a Job may be called this: nothing that leads elsewhere in an address."""
    return isinstance(name, str) and len(name) <= MOST_NAME and _NAMES.fullmatch(name) is not None


def moment_of(when: datetime) -> int:
    """A time as nanoseconds UTC, not before 1970 nor after 2262."""
    return bounded(time_of(when))


def said(text: str) -> str:
    """What a cluster says, as it is passed on."""
    return plain(text.strip(), MOST_MESSAGE)


class _Object(Struct, frozen=True, rename="camel"):
    """Base: names are written as Kubernetes writes them."""


class Meta(_Object, frozen=True):
    """What every object has."""

    name: Name = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    """When it is to be gone; None if nobody has asked for that."""
    finalizers: tuple[str, ...] = ()
    """Who has to let it go before that."""


class Requirements(_Object, frozen=True):
    """What a container, or a pod as a whole, asks for."""

    requests: dict[str, str] = {}


class ContainerSpec(_Object, frozen=True):
    """A container of a pod, as it is wanted."""

    name: str = ""
    resources: Requirements = Requirements()
    restart_policy: str = ""
    """`Always` for an init container that goes on beside the others."""


class PodSpec(_Object, frozen=True):
    """A pod as it is wanted."""

    node_name: Name = ""
    termination_grace_period_seconds: int = 30
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    overhead: dict[str, str] = {}
    resources: Requirements = Requirements()
    """Of the pod as a whole, where somebody said so."""


class ContainerWaiting(_Object, frozen=True):
    """A container that does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerRunning(_Object, frozen=True):
    """A container that runs."""

    started_at: Moment | None = None


class Terminated(_Object, frozen=True):
    """A container that has ended."""

    exit_code: int = 0
    signal: int = 0
    """0 if it does not say."""
    reason: str = ""
    message: str = ""
    started_at: Moment | None = None
    finished_at: Moment | None = None


class ContainerState(_Object, frozen=True):
    """How a container is: one of these, or none if nothing is known."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True):
    """A container of a pod, as it is."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How it was before it was last restarted."""
    restart_count: int = 0
    resources: Requirements = Requirements()
    """What it really has, which differs from what is wanted while a pod is resized."""


class ObjectCondition(_Object, frozen=True):
    """One thing that holds of an object, or does not."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Moment | None = None

    @property
    def holds(self) -> bool:
        """Whether it is so."""
        return self.status == "True"


class PodStatus(_Object, frozen=True):
    """A pod as it is."""

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
        """Whether nothing of it runs any more, or ever will."""
        return self.status.phase in {"Succeeded", "Failed"}


class NodeTaint(_Object, frozen=True):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True):
    """A node as it is wanted."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class NodeStatus(_Object, frozen=True):
    """A node as it is."""

    allocatable: dict[str, str] = {}
    conditions: tuple[ObjectCondition, ...] = ()


class KubeNode(_Object, frozen=True):
    """A node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class JobStatus(_Object, frozen=True):
    """A Job as it is."""

    succeeded: int = 0
    failed: int = 0
    start_time: Moment | None = None
    completion_time: Moment | None = None
    conditions: tuple[ObjectCondition, ...] = ()


class KubeJob(_Object, frozen=True):
    """A Job of `batch/v1`."""

    metadata: Meta = Meta()
    status: JobStatus = JobStatus()


class Reference(_Object, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""


class KubeEvent(_Object, frozen=True):
    """Something that Kubernetes has noted about an object."""

    metadata: Meta = Meta()
    involved_object: Reference = Reference()
    reason: str = ""
    message: str = ""
    first_timestamp: Moment | None = None
    event_time: Moment | None = None

    @property
    def began(self) -> datetime | None:
        """When it was first noted."""
        return self.first_timestamp or self.event_time or self.metadata.creation_timestamp


class ListMeta(_Object, frozen=True):
    """Of when a list is, and where its next page begins."""

    resource_version: str = ""
    more: str = field(default="", name="continue")
    """What to ask for the next page with; empty on the last one."""


MOST_VERSION: Final = 20
"""Digits: as many as a number of 64 bits has."""


def version_of(meta: Meta | ListMeta) -> int:
    """When an object was last changed, or of when a list is, in the order of all changes of a cluster; 0 if that is not a number."""
    version = meta.resource_version
    return int(version) if version.isascii() and version.isdigit() and len(version) <= MOST_VERSION else 0


class Page(_Object, Generic[T], frozen=True):
    """Some objects of a kind."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()


class ObjectChange(_Object, Generic[T], frozen=True):
    """One line of a watch."""

    type: str
    """`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`."""
    object: T


class Cause(_Object, frozen=True):
    """One of the things that are wrong."""

    reason: str = ""
    message: str = ""


class Details(_Object, frozen=True):
    """What else a refusal says."""

    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(_Object, frozen=True):
    """How Kubernetes refuses."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details = Details()


class Complaint(_Object, frozen=True):
    """The line of a watch that says why it ends."""

    object: Status = Status()
