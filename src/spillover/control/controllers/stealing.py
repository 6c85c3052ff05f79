"""Work that waits at one agent while another has nothing to do: asks for it to be moved."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from spillover.control.loop import Loop
from spillover.control.specs import Specs
from spillover.core.events import AnyEvent, JobPlaced, LeaseMoved, MemberPlaced, StealRefused
from spillover.core.jobs import Job
from spillover.deciding.stealing import choose
from spillover.model.ids import JobId
from spillover.model.units import SECOND
from spillover.ports.commands import CommandError

log = structlog.get_logger()

LINGER: Final = 0.02
"""Seconds between two looks at the least."""
AGAIN: Final = 0.1
"""Seconds until another look while work waits that nobody took: tasks may run longer than was expected."""
RATE: Final = 50 << 20
"""Bytes of files that are taken to move in a second."""
SPARED: Final = SECOND
"""Nanoseconds for which nobody asks again for a lease that was refused."""


class Stealing:
    """Has idle agents ask busy ones for leases."""

    def __init__(self, loop: Loop, specs: Specs) -> None:
        self._loop = loop
        self._specs = specs
        self._news = asyncio.Event()
        self._spared: dict[JobId, int] = {}
        """Jobs not to be asked for, and until when on the monotonic clock."""
        self._busy: dict[str, None] = dict.fromkeys(loop.state.agents)
        """Agents that may hold more than they have room for, so that not all have to be looked at."""
        loop.listen(self._see)

    async def run(self) -> None:
        """Look whenever something happened, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN if self._waits() else None):
                    await self._news.wait()
            self._news.clear()
            if self._loop.problem is None:
                try:
                    await self.look()
                except CommandError as error:
                    log.warning("could not move work between agents", error=error.message)
            await asyncio.sleep(LINGER)

    async def look(self) -> int:
        """Ask for what would start sooner elsewhere; returns how many leases that are."""
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
        """Nanoseconds that the files of a job are under way, as far as they are known."""
        return self._specs.size(job.spec) * SECOND // RATE

    def _waits(self) -> bool:
        """Whether any agent holds work that it has not begun, and another one could."""
        agents = self._loop.state.agents
        for key in [key for key in self._busy if key not in agents or len(agents[key].ahead) <= 1]:
            del self._busy[key]
        return bool(self._busy) and any(
            not node.ahead and node.status == "ready" and node.used.cpu < node.capacity.cpu
            for node in agents.values()
        )

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Note who was given work, and what was refused: asking again at once would be in vain."""
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
