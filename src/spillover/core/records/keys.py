"""Idempotency keys: a project has at most one job under a key.

Keys of jobs in the state are here. Keys of archived jobs are in the archive. A submission searches the archive before
it is decided, and a job may be archived in between. So the state remembers the keys of recently archived jobs and when
they left. A submission must search again if one of its own keys is among them, but not whenever any other job was
archived.
"""

from collections.abc import Iterator
from typing import Final

from spillover.model.ids import JobId

MOST_LEFT: Final = 50_000
"""Keys of archived jobs to remember: at most some 25 MB, or what a busy server archives in half a minute."""


class Keys:
    """The keys of all projects."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, JobId]] = {}
        """By project, then by key, because a million keys would otherwise need a tuple each."""
        self._left: dict[tuple[str, str], int] = {}
        """For keys that left the state, oldest first, the number of archived jobs at that time."""
        self._unknown = 0
        """Keys that left when at most this many jobs had been archived are forgotten."""

    def __iter__(self) -> Iterator[tuple[str, str, JobId]]:
        """Yield project, key and job of all keys in the state."""
        for project, jobs in self._jobs.items():
            for key, job in jobs.items():
                yield project, key, job

    def copy(self) -> "Keys":
        """Return an independent copy."""
        own = Keys()
        own._jobs = {project: jobs.copy() for project, jobs in self._jobs.items()}
        own._left, own._unknown = self._left.copy(), self._unknown
        return own

    def find(self, project: str, key: str) -> JobId | None:
        """Return the job in the state that was submitted under a key; None if there is none."""
        jobs = self._jobs.get(project)
        return None if jobs is None else jobs.get(key)

    def take(self, project: str, key: str, job: JobId) -> None:
        """Add the key of a submitted job."""
        self._jobs.setdefault(project, {})[key] = job

    def drop(self, project: str, key: str, job: JobId) -> None:
        """Remove the key of a job that leaves the state."""
        jobs = self._jobs.get(project)
        if jobs is not None and jobs.get(key) == job:
            del jobs[key]
            if not jobs:
                del self._jobs[project]

    def archive(self, project: str, key: str, job: JobId, archived: int) -> None:
        """Remove the key of a job that was archived; `archived` is the number of archived jobs, including it."""
        self.drop(project, key, job)
        self._left.pop((project, key), None)  # reinsert at the end, where the newest are
        self._left[project, key] = archived
        if len(self._left) > MOST_LEFT:
            oldest = next(iter(self._left))
            self._unknown = max(self._unknown, self._left.pop(oldest))

    def begin(self, archived: int) -> None:
        """Record that `archived` jobs were archived before this state was loaded; their keys are unknown."""
        self._unknown = archived

    def may_have_left(self, project: str, key: str, archived: int) -> bool:
        """Return whether a job with this key may have left the state since `archived` jobs had been archived."""
        return archived < self._unknown or self._left.get((project, key), 0) > archived
