"""Events of leases: where jobs are placed and started, and what moves them."""

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
from spillover.model.reasons import Reason
from spillover.model.units import format_duration, format_money

_FEW_RANKS: Final = 5
"""Tasks of a gang that are named."""
_UNMOVED: Final = {
    Unmoved.STARTED: "it has started there",
    Unmoved.UNKNOWN: "its agent has not seen it yet",
    Unmoved.VOID: "its agent registered anew",
}


class JobPlaced(JobEvent, frozen=True, tag="job_placed"):
    """A lease was granted."""

    at: int
    cluster: ClusterName
    node: NodeName
    attempt: int
    seq: int
    why: Reason

    def __str__(self) -> str:
        return f"placed on {self.cluster}/{self.node}: {self.why}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.PLACED, self.attempt, self.cluster, self.node),)

    def counted(self) -> Counted:
        """See Event."""
        return ("placed", self.cluster)


class GangPlaced(JobEvent, frozen=True, tag="gang_placed"):
    """Leases for all tasks of a job were granted, on one cluster."""

    at: int
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """Where each task runs, by rank."""
    attempt: int
    seq: int
    why: Reason

    def __str__(self) -> str:
        return f"{len(self.nodes)} tasks placed on {self.cluster}: {self.why}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.PLACED, self.attempt, self.cluster, self.nodes[0]),)


class MemberPlaced(Event, frozen=True, tag="member_placed"):
    """A pending member of an array became a job of its own, and a lease for it was granted."""

    array: JobId
    index: int
    at: int
    cluster: ClusterName
    node: NodeName
    seq: int
    why: Reason

    def __str__(self) -> str:
        return f"placed on {self.cluster}/{self.node}: {self.why}"

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


class CostHeld(JobEvent, frozen=True, tag="cost_held"):
    """Money is held for a job that was just rented: what it can cost at the most. It is let go when the attempt is over."""

    at: int
    amount: int
    """Millionths."""
    limit: int | None
    """Nanoseconds that it may run, as its cap pays for no more; None if it has a walltime of its own, or needs none."""
    periods: tuple[PeriodRef, ...]
    """Budgets that it is held in; none if only its own `max_cost` limits it."""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f", which pays for {format_duration(self.limit)}"
        return f"{format_money(self.amount)} is held for it{limit}"


class JobStarted(JobEvent, frozen=True, tag="job_started"):
    """Its process runs; of a gang, the first of its processes does."""

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
    """Those of the tasks that run."""

    def __str__(self) -> str:
        return f"{_ranks(self.ranks)} started"


class TasksEnded(JobEvent, frozen=True, tag="tasks_ended"):
    """Tasks of a gang ended, and hold nothing any more. What becomes of the job follows when the last one has."""

    at: int
    attempt: int
    seq: int
    ends: tuple[TaskEnd, ...]
    """Of each: rank, at, state, outcome, exit_code, signal, usage, message."""

    def __str__(self) -> str:
        alike: dict[str, list[int]] = {}
        for end in self.ends:
            code = "" if end.exit_code is None else f", exit code {end.exit_code}"
            how = f"{end.state}{code}" + (f": {end.message}" if end.message else "")
            alike.setdefault(how, []).append(end.rank)
        return "; ".join(f"{_ranks(ranks)} ended {how}" for how, ranks in alike.items())


def _ranks(ranks: Sequence[int]) -> str:
    """Some tasks of a gang, in words."""
    few = ", ".join(map(str, ranks[:_FEW_RANKS])) + ("" if len(ranks) <= _FEW_RANKS else ", ...")
    return f"task {few}" if len(ranks) == 1 else f"{len(ranks)} tasks ({few})"


class StealAsked(JobEvent, frozen=True, tag="steal_asked"):
    """An idle agent wants a lease that another one holds and has not started. It stays there until that one answers."""

    at: int
    cluster: ClusterName
    node: NodeName
    """Who holds it."""
    thief: NodeName
    """Who wants it, of the same cluster."""
    attempt: int
    seq: int

    def __str__(self) -> str:
        return f"agent {self.thief} asks {self.node} for it"


class StealRefused(JobEvent, frozen=True, tag="steal_refused"):
    """A lease that another agent wanted stays where it is."""

    at: int
    why: Unmoved

    def __str__(self) -> str:
        return f"stays where it is: {_UNMOVED[self.why]}"


class LeasesRevoked(JobsEvent, frozen=True, tag="leases_revoked"):
    """Prefetched leases are asked back: their jobs waited too long for room there, or can be rented sooner."""

    at: int

    def __str__(self) -> str:
        why = "waited too long for room there, or can be rented sooner"
        return self.told("asked back from its agent: it ", "prefetched leases asked back: their jobs ") + why


class LeaseMoved(JobEvent, frozen=True, tag="lease_moved"):
    """An agent gave up a lease that it had not started, and the one that asked for it has it now."""

    at: int
    cluster: ClusterName
    node: NodeName
    """Who had it."""
    thief: NodeName
    """Who has it."""
    attempt: int
    seq: int
    """Of the lease as it is now."""

    def __str__(self) -> str:
        return f"moved from {self.node} to {self.thief}"

    def reached(self) -> tuple[Reached, ...]:
        """See Event."""
        return (Reached(self.job, self.at, JobState.PLACED, self.attempt, self.cluster, self.thief),)


class TasksBound(Event, frozen=True, tag="tasks_bound"):
    """A cluster's own scheduler put tasks on other nodes than the book had in mind."""

    cluster: ClusterName
    at: int
    jobs: tuple[JobId, ...]
    nodes: tuple[tuple[NodeName, ...], ...]
    """For each job where its tasks are, by rank."""
    running: tuple[JobId, ...] = ()
    """Those of the jobs that run; the others have not started yet."""

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
