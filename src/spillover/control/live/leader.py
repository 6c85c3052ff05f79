"""Takes the lead, renews its term, and steps down when another server leads."""

import asyncio
from typing import Protocol

import structlog

from spillover.model.units import SECOND
from spillover.ports.clock import Clock
from spillover.ports.election import Election, Holder
from spillover.ports.journal import StoreError, Unreadable, Unwritable

log = structlog.get_logger()

STANDBY = 0.2
"""Seconds between two tries of a standby."""


class Led(Protocol):
    """Something that acts only while its server leads."""

    def led_until(self, until: int) -> None:
        """No other server leads before this time on the monotonic clock."""
        ...

    def hold(self, why: str) -> None:
        """Another server may lead: do nothing until the next `led_until`."""
        ...

    def step_down(self, why: str) -> None:
        """Another server leads: do nothing from now on."""
        ...


class Leader:
    """One epoch of one server."""

    def __init__(self, election: Election, clock: Clock, name: str, *, restored: bool = False) -> None:
        self._election = election
        self._clock = clock
        self._name = name
        self.restored = restored
        """Whether the data are a backup, after which epochs began that they do not know."""
        self._renewed = clock.monotonic()
        """When the last successful request for the lead was sent; a successor waits for a full term after that."""
        self.epoch = 0

    async def take(self, url: str, *, standby: bool) -> Holder | None:
        """Take the lead and return None; without `standby`, return the holder if another server leads."""
        asked = self._clock.monotonic()
        # Seconds since 1970 are above every epoch that began by counting, and above those of earlier restores.
        least = self._clock.wall() // SECOND if self.restored else 0
        outcome = await self._election.campaign(self._name, url, least)
        if isinstance(outcome, int):
            self.epoch, self._renewed = outcome, asked
            return None
        if not standby:
            return outcome
        await self.stand_by(url, outcome)
        return None

    async def stand_by(self, url: str, holder: Holder) -> None:
        """Take the lead as soon as no server has it; tolerate a store that does not answer."""
        log.info("standing by", leader=holder.name, url=holder.url, epoch=holder.epoch)
        failing, leading = False, False
        while not leading:
            await asyncio.sleep(STANDBY)
            try:
                leading = await self.take(url, standby=False) is None
                failing = False
            except (Unwritable, Unreadable) as error:
                if not failing:
                    log.warning("cannot see which server leads; standing by", error=str(error))
                failing = True

    async def keep(self, led: Led) -> None:
        """Renew until another server leads.

        When the term ends on our own clock, another server may lead, so `led` must hold. If the store then reports
        that none took over (the store was full, or this process was suspended), this server continues to lead.
        """
        term, holding = self._election.term, False
        led.led_until(self._renewed + round(term * SECOND))
        while True:
            await asyncio.sleep(term / 20 if holding else term / 4)
            asked = self._clock.monotonic()
            left = term - (asked - self._renewed) / SECOND
            if not holding and left <= 0:
                led.hold("leadership was not renewed in time")
                holding = True
            try:
                async with asyncio.timeout(term if holding else left):
                    ours = await self._election.renew(self.epoch)
            except (StoreError, TimeoutError) as error:
                if not holding:
                    log.warning("cannot renew leadership", error=str(error) or "no answer")
                if self._clock.monotonic() - self._renewed >= term * SECOND:
                    led.hold(str(error) or "the store does not answer")
                    holding = True
                continue
            if not ours:
                led.step_down("another server leads")
                return
            self._renewed, holding = asked, False
            led.led_until(asked + round(term * SECOND))

    async def resign(self) -> None:
        """Let another server take over now instead of after a term."""
        if self.epoch:
            try:
                async with asyncio.timeout(self._election.term):
                    await self._election.resign(self.epoch)
            except (StoreError, TimeoutError) as error:
                log.warning("cannot resign leadership", error=str(error) or "no answer")
