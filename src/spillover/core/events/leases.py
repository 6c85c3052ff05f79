"""Events of leases: where jobs are placed and started, and what moves them."""

from spillover.core.events.base import Event, PeriodRef, Unmoved
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.reasons import Reason


class JobPlaced(Event, frozen=True, tag="job_placed"):
    """A lease was granted."""

    job: JobId
    at: int
    cluster: ClusterName
    node: NodeName
    attempt: int
    seq: int
    why: Reason


class GangPlaced(Event, frozen=True, tag="gang_placed"):
    """Leases for all tasks of a job were granted, on one cluster."""

    job: JobId
    at: int
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """Where each task runs, in their order; the first one speaks for the job."""
    attempt: int
    seq: int
    why: Reason


class MemberPlaced(Event, frozen=True, tag="member_placed"):
    """A pending member of an array became a job of its own, and a lease for it was granted."""

    array: JobId
    index: int
    at: int
    cluster: ClusterName
    node: NodeName
    seq: int
    why: Reason


class CostHeld(Event, frozen=True, tag="cost_held"):
    """Money is held for a job that was just rented: what it can cost at the most. It is let go when the attempt is over."""

    job: JobId
    at: int
    amount: int
    """Millionths."""
    limit: int | None
    """Nanoseconds that it may run, as its cap pays for no more; None if it has a walltime of its own, or needs none."""
    periods: tuple[PeriodRef, ...]
    """Budgets that it is held in; none if only its own `max_cost` limits it."""


class JobStarted(Event, frozen=True, tag="job_started"):
    """Its process runs."""

    job: JobId
    at: int
    attempt: int
    seq: int


class StealAsked(Event, frozen=True, tag="steal_asked"):
    """An idle agent wants a lease that another one holds and has not started. It stays there until that one answers."""

    job: JobId
    at: int
    cluster: ClusterName
    node: NodeName
    """Who holds it."""
    thief: NodeName
    """Who wants it, of the same cluster."""
    attempt: int
    seq: int


class StealRefused(Event, frozen=True, tag="steal_refused"):
    """A lease that another agent wanted stays where it is."""

    job: JobId
    at: int
    why: Unmoved


class LeaseMoved(Event, frozen=True, tag="lease_moved"):
    """An agent gave up a lease that it had not started, and the one that asked for it has it now."""

    job: JobId
    at: int
    cluster: ClusterName
    node: NodeName
    """Who had it."""
    thief: NodeName
    """Who has it."""
    attempt: int
    seq: int
    """Of the lease as it is now."""


class TasksBound(Event, frozen=True, tag="tasks_bound"):
    """A cluster's own scheduler put tasks on other nodes than the book had in mind."""

    cluster: ClusterName
    at: int
    jobs: tuple[JobId, ...]
    nodes: tuple[tuple[NodeName, ...], ...]
    """For each job where its tasks are, all of them; the first one speaks for the job."""
    running: tuple[JobId, ...] = ()
    """Those of the jobs that run; the others have not started yet."""
