"""Keeping the lead: renewed while it lasts, given up when it cannot be."""

import asyncio
from collections.abc import Callable

import structlog

from spillover.ports.clock import Clock
from spillover.ports.election import Election, Holder
from spillover.ports.journal import StoreError

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
        told = False
        while True:
            outcome = await self._election.campaign(self._name, url)
            if isinstance(outcome, int):
                self.epoch = outcome
                return None
            if not standby:
                return outcome
            if not told:
                told = True
                log.info("standing by", leader=outcome.name, url=outcome.url, epoch=outcome.epoch)
            await asyncio.sleep(STANDBY)

    async def keep(self, lost: Callable[[str], None]) -> None:
        """Renew until it is lost; a term that ended on our own clock is over, whatever the store would say."""
        term = self._election.term
        renewed = self._clock.monotonic()
        while True:
            await asyncio.sleep(term / 4)
            asked = self._clock.monotonic()
            if asked - renewed > term * 1e9:
                lost("its term ended while this process stood still")
                return
            try:
                held = await asyncio.wait_for(self._election.renew(self.epoch), term)
            except (StoreError, TimeoutError) as error:
                log.warning("could not renew the lead", error=str(error))
                if self._clock.monotonic() - renewed > term * 1e9:
                    lost("the lead could not be renewed in time")
                    return
                continue
            if not held:
                lost("another server leads")
                return
            renewed = asked

    async def resign(self) -> None:
        """Let another take over at once."""
        if self.epoch:
            try:
                await self._election.resign(self.epoch)
            except StoreError as error:
                log.warning("could not resign", error=str(error))
