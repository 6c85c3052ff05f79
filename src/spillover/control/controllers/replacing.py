"""Replaces nodes that advance reservations have lost, if others fit."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from spillover.control.live.loop import Loop
from spillover.control.live.stepwise import stepwise
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    AnyEvent,
    NodesSeen,
    ReservationMade,
)
from spillover.core.proposals import MoveReservation
from spillover.deciding.engine import Engine
from spillover.deciding.reserving import Steps, lost_nodes, replacing
from spillover.ports.commands import CommandError

log = structlog.get_logger()

LINGER: Final = 1.0
"""Least seconds between two checks."""
SCARCE: Final = 15.0
"""The same while a reservation is short of nodes that nothing can replace: each check reads all nodes."""
AFTER: Final = 60.0
"""Seconds after the start of a server until the first check, because agents take a while to register again."""
AGAIN: Final = 60.0
"""Seconds until the next check while a reservation is short of nodes; jobs that end may make others free."""
_CHANGES: Final = frozenset(
    {
        AgentDraining,
        AgentForgotten,
        AgentLost,
        AgentRegistered,
        AgentResumed,
        NodesSeen,
        ReservationMade,
    }
)


class Replacing:
    """Looks for other nodes when reservations are short of some."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._news = asyncio.Event()
        loop.listen(self._see)

    async def run(self) -> None:
        """Check when nodes have changed, until cancelled."""
        await asyncio.sleep(AFTER)
        while True:
            if self._loop.problem is None:
                try:
                    await self.look()
                except CommandError as error:
                    log.warning("cannot replace nodes of reservations", error=error.message)
            await asyncio.sleep(SCARCE if self.short() else LINGER)
            try:
                async with asyncio.timeout(AGAIN if self._loop.state.reservations else None):
                    await self._news.wait()
            except TimeoutError:
                continue
            self._news.clear()

    async def look(self) -> int:
        """Give other nodes to reservations that have lost some; return to how many."""
        if not self._loop.state.reservations:
            return 0
        now = self._loop.now()

        def ask(engine: Engine) -> Steps[list[MoveReservation]]:
            found: list[MoveReservation] = []
            for each in list(engine.state.reservations.values()):
                nodes = yield from replacing(engine.index, each, now)
                if nodes is not None:
                    found.append(MoveReservation(each.name, each.nodes, nodes))
            return found

        moves = await stepwise(self._loop, ask)
        # One after the other, because the first may take the nodes that the second would.
        for move in moves:
            await self._loop.propose(move)
        return len(moves)

    def short(self) -> bool:
        """Return whether a reservation whose nodes may be replaced has lost some."""
        state = self._loop.state
        return any(not each.named and lost_nodes(each, state.nodes) for each in state.reservations.values())

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        if not _CHANGES.isdisjoint(map(type, events)):
            self._news.set()
