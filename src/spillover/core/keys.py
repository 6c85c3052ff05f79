"""Idempotency keys: under one key, a project has one job.

Jobs in the state are found here; those that were archived, in the archive. A submission looks into the archive before it is
decided on, and a job may be archived in between. So the keys of jobs that left the state lately are remembered, with when: a
submission is asked to look again if one of its own keys is among them, and not because any job at all was archived.
"""

from collections.abc import Iterator
from typing import Final

from spillover.model.ids import JobId

MOST_LEFT: Final = 50_000
"""Keys that are remembered of jobs that left the state: at most some 25 MB, and what a busy server archives in half a minute."""


class Keys:
    """Keys of all projects."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, JobId]] = {}
        """By project, then by key: a million of them need no tuple each."""
        self._left: dict[tuple[str, str], int] = {}
        """How many jobs had been archived when each left the state, oldest first."""
        self._unknown = 0
        """Of what left when no more than so many jobs had been archived, nothing is remembered."""

    def __iter__(self) -> Iterator[tuple[str, str, JobId]]:
        """Project, key and job of all that are in the state."""
        for project, jobs in self._jobs.items():
            for key, job in jobs.items():
                yield project, key, job

    def copy(self) -> "Keys":
        """The same, of its own."""
        own = Keys()
        own._jobs = {project: jobs.copy() for project, jobs in self._jobs.items()}
        own._left, own._unknown = self._left.copy(), self._unknown
        return own

    def find(self, project: str, key: str) -> JobId | None:
        """The job of the state that was submitted under a key."""
        jobs = self._jobs.get(project)
        return None if jobs is None else jobs.get(key)

    def take(self, project: str, key: str, job: JobId) -> None:
        """A job was submitted under a key."""
        self._jobs.setdefault(project, {})[key] = job

    def drop(self, project: str, key: str, job: JobId) -> None:
        """A job is not in the state any more."""
        jobs = self._jobs.get(project)
        if jobs is not None and jobs.get(key) == job:
            del jobs[key]
            if not jobs:
                del self._jobs[project]

    def archive(self, project: str, key: str, job: JobId, archived: int) -> None:
        """A job left the state for the archive, which makes it so many."""
        self.drop(project, key, job)
        self._left.pop((project, key), None)  # to the end, where the newest are
        self._left[project, key] = archived
        if len(self._left) > MOST_LEFT:
            oldest = next(iter(self._left))
            self._unknown = max(self._unknown, self._left.pop(oldest))

    def begin(self, archived: int) -> None:
        """So many jobs were archived before this state was loaded, and their keys are not known."""
        self._unknown = archived

    def may_have_left(self, project: str, key: str, archived: int) -> bool:
        """Whether a job under this key may have left the state since so many jobs had been archived."""
        return archived < self._unknown or self._left.get((project, key), 0) > archived
