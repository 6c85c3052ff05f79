"""Work in threads is waited for."""

import asyncio
import threading

from spillover.agent.tasks.outlasting import outlast
from tests.support.waiting import turn


async def test_work_is_waited_for_however_often_one_is_cancelled() -> None:
    go = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(go.wait, 10))
    waiting = asyncio.create_task(outlast(work))
    for _ in range(3):
        await turn()
        waiting.cancel()
        await turn()
        assert not waiting.done()
    go.set()
    await waiting
    assert work.result()
