"""Tasks of gangs, as people see them and as the archive keeps them: some of them in full, and how many are in each state."""

from collections import Counter
from typing import Final

import msgspec
from msgspec import Struct

from spillover.control.lookup import Found
from spillover.core.events import Usage
from spillover.core.jobs import Ended, Job
from spillover.core.tasks import Gang, JobTask
from spillover.model.units import SECOND, format_time
from spillover.ports.archive import Finished
from spillover.wire.api import TaskView

MOST_SHOWN: Final = 1000
"""Tasks of one job in full; a gang may have a hundred times as many."""


class ShownTasks(Struct, frozen=True, array_like=True):
    """The tasks of a gang."""

    counts: dict[str, int]
    """How many are in each state."""
    tasks: list[JobTask]
    """By rank, MOST_SHOWN at the most: those that did not succeed before the others."""


_decoder: Final = msgspec.msgpack.Decoder(ShownTasks)


def tasks_of(found: Found) -> ShownTasks:
    """The tasks of the attempt under way, or of the last one; none if there is only one."""
    match found:
        case Finished(tasks=tasks) if tasks is not None:
            return _decoder.decode(tasks)
        case Job() if found.extra.gang is not None:
            return _shown(found.extra.gang)
        case _:
            return ShownTasks({}, [])


def _shown(gang: Gang) -> ShownTasks:
    counts = Counter([str(task.state) for task in gang.tasks])
    first = sorted(gang.tasks, key=lambda task: task.state == "SUCCEEDED")[:MOST_SHOWN]
    return ShownTasks(dict(counts), sorted(first, key=lambda task: task.rank))


def kept(job: Job) -> bytes | None:
    """The tasks of a gang that ended, for the archive; None if it had only one."""
    if job.extra.gang is None or not isinstance(job.phase, Ended):
        return None
    return msgspec.msgpack.encode(_shown(job.extra.gang))


def task_view(task: JobTask) -> TaskView:
    """One task."""
    end = task.end
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
    )
