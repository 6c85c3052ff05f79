"""Order policies: which queued job is tried first."""

from fractions import Fraction
from math import lcm

from spillover.core.learned.usage import GPU_WEIGHT, HALF_LIFE
from spillover.core.records.jobs import Job
from spillover.deciding.forecast.estimates import estimate
from spillover.model.units import FOREVER, HOUR


class Fifo:
    """Tries jobs in the order of submission."""

    def key(self, job: Job) -> tuple[()]:
        """Return the same key for all jobs, so that the order of submission decides."""
        del job
        return ()


class Lifo:
    """Tries the newest job first."""

    def key(self, job: Job) -> int:
        """Return a key that is lower for newer jobs; members of an array stay together."""
        return -job.number


class Priority:
    """Tries jobs with higher priority first; equal ones in the order of submission."""

    def key(self, job: Job) -> int:
        """Return the negative priority."""
        return -job.priority


class ShortestFirst:
    """Tries jobs with the shortest expected runtime first; equal ones in the order of submission."""

    unknown_runtime: int = HOUR
    """Expected runtime of a job about which nothing is known, in nanoseconds; set by the loader."""

    def key(self, job: Job) -> int:
        """Return the expected runtime in nanoseconds."""
        return estimate(job, self.unknown_runtime).runtime


class LongestFirst:
    """Tries jobs with the longest expected runtime first; equal ones in the order of submission."""

    unknown_runtime: int = HOUR
    """Expected runtime of a job about which nothing is known, in nanoseconds; set by the loader."""

    def key(self, job: Job) -> int:
        """Return the negative expected runtime in nanoseconds."""
        return -estimate(job, self.unknown_runtime).runtime


class EarliestDeadline:
    """Tries jobs with the earliest deadline first; jobs without one last, in the order of submission."""

    def key(self, job: Job) -> int:
        """Return the deadline, nanoseconds UTC."""
        deadline = job.extra.deadline
        return FOREVER if deadline is None else deadline


class LeastSlack:
    """Tries jobs with the least slack first: deadline minus expected runtime. Jobs without a deadline come last."""

    unknown_runtime: int = HOUR
    """Expected runtime of a job about which nothing is known, in nanoseconds; set by the loader."""

    def key(self, job: Job) -> int:
        """Return the latest start, nanoseconds UTC. It sorts like slack, which shrinks equally for all jobs."""
        deadline = job.extra.deadline
        return FOREVER if deadline is None else deadline - estimate(job, self.unknown_runtime).runtime


class FairShare:
    """Tries projects with the least recent usage for their share first; within a project, higher priority first.

    The state tracks the usage of projects (`core.learned.usage`) with the same half-life and weight.
    """

    def __init__(self, half_life: int = HALF_LIFE, shares: str = "", gpu_weight: float = GPU_WEIGHT) -> None:
        del half_life, gpu_weight
        exact = read_shares(shares)
        whole = lcm(*(share.denominator for share in exact.values()))
        parts = {project: int(share * whole) for project, share in exact.items()}
        together = lcm(whole, *parts.values())
        self._factors = {project: together // part for project, part in parts.items()}
        """Factor for the usage of a project, lower for a larger share, so that equal products are fair."""
        self._usual = together // whole

    def key(self, job: Job) -> int:
        """Return the negative priority, which orders the jobs of a project."""
        return -job.priority

    def ranks(self, project: str, used: int) -> int:
        """Return the usage of a project relative to its share."""
        return used * self._factors.get(project, self._usual)


def read_shares(shares: str) -> dict[str, Fraction]:
    """Parse the shares of projects from `vision=2;nlp=0.5`; projects that are not named have 1."""
    found: dict[str, Fraction] = {}
    for part in shares.split(";"):
        project, equals, share = part.strip().rpartition("=")
        if not part.strip():
            continue
        try:
            found[project] = Fraction(share)
        except (ValueError, ZeroDivisionError):
            found[project] = Fraction(0)
        if not equals or found[project] <= 0:
            raise TypeError(f"{part.strip()!r} is not a share; write vision=2;nlp=1")
    return found
