"""Named queues: what jobs get in them by default, who may use them, and how much may run in them at a time."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.model import ranges
from spillover.model.job import Burst, JobSpec, Shape
from spillover.model.resources import Resources, format_amount
from spillover.model.units import format_duration
from spillover.model.where import Where

USUAL: Final = "default"
"""The queue that a job names if it names none. It stands for the default queue, whatever that is called."""
_ONE_CPU: Final = 1000
_AMOUNTS: Final = ("cpu", "memory", "gpu")


class QueueLimits(Struct, frozen=True, array_like=True, gc=False):
    """How much of the jobs of a queue may be there at a time; 0 is any amount."""

    running: int = 0
    """Jobs and members of arrays that are placed or running."""
    resources: Resources = Resources()
    """What those hold, all tasks together."""
    queued: int = 0
    """Jobs and members of arrays that wait, with those that are held."""

    @property
    def bounds_running(self) -> bool:
        """Whether jobs may have to wait because others run."""
        return self.running > 0 or self.resources != Resources()


class QueueSize(Struct, frozen=True, array_like=True, gc=False):
    """The largest job of a queue, all tasks together; None is any size."""

    cpu: int | None = None
    """Thousandths of a CPU."""
    memory: int | None = None
    """Bytes."""
    gpu: int | None = None
    tasks: int | None = None


class QueueDefaults(Struct, frozen=True, array_like=True, gc=False):
    """What a job of a queue gets that asks for nothing else."""

    walltime: int | None = None
    """Nanoseconds; None is the longest that the queue allows."""
    estimate: int | None = None
    """Nanoseconds; None is no estimate."""
    resources: Resources = Resources()
    """Of each task; 0 is what jobs have anyway."""
    priority: int = 0
    burst: Burst = Burst.AUTO
    max_cost: int | None = None
    """Millionths; None is no limit."""


class QueueSpec(Struct, frozen=True, array_like=True, gc=False):
    """One queue, as configured."""

    name: str
    description: str = ""
    default: bool = False
    """Whether jobs that name no queue go there."""
    defaults: QueueDefaults = QueueDefaults()
    total: QueueLimits = QueueLimits()
    """For all jobs together."""
    each: QueueLimits = QueueLimits()
    """For the jobs of each user."""
    walltime: int | None = None
    """The longest walltime, nanoseconds; None is any."""
    size: QueueSize = QueueSize()
    projects: tuple[str, ...] = ()
    """Projects that may use it; empty is all."""
    users: tuple[str, ...] = ()
    """Users who may use it; empty is all."""
    clusters: tuple[str, ...] = ()
    """Clusters that its jobs may run on; empty is all."""
    priority: int = 0
    """Added to the priority of each job."""

    @property
    def gives_walltime(self) -> bool:
        """Whether jobs without a walltime get one."""
        return self.walltime is not None or self.defaults.walltime is not None

    def completed(self, spec: JobSpec) -> JobSpec:
        """Return a job with the defaults of this queue."""
        given, terms, shape = self.defaults, spec.terms, spec.shape
        walltime = terms.walltime or given.walltime or self.walltime
        terms = replace(
            terms,
            walltime=walltime,
            estimate=terms.estimate if terms.estimate is not None else _within(given.estimate, walltime),
            max_cost=terms.max_cost if terms.max_cost is not None else given.max_cost,
        )
        if not shape.groups:
            shape = replace(shape, resources=_or_else(shape.resources, given.resources))
        if shape.burst is Burst.AUTO:
            shape = replace(shape, burst=given.burst)
        return replace(
            spec, queue=self.name, terms=terms, shape=shape, priority=spec.priority or given.priority
        )

    def restricted(self, shape: Shape) -> Shape:
        """Return a shape for the clusters of this queue alone; see `problems` for one that runs on none of them."""
        if not self.clusters:
            return shape
        where = shape.where or Where()
        allowed = [each for each in self.clusters if not where.clusters or each in where.clusters]
        return replace(shape, where=replace(where, clusters=tuple(sorted(allowed))))

    def problems(self, spec: JobSpec, user: str) -> Iterator[tuple[str, str]]:
        """Yield why a completed job can never run in this queue: the field of its spec, and what to do."""
        queue = f"queue {self.name}"
        if self.projects and spec.project not in self.projects:
            yield "queue", f"{queue} is for project {_or(self.projects)}, not for {spec.project}"
        if self.users and user not in self.users:
            yield "queue", f"{queue} is for {_or(self.users)}, not for {user}"
        where = spec.shape.where
        named = () if where is None or not self.clusters else where.clusters
        if named and not any(each in self.clusters for each in named):
            yield "where.cluster", f"{queue} runs jobs on {_or(self.clusters)} only, not on {_or(named)}"
        size = ranges.size(spec.array)
        for limits, whose in ((self.total, "in all"), (self.each, "of each user")):
            if limits.queued and size > limits.queued:
                yield "array", f"has {size} members; {queue} holds {limits.queued} queued jobs {whose}"
                break
        yield from self.walltime_problems(spec.terms.walltime, spec.terms.estimate)
        yield from self.size_problems(spec.shape)

    def walltime_problems(self, walltime: int | None, estimate: int | None) -> Iterator[tuple[str, str]]:
        """Yield why a job with these times can never run in this queue."""
        if self.walltime is not None and (walltime is None or walltime > self.walltime):
            asked = "no walltime" if walltime is None else f"a walltime of {format_duration(walltime)}"
            yield (
                "walltime",
                f"{asked} is more than the {format_duration(self.walltime)} of queue {self.name}",
            )
        elif walltime is not None and estimate is not None and estimate > walltime and self.gives_walltime:
            yield (
                "estimate",
                f"{format_duration(estimate)} is longer than the walltime of {format_duration(walltime)} in queue {self.name}; write a walltime",
            )

    def size_problems(self, shape: Shape) -> Iterator[tuple[str, str]]:
        """Yield why a job of this size can never run in this queue."""
        largest = shape.sized(shape.most) if shape.most else shape
        for name in _AMOUNTS:
            asked, most = getattr(largest.total, name), getattr(self.size, name)
            if most is not None and asked > most:
                told = f"requests {format_amount(name, asked)} in total; a job in queue {self.name} may have {format_amount(name, most)}"
                yield f"resources.{name}", told
                continue
            least = getattr(shape.total, name)
            for limits, whose in ((self.total, "in all"), (self.each, "for each user")):
                most = getattr(limits.resources, name)
                if most and least > most:
                    told = f"requests {format_amount(name, least)} in total; queue {self.name} runs {format_amount(name, most)} {whose}"
                    yield f"resources.{name}", told
                    break
        tasks = max(shape.tasks, shape.most)
        if self.size.tasks is not None and tasks > self.size.tasks:
            yield "tasks", f"has {tasks} tasks; a job in queue {self.name} may have {self.size.tasks}"


class Queues:
    """All queues, with a lookup by name. Without any, a queue is only a label."""

    def __init__(self, queues: Iterable[QueueSpec] = ()) -> None:
        self.named = {each.name: each for each in queues}
        """Empty if a queue is only a label. Code that runs for every job asks here, which spares it a call."""
        marked = [each for each in self.named.values() if each.default]
        first = (*marked, *self.named.values())
        self.default = self.named.get(USUAL) or (first[0] if first else None)
        """The queue of jobs that name none; None if there are no queues."""

    def __bool__(self) -> bool:
        return bool(self.named)

    def __iter__(self) -> Iterator[QueueSpec]:
        return iter(self.named.values())

    def get(self, name: str) -> QueueSpec | None:
        """Return a queue; None if there is none with this name, as for jobs that are older than their queue."""
        return self.named.get(name)

    def of(self, name: str) -> QueueSpec | None:
        """Return the queue that a new job means; None if there is none with this name."""
        return self.default if name == USUAL else self.named.get(name)

    def unknown(self, name: str) -> str:
        """Return in one line that there is no queue with this name."""
        return f"there is no queue {name!r}; write one of {', '.join(self.named)}"


def _within(estimate: int | None, walltime: int | None) -> int | None:
    """Return an estimate that a queue gives, or none if it is longer than the walltime."""
    if estimate is None or walltime is None or estimate <= walltime:
        return estimate
    return None


def _or_else(asked: Resources, given: Resources) -> Resources:
    """Return resources with what a queue gives in place of one CPU, no memory and no GPU."""
    return Resources(
        (given.cpu or asked.cpu) if asked.cpu == _ONE_CPU else asked.cpu,
        asked.memory or given.memory,
        asked.gpu or given.gpu,
        asked.other,
    )


def _or(names: tuple[str, ...]) -> str:
    """Return names, the last one after `or`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
