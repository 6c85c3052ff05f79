"""How long a job is expected to run, and until when."""

from spillover.core.estimates import Estimate, Expecting, estimate
from spillover.core.state import Job, Placed, Running
from spillover.model.units import MINUTE

__all__ = ["Estimate", "Expecting", "estimate", "expected_end"]


def expected_end(job: Job, now: int, unknown: int) -> int | None:
    """When a placed or running job is expected to end, nanoseconds UTC; None for any other.

    One that outran what was expected of it is expected to end a minute from now, again and again.
    """
    phase = job.phase
    if type(phase) is Running:
        start = phase.since
    elif type(phase) is Placed:
        start = phase.at
    else:
        return None
    end = start + estimate(job, unknown).runtime
    return end if end > now else now + MINUTE
