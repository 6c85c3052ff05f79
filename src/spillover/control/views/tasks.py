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

    def own(self, at: int) -> Granted:
        """Return what a task has for itself, by position."""
        return (self.granted[at] if at < len(self.granted) else None) or NOTHING


_decoder: Final = msgspec.msgpack.Decoder(ShownTasks)


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
    return ShownTasks(dict(counts), first, [granted[task.rank] for task in first] if granted else [])


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
