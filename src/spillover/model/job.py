"""A submitted job after parsing and checking.

`JobSpec` is the whole job, stored once for each distinct content. `Shape` and `Terms` are the parts that scheduling
uses. They are separate, so that a million queued jobs can share them.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from spillover.model.files import File
from spillover.model.ids import JobId
from spillover.model.notifications import Notify
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.model.units import MINUTE, SECOND
from spillover.model.where import Rules, Where

WALLTIME_SLACK: Final = 30 * SECOND
"""How long an agent may take beyond the grace to end a task at its walltime, before the server stops it too."""
PYLOCK: Final = "pylock.toml"
"""Usual name of a lock file of PEP 751."""
_PYLOCK: Final = re.compile(r"pylock(\.[^.]+)?\.toml")


class Burst(StrEnum):
    """Whether a job may run on rented capacity."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


NEVER: Final = Burst.NEVER  # module globals for speed, as in `cluster`
ALWAYS: Final = Burst.ALWAYS


class On(StrEnum):
    """Which end of another job lets a job begin."""

    SUCCESS = "success"
    ANY = "any"
    FAILURE = "failure"

    def met(self, *, succeeded: bool) -> bool:
        """Return whether a job that ended this way lets the other begin."""
        return self is On.ANY or succeeded == (self is On.SUCCESS)


class OnFailure(StrEnum):
    """What happens to a job whose cluster fails while the job is there."""

    WAIT = "wait"
    """It waits until the cluster returns, so nothing runs twice."""
    REQUEUE = "requeue"
    """It counts as lost and runs elsewhere. Both runs may overlap, but only one result counts."""
    CANCEL = "cancel"


class OnTaskFailure(StrEnum):
    """What happens to a gang when one of its tasks fails."""

    FAIL = "fail"
    """The other tasks are stopped, and the attempt fails."""
    IGNORE = "ignore"
    """The other tasks go on. The attempt fails only if all of them fail."""
    RESTART = "restart"
    """The task starts again in its place, and uses up one of `retry.exit`. If none is left, it is as FAIL."""


class OnTaskSuccess(StrEnum):
    """What happens to a gang when its first task succeeds."""

    WAIT = "wait"
    """The other tasks go on until they end."""
    END = "end"
    """The other tasks are stopped, and the job has succeeded."""


class Shell(Struct, frozen=True, tag="shell"):
    """A command line for /bin/sh."""

    run: str


class Argv(Struct, frozen=True, tag="argv"):
    """A program and its arguments, run without a shell."""

    command: tuple[str, ...]


class EarlierValue(Struct, frozen=True, array_like=True):
    """What an earlier call returned, as an argument of a later one."""

    job: str
    """Its full id; that of a member for a call of a map."""
    value: bytes = b""
    digest: str = ""
    """The value itself, or its blob. Both are empty in a spec: the server adds them when it sends the task."""


class PythonCall(Struct, frozen=True, tag="python"):
    """A call of a module's function with plain data, or of a pickled function."""

    call: str = ""
    """`module:function`; empty for a pickled function."""
    args: tuple[object, ...] = ()
    """Plain data, for `call`."""
    function: str = ""
    """Digest of the blob with the pickled function; empty for `call`."""
    arguments: bytes = b""
    """Pickled `(args, kwargs)` for it; empty if there are none."""
    items: str = ""
    """Digest of the blob with items; each array member gets one before its other arguments. Empty if there are none."""
    first: int = 0
    """The index of the array member that gets the first item."""
    values: tuple[EarlierValue, ...] = ()
    """Values of earlier calls that its arguments and items refer to by their places here."""


class Container(Struct, frozen=True, tag="container"):
    """A command in an image."""

    image: str
    command: tuple[str, ...] = ()
    """Empty means the entry point of the image."""
    manifest: str | None = None
    """The Kubernetes Job manifest that was submitted, as JSON; None for our own format."""


Work: TypeAlias = Shell | Argv | PythonCall | Container


class Retry(Struct, frozen=True, array_like=True, gc=False):
    """How many times a job is retried, for each cause separately."""

    exit: int = 0
    """After a nonzero exit code or a signal."""
    lost: int = 3
    """After its agent or cluster was lost."""


