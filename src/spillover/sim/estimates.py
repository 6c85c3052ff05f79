"""Chooses the runtime estimates that the scheduler gets: true, walltime, none, or true with an error."""

from collections.abc import Sequence
from enum import StrEnum
from math import exp

from msgspec import Struct
from msgspec.structs import replace

from spillover.sim.trace import TraceJob


class Told(StrEnum):
    """The source of runtime estimates."""

    RUNTIME = "runtime"
    """The true runtime, as in most studies."""
    WALLTIME = "walltime"
    """The walltime that the owner set; none for a job without one."""
    NOTHING = "nothing"
    """No estimates: the scheduler uses only what it learns."""
    THEN = "then"
    """The estimate of the time when the job really ran, if its history has one."""


class Known(Struct, frozen=True):
    """What policies know about runtimes in a simulation."""

    told: Told = Told.RUNTIME
    normal: float = 0.0
    """Standard deviation of the relative error of true runtimes."""
    lognormal: float = 0.0
    """Standard deviation of the error of the logarithm of true runtimes."""

    @property
    def error(self) -> str:
        """The random error of true runtimes as written on the command line; empty if there is none."""
        if self.told is not Told.RUNTIME:
            return ""
        return (
            f"normal({self.normal:g})"
            if self.normal
            else f"lognormal({self.lognormal:g})"
            if self.lognormal
            else ""
        )

    @property
    def word(self) -> str:
        """The same in one word, for tables and curves."""
        if self.told is Told.RUNTIME:
            return self.error or "true"
        return self.told.value

    def __str__(self) -> str:
        match self.told:
            case Told.RUNTIME if self.error:
                return f"the true runtimes, with a random error of {self.error}"
            case Told.RUNTIME:
                return "the true runtimes, which nobody knows in reality"
            case Told.WALLTIME:
                return "the walltimes that users asked for, and how long earlier jobs ran"
            case Told.NOTHING:
                return "only how long earlier jobs ran"
            case Told.THEN:
                return "what they knew then: estimates, walltimes and predictions of the time"


def usual(jobs: Sequence[TraceJob]) -> Told:
    """Return what policies know unless somebody chooses: walltimes if at least half of the jobs state one."""
    limited = sum(1 for job in jobs if job.walltime is not None)
    return Told.WALLTIME if limited and 2 * limited >= len(jobs) else Told.RUNTIME


def with_estimates(
    jobs: Sequence[TraceJob], told: Told, seed: int, *, normal: float = 0.0, lognormal: float = 0.0
) -> Sequence[TraceJob]:
    """Return the jobs with the estimates that the scheduler gets.

    An error applies to true runtimes: `normal` p gives max(0, r + N(0, p r)), `lognormal` p gives r exp(N(0, p)).
    """
    if told is Told.THEN:
        return jobs
    if told is Told.WALLTIME:
        return [replace(job, estimate=None) for job in jobs]
    if told is Told.NOTHING:
        return [replace(job, estimate=None, walltime=None) for job in jobs]
    if not normal and not lognormal:
        return [job.but(job.submit, job.runtime) for job in jobs]
    from spillover.sim.dice import dice_of  # noqa: PLC0415 - most studies have no errors

    dice = dice_of(seed, "estimates")
    estimates: list[TraceJob] = []
    for job in jobs:
        error = dice.gauss(0.0, 1.0)
        factor = max(0.0, 1 + error * normal) if normal else exp(error * lognormal)
        estimates.append(job.but(job.submit, round(job.runtime * factor)))
    return estimates
