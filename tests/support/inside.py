"""Runs only the core of a server: the live loop on a store, usually in memory, with a clock that tests set."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from spillover.control.controllers.archiving import Archiving
from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.submitting import Submitting
from spillover.control.views.history import dropped_member
from spillover.core.events import Lease
from spillover.core.proposals import Proposal, Reply, StartEpoch
from spillover.core.records.jobs import Placed
from spillover.forms.jobs.reading import JobForm, read_job
from spillover.model.ids import JobId, job_id
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.stores.memory import open_memory
from spillover.stores.store import Store
from spillover.testing.world import OWNED, RENTED


class HandClock:
    """A wall clock and a monotonic clock that move only when a test moves them."""

    def __init__(self) -> None:
        self.at = 1_800_000_000 * SECOND
        self.ran = 5_000 * SECOND

    def wall(self) -> int:
        """Return nanoseconds UTC."""
        return self.at

    def monotonic(self) -> int:
        """Return nanoseconds since an arbitrary time."""
        return self.ran

    def pass_by(self, seconds: float) -> None:
        """Advance both clocks."""
        self.at += int(seconds * SECOND)
        self.ran += int(seconds * SECOND)


class Inside:
    """The core of a server, without network and processes."""

    def __init__(self, store: Store | None = None) -> None:
        self.clock = HandClock()
        self.store = store or open_memory()
        self.loop = Loop(self.store.journal, load, self.clock, debug=True)
        dropped = partial(dropped_member, self.loop, self.store.journal)
        self.lookup = Lookup(self.loop, self.store.archive, dropped=dropped)
        self.specs = Specs(self.store.journal)
        self.archiving = Archiving(self.loop, self.store.archive)
        self._drawn = 0
        self.submitting = Submitting(self.loop, self.store.archive, self.lookup, self.specs, draw=self._draw)

    def _draw(self) -> JobId:
        self._drawn += 1
        return job_id(self._drawn << 20)

    async def begin(self) -> int:
        """Take the lead; return the time of the last event, or 0."""
        epoch = await self.store.election.campaign("test", "http://test")
        assert isinstance(epoch, int)
        last = await self.loop.load()
        self.loop.begin(epoch, last)
        return last

    def lease(self, job: str) -> Lease:
        """Return the lease of a placed job."""
        found = self.loop.state.jobs[JobId(job)]
        assert isinstance(found.phase, Placed), found
        return found.lease

    async def propose(self, proposal: Proposal) -> Reply:
        """Propose one thing and return its reply."""
        (reply,) = await self.loop.propose(proposal)
        return reply

    async def submit(self, *names: str, **fields: object) -> tuple[str, ...]:
        """Submit jobs with these names."""
        return await self.submitting.submit([form(name, **fields) for name in names], "ada")

    async def archive(self) -> None:
        """Archive ended jobs, as far as they are durable."""
        while await self.archiving.some():
            pass


def form(name: str, **fields: object) -> JobForm:
    """Return a parsed job file."""
    return read_job(
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"run": "true", **fields},
        }
    )


@asynccontextmanager
async def leading(store: Store | None = None, at: int | None = None) -> AsyncIterator[Inside]:
    """Lead two clusters without agents, on this store (default: in memory) and from this time on."""
    inside = Inside(store)
    inside.clock.at = at or inside.clock.at
    await inside.begin()
    running = asyncio.create_task(inside.loop.run())
    try:
        await inside.propose(StartEpoch(inside.loop.epoch, (OWNED, RENTED), PolicySet(wait=Choice("never"))))
        yield inside
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