class Range(Struct, frozen=True, array_like=True, gc=False):
    """Indexes of an array, including both ends."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


class After(Struct, frozen=True, array_like=True, gc=False):
    """A job that must end before another one begins."""

    job: JobId
    on: On = On.SUCCESS


class AfterMembers(Struct, frozen=True, array_like=True):
    """An array whose members those of another one wait for, each for that with its own index."""

    job: JobId
    on: On
    members: tuple[Range, ...]
    """The members that wait; sorted and without overlap."""


class TaskGroup(Struct, frozen=True, array_like=True, gc=False):
    """Tasks of a gang that are alike."""

    name: str
    tasks: int
    resources: Resources
    """Of each task."""
    pin: str = ""
    """Whether each task has whole cores for itself, as in `Topology`; empty is no."""
    link: str = ""
    """The kind of link between the GPUs of each task, as in `Topology`; empty is none."""


class Shape(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """What a job asks of machines. Jobs of one shape fit in the same places."""

    resources: Resources
    needs: tuple[str, ...] = ()
    """Words that a machine must offer, sorted."""
    tasks: int = 1
    """More than one is a gang: all tasks start or none."""
    burst: Burst = Burst.AUTO
    rest: Resources | None = None
    """Resources of the last task of a gang, if it asks for less than the others; None if all are equal."""
    runs: tuple[str, ...] = ()
    """Work that a cluster must support, sorted: `command`, `files`, `pods`, `python`, `secrets`, `task_rules` (`container` is in
    `needs`).
    """
    where: Where | None = None
    """What it asks of clusters; None is nothing."""
    rules: Rules | None = None
    """What it asks of the nodes of its tasks; None is nothing."""
    topology: Topology | None = None
    """Where its tasks must be relative to each other and to other jobs; None is anywhere. Not together with `rest`.
    With groups, they say what their tasks ask for inside of machines.
    """
    groups: tuple[TaskGroup, ...] = ()
    """Groups of unlike tasks in the order of their ranks; empty if there are none. `tasks` counts the tasks of all
    groups, and `resources` are those of the group that is placed first. Not together with `rest` or `most`.
    """
    most: int = 0
    """The most tasks of a gang of elastic size, of which `tasks` is the least; 0 if the size is fixed. See `sized`."""
    reservation: str = ""
    """The advance reservation that it runs in, and nowhere else; empty if it names none."""

    @property
    def is_gang(self) -> bool:
        """Whether it has several tasks, or could have."""
        return self.tasks > 1 or self.most > 0

    @property
    def parts(self) -> "tuple[Part, ...]":
        """Its tasks in parts that are alike, in the order in which they are placed: one, unless it has unlike tasks."""
        return _parts(self) if self.groups or self.rest is not None else (Part(0, self),)

    @property
    def asks_inside(self) -> bool:
        """Whether any of its tasks asks for something inside of machines."""
        if self.groups:
            return any(group.pin or group.link for group in self.groups)
        return self.topology is not None and self.topology.asks_inside

    @property
    def least(self) -> "Shape":
        """The shape of one task that asks for no more than any: where that does not fit, no task fits."""
        if self.rest is None and not self.groups:
            return self
        return _alike(self, self.smallest, 1)

    @property
    def smallest(self) -> Resources:
        """The least of each resource that any task asks for: where there is less, no task fits."""
        if self.rest is not None:
            return self.rest
        return _smallest(self.groups) if self.groups else self.resources

    @property
    def total(self) -> Resources:
        """The resources of all tasks together; of elastic size, of the least number of tasks."""
        one, tasks = self.resources, self.tasks
        if tasks == 1:
            return one
        if self.rest is not None or self.groups:
            return _total(self)
        return one.times(tasks)

    def topology_of(self, rank: int) -> Topology | None:
        """Return what one of its tasks asks of the machines around it, and for inside of its own."""
        if not self.groups:
            return self.topology
        part = max([part for part in self.parts if part.first <= rank], key=lambda part: part.first)
        return part.shape.topology

    def sized(self, tasks: int) -> "Shape":
        """Return the shape of a gang of elastic size that got this many tasks."""
        return _sized(self, tasks) if self.most else self


class Part(NamedTuple):
    """Tasks of a gang that are alike, and so have consecutive ranks."""

    first: int
    """The lowest rank."""
    shape: Shape
    """The shape of a gang of these tasks alone."""


@lru_cache(maxsize=1024)
def _parts(shape: Shape) -> tuple[Part, ...]:
    """Return the parts of a gang with unlike tasks. The largest come first, because they are the hardest to place."""
    if shape.rest is not None:
        return (
            Part(0, _alike(shape, shape.resources, shape.tasks - 1)),
            Part(shape.tasks - 1, _alike(shape, shape.rest, 1)),
        )
    found: list[Part] = []
    first = 0
    for group in shape.groups:
        found.append(Part(first, _alike(shape, group.resources, group.tasks, group.pin, group.link)))
        first += group.tasks
    return tuple(sorted(found, key=lambda part: largest_first(part.shape.resources)))


def _alike(shape: Shape, resources: Resources, tasks: int, pin: str = "", link: str = "") -> Shape:
    """Return the shape of some tasks of a gang alone. One task of a gang is a gang too, see `_sized`."""
    topology = shape.topology
    if pin or link:
        topology = replace(topology or Topology(), pin=pin, link=link)
    return replace(
        shape,
        resources=resources,
        tasks=tasks,
        rest=None,
        topology=topology,
        groups=(),
        most=0 if tasks > 1 else 1,
    )


def largest_first(asked: Resources) -> tuple[int, int, int]:
    """Return the key that sorts groups of tasks in the order in which they are placed."""
    return -asked.gpu, -asked.cpu, -asked.memory


@lru_cache(maxsize=1024)
def _total(shape: Shape) -> Resources:
    total = Resources()
    for _, part in shape.parts:
        total += part.resources.times(part.tasks)
    return total


@lru_cache(maxsize=1024)
def _smallest(groups: tuple[TaskGroup, ...]) -> Resources:
    asked = [group.resources for group in groups]
    common = [(name, [dict(each.other).get(name, 0) for each in asked]) for name, _ in asked[0].other]
    return Resources(
        min(each.cpu for each in asked),
        min(each.memory for each in asked),
        min(each.gpu for each in asked),
        tuple([(name, min(amounts)) for name, amounts in common if min(amounts)]),
    )


@lru_cache(maxsize=4096)
def _sized(shape: Shape, tasks: int) -> Shape:
    return replace(
        shape, tasks=tasks, most=0 if tasks > 1 else 1
    )  # one task is a gang too, if it could be more


class Terms(Struct, frozen=True, array_like=True, gc=False):
    """How long a job may take, and how it is retried."""

    walltime: int | None = None
    """Nanoseconds; None is no limit."""
    estimate: int | None = None
    """The owner's estimate in nanoseconds; None if there is none."""
    grace: int = 10 * SECOND
    """Nanoseconds between TERM and KILL."""
    lost_after: int = 5 * MINUTE
    """Nanoseconds that a started task continues while the server is unreachable."""
    retry: Retry = Retry()
    max_cost: int | None = None
    """The most that renting may cost, in millionths for all attempts; None is no limit."""
    data: int = 0
    """Bytes that leave the cluster at the end of each attempt, for egress prices."""
    on_cluster_failure: OnFailure = OnFailure.WAIT
    """For external clusters. Tasks of an agent are lost when their leases expire."""
    on_task_failure: OnTaskFailure = OnTaskFailure.FAIL
    """For gangs on agents."""
    on_task_success: OnTaskSuccess = OnTaskSuccess.WAIT
    """For gangs on agents; only the success of the first task counts."""


