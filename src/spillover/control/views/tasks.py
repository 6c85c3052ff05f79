"""Shows and archives tasks of gangs: counts by state, and a limited number of tasks in full."""

from collections import Counter
from typing import Final

import msgspec
from msgspec import Struct

from spillover.control.requests.lookup import Found
from spillover.core.events import Usage
from spillover.core.records.jobs import Ended, Job
from spillover.core.records.tasks import JobTask, group_of
from spillover.model.inside import Granted
from spillover.model.job import Shape
from spillover.model.units import SECOND, format_time
from spillover.ports.archive import Finished
from spillover.wire.api import TaskView

NOTHING: Final = Granted()
MOST_SHOWN: Final = 1000
"""Most tasks of one job in full; a gang may have a hundred times as many."""


class ShownTasks(Struct, frozen=True, array_like=True):
    """The tasks of a gang."""

    counts: dict[str, int]
    """Number of tasks in each state."""
    tasks: list[JobTask]
    """Up to MOST_SHOWN tasks by rank; those that succeeded are left out first."""
    granted: list[Granted | None] = []
    """What each of these tasks has for itself, or the only task of a job; empty if none has anything by name."""
    nodes: int = 0
    """On how many nodes all tasks are; 0 for other jobs, and for jobs that ended before this was recorded."""

    def own(self, at: int) -> Granted:
        """Return what a task has for itself, by position."""
        return (self.granted[at] if at < len(self.granted) else None) or NOTHING


class _Skimmed(Struct, frozen=True, array_like=True):
    """The same, of which only the number of nodes is read."""

    counts: msgspec.Raw
    tasks: msgspec.Raw
    granted: msgspec.Raw = msgspec.Raw()
    nodes: int = 0


_decoder: Final = msgspec.msgpack.Decoder(ShownTasks)
_skimmer: Final = msgspec.msgpack.Decoder(_Skimmed)


def nodes_of(row: Finished) -> int:
    """Return on how many nodes the tasks of an ended gang were; 0 if it is none, or if that is unknown."""
    return 0 if row.tasks is None else _skimmer.decode(row.tasks).nodes


def tasks_of(found: Found) -> ShownTasks:
    """Return the tasks of the current or last attempt; empty if the job is not a gang."""
    match found:
        case Finished(tasks=tasks) if tasks is not None:
            return _decoder.decode(tasks)
        case Job():
            return _shown(found)
        case _:
            return ShownTasks({}, [])


def _shown(job: Job) -> ShownTasks:
    gang, granted = job.extra.gang, job.extra.granted
    if gang is None:
        return ShownTasks({}, [], list(granted))
    counts = Counter([str(task.state) for task in gang.tasks])
    first = sorted(gang.tasks, key=lambda task: task.state == "SUCCEEDED")[:MOST_SHOWN]
    first.sort(key=lambda task: task.rank)
    nodes = len({task.node for task in gang.tasks})
    return ShownTasks(dict(counts), first, [granted[task.rank] for task in first] if granted else [], nodes)


def kept(job: Job) -> bytes | None:
    """Return the encoded tasks of an ended job for the archive: those of a gang, or with cores or GPUs; else None."""
    if (job.extra.gang is None and not job.extra.granted) or not isinstance(job.phase, Ended):
        return None
    return msgspec.msgpack.encode(_shown(job))


def task_view(task: JobTask, shape: Shape, own: Granted = NOTHING) -> TaskView:
    """Return a task of a job of this shape in the form of the API, with what it has for itself."""
    end = task.end
    group, number = group_of(shape, task.rank) if shape.groups else (None, None)
    measured = None if end is None or end.usage == Usage() else end.usage
    return TaskView(
        rank=task.rank,
        node=task.node,
        state=task.state,
        started_at=None if task.started is None else format_time(task.started),
        finished_at=None if end is None else format_time(end.at),
        exit_code=None if end is None else end.exit_code,
        signal=None if end is None else end.signal,
        ran_s=None if measured is None else measured.ran / SECOND,
        cpu_s=None if measured is None else measured.cpu / SECOND,
        peak_memory=None if measured is None else measured.peak_memory,
        message=(end.message if end is not None else "") or None,
        group=None if group is None else group.name,
        group_task=number,
        cpus=own.cpus or None,
        gpus=list(own.gpus),
        restarts=task.run,
    )
