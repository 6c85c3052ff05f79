"""Waiting inside an event loop: for what nobody tells, and for others to have their turn."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], what: str, seconds: float = 20.0, every: float = 0.01) -> None:
    """Look again and again until something holds, where there is nobody who could tell."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - as it says
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {seconds:g} seconds") from None


async def turn() -> None:
    """Let everybody who is ready go on as far as they can without waiting: a task that was just made begins."""
    await asyncio.sleep(0)
