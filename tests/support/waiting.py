"""Waits inside an event loop, for conditions without a signal and for other tasks."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], what: str, seconds: float = 20.0, every: float = 0.01) -> None:
    """Poll until a condition holds, where no signal exists."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - polling is the purpose
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {seconds:g} seconds") from None


async def turn() -> None:
    """Let all ready tasks run until they wait; a new task begins."""
    await asyncio.sleep(0)
