"""Moves unstarted work from busy agents to idle ones."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.core.events import AnyEvent, JobPlaced, LeaseMoved, MemberPlaced, StealRefused
from spillover.core.records.jobs import Job
from spillover.deciding.stealing import choose
from spillover.model.ids import JobId
from spillover.model.units import SECOND
from spillover.ports.commands import CommandError

log = structlog.get_logger()

LINGER: Final = 0.02
"""Least seconds between two checks."""
AGAIN: Final = 0.1
"""Seconds until the next check while work waits; tasks may run longer than expected."""
RATE: Final = 50 << 20
"""Bytes of files per second that a move is assumed to transfer."""
SPARED: Final = SECOND
"""Nanoseconds before a refused lease is asked for again."""


class Stealing:
    """Asks busy agents for leases on behalf of idle ones."""

    def __init__(self, loop: Loop, specs: Specs) -> None:
        self._loop = loop
        self._specs = specs
        self._news = asyncio.Event()
        self._spared: dict[JobId, int] = {}
        """Jobs not to ask for, and until when on the monotonic clock."""
        self._busy: dict[str, None] = dict.fromkeys(loop.state.agents)
        """Agents that may hold more leases than fit, so that a check need not look at all agents."""
        loop.listen(self._see)

    async def run(self) -> None:
        """Check whenever something happened, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN if self._waits() else None):
                    await self._news.wait()
            self._news.clear()
            if self._loop.problem is None:
                try:
                    await self.look()
                except CommandError as error:
                    log.warning("cannot move work between agents", error=error.message)
            await asyncio.sleep(LINGER)

    async def look(self) -> int:
        """Ask for leases that would start sooner elsewhere; return how many."""
        if not self._waits():
            return 0
        engine = await self._loop.ready()
        now = self._loop.time.monotonic()
        self._spared = {job: until for job, until in self._spared.items() if until > now}
        state = engine.state
        asks = choose(
            state,
            engine.index,
            self._loop.now(),
            state.facts.cycles,
            spared=self._spared,
            carrying=self._carrying,
        )
        if asks:
            await self._loop.propose(*asks)
        return len(asks)

    def _carrying(self, job: Job) -> int:
        """Return the nanoseconds to transfer the files of a job, as far as their size is known."""
        return self._specs.size(job.spec) * SECOND // RATE

    def _waits(self) -> bool:
        """Return whether an agent holds unstarted work while another has free CPUs."""
        agents = self._loop.state.agents
        for key in [key for key in self._busy if key not in agents or len(agents[key].ahead) <= 1]:
            del self._busy[key]
        return bool(self._busy) and any(
            not node.ahead and node.status == "ready" and node.used.cpu < node.capacity.cpu
            for node in agents.values()
        )

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Record which agents got work and which leases were refused, as asking for those again now is useless."""
        for event in events:
            match event:
                case JobPlaced() | MemberPlaced():
                    self._busy[f"{event.cluster}/{event.node}"] = None
                case LeaseMoved():
                    self._busy[f"{event.cluster}/{event.thief}"] = None
                case StealRefused():
                    self._spared[event.job] = self._loop.time.monotonic() + SPARED
                case _:
                    pass
        self._news.set()
