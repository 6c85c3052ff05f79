"""A live loop that leads, on a virtual clock, for controllers of pools."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from spillover.control.live.loop import Loop
from spillover.core.events import AnyEvent
from spillover.core.proposals import StartEpoch
from spillover.model.cluster import ClusterSpec
from spillover.model.policy import Choice, PolicySet
from spillover.policies.loading import load
from spillover.stores.memory import open_memory
from spillover.testing.world import START
from spillover.wire.journal import encode_event
from tests.support.virtual_time import VirtualTime


class LoopClock:
    """The clock of the event loop, as that of a machine."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def wall(self) -> int:
        return START + self._time.now

    def monotonic(self) -> int:
        return self._time.now


@asynccontextmanager
async def leading(time: VirtualTime, spec: ClusterSpec) -> AsyncIterator[Loop]:
    """Run a loop that leads and has one cluster."""
    store = open_memory()
    loop = Loop(store.journal, load, LoopClock(time), debug=True)
    epoch = await store.election.campaign("test", "http://test")
    assert isinstance(epoch, int)
    loop.begin(epoch, await loop.load())
    stepping = asyncio.create_task(loop.run())
    await loop.propose(StartEpoch(epoch, (spec,), PolicySet(wait=Choice("zero"))))
    try:
        yield loop
    finally:
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)


def write(loop: Loop, event: AnyEvent) -> None:
    """Let an event happen as durably as one of a plan."""
    loop.engine.apply(event)
    loop._pending.append(event)
    loop._encoded.append(encode_event(event))
    loop.applied += 1
    loop._writing.set()
