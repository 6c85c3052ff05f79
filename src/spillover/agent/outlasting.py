"""Work in threads: it cannot be cancelled, so whoever is cancelled meanwhile has to wait for it."""

import asyncio
import contextlib
from typing import Any


async def outlast(work: "asyncio.Future[Any]") -> None:
    """Wait for the end of some work, however often the one who waits is cancelled; how it ended is not looked at."""
    while not work.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({work})
