"""One job of the state beside its attempt on an external cluster, and the orders that follow from it."""

from msgspec import Struct
from msgspec.structs import replace

from spillover.control.driving.attempts import Attempt, result_of
from spillover.control.driving.gaps import spread_out
from spillover.core.deciders.gangs import was_late
from spillover.core.events import JobState, Lease, Usage
from spillover.core.proposals import Proposal, Result
from spillover.core.records.jobs import Job, Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.ports.driver import Ending, Patience, Seen


class DriverOrders(Struct):
    """What to propose to the core, and what to ask of the cluster."""

    proposals: list[Proposal]
    jobs: list[JobId]
    """Jobs that the proposals concern."""
    starts: list[Lease]
    stops: list[tuple[Lease, int]]
    """Attempts to delete, each with its grace in nanoseconds."""
    keeps: list[Lease]
    """Ended attempts whose output must be saved before their end is proposed."""
    failed: list[tuple[JobId, Exception]] = []
    """Jobs that failed with an unexpected error."""

    @classmethod
    def none(cls) -> "DriverOrders":
        """Return empty orders."""
        return cls([], [], [], [], [])


class Case(Struct, frozen=True):
    """A job of the state with its attempt, at one moment."""

    job: Job
    attempt: Attempt
    now: int
    monotonic: int

    @property
    def _phase(self) -> Placed | Running:
        phase = self.job.phase
        assert isinstance(phase, Placed | Running)  # noqa: S101 - callers pass no other phase
        return phase

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """Nodes of its tasks in the state, by rank."""
        return tuple([task.node for task in self.job.tasks])

    def more_run(self, seen: Seen) -> bool:
        """Return whether tasks of a gang run that the state has as placed."""
        tasks = self.job.tasks if seen.began and self.job.extra.gang is not None else ()
        return any(tasks[rank].state is JobState.PLACED for rank in seen.began if rank < len(tasks))

    @property
    def stopping(self) -> bool:
        """Whether the job is stopping."""
        return self._phase.stopping is not None

    def backoff(self, patience: Patience) -> int:
        """Return how long the job backs off from the cluster, in nanoseconds."""
        gang = self.job.extra.gang is not None
        return spread_out(self.attempt.lease, patience.backoff) if gang else patience.backoff

    def result(self, ending: Ending, patience: Patience, outputs: str = "") -> Result:
        """Return the proposal that reports how the attempt ended."""
        if not was_late(self.job, ending.outcome):
            return result_of(self.job, ending, self.now, outputs)
        told = result_of(self.job, replace(ending, message=self.attempt.short), self.now, outputs)
        return replace(told, backoff=self.backoff(patience))

    def usage(self) -> Usage:
        """Return the usage of an attempt whose objects are gone, as far as known."""
        seen = self.attempt.seen
        if seen is None or seen.started is None:
            return Usage()
        return Usage(max(0, self.now - seen.started), seen.used.cpu, seen.used.peak_memory)

    def say(self, orders: DriverOrders, proposal: Proposal) -> None:
        """Add a proposal about this job."""
        orders.proposals.append(proposal)
        orders.jobs.append(self.job.id)


def is_on(job: Job, cluster: ClusterName) -> bool:
    """Return whether the state has a job on a cluster."""
    return isinstance(job.phase, Placed | Running) and job.phase.cluster == cluster
