"""How long a job is expected to run, and who says so."""

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from spillover.model.job import Terms

Source: TypeAlias = Literal["estimate", "walltime", "history", "default"]


class Estimate(Struct, frozen=True, gc=False):
    """An expected runtime."""

    runtime: int
    """Nanoseconds."""
    source: Source
    """The person who submitted it, its limit, jobs like it that ended before, or what is assumed of all jobs."""


class Expecting(Protocol):
    """What an estimate rests on: of a job that is in the book, or in the archive."""

    @property
    def terms(self) -> Terms:
        """With its own estimate and limit."""
        ...

    @property
    def predicted(self) -> int | None:
        """Nanoseconds that jobs like it ran before; None if it was not asked for, or not known."""
        ...


def likely(job: Expecting, unknown: int) -> int:
    """Nanoseconds that a job is likely to run: as `estimate` says, but of a limit no more than jobs like it needed."""
    terms = job.terms
    if terms.estimate is not None:
        return terms.estimate
    if job.predicted is not None:
        return job.predicted if terms.walltime is None else min(job.predicted, terms.walltime)
    return unknown if terms.walltime is None else terms.walltime


def foreseen(job: Expecting) -> int:
    """Nanoseconds that a job runs by its own word, or as jobs like it did; 0 if there is only a limit, or nothing."""
    return likely(job, 0) if job.terms.estimate is not None or job.predicted is not None else 0


def estimate(job: Expecting, unknown: int) -> Estimate:
    """The person's own word, else the limit, else what jobs like it did, else what is assumed of jobs that nothing is known of."""
    terms = job.terms
    if terms.estimate is not None:
        return Estimate(terms.estimate, "estimate")
    if terms.walltime is not None:
        return Estimate(terms.walltime, "walltime")
    if job.predicted is not None:
        return Estimate(job.predicted, "history")
    return Estimate(unknown, "default")
