"""Runs the live loop without a process: real engine, writer and gate, a journal that fails on demand, set clocks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from spillover.control.live.loop import Loop
from spillover.core.events import AnyEvent
from spillover.core.proposals import Proposal, Register, SetPolicies, StartEpoch, Submit
from spillover.core.records.jobs import Job, Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.ports.journal import Batch, Fenced, Journal, Unwritable
from spillover.stores.memory import open_memory
from spillover.testing.builders import JobBuilder
from spillover.testing.world import OWNED, RENTED, START


class Hands:
    """Both clocks, moved by the test."""

    def __init__(self) -> None:
        self._wall = START
        self._monotonic = 0

    def wall(self) -> int:
        """See Clock."""
        return self._wall

    def monotonic(self) -> int:
        """See Clock."""
        return self._monotonic

    def pass_by(self, *, seconds: float) -> None:
        """Advance both clocks."""
        self._wall += int(seconds * SECOND)
        self._monotonic += int(seconds * SECOND)

    def set_wall(self, *, seconds: float) -> None:
        """Set the wall clock ahead or back."""
        self._wall += int(seconds * SECOND)


class FaultyJournal:
    """A journal whose appends fail on demand, before or after the write, so that the outcome is unknown."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.fault: Literal["before", "after", "fenced"] | None = None
        """None means no fault."""
        self.tries = 0
        """Number of attempted appends."""

    async def append(self, after: int, batch: Batch, epoch: int) -> int:
        """See Journal."""
        self.tries += 1
        if self.fault == "fenced":
            raise Fenced("a newer epoch has begun")
        if self.fault == "before":
            raise Unwritable("the disk is full")
        revision = await self._journal.append(after, batch, epoch)
        if self.fault == "after":
            raise Unwritable("the connection is lost")
        return revision

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class Told:
    """Records what the loop reports about the lead, and does nothing."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._news = asyncio.Event()

    def led_until(self, until: int) -> None:
        """See Led."""
        del until
        self._hear("lead on")

    def hold(self, why: str) -> None:
        """See Led."""
        self._hear(f"hold: {why}")

    def step_down(self, why: str) -> None:
        """See Led."""
        self._hear(f"step down: {why}")

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        self._news.set()

    async def hears(self, what: str) -> None:
        """Wait for a report that begins with this text."""
        while not any(each.startswith(what) for each in self.heard):
            self._news.clear()
            await self._news.wait()


class Live:
    """A loop that leads, with shortcuts for proposals."""

    def __init__(self, policies: PolicySet) -> None:
        store = open_memory()
        self.clock = Hands()
        self.election = store.election
        self.journal = FaultyJournal(store.journal)
        self.loop = Loop(self.journal, load, self.clock, debug=True)
        self.heard: list[AnyEvent] = []
        """All durable events, as listeners receive them."""
        self._policies = policies
        self._incarnation = 0
        self.loop.listen(self._hear)

    def _hear(self, _: int, events: Sequence[AnyEvent]) -> None:
        self.heard += events

    async def begin(self) -> None:
        """Take the lead."""
        epoch = await self.election.campaign("test", "http://test")
        assert isinstance(epoch, int)
        self.loop.begin(epoch, await self.loop.load())

    async def configure(self) -> None:
        """Configure the clusters."""
        await self.loop.propose(StartEpoch(self.loop.epoch, (OWNED, RENTED), self._policies))

    async def look(self) -> None:
        """Make the loop run a step now."""
        await self.loop.propose(SetPolicies(self._policies, "test"))

    async def agent(self, cluster: str, *, cpus: int) -> None:
        """Register an agent."""
        self._incarnation += 1
        name, node = ClusterName(cluster), NodeName(f"{cluster}-1")
        register: Proposal = Register(name, node, self._incarnation, Resources(cpus * 1000), (), {}, 0, ())
        await self.loop.propose(register)

    async def submit(self, *jobs: JobBuilder) -> object:
        """Submit jobs and return the reply."""
        (reply,) = await self.loop.propose(Submit(tuple(job.build() for job in jobs), "ada"))
        return reply

    def job(self, name: str) -> Job:
        """Return a job."""
        return self.loop.state.jobs[JobId(name)]

    def where(self, name: str) -> str | None:
        """Return the cluster of a job; None if it is not placed."""
        phase = self.job(name).phase
        return phase.cluster if isinstance(phase, Placed | Running) else None


@asynccontextmanager
async def a_live_loop(policies: PolicySet) -> AsyncIterator[Live]:
    """Run a loop with an owned and a rented cluster."""
    live = Live(policies)
    await live.begin()
    running = asyncio.create_task(live.loop.run())
    try:
        await live.configure()
        yield live
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
