"""Watches budgets: what they have reached becomes an event, which people can be told of."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from spillover.control.live.loop import Loop
from spillover.core.deciders.budgets import to_tell
from spillover.core.events import (
    AnyEvent,
    BudgetsConfigured,
    CostHeld,
    JobEnded,
    JobRequeued,
    MachineGone,
    MachinesHeld,
)
from spillover.core.proposals import LookAtBudgets
from spillover.ports.commands import CommandError

log = structlog.get_logger()

LINGER: Final = 1.0
"""Seconds to wait for further costs, so that one look covers many."""
RETRY: Final = 2.0
_COSTS: Final = frozenset({CostHeld, MachinesHeld, MachineGone, BudgetsConfigured})
_ENDS: Final = frozenset({JobEnded, JobRequeued})


class BudgetWatch:
    """Proposes budgets that have reached a share of their limit."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._news = asyncio.Event()
        self._news.set()  # an earlier server may have left some
        loop.listen(self._see)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        if self._news.is_set() or not self._loop.state.budget_periods:
            return
        if any(type(each) in _COSTS or (type(each) in _ENDS and each.cost) for each in events):  # type: ignore[union-attr]
            self._news.set()

    async def run(self) -> None:
        """Look at budgets after costs, until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(LINGER)
            self._news.clear()
            try:
                await self.look()
            except CommandError as error:
                log.warning("cannot look at budgets; will retry", error=error.message)
                await asyncio.sleep(RETRY)
                self._news.set()

    async def look(self) -> None:
        """Propose the budgets that have reached a share that was not told."""
        engine = await self._loop.read()
        if keys := tuple(to_tell(engine.state, self._loop.now())):
            await self._loop.propose(LookAtBudgets(keys))