class GroupWork(Struct, frozen=True):
    """What the tasks of one group of a gang run."""

    work: Work
    env: dict[str, str] = field(default_factory=dict)
    """Variables in addition to those of the job."""


class Environment(Struct, frozen=True):
    """The Python environment of a job, on agents: one that they have by name, one that they build, or an image."""

    name: str = ""
    """Of an environment of the agent; empty if it has none by name."""
    requirements: str = ""
    """Name of the file that lists its packages, as written; empty for any other."""
    text: str | None = None
    """The content of that file; None until the client has read it."""
    image: str = ""
    """The container image in which a Python call is made; empty for any other."""

    @property
    def is_lock(self) -> bool:
        """Whether its packages are in a lock file of PEP 751, and not in a list for `pip install -r`."""
        return is_pylock(self.requirements)


def is_pylock(path: str) -> bool:
    """Return whether a file has one of the names that PEP 751 gives to lock files. Installers go by it."""
    return _PYLOCK.fullmatch(path.rpartition("/")[2]) is not None


class SecretUse(Struct, frozen=True, array_like=True):
    """A secret of its project that a job gets. The value is in no spec."""

    name: str
    variable: str
    """The variable that has the value, or the path of the file with it."""
    file: bool = False
    """Whether the value is in a file."""


class FromMembers(StrEnum):
    """Which members of an array a job takes output files from."""

    SAME = "same"
    """Each member of an array takes those of the member with its own index."""
    ALL = "all"
    """All members, into folders by index."""


