"""What a person submits, after it was read and checked.

`JobSpec` is the whole; it is stored once for each distinct content. `Shape` and `Terms` are the parts that deciding looks at,
kept apart so that a million queued jobs can share them.
"""

from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spillover.model.files import File
from spillover.model.ids import JobId
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.model.where import Rules, Where

WALLTIME_SLACK: Final = 30 * SECOND
"""How long an agent may take to end a task at its walltime, beyond its grace, before the server asks for it too."""


class Burst(StrEnum):
    """Whether a job may run on rented capacity."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


NEVER: Final = Burst.NEVER  # as `OWNED` in `cluster`
ALWAYS: Final = Burst.ALWAYS


class On(StrEnum):
    """Which end of another job lets a job begin."""

    SUCCESS = "success"
    ANY = "any"


class OnFailure(StrEnum):
    """What becomes of a job whose cluster has failed while the job was there."""

    WAIT = "wait"
    """It waits for the cluster to come back: nothing runs twice."""
    REQUEUE = "requeue"
    """It counts as lost and runs elsewhere; what runs there may overlap with it, and one result counts."""
    CANCEL = "cancel"


class Shell(Struct, frozen=True, tag="shell"):
    """A line for /bin/sh."""

    run: str


class Argv(Struct, frozen=True, tag="argv"):
    """A program and its arguments, run as they are."""

    command: tuple[str, ...]


class PythonCall(Struct, frozen=True, tag="python"):
    """A function of a module that is called with plain data, or one that was pickled."""

    call: str = ""
    """`module:function`; empty if it was pickled."""
    args: tuple[object, ...] = ()
    """Plain data, for `call`."""
    function: str = ""
    """Digest of the blob with the pickled function; empty for one of a module."""
    arguments: bytes = b""
    """Pickled `(args, kwargs)` for it; empty if there are none."""
    items: str = ""
    """Digest of the blob with items, of which each member of an array gets one before other arguments; empty if there are none."""
    first: int = 0
    """The index of the array's member that gets the first item."""


class Container(Struct, frozen=True, tag="container"):
    """A command in an image."""

    image: str
    command: tuple[str, ...] = ()
    """Empty means the image's own entry point."""
    manifest: str | None = None
    """The Kubernetes Job manifest it was written as, as JSON; None for our own form."""


Work: TypeAlias = Shell | Argv | PythonCall | Container


class Retry(Struct, frozen=True, array_like=True, gc=False):
    """How often a job is tried again, for each cause on its own."""

    exit: int = 0
    """After an exit code that is not 0, or a signal."""
    lost: int = 3
    """After its agent or cluster was lost."""


class After(Struct, frozen=True, array_like=True, gc=False):
    """A job that must have ended before another one begins."""

    job: JobId
    on: On = On.SUCCESS


class Range(Struct, frozen=True, array_like=True, gc=False):
    """Indexes of an array, both ends included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


class Shape(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What a job needs from a machine. Jobs of one shape fit wherever one of them does."""

    resources: Resources
    needs: tuple[str, ...] = ()
    """Words that the cluster must offer, sorted."""
    tasks: int = 1
    """More than one is a gang: all start or none."""
    burst: Burst = Burst.AUTO
    rest: Resources | None = None
    """What the last task of a gang asks for, if that is less than the others do; None if all are alike."""
    runs: tuple[str, ...] = ()
    """What a cluster must be able to do for it, sorted: `command`, `files`, `pods`, `python`; `container` is a word of `needs`."""
    where: Where | None = None
    """What it asks of clusters; None is nothing."""
    rules: Rules | None = None
    """What it asks of the nodes that its tasks run on; None is nothing."""

    @property
    def least(self) -> "Shape":
        """Of the smallest task: where that does not fit, none does."""
        return self if self.rest is None else replace(self, resources=self.rest, tasks=1, rest=None)

    @property
    def total(self) -> Resources:
        """What all tasks together ask for."""
        one, tasks = self.resources, self.tasks
        if tasks == 1:
            return one
        if self.rest is not None:
            return one.times(tasks - 1) + self.rest
        return one.times(tasks)


class Terms(Struct, frozen=True, array_like=True, gc=False):
    """How long a job may take and how it is retried."""

    walltime: int | None = None
    """Nanoseconds; None is no limit."""
    estimate: int | None = None
    """Nanoseconds, as the person expects; None means the walltime, else a default."""
    grace: int = 10 * SECOND
    """Nanoseconds between TERM and KILL."""
    lost_after: int = 5 * MINUTE
    """Nanoseconds that a started task outlives an unreachable server."""
    retry: Retry = Retry()
    max_cost: int | None = None
    """Millionths that renting may cost, of all attempts together; None is no limit."""
    data: int = 0
    """Bytes that leave the cluster at the end of each attempt, which is paid for where that has a price."""
    on_cluster_failure: OnFailure = OnFailure.WAIT
    """Of an external cluster; what an agent holds is lost when its lease runs out."""


class JobSpec(Struct, frozen=True):
    """Everything that was submitted for one job, or for one array."""

    work: Work
    name: str
    project: str
    queue: str
    shape: Shape
    terms: Terms = Terms()
    labels: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "."
    priority: int = 0
    deadline: int | None = None
    """Latest finish, nanoseconds UTC; None is no deadline."""
    not_before: int | None = None
    """Earliest start, nanoseconds UTC; None is at once."""
    array: tuple[Range, ...] = ()
    """Sorted and apart; empty for a single job."""
    after: tuple[str, ...] = ()
    """What was written for each job to wait for, with its condition behind a space; kept to be shown."""
    inputs: tuple[File, ...] = ()
    """Put into the folder that each task runs in; with these or `outputs` that is one of its own."""
    outputs: tuple[str, ...] = ()
    """Paths and patterns of what is brought back from it."""

    @property
    def digests(self) -> tuple[str, ...]:
        """Of all blobs that it needs to run."""
        needed = tuple([file.digest for file in self.inputs])
        if type(self.work) is PythonCall:
            needed += tuple([digest for digest in (self.work.function, self.work.items) if digest])
        return needed
