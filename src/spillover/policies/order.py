"""In which order queued jobs are tried."""

from fractions import Fraction
from math import lcm

from spillover.core.jobs import Job
from spillover.core.usage import GPU_WEIGHT, HALF_LIFE
from spillover.deciding.forecast.estimates import estimate
from spillover.model.units import FOREVER, HOUR


class Fifo:
    """Jobs in the order of their submission."""

    def key(self, job: Job) -> tuple[()]:
        """Nothing comes before the order of submission."""
        del job
        return ()


class Lifo:
    """The newest job first."""

    def key(self, job: Job) -> int:
        """Later is earlier; members of an array stay together."""
        return -job.number


class Priority:
    """Jobs of higher priority first; equal ones in the order of their submission."""

    def key(self, job: Job) -> int:
        """Higher is earlier."""
        return -job.priority


class ShortestFirst:
    """By expected runtime, the shortest first; equal ones in the order of submission."""

    unknown_runtime: int = HOUR
    """Nanoseconds expected of a job of which nothing is known; set when the policies are put together."""

    def key(self, job: Job) -> int:
        """Nanoseconds that it is expected to run."""
        return estimate(job, self.unknown_runtime).runtime


class LongestFirst:
    """By expected runtime, the longest first; equal ones in the order of submission."""

    unknown_runtime: int = HOUR
    """Nanoseconds expected of a job of which nothing is known; set when the policies are put together."""

    def key(self, job: Job) -> int:
        """Nanoseconds that it is expected to run, turned round."""
        return -estimate(job, self.unknown_runtime).runtime


class EarliestDeadline:
    """By deadline, the earliest first; jobs without one come last, in the order of submission."""

    def key(self, job: Job) -> int:
        """Latest finish, nanoseconds UTC."""
        deadline = job.extra.deadline
        return FOREVER if deadline is None else deadline


class LeastSlack:
    """By deadline less expected runtime, the earliest first; jobs without a deadline come last, in the order of submission."""

    unknown_runtime: int = HOUR
    """Nanoseconds expected of a job of which nothing is known; set when the policies are put together."""

    def key(self, job: Job) -> int:
        """Latest start, nanoseconds UTC: slack shrinks for all jobs alike as time goes by, so this sorts as slack does."""
        deadline = job.extra.deadline
        return FOREVER if deadline is None else deadline - estimate(job, self.unknown_runtime).runtime


class FairShare:
    """Projects by what they have used of late, each measured by its share; within a project, higher priority first.

    What projects use is counted in the book (`core.usage`), by the same half life and weight.
    """

    def __init__(self, half_life: int = HALF_LIFE, shares: str = "", gpu_weight: float = GPU_WEIGHT) -> None:
        del half_life, gpu_weight
        exact = read_shares(shares)
        whole = lcm(*(share.denominator for share in exact.values()))
        parts = {project: int(share * whole) for project, share in exact.items()}
        together = lcm(whole, *parts.values())
        self._factors = {project: together // part for project, part in parts.items()}
        """What the use of a project is multiplied by, so that equal products are fair: less for a larger share."""
        self._usual = together // whole

    def key(self, job: Job) -> int:
        """Higher priority is earlier, within a project."""
        return -job.priority

    def ranks(self, project: str, used: int) -> int:
        """What a project has used, measured by its share."""
        return used * self._factors.get(project, self._usual)


def read_shares(shares: str) -> dict[str, Fraction]:
    """The share of each project that has one, from `vision=2;nlp=0.5`; others have 1."""
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
            raise TypeError(f"{part.strip()!r} is no share; write vision=2;nlp=1")
    return found
