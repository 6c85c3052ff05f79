"""A loop that is told to end does, whatever happens at that moment."""

import asyncio

from spillover.control.live.loop import Loop
from spillover.policies.loading import load
from spillover.stores.memory import open_memory
from tests.support.inside import HandClock
from tests.support.waiting import turn


async def test_a_loop_that_is_woken_as_it_is_cancelled_ends() -> None:
    loop = Loop(open_memory().journal, load, HandClock())
    stepping = asyncio.create_task(loop._step_forever())
    await turn()
    await turn()
    loop._wake.set()
    stepping.cancel()
    await asyncio.wait({stepping}, timeout=5)
    assert stepping.cancelled()
