"""Wakes callers that wait for events of some jobs; a commit wakes only those concerned, as there may be thousands."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from spillover.core.events import AnyEvent
from spillover.core.records.jobs import Job
from spillover.model.ids import JobId

MANY: Final = 10_000
"""Jobs in an event from which on it wakes everyone, as finding those concerned would take longer."""


class Subscription:
    """The events that one caller waits for."""

    def __init__(self) -> None:
        self._after: int | None = None
        """Revision before the first new event; None while there is none."""
        self._news = asyncio.Event()

    async def wait(self) -> int:
        """Wait for new events since the last call; return the revision before the first of them."""
        await self._news.wait()
        self._news.clear()
        after, self._after = self._after, None
        return after or 0

    def tell(self, after: int) -> None:
        """Report new events after a revision."""
        if self._after is None:
            self._after = after
            self._news.set()


Table: TypeAlias = dict[str, dict[Subscription, None]]


class Subscribers:
    """All subscriptions, by job, project or neither."""

    def __init__(self) -> None:
        self._to_all: dict[Subscription, None] = {}
        self._to_jobs: Table = {}
        """By job id; the id with a trailing dot is for dropped members of an array."""
        self._to_projects: Table = {}

    @contextmanager
    def to_all(self) -> Iterator[Subscription]:
        """Subscribe to every commit within this block."""
        subscription = Subscription()
        self._to_all[subscription] = None
        try:
            yield subscription
        finally:
            del self._to_all[subscription]

    @contextmanager
    def to_jobs(self, jobs: Iterable[str]) -> Iterator[Subscription]:
        """Subscribe to commits with events about some jobs or their members within this block."""
        keys = dict.fromkeys(jobs)
        dropped = {f"{job.partition('.')[0]}." for job in keys if "." in job}
        with _entered(self._to_jobs, (*keys, *dropped)) as subscription:
            yield subscription

    @contextmanager
    def to_project(self, project: str) -> Iterator[Subscription]:
        """Subscribe to commits with events about jobs of a project within this block."""
        with _entered(self._to_projects, (project,)) as subscription:
            yield subscription

    def tell(self, after: int, events: Sequence[AnyEvent], jobs: Mapping[JobId, Job]) -> None:
        """Wake subscriptions to durable events after a revision; `jobs` are those in the state."""
        for subscription in self._to_all:
            subscription.tell(after)
        if not self._to_jobs and not self._to_projects:
            return
        for event in events:
            about = event.about()
            if len(about) >= MANY:
                self._notify_all(after)
                return
            for job in about:
                array = job.partition(".")[0] if "." in job else job
                _tell(self._to_jobs, array, after)
                if array is not job:
                    _tell(self._to_jobs, job, after)
                if self._to_projects:
                    self._notify_project(after, array, event, jobs)
                if event.of_members:
                    _tell(self._to_jobs, f"{job}.", after)

    def _notify_project(self, after: int, job: str, event: AnyEvent, jobs: Mapping[JobId, Job]) -> None:
        if (project := event.of_project()) is not None:
            _tell(self._to_projects, project, after)
        elif (known := jobs.get(JobId(job))) is not None:
            _tell(self._to_projects, known.kind.project, after)
        else:  # the job is archived already; let each reader check
            for each in self._to_projects:
                _tell(self._to_projects, each, after)

    def _notify_all(self, after: int) -> None:
        for table in (self._to_jobs, self._to_projects):
            for key in table:
                _tell(table, key, after)


@contextmanager
def _entered(table: Table, keys: Sequence[str]) -> Iterator[Subscription]:
    """Register a subscription under some keys of a table within this block."""
    subscription = Subscription()
    for key in keys:
        table.setdefault(key, {})[subscription] = None
    try:
        yield subscription
    finally:
        for key in keys:
            del table[key][subscription]
            if not table[key]:
                del table[key]


def _tell(table: Table, key: str, after: int) -> None:
    for subscription in table.get(key, ()):
        subscription.tell(after)