class FromJob(Struct, frozen=True, array_like=True):
    """Output files of another job that are inputs of this one."""

    job: str
    """As written before the submission. Afterwards the full id: of a job, of a member, or of an array with `members`."""
    path: str
    """Path, folder or pattern among its output files."""
    to: str = ""
    """Path where this job runs; with a trailing slash, the folder to put it into. Empty keeps the path."""
    members: FromMembers | None = None
    """Before the submission, None leaves it to the kinds of the two jobs. Afterwards, None is no array."""
    indexes: tuple[Range, ...] = ()
    """The members of the array, if all are meant; set at the submission."""


class JobSpec(Struct, frozen=True):
    """Everything that was submitted for one job or array."""

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
    """Latest end, nanoseconds UTC; None is no deadline."""
    not_before: int | None = None
    """Earliest start, nanoseconds UTC; None is at once."""
    array: tuple[Range, ...] = ()
    """Sorted and without overlap; empty for a single job."""
    after: tuple[str, ...] = ()
    """Each dependency as written, with its condition and `same` behind spaces; only for display."""
    inputs: tuple[File, ...] = ()
    """Files for the folder of each task. With `inputs` or `outputs`, each task has a folder of its own."""
    outputs: tuple[str, ...] = ()
    """Paths and patterns of the files to store afterwards."""
    groups: tuple[GroupWork, ...] = ()
    """What each group of `shape.groups` runs; empty if there are none. `work` is that of the first group."""
    hold: bool = False
    """Whether its owner holds it from the start."""
    throttle: int = 0
    """Most members of the array that are placed at a time; 0 is all."""
    singleton: bool = False
    """Whether earlier jobs of the same user, project and name must have ended before it begins."""
    stdout: str = ""
    """Path on its machine that its output goes to, with patterns such as `%A`; empty is the log alone."""
    stderr: str = ""
    """The same for its errors."""
    append: bool = False
    """Whether it appends to these files; otherwise they are truncated when a task starts."""
    signal: str = ""
    """The signal that each task gets before its walltime, such as `USR1`; empty is none."""
    signal_before: int = 0
    """Nanoseconds before the walltime at which it comes."""
    keep_state: bool = False
    """Whether each task has a folder that later attempts get."""
    environment: Environment | None = None
    """The Python environment that its tasks run in; None is that of the agent."""
    stdin: File | None = None
    """What each of its tasks reads as standard input, from the start in each attempt; None is nothing."""
    terminal: bool = False
    """Whether it runs in a terminal, to which people attach."""
    taken: tuple[FromJob, ...] = ()
    """Output files of other jobs. They become `inputs` of each task when it is sent."""
    secrets: tuple[SecretUse, ...] = ()
    """Secrets that each of its tasks gets when it starts; only their names are here."""
    notify: tuple[Notify, ...] = ()
    """Who is told when it begins or ends."""

    @property
    def needs_blobs(self) -> bool:
        """Whether it needs stored files to run."""
        return bool(self.taken or self.digests)

    @property
    def files(self) -> tuple[File, ...]:
        """All files that are copied to its tasks: inputs, and standard input."""
        return self.inputs if self.stdin is None else (*self.inputs, self.stdin)

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of all blobs that it needs to run; those of `files` come first."""
        files = self.files
        needed = tuple([file.digest for file in files]) if files else ()
        if type(self.work) is PythonCall:
            needed += _calls(self.work)
        for group in self.groups[1:] if self.groups else ():
            if type(group.work) is PythonCall:
                needed += _calls(group.work)
        return needed


def _calls(work: PythonCall) -> tuple[str, ...]:
    """Return the digests of the blobs of a call."""
    return tuple([digest for digest in (work.function, work.items) if digest])
