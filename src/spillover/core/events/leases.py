"""Events of leases: placement, start, moves and revocation."""

from collections.abc import Container, Sequence
from typing import Final, Self

from msgspec.structs import replace

from spillover.core.events.base import (
    Counted,
    Event,
    JobEvent,
    JobsEvent,
    JobState,
    PeriodRef,
    Reached,
    TaskEnd,
    Unmoved,
)
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.inside import Granted
from spillover.model.reasons import Reason
from spillover.model.units import format_duration, format_money

_FEW_RANKS: Final = 5
"""Tasks of a gang that a sentence names."""
_UNMOVED: Final = {
    Unmoved.STARTED: "it has started there",
    Unmoved.UNKNOWN: "its agent has not seen it yet",
    Unmoved.VOID: "its agent registered again",
}


class JobPlaced(JobEvent, frozen=True, tag="job_placed"):
    """A lease was granted."""

    at: int
    cluster: ClusterName
    node: NodeName
    attempt: int
    seq: int
    why: Reason
    granted: Granted | None = None
    """The CPUs and GPUs that it has for itself: cpus, gpus; null if it gets none by name."""

    def __str__(self) -> str:
        own = "" if self.granted is None else f" ({self.granted})"
        return f"placed on {self.cluster}/{self.node}{own}: {self.why}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.PLACED, self.attempt, self.cluster, self.node),)

    def counted(self) -> Counted:
        """See Event."""
        return ("placed", self.cluster)


class GangPlaced(JobEvent, frozen=True, tag="gang_placed"):
    """Leases for all tasks of a gang were granted, on one cluster."""

    at: int
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """The node of each task, by rank."""
    attempt: int
    seq: int
    why: Reason
    granted: tuple[Granted | None, ...] = ()
    """By rank, the CPUs and GPUs that a task has for itself: cpus, gpus; empty if none gets any by name."""

    def __str__(self) -> str:
        return f"{len(self.nodes)} tasks placed on {self.cluster}: {self.why}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.PLACED, self.attempt, self.cluster, self.nodes[0]),)


class MemberPlaced(Event, frozen=True, tag="member_placed"):
    """A pending member of an array became a separate job and got a lease."""

    array: JobId
    index: int
    at: int
    cluster: ClusterName
    node: NodeName
    seq: int
    why: Reason
    granted: Granted | None = None
    """The CPUs and GPUs that it has for itself: cpus, gpus; null if it gets none by name."""

    def __str__(self) -> str:
        own = "" if self.granted is None else f" ({self.granted})"
        return f"placed on {self.cluster}/{self.node}{own}: {self.why}"

    def about(self) -> tuple[JobId, ...]:
        """See Event."""
        return (member_id(self.array, self.index),)

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        member = member_id(self.array, self.index)
        return (Reached(member, self.at, JobState.PLACED, 1, self.cluster, self.node),)

    def counted(self) -> Counted:
        """See Event."""
        return ("placed", self.cluster)


class MemberSplit(Event, frozen=True, tag="member_split"):
    """A pending member of an array of gangs became a separate job. The event that places its tasks follows."""

    array: JobId
    index: int
    at: int
    cluster: ClusterName
    """Where it is placed."""

    def __str__(self) -> str:
        return "left its array, to be placed"

    def about(self) -> tuple[JobId, ...]:
        """See Event."""
        return (member_id(self.array, self.index),)

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(member_id(self.array, self.index), self.at, JobState.QUEUED, 1),)


class CostHeld(JobEvent, frozen=True, tag="cost_held"):
    """An amount is held for a job that was just rented: the most that it can cost, until the attempt ends."""

    at: int
    amount: int
    """Millionths."""
    limit: int | None
    """How long it may run, in nanoseconds, as its cap pays for no more; null if it has a walltime, or needs none."""
    periods: tuple[PeriodRef, ...]
    """Budget periods that count it; empty if only its own `max_cost` limits it."""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"; it may run for {format_duration(self.limit)}"
        return f"{format_money(self.amount)} is held for it{limit}"


class JobStarted(JobEvent, frozen=True, tag="job_started"):
    """The process of a job runs; of a gang, its first process."""

    at: int
    attempt: int
    seq: int
    rank: int = 0
    """The task that runs."""

    def __str__(self) -> str:
        return f"started (attempt {self.attempt})"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.RUNNING, self.attempt),)


class TasksStarted(JobEvent, frozen=True, tag="tasks_started"):
    """More tasks of a gang run, after the first."""

    at: int
    attempt: int
    seq: int
    ranks: tuple[int, ...]
    """Ranks of the tasks that run."""

    def __str__(self) -> str:
        return f"{_ranks(self.ranks)} started"


