"""Waits for work in threads. It cannot be cancelled, so a cancelled caller has to wait for it."""

import asyncio
import contextlib
from typing import Any


async def outlast(work: "asyncio.Future[Any]") -> None:
    """Wait for the end of some work, however often the caller is cancelled; ignore its result."""
    while not work.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({work})
