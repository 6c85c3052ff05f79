"""Tasks: an attempt has one, or is a gang of several that start together, each with a rank, a node and an end of its own.

A job with one task keeps it in its phase, as there may be a million of those; only a gang has records for its tasks. `Job.tasks`
gives the tasks of either. How the end of a gang follows from the ends of its tasks is said here, in `deciding_end`, and nowhere else.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events import JobState, Outcome, TaskEnd, Usage
from spillover.model.ids import NodeName
from spillover.model.job import Shape
from spillover.model.resources import Resources


class JobTask(Struct, frozen=True, array_like=True, gc=False):
    """One task of an attempt."""

    rank: int
    node: NodeName
    state: JobState = JobState.PLACED
    """PLACED, RUNNING, or how it ended."""
    started: int | None = None
    """Nanoseconds UTC; None if it was never said to run."""
    end: TaskEnd | None = None
    """None while it goes on."""

    @property
    def lives(self) -> bool:
        """Whether it goes on, and holds its room."""
        return self.end is None


class Gang(Struct, array_like=True, gc=False):
    """The tasks of an attempt that has several."""

    tasks: list[JobTask]
    """By rank."""
    live: int
    """How many of them go on."""

    def start(self, ranks: Iterable[int], at: int) -> None:
        """Tasks run."""
        for rank in ranks:
            self.tasks[rank] = replace(self.tasks[rank], state=JobState.RUNNING, started=at)

    def finish(self, end: TaskEnd) -> None:
        """A task that went on has ended."""
        self.tasks[end.rank] = replace(self.tasks[end.rank], state=end.state, end=end)
        self.live -= 1

    def bind(self, nodes: Sequence[NodeName]) -> None:
        """Tasks that go on are on these nodes, by rank."""
        for task, node in zip(tuple(self.tasks), nodes, strict=True):
            if task.lives and task.node != node:
                self.tasks[task.rank] = replace(task, node=node)


def gang_on(nodes: Sequence[NodeName]) -> Gang:
    """A gang that was just placed on these nodes, by rank."""
    return Gang([JobTask(rank, node) for rank, node in enumerate(nodes)], len(nodes))


def asked_by(shape: Shape, rank: int) -> Resources:
    """What the task of a rank asks for: the last one of a gang may ask for less."""
    return shape.resources if shape.rest is None or rank != shape.tasks - 1 else shape.rest


def deciding_end(ends: Iterable[TaskEnd]) -> TaskEnd:
    """The end that decides how a gang ended whose tasks have all ended.

    The first task that did not end well decides. Those that were stopped decide only if no other did, as a failure stops the rest.
    If all ended well, so did the gang, with the last of them.
    """
    by_time = sorted(ends, key=lambda end: (end.at, end.rank))
    failed = [end for end in by_time if end.state is not JobState.SUCCEEDED]
    by_itself = [end for end in failed if end.outcome not in _TOLD_TO]
    return (by_itself or failed or by_time[-1:])[0]


_TOLD_TO: Final = frozenset({Outcome.STOPPED})


def usage_of(ends: Sequence[TaskEnd]) -> Usage:
    """What a gang used: as long as the task that ran longest, CPU of all tasks, memory of the largest.

    Each task has the walltime of the job to itself: so a gang costs no more than was held for it, whenever its tasks began.
    """
    used = [end.usage for end in ends]
    return Usage(
        max(each.ran for each in used), sum(each.cpu for each in used), max(each.peak_memory for each in used)
    )


ENDED_AS: Final = {
    Outcome.WALLTIME: JobState.TIMED_OUT,
    Outcome.STOPPED: JobState.CANCELLED,
    Outcome.RELEASED: JobState.CANCELLED,
}
"""The state of a task by how it ended; of those that exited their exit code tells, all others failed."""


def state_of_end(outcome: Outcome, exit_code: int | None) -> JobState:
    """The state that a task is in after it ended so."""
    if outcome is Outcome.EXITED and exit_code == 0:
        return JobState.SUCCEEDED
    return ENDED_AS.get(outcome, JobState.FAILED)