class TasksEnded(JobEvent, frozen=True, tag="tasks_ended"):
    """Tasks of a gang ended and released their capacity. The job is decided when the last one has ended."""

    at: int
    attempt: int
    seq: int
    ends: tuple[TaskEnd, ...]
    """Of each task: rank, at, state, outcome, exit_code, signal, usage, message."""

    def __str__(self) -> str:
        alike: dict[str, list[int]] = {}
        for end in self.ends:
            code = "" if end.exit_code is None else f", exit code {end.exit_code}"
            how = f"{end.state}{code}" + (f": {end.message}" if end.message else "")
            alike.setdefault(how, []).append(end.rank)
        return "; ".join(f"{_ranks(ranks)} ended {how}" for how, ranks in alike.items())


class TaskRestarted(JobEvent, frozen=True, tag="task_restarted"):
    """A task of a gang failed and starts again in its place, while the others go on."""

    at: int
    attempt: int
    seq: int
    end: TaskEnd
    """How it failed: rank, at, state, outcome, exit_code, signal, usage, message."""
    run: int
    """How often it has been started again under its lease, with this time."""

    def __str__(self) -> str:
        code = "" if self.end.exit_code is None else f", exit code {self.end.exit_code}"
        return f"task {self.end.rank} failed{code}, and starts again"


def _ranks(ranks: Sequence[int]) -> str:
    """Format some ranks of a gang."""
    few = ", ".join(map(str, ranks[:_FEW_RANKS])) + ("" if len(ranks) <= _FEW_RANKS else ", ...")
    return f"task {few}" if len(ranks) == 1 else f"{len(ranks)} tasks ({few})"


class StealAsked(JobEvent, frozen=True, tag="steal_asked"):
    """An idle agent asks for a lease that another agent has not started. The lease stays until that agent answers."""

    at: int
    cluster: ClusterName
    node: NodeName
    """The agent that holds it."""
    thief: NodeName
    """The agent that asks for it, in the same cluster."""
    attempt: int
    seq: int

    def __str__(self) -> str:
        return f"agent {self.thief} asks to steal it from {self.node}"


class StealRefused(JobEvent, frozen=True, tag="steal_refused"):
    """A lease that another agent asked for stays where it is."""

    at: int
    why: Unmoved

    def __str__(self) -> str:
        return f"not moved: {_UNMOVED[self.why]}"


class LeasesRevoked(JobsEvent, frozen=True, tag="leases_revoked"):
    """The server asks back prefetched leases that waited too long for capacity, or whose jobs can be rented sooner."""

    at: int

    def __str__(self) -> str:
        why = "waited too long for capacity there, or can be rented sooner"
        return (
            self.one_or_many("prefetched lease revoked: it ", "prefetched leases revoked: their jobs ") + why
        )


class LeaseMoved(JobEvent, frozen=True, tag="lease_moved"):
    """An agent gave up a lease that it had not started, and the agent that asked for it got it."""

    at: int
    cluster: ClusterName
    node: NodeName
    """The old agent."""
    thief: NodeName
    """The new agent."""
    attempt: int
    seq: int
    """Of the new lease."""
    before: int = 0
    """That of the old lease; 0 in events of earlier releases, where it was one less."""

    @property
    def old(self) -> int:
        """The `seq` of the old lease."""
        return self.before or self.seq - 1

    def __str__(self) -> str:
        return f"moved from {self.node} to {self.thief}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.PLACED, self.attempt, self.cluster, self.thief),)


class TasksBound(Event, frozen=True, tag="tasks_bound"):
    """The scheduler of an external cluster put tasks on other nodes than planned."""

    cluster: ClusterName
    at: int
    jobs: tuple[JobId, ...]
    nodes: tuple[tuple[NodeName, ...], ...]
    """For each job, the nodes of its tasks by rank."""
    running: tuple[JobId, ...] = ()
    """The jobs that run; the others have not started yet."""

    def __str__(self) -> str:
        many = f"{len(self.jobs)} jobs are"
        return f"{'is' if len(self.jobs) == 1 else many} bound to other nodes of {self.cluster} than planned"

    def about(self) -> tuple[JobId, ...]:
        """See Event."""
        return self.jobs

    def only(self, jobs: Container[JobId]) -> Self:
        """See Event."""
        own = [pair for pair in zip(self.jobs, self.nodes, strict=True) if pair[0] in jobs]
        return replace(
            self,
            jobs=tuple([job for job, _ in own]),
            nodes=tuple([nodes for _, nodes in own]),
            running=tuple([job for job in self.running if job in jobs]),
        )

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        states = (JobState.PLACED, JobState.RUNNING)
        return tuple(
            [
                Reached(job, self.at, states[job in self.running], 0, self.cluster, nodes[0])
                for job, nodes in zip(self.jobs, self.nodes, strict=True)
            ]
        )
