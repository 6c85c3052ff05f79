"""How long a job is expected to run, and who says so."""

from typing import Literal, NamedTuple

from spillover.model.job import Terms


class Estimate(NamedTuple):
    """An expected runtime."""

    runtime: int
    """Nanoseconds."""
    source: Literal["estimate", "walltime", "default"]


def estimate(terms: Terms, unknown: int) -> Estimate:
    """The person's own word, else the limit, else what is assumed of jobs that say nothing."""
    if terms.estimate is not None:
        return Estimate(terms.estimate, "estimate")
    if terms.walltime is not None:
        return Estimate(terms.walltime, "walltime")
    return Estimate(unknown, "default")
