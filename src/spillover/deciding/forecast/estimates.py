"""How long a job is expected to run, and until when."""

from spillover.core.estimates import Estimate, Expecting, estimate, foreseen
from spillover.core.jobs import Job, Placed, Running
from spillover.model.cluster import ClusterSpec
from spillover.model.reasons import TooLate
from spillover.model.units import FOREVER, MINUTE

__all__ = ["Estimate", "Expecting", "began_at", "estimate", "expected_end", "late_from", "late_on"]


def late_on(job: Job, spec: ClusterSpec, now: int) -> TooLate | None:
    """Whether a job that is placed on a cluster now is expected to end after its deadline; None if not, or if it has none.

    A walltime is a limit, which many jobs stay far below: a job of which nothing else is known is taken to end as soon as it has begun.
    """
    deadline = job.extra.deadline
    if deadline is None or now < late_from(job, spec):
        return None
    return TooLate(deadline, now + spec.startup + foreseen(job))


def late_from(job: Job, spec: ClusterSpec) -> int:
    """From when on a job is too late for a cluster, nanoseconds UTC; FOREVER if it has no deadline."""
    deadline = job.extra.deadline
    return FOREVER if deadline is None else deadline - spec.startup - foreseen(job) + 1


def began_at(phase: Placed | Running, jumped: int) -> int:
    """When an attempt began, as if clocks had not jumped since: what they jumped, it has not run."""
    return phase.since + jumped - phase.jumped if type(phase) is Running else phase.at


def expected_end(job: Job, now: int, unknown: int, jumped: int = 0) -> int | None:
    """When a placed or running job is expected to end, nanoseconds UTC; None for any other.

    One that outran what was expected of it is expected to end a minute from now, again and again. `jumped` is how far clocks
    have jumped so far.
    """
    phase = job.phase
    if type(phase) is not Running and type(phase) is not Placed:
        return None
    end = began_at(phase, jumped) + estimate(job, unknown).runtime
    return end if end > now else now + MINUTE
