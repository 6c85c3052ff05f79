"""Answers that go on: output and history, sent as they come, until they end or the caller goes away.

What is there at once is sent together, so that a long history costs a message for each 64 KiB and not for each line. A stream
that fails midway is cut off without its end mark: the caller can tell it from one that was complete, and resume.
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
"""Seconds of silence after which a followed history says that it is alive."""
FIRST: Final = 0.1
"""Seconds to wait for a first chunk before the status is sent: an error that comes at once gets its own."""
_FULL: Final = 64 * 1024
"""Bytes that are gathered before the source has to wait for the caller."""


class Cut(Exception):
    """The stream broke after its status was sent; its cause is the reason."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Chunks and how they are sent."""

    chunks: AsyncIterator[bytes]
    media: str
    keep_alive: bytes | None = None
    """What is sent after some silence; None for nothing."""
    length: int | None = None
    """Bytes of all of it, where that is known: whoever reads it sees how far it is."""


class _Gathered:
    """Chunks that were produced and not sent yet; the producer waits while it is full."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._room = asyncio.Event()
        self.filled = asyncio.Event()
        """Set when there is something to send, or nothing more will come."""

    async def fill(self, chunks: AsyncIterator[bytes]) -> None:
        """Take all chunks of a source."""
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
        """All that is there, as one."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self.filled.clear()
        self._room.set()
        return data


async def send_stream(stream: Stream, receive: Receive, send: Send) -> None:
    """Send a stream; raises what the source raised, as Cut once the status is out."""
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
            if (
                not producer.done()
                and not await _either(gathered.filled, gone, KEEP_ALIVE)
                and stream.keep_alive
            ):
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
    """Return when the caller is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _either(filled: asyncio.Event, gone: "asyncio.Task[None]", seconds: float) -> bool:
    """Wait for one of them; False when neither came in time."""
    if filled.is_set():
        return True
    waiting = asyncio.create_task(filled.wait())
    try:
        done, _ = await asyncio.wait({waiting, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(waiting)
    return bool(done)


async def _end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and see them off; what they raised has been dealt with."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
