"""Estimates when a job ends, and whether that is before its deadline."""

from spillover.core.learned.estimates import Estimate, Expecting, estimate, foreseen
from spillover.core.records.jobs import Job, Placed, Running
from spillover.model.cluster import ClusterSpec
from spillover.model.reasons import TooLate
from spillover.model.units import FOREVER, MINUTE

__all__ = ["Estimate", "Expecting", "began_at", "estimate", "expected_end", "late_from", "late_on"]


def late_on(job: Job, spec: ClusterSpec, now: int) -> TooLate | None:
    """Return why a job placed on a cluster now would miss its deadline; None if it would not, or has none.

    A walltime is only a limit, and many jobs stay far below it. A job about which nothing else is known is assumed to
    end as soon as it starts.
    """
    deadline = job.extra.deadline
    if deadline is None or now < late_from(job, spec):
        return None
    return TooLate(deadline, now + spec.startup + foreseen(job))


def late_from(job: Job, spec: ClusterSpec) -> int:
    """Return from when on a job would be too late on a cluster, nanoseconds UTC; FOREVER without a deadline."""
    deadline = job.extra.deadline
    return FOREVER if deadline is None else deadline - spec.startup - foreseen(job) + 1


def began_at(phase: Placed | Running, jumped: int) -> int:
    """Return when an attempt began, shifted by later clock jumps, which do not count as runtime."""
    return phase.since + jumped - phase.jumped if type(phase) is Running else phase.at


def expected_end(job: Job, now: int, unknown: int, jumped: int = 0) -> int | None:
    """Return when a placed or running job is expected to end, nanoseconds UTC; None for other jobs.

    A job that has run longer than expected is expected to end in a minute. `jumped` is the sum of clock jumps so far.
    """
    phase = job.phase
    if type(phase) is not Running and type(phase) is not Placed:
        return None
    end = began_at(phase, jumped) + estimate(job, unknown).runtime
    return end if end > now else now + MINUTE
