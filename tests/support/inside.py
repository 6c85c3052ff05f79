"""The inside of a server: the live loop on a store, in memory as a rule, and a clock that is set by hand, nothing around it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from spillover.control.controllers.archiving import Archiving
from spillover.control.lookup import Lookup
from spillover.control.loop import Loop
from spillover.control.specs import Specs
from spillover.control.submitting import Submitting
from spillover.core.events import Lease
from spillover.core.jobs import Placed
from spillover.core.proposals import Proposal, Reply, StartEpoch
from spillover.forms.jobs import JobForm, read_job
from spillover.model.ids import JobId, job_id
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.stores.memory import open_memory
from spillover.stores.store import Store
from spillover.testing.world import OWNED, RENTED


class HandClock:
    """Two clocks that stand still until they are moved."""

    def __init__(self) -> None:
        self.at = 1_800_000_000 * SECOND
        self.ran = 5_000 * SECOND

    def wall(self) -> int:
        """Nanoseconds UTC."""
        return self.at

    def monotonic(self) -> int:
        """Nanoseconds since some moment."""
        return self.ran

    def pass_by(self, seconds: float) -> None:
        """Both go on."""
        self.at += int(seconds * SECOND)
        self.ran += int(seconds * SECOND)


class Inside:
    """A server's inside, without its outside."""

    def __init__(self, store: Store | None = None) -> None:
        self.clock = HandClock()
        self.store = store or open_memory()
        self.loop = Loop(self.store.journal, load, self.clock, debug=True)
        self.lookup = Lookup(self.loop, self.store.archive)
        self.specs = Specs(self.store.journal)
        self.archiving = Archiving(self.loop, self.store.archive)
        self._drawn = 0
        self.submitting = Submitting(self.loop, self.store.archive, self.lookup, self.specs, draw=self._draw)

    def _draw(self) -> JobId:
        self._drawn += 1
        return job_id(self._drawn << 20)

    async def begin(self) -> None:
        """Lead."""
        epoch = await self.store.election.campaign("test", "http://test")
        assert isinstance(epoch, int)
        self.loop.begin(epoch, await self.loop.load())

    def lease(self, job: str) -> Lease:
        """The lease under which a job is placed."""
        found = self.loop.state.jobs[JobId(job)]
        assert isinstance(found.phase, Placed), found
        return found.lease

    async def propose(self, proposal: Proposal) -> Reply:
        """Propose one thing."""
        (reply,) = await self.loop.propose(proposal)
        return reply

    async def submit(self, *names: str, **fields: object) -> tuple[str, ...]:
        """Submit jobs of these names."""
        return await self.submitting.submit([form(name, **fields) for name in names], "ada")

    async def archive(self) -> None:
        """Move what ended to the archive, as far as it is durable."""
        while await self.archiving.some():
            pass


def form(name: str, **fields: object) -> JobForm:
    """A job file."""
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
    """A server that leads two clusters, without agents; on the store in memory unless another is given, at a time that may be given."""
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
