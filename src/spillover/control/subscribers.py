"""Those who wait for news of some jobs. A commit wakes only those whom it concerns: thousands may follow a job each."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from spillover.core.events import AnyEvent
from spillover.core.jobs import Job
from spillover.model.ids import JobId

MANY: Final = 10_000
"""An event about so many jobs wakes everybody: to find out whom it concerns would take longer."""


class Subscription:
    """What somebody waits for."""

    def __init__(self) -> None:
        self._after: int | None = None
        """The revision before the first news; None while there are none."""
        self._news = asyncio.Event()

    async def wait(self) -> int:
        """Return once there are news since this was last asked: the revision before the first of them."""
        await self._news.wait()
        self._news.clear()
        after, self._after = self._after, None
        return after or 0

    def tell(self, after: int) -> None:
        """There are news past a revision."""
        if self._after is None:
            self._after = after
            self._news.set()


Table: TypeAlias = dict[str, dict[Subscription, None]]


class Subscribers:
    """All who wait, by what they wait for."""

    def __init__(self) -> None:
        self._to_all: dict[Subscription, None] = {}
        self._to_jobs: Table = {}
        """By the ids of jobs, with a dot behind it for those of its members that are dropped."""
        self._to_projects: Table = {}

    @contextmanager
    def to_all(self) -> Iterator[Subscription]:
        """Be told of every commit, while this lasts."""
        subscription = Subscription()
        self._to_all[subscription] = None
        try:
            yield subscription
        finally:
            del self._to_all[subscription]

    @contextmanager
    def to_jobs(self, jobs: Iterable[str]) -> Iterator[Subscription]:
        """Be told of commits with events about some jobs or their members, while this lasts."""
        keys = dict.fromkeys(jobs)
        dropped = {f"{job.partition('.')[0]}." for job in keys if "." in job}
        with _entered(self._to_jobs, (*keys, *dropped)) as subscription:
            yield subscription

    @contextmanager
    def to_project(self, project: str) -> Iterator[Subscription]:
        """Be told of commits with events about jobs of a project, while this lasts."""
        with _entered(self._to_projects, (project,)) as subscription:
            yield subscription

    def tell(self, after: int, events: Sequence[AnyEvent], jobs: Mapping[JobId, Job]) -> None:
        """Events after a revision have become durable; `jobs` are those that are known now."""
        for subscription in self._to_all:
            subscription.tell(after)
        if not self._to_jobs and not self._to_projects:
            return
        for event in events:
            about = event.about()
            if len(about) >= MANY:
                self._tell_everybody(after)
                return
            for job in about:
                array = job.partition(".")[0] if "." in job else job
                _tell(self._to_jobs, array, after)
                if array is not job:
                    _tell(self._to_jobs, job, after)
                if self._to_projects:
                    self._tell_project(after, array, event, jobs)
                if event.of_members:
                    _tell(self._to_jobs, f"{job}.", after)

    def _tell_project(self, after: int, job: str, event: AnyEvent, jobs: Mapping[JobId, Job]) -> None:
        if (project := event.of_project()) is not None:
            _tell(self._to_projects, project, after)
        elif (known := jobs.get(JobId(job))) is not None:
            _tell(self._to_projects, known.kind.project, after)
        else:  # it is in the archive by now: whoever waits finds out
            for each in self._to_projects:
                _tell(self._to_projects, each, after)

    def _tell_everybody(self, after: int) -> None:
        for table in (self._to_jobs, self._to_projects):
            for key in table:
                _tell(table, key, after)


@contextmanager
def _entered(table: Table, keys: Sequence[str]) -> Iterator[Subscription]:
    """A subscription under some keys of a table."""
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
