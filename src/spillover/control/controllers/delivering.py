"""Sends the messages of the outbox, each channel by itself, so that a slow receiver delays nobody else's.

A message that could not be sent is tried again after growing pauses, and with it all others of its channel wait. If only
its receiver did not take it, as one mailbox that is full, others wait that are for the same receiver. So each receiver
gets messages in the order in which they were written. After a day a message has failed: it stays in the list of failed messages until somebody sends it again, or drops it. A message is
removed once its receiver has taken it. A crash in between sends it again, with the same id.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from spillover.control.controllers.notifying import MOST_FAILED
from spillover.control.live.loop import Loop
from spillover.control.notifications.receivers import gone
from spillover.control.notifications.settings import Settings
from spillover.model.notifications import MAIL
from spillover.model.units import DAY, HOUR, SECOND
from spillover.ports.journal import StoreError
from spillover.ports.outbox import Message, Outbox, Waiting
from spillover.ports.sender import Sender, Unsent

log = structlog.get_logger()

PAUSES: Final = (2, 5, 15, 60, 120, 300)
"""Seconds between the tries of a message; after the last one, it stays at that."""
LONGEST_ASKED: Final = 3600.0
"""Most seconds that a receiver may ask to wait."""
LOOK: Final = 30.0
"""Seconds after which the outbox is looked at, even if nothing was written."""
RETRY: Final = 2.0
BEGIN: Final = (-1, "")
"""Comes before all messages."""
SOME: Final = 50
"""Messages to read at a time."""
KEPT: Final = 30 * DAY
"""Nanoseconds for which failed messages are kept."""
MOST_ERROR: Final = 500


class _Lane:
    """One channel, and the task that sends through it."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        """Set when messages may be due."""
        self.hurry = asyncio.Event()
        """Set when pauses end, because somebody asked for another try."""
        self.hurried = False
        """Whether all messages get a try now, also those that are not due."""
        self.held: set[str] = set()
        """Receivers that get nothing more in this pass, as a message to them has to wait."""
        self.failures = 0
        """How many tries in a row failed."""
        self.task: asyncio.Task[None] | None = None


class Delivering:
    """Sends messages."""

    def __init__(
        self,
        loop: Loop,
        outbox: Outbox,
        settings: Settings,
        senders: Callable[[str], Sender | None],
    ) -> None:
        self._loop = loop
        self._outbox = outbox
        self._settings = settings
        self._senders = senders
        """Returns what sends through a channel now; None if it is not configured."""
        self._news = asyncio.Event()
        self._forgot = 0
        """When old messages were deleted last, nanoseconds UTC."""
        self._lanes: dict[str, _Lane] = {}
        """By channel, those that had messages."""
        self.waiting: Mapping[str, Waiting] = {}
        """How many messages each channel had at the last look."""
        self.sent: Counter[str] = Counter()
        self.unsent: Counter[str] = Counter()
        """Tries by channel, since this server began."""

    def look(self) -> None:
        """Look for new messages at once."""
        self._news.set()
        for lane in self._lanes.values():
            lane.news.set()

    def hurry(self) -> None:
        """Look for messages at once, and end all pauses."""
        for lane in self._lanes.values():
            lane.failures = 0
            lane.hurried = True
            lane.hurry.set()
        self.look()

    async def run(self) -> None:
        """Send messages as they become due, until cancelled."""
        try:
            while True:
                self._news.clear()
                try:
                    await self.count()
                    await self._forget_old()
                except StoreError as error:
                    log.warning("cannot read messages to people; will retry", error=str(error))
                for channel, each in self.waiting.items():
                    if each.waiting and channel not in self._lanes:
                        lane = self._lanes[channel] = _Lane()
                        lane.task = asyncio.create_task(
                            self._serve(channel, lane), name=f"messages {channel}"
                        )
                await _wait(self._news, LOOK)
        finally:
            tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._lanes.clear()

    async def _forget_old(self) -> None:
        """Delete messages that failed long ago, once an hour."""
        now = self._loop.now()
        if now - self._forgot >= HOUR:
            self._forgot = now
            await self._outbox.forget(now - KEPT, MOST_FAILED, self._loop.epoch)

    async def count(self) -> None:
        """Count the messages of each channel."""
        self.waiting = {each.channel: each for each in await self._outbox.counts()}

    async def _serve(self, channel: str, lane: _Lane) -> None:
        """Send the messages of one channel, until cancelled."""
        while True:
            lane.news.clear()
            try:
                wait = await self._some(channel, lane)
            except StoreError as error:
                log.warning("cannot change messages to people; will retry", error=str(error))
                wait = RETRY
            if wait > 0:
                await _wait(lane.news, wait)

    async def _some(self, channel: str, lane: _Lane) -> float:
        """Send some messages of a channel; return the seconds until the next one is due."""
        if not self._loop.may_act():
            return RETRY
        lane.hurry.clear()  # before the tries, so that none is missed
        hurried, lane.hurried = lane.hurried, False
        lane.held.clear()
        after, wait = BEGIN, LOOK
        while some := await self._outbox.next(channel, SOME, after):
            for each in some:
                if each.to in lane.held:
                    continue
                if not hurried and (left := (each.due - self._loop.now()) / SECOND) > 0:
                    wait = min(wait, left)
                    if channel != MAIL:  # there is one receiver
                        return wait
                    lane.held.add(each.to)
                    continue
                if not self._loop.may_act() or (pause := await self._try(each, lane)):
                    await _wait(lane.hurry, pause if self._loop.may_act() else RETRY)
                    return 0.0
            after = some[-1].at, some[-1].id
        await self.count()
        return wait

    async def _try(self, message: Message, lane: _Lane) -> float:
        """Try to send one message; return the seconds for which others of its channel must wait."""
        channel, sender = message.channel, self._senders(message.channel)
        if sender is None:
            told = gone(self._settings.now, channel) or "nothing sends through its channel"
            return await self._failed(message, lane, Unsent(told, final=True, alone=True))
        try:
            await sender.send(message)
        except Unsent as error:
            return await self._failed(message, lane, error)
        except Exception as error:
            log.exception("a message could not be sent", id=message.id, channel=channel)
            told = f"{type(error).__name__}: {error}"
            return await self._failed(message, lane, Unsent(told, final=True, alone=True))
        self.sent[channel] += 1
        lane.failures = 0
        await self._outbox.remove([message.id], self._loop.epoch)
        return 0.0

    async def _failed(self, message: Message, lane: _Lane, error: Unsent) -> float:
        """Plan the next try of a message, or give it up; return for how long others must wait."""
        channel, now = message.channel, self._loop.now()
        self.unsent[channel] += 1
        why = " ".join(str(error).replace("\0", " ").split())[:MOST_ERROR]
        tried = replace(message, tries=message.tries + 1, error=why)
        asked = min(error.after, LONGEST_ASKED)
        if error.final or now - message.at >= self._settings.now.give_up_after:
            log.warning("gave up a message", id=message.id, channel=channel, to=message.to, error=why)
            await self._outbox.change([replace(tried, failed=True, due=now)], self._loop.epoch)
            if not error.alone:
                await self._give_up_old(channel, why)
        else:
            pause = max(asked, PAUSES[min(message.tries, len(PAUSES) - 1)])
            log.info("a message was not taken; will retry", channel=channel, to=message.to, error=why)
            await self._outbox.change([replace(tried, due=now + round(pause * SECOND))], self._loop.epoch)
            lane.held.add(message.to)
        await self.count()
        if error.alone:
            return 0.0
        lane.failures += 1
        return max(asked, PAUSES[min(lane.failures, len(PAUSES)) - 1])

    async def _give_up_old(self, channel: str, why: str) -> None:
        """Give up all messages of a dead channel that are too old, so that they need no tries of their own."""
        now, before = self._loop.now(), self._loop.now() - self._settings.now.give_up_after
        while True:
            some = await self._outbox.next(channel, SOME)
            old = [replace(each, failed=True, due=now, error=why) for each in some if each.at <= before]
            if not old:
                return
            await self._outbox.change(old, self._loop.epoch)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Return once an event is set, or after some seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
