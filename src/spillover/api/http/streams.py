"""Streams answers such as output and history, until they end or the caller disconnects.

Chunks that are available together are sent together, so that a long history costs a message for each 64 KiB and not for
each line. A stream that fails in the middle ends without its end mark. So the caller can tell it from a complete one,
and resume.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from spillover.api.http.replies import HEADERS

Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which a followed history sends a keepalive."""
FIRST: Final = 0.1
"""Seconds to wait for the first chunk before the status is sent, so that an early error gets its own status."""
_FULL: Final = 64 * 1024
"""Bytes to buffer before the source has to wait for the caller."""


class Cut(Exception):
    """The stream broke after its status was sent; its cause is the reason."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Chunks, and how to send them."""

    chunks: AsyncIterator[bytes]
    media: str
    keep_alive: bytes | None = None
    """What to send after some silence; None for nothing."""
    length: int | None = None
    """Total bytes, so that a reader can show progress; None if unknown."""
    check: Callable[[], None] = lambda: None
    """Called in silence; raises an error to end the stream."""


class _Gathered:
    """A buffer of chunks to send. The producer waits while it is full."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._room = asyncio.Event()
        self.filled = asyncio.Event()
        """Set when there is something to send, or nothing more will come."""

    async def fill(self, chunks: AsyncIterator[bytes]) -> None:
        """Add all chunks of a source."""
        try:
            async for chunk in chunks:
                self._parts.append(chunk)
                self._size += len(chunk)
                self.filled.set()
                if self._size >= _FULL:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self.filled.set()

    def take(self) -> bytes:
        """Remove and return all buffered bytes."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self.filled.clear()
        self._room.set()
        return data


async def send_stream(stream: Stream, receive: Receive, send: Send) -> None:
    """Send a stream; raise the error of the source, as Cut once the status is sent."""
    gathered = _Gathered()
    producer = asyncio.create_task(gathered.fill(stream.chunks))
    gone = asyncio.create_task(_disconnected(receive))
    started = False
    try:
        await _either(gathered.filled, gone, FIRST)
        if producer.done():
            producer.result()
        started = True
        headers = [(b"content-type", stream.media.encode()), *HEADERS]
        if stream.length is not None:
            headers.append((b"content-length", b"%d" % stream.length))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not gone.done():
            ended = producer.done()
            if data := gathered.take():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if ended:
                producer.result()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if not producer.done() and not await _either(gathered.filled, gone, KEEP_ALIVE):
                stream.check()
                if stream.keep_alive:
                    await send({"type": "http.response.body", "body": stream.keep_alive, "more_body": True})
    except (Exception, asyncio.CancelledError) as error:
        if started:
            raise Cut from error
        raise
    finally:
        await _end(producer, gone)
        if isinstance(stream.chunks, AsyncGenerator):
            await stream.chunks.aclose()


async def _disconnected(receive: Receive) -> None:
    """Return when the caller has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _either(filled: asyncio.Event, gone: "asyncio.Task[None]", seconds: float) -> bool:
    """Wait for data or the disconnect; return False if neither came in time."""
    if filled.is_set():
        return True
    waiting = asyncio.create_task(filled.wait())
    try:
        done, _ = await asyncio.wait({waiting, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(waiting)
    return bool(done)


async def _end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait for them; ignore their errors, which were handled before."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
