"""Tracks what jobs use of something that has limits, such as a cluster or a queue."""

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple, Self

from spillover.model.cluster import ClusterSpec
from spillover.model.ids import JobId
from spillover.model.reasons import AtLimit, OverLimit
from spillover.model.resources import Resources


class Excess(NamedTuple):
    """A limit that one more job would exceed."""

    what: str
    """`jobs`, or the name of a resource."""
    used: int
    asked: int
    most: int


class Limits:
    """Limits and the jobs that count. A job counts with all tasks, from placement until it leaves."""

    __slots__ = ("_held", "_jobs", "_most", "_used")

    def __init__(self, most: Resources, jobs: int | None) -> None:
        self._most = most
        """0 is any amount."""
        self._jobs = jobs
        self._held: dict[JobId, Resources] = {}
        self._used = Resources()

    def copy(self) -> Self:
        """Return an independent copy."""
        own = copy(self)
        own._held = self._held.copy()  # noqa: SLF001 - one of its own kind
        return own

    @property
    def jobs(self) -> int:
        """The number of jobs that count."""
        return len(self._held)

    @property
    def used(self) -> Resources:
        """What they hold together."""
        return self._used

    @property
    def are_reached(self) -> bool:
        """Whether no job may be added at all, however small."""
        if self._jobs is not None and len(self._held) >= self._jobs:
            return True
        most, used = self._most, self._used
        return bool(most.cpu) and used.cpu >= most.cpu

    def allow(self, asked: Resources) -> bool:
        """Return whether one more job that asks for so much in all may run."""
        return not any(used + more > most for _, used, more, most in self._counted(asked))

    def excess(self, asked: Resources) -> Excess | None:
        """Return the limit that one more job would exceed, first one that it could never keep; None if there is none."""
        found = [each for each in self._counted(asked) if each.used + each.asked > each.most]
        return next((each for each in found if each.asked > each.most), found[0] if found else None)

    def room_for(self, asked: Resources, jobs: int, taken: Resources) -> int | None:
        """Return how many more jobs may run beside `jobs` others that would take so much; None for any number."""
        beside = {"jobs": jobs, "cpu": taken.cpu, "memory": taken.memory, "gpu": taken.gpu}
        room = [
            max(0, each.most - each.used - beside[each.what]) // each.asked
            for each in self._counted(asked)
            if each.asked
        ]
        return min(room, default=None)

    def take(self, job: JobId, asked: Resources) -> None:
        """Count a job; counting it again has no effect."""
        if job not in self._held:
            self._held[job] = asked
            self._used = self._used + asked

    def leave(self, job: JobId) -> bool:
        """Stop counting a job; return False if it was not counted."""
        asked = self._held.pop(job, None)
        if asked is None:
            return False
        self._used = self._used - asked
        return True

    def _counted(self, asked: Resources) -> Iterator[Excess]:
        """Yield each limit with the amount used and the amount asked for."""
        if self._jobs is not None:
            yield Excess("jobs", len(self._held), 1, self._jobs)
        most, used = self._most, self._used
        if most.cpu:
            yield Excess("cpu", used.cpu, asked.cpu, most.cpu)
        if most.memory:
            yield Excess("memory", used.memory, asked.memory, most.memory)
        if most.gpu:
            yield Excess("gpu", used.gpu, asked.gpu, most.gpu)


class ClusterLimits(Limits):
    """The limits of one cluster and the jobs on it."""

    __slots__ = ("_name",)

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec.most or Resources(), spec.most_jobs)
        self._name = spec.name

    @classmethod
    def of(cls, spec: ClusterSpec) -> "ClusterLimits | None":
        """Return the limits of a cluster; None if it has none, as most do."""
        return None if spec.most is None and spec.most_jobs is None else cls(spec)

    def refusal(self, asked: Resources) -> AtLimit | OverLimit | None:
        """Return why one more job may not run there; None if it may."""
        found = self.excess(asked)
        if found is None:
            return None
        if found.asked > found.most:
            return OverLimit(self._name, found.what, found.asked, found.most)
        return AtLimit(self._name, found.what, found.used, found.most)
