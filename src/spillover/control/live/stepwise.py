"""Asks the scheduling index what takes long, in steps, so that other work runs in between."""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

from spillover.control.live.loop import Loop
from spillover.deciding.engine import Engine

T = TypeVar("T")


async def stepwise(loop: Loop, ask: Callable[[Engine], Generator[None, None, T]]) -> T:
    """Return the answer that a generator of steps gives about an engine; ask again if its index is replaced meanwhile.

    Returns once everything that was seen is durable.
    """
    while True:
        engine = await loop.ready()
        index, steps = engine.index, ask(engine)
        while loop.engine is engine and engine.is_ready and engine.index is index:
            try:
                next(steps)
            except StopIteration as done:
                found: T = done.value
                if await loop.read() is engine:
                    return found
                break  # the state was dropped meanwhile, as it could not be written
            await asyncio.sleep(0)
