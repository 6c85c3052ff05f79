"""Tracks what Spillover's jobs use of a cluster that has limits."""

from collections.abc import Iterator
from copy import copy

from spillover.model.cluster import ClusterSpec
from spillover.model.ids import JobId
from spillover.model.reasons import AtLimit, OverLimit
from spillover.model.resources import Resources


class ClusterLimits:
    """The limits of one cluster and the jobs on it. A job counts with all tasks, from placement until it leaves."""

    __slots__ = ("_held", "_jobs", "_most", "_name", "_used")

    def __init__(self, spec: ClusterSpec) -> None:
        self._name = spec.name
        self._most = spec.most or Resources()
        self._jobs = spec.most_jobs
        self._held: dict[JobId, Resources] = {}
        self._used = Resources()

    @classmethod
    def of(cls, spec: ClusterSpec) -> "ClusterLimits | None":
        """Return the limits of a cluster; None if it has none, as most do."""
        return None if spec.most is None and spec.most_jobs is None else cls(spec)

    def copy(self) -> "ClusterLimits":
        """Return an independent copy."""
        own = copy(self)
        own._held = self._held.copy()  # noqa: SLF001 - one of its own kind
        return own

    def allow(self, asked: Resources) -> bool:
        """Return whether one more job that asks for so much in all may run there."""
        return not any(used + more > most for _, used, more, most in self._counted(asked))

    def refusal(self, asked: Resources) -> AtLimit | OverLimit | None:
        """Return why one more job may not run there; None if it may."""
        now: AtLimit | None = None
        for what, used, more, most in self._counted(asked):
            if more > most:
                return OverLimit(self._name, what, more, most)
            if used + more > most and now is None:
                now = AtLimit(self._name, what, used, most)
        return now

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

    def _counted(self, asked: Resources) -> Iterator[tuple[str, int, int, int]]:
        """Yield each limit: its name, the amount used, the amount asked for, and the maximum."""
        if self._jobs is not None:
            yield "jobs", len(self._held), 1, self._jobs
        most, used = self._most, self._used
        if most.cpu:
            yield "cpu", used.cpu, asked.cpu, most.cpu
        if most.memory:
            yield "memory", used.memory, asked.memory, most.memory
        if most.gpu:
            yield "gpu", used.gpu, asked.gpu, most.gpu
