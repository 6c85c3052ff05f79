"""Estimates how long a job will run, and from which source."""

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from spillover.core.events import Evidence
from spillover.model.job import Terms

Source: TypeAlias = Literal["estimate", "walltime", "history", "default"]


class Estimate(Struct, frozen=True, gc=False):
    """An expected runtime."""

    runtime: int
    """Nanoseconds."""
    source: Source
    """The owner's estimate, the walltime, similar jobs that ended, or the default for unknown runtimes."""


class Expecting(Protocol):
    """What an estimate needs from a job, live or archived."""

    @property
    def terms(self) -> Terms:
        """Terms with its own estimate and walltime."""
        ...

    @property
    def predicted(self) -> int | None:
        """Runtime of similar jobs in nanoseconds; None if it was not needed, or not known."""
        ...

    @property
    def evidence(self) -> Evidence | None:
        """What that rests on; None without it, and for jobs of release 0.4 and older."""
        ...


def likely(job: Expecting, unknown: int) -> int:
    """Return the likely runtime in nanoseconds: like `estimate`, but similar jobs count before the walltime."""
    terms = job.terms
    if terms.estimate is not None:
        return terms.estimate
    if job.predicted is not None:
        return job.predicted if terms.walltime is None else min(job.predicted, terms.walltime)
    return unknown if terms.walltime is None else terms.walltime


def reckoned(job: Expecting, unknown: int) -> int:
    """Return the runtime with which to reckon what renting costs, in nanoseconds.

    That is the mean of a run that is as likely as any other to take its whole walltime, and of the known runs of similar
    jobs: a few short ones do not rule out that the next one is long, and that one would cost the most.
    """
    runtime, limit, evidence = likely(job, unknown), job.terms.walltime, job.evidence
    if job.terms.estimate is not None or limit is None or evidence is None or runtime >= limit:
        return runtime
    return (evidence.runs * runtime + limit) // (evidence.runs + 1)


def foreseen(job: Expecting) -> int:
    """Return the runtime by the job's own estimate or by similar jobs, in nanoseconds; 0 if there is neither."""
    return likely(job, 0) if job.terms.estimate is not None or job.predicted is not None else 0


def estimate(job: Expecting, unknown: int) -> Estimate:
    """Return the owner's estimate, else the walltime, else the runtime of similar jobs, else the default."""
    terms = job.terms
    if terms.estimate is not None:
        return Estimate(terms.estimate, "estimate")
    if terms.walltime is not None:
        return Estimate(terms.walltime, "walltime")
    if job.predicted is not None:
        return Estimate(job.predicted, "history")
    return Estimate(unknown, "default")
