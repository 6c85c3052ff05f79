"""Keeping the lead: renewed while it lasts, given up when it cannot be."""

import asyncio
from collections.abc import Callable

import structlog

from spillover.ports.clock import Clock
from spillover.ports.election import Election, Holder
from spillover.ports.journal import StoreError, Unreadable, Unwritable

log = structlog.get_logger()

STANDBY = 0.2
"""Seconds between two looks of a standby."""


class Leader:
    """One epoch of one server."""

    def __init__(self, election: Election, clock: Clock, name: str) -> None:
        self._election = election
        self._clock = clock
        self._name = name
        self.epoch = 0

    async def take(self, url: str, *, standby: bool) -> Holder | None:
        """Take the lead; returns who has it instead, unless this is to wait until nobody does."""
        outcome = await self._election.campaign(self._name, url)
        if isinstance(outcome, int):
            self.epoch = outcome
            return None
        if not standby:
            return outcome
        await self.stand_by(url, outcome)
        return None

    async def stand_by(self, url: str, holder: Holder) -> None:
        """Take the lead as soon as nobody has it; a store that does not answer meanwhile is asked again."""
        log.info("standing by", leader=holder.name, url=holder.url, epoch=holder.epoch)
        failing, leading = False, False
        while not leading:
            await asyncio.sleep(STANDBY)
            try:
                leading = await self.take(url, standby=False) is None
                failing = False
            except (Unwritable, Unreadable) as error:
                if not failing:
                    log.warning("cannot see who leads; standing by", error=str(error))
                failing = True

    async def keep(self, lost: Callable[[str], None], hold: Callable[[str | None], None]) -> None:
        """Renew until it is lost.

        When a term ends on our own clock, another may lead by now: `hold` is told why nothing may be done. If the store says
        later that nobody took over (it was full, or this process stood still), `hold` is told None and we lead on.
        """
        term = self._election.term
        renewed, holding = self._clock.monotonic(), False
        while True:
            await asyncio.sleep(term / 20 if holding else term / 4)
            asked = self._clock.monotonic()
            if not holding and asked - renewed > term * 1e9:
                hold("the lead was not renewed in time")
                holding = True
            try:
                left = term - (asked - renewed) / 1e9 if not holding else term
                async with asyncio.timeout(max(0.0, left)):
                    ours = await self._election.renew(self.epoch)
            except (StoreError, TimeoutError) as error:
                if not holding:
                    log.warning("could not renew the lead", error=str(error) or "no answer")
                if self._clock.monotonic() - renewed >= term * 1e9:
                    hold(str(error) or "the store does not answer")
                    holding = True
                continue
            if not ours:
                lost("another server leads")
                return
            renewed = asked
            if holding:
                hold(None)
                holding = False

    async def resign(self) -> None:
        """Let another take over at once; after a term it may do so anyway."""
        if self.epoch:
            try:
                async with asyncio.timeout(self._election.term):
                    await self._election.resign(self.epoch)
            except (StoreError, TimeoutError) as error:
                log.warning("could not resign", error=str(error) or "no answer")
