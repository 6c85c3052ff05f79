"""Tasks of an attempt. An attempt has one task, or several that start together: a gang.

Each task has a rank, a node and an end. A job with one task stores it in its phase, because there may be a million of
them. Only gangs have records for tasks. `Job.tasks` returns the tasks of both. `deciding_end` alone defines how the end
of a gang follows from the ends of its tasks.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events import JobState, Outcome, TaskEnd, Usage
from spillover.model.ids import NodeName
from spillover.model.job import OnTaskFailure, OnTaskSuccess, Shape, TaskGroup, Terms
from spillover.model.resources import Resources


class JobTask(Struct, frozen=True, array_like=True, gc=False):
    """One task of an attempt."""

    rank: int
    node: NodeName
    state: JobState = JobState.PLACED
    """PLACED, RUNNING, or how it ended."""
    started: int | None = None
    """Nanoseconds UTC; None if it was never reported as running."""
    end: TaskEnd | None = None
    """None until it ends."""
    run: int = 0
    """How often it was started again under its lease."""
    before: Usage = Usage()
    """What its earlier runs under its lease used together."""

    @property
    def lives(self) -> bool:
        """Whether it has not ended, and so holds resources."""
        return self.end is None


class Gang(Struct, array_like=True, gc=False):
    """The tasks of an attempt that has several."""

    tasks: list[JobTask]
    """By rank."""
    live: int
    """The number of tasks that have not ended."""
    jumped: int = 0
    """Sum of clock jumps at its placement; 0 in checkpoints of release 0.4 or older. While tasks are prepared, later
    jumps may mean that the server was away."""

    def start(self, ranks: Iterable[int], at: int) -> None:
        """Mark tasks as running."""
        for rank in ranks:
            self.tasks[rank] = replace(self.tasks[rank], state=JobState.RUNNING, started=at)

    def finish(self, end: TaskEnd) -> None:
        """Record the end of a task."""
        self.tasks[end.rank] = replace(self.tasks[end.rank], state=end.state, end=end)
        self.live -= 1

    def restart(self, end: TaskEnd, run: int) -> None:
        """Record that a task failed and starts again."""
        task = self.tasks[end.rank]
        self.tasks[end.rank] = replace(task, run=run, before=added(task.before, end.usage))

    def bind(self, nodes: Sequence[NodeName]) -> None:
        """Set the nodes of live tasks, by rank."""
        for task, node in zip(tuple(self.tasks), nodes, strict=True):
            if task.lives and task.node != node:
                self.tasks[task.rank] = replace(task, node=node)


def gang_on(nodes: Sequence[NodeName], jumped: int = 0) -> Gang:
    """Return a gang that was just placed on these nodes, by rank, after clock jumps of so much."""
    return Gang([JobTask(rank, node) for rank, node in enumerate(nodes)], len(nodes), jumped)


def asked_by(shape: Shape, rank: int) -> Resources:
    """Return the request of a task."""
    if not shape.groups:
        return shape.resources if shape.rest is None or rank != shape.tasks - 1 else shape.rest
    return group_of(shape, rank)[0].resources


def group_of(shape: Shape, rank: int) -> tuple[TaskGroup, int]:
    """Return the group of a task, and the number of the task in it."""
    for group in shape.groups:
        if rank < group.tasks:
            return group, rank
        rank -= group.tasks
    raise IndexError(rank)


LEADER: Final = 0
"""The rank whose success can end a gang."""
_DEFAULTS: Final = Terms()


def ends_gang(end: TaskEnd, terms: Terms) -> bool:
    """Return whether the success of this task ends its gang."""
    return (
        end.rank == LEADER and end.state is JobState.SUCCEEDED and terms.on_task_success is OnTaskSuccess.END
    )


def fails_gang(end: TaskEnd, terms: Terms) -> bool:
    """Return whether the failure of this task stops the others of its gang."""
    return end.state is not JobState.SUCCEEDED and terms.on_task_failure is not OnTaskFailure.IGNORE


def deciding_end(ends: Iterable[TaskEnd], terms: Terms = _DEFAULTS) -> TaskEnd:
    """Return the end that decides how a gang ended, once all of its tasks have ended.

    The first task that failed decides. Tasks that were stopped decide only if no other failed, because one failure
    stops the rest. If all succeeded, the last one decides. The terms of the job can let successes decide instead.
    A task without its secrets decides before others that failed, because it keeps them all from starting.
    """
    by_time = sorted(ends, key=lambda end: (end.at, end.rank))
    for end in by_time:
        if ends_gang(end, terms):
            return end
    failed = [end for end in by_time if end.state is not JobState.SUCCEEDED]
    if terms.on_task_failure is OnTaskFailure.IGNORE and len(failed) < len(by_time):
        return [end for end in by_time if end.state is JobState.SUCCEEDED][-1]
    by_itself = [end for end in failed if end.outcome not in _TOLD_TO]
    without = [end for end in failed if end.outcome is Outcome.NO_SECRET]
    return (without or by_itself or failed or by_time[-1:])[0]


_TOLD_TO: Final = frozenset({Outcome.STOPPED})


def usage_of(ends: Sequence[TaskEnd]) -> Usage:
    """Return the usage of a gang: the longest runtime, the CPU and GPU time of all tasks, and the highest peak memory.

    Each task has the full walltime of the job. So a gang costs no more than its hold, whenever its tasks began.
    """
    used = [end.usage for end in ends]
    return Usage(
        max(each.ran for each in used),
        sum(each.cpu for each in used),
        max(each.peak_memory for each in used),
        sum(each.gpu for each in used),
        sum(each.gpu_measured for each in used),
        max(each.gpu_memory for each in used),
    )


def added(before: Usage, more: Usage) -> Usage:
    """Return what several runs of one task used: times together, and the highest peaks."""
    if before == Usage():
        return more
    return Usage(
        before.ran + more.ran,
        before.cpu + more.cpu,
        max(before.peak_memory, more.peak_memory),
        before.gpu + more.gpu,
        before.gpu_measured + more.gpu_measured,
        max(before.gpu_memory, more.gpu_memory),
    )


ENDED_AS: Final = {
    Outcome.WALLTIME: JobState.TIMED_OUT,
    Outcome.STOPPED: JobState.CANCELLED,
    Outcome.RELEASED: JobState.CANCELLED,
}
"""The state of a task by its outcome. For EXITED, the exit code decides; all other outcomes are failures."""


def state_of_end(outcome: Outcome, exit_code: int | None) -> JobState:
    """Return the state of a task that ended with this outcome."""
    if outcome is Outcome.EXITED and exit_code == 0:
        return JobState.SUCCEEDED
    return ENDED_AS.get(outcome, JobState.FAILED)
