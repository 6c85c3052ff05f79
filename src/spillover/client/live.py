"""Live sessions with tasks, for asyncio: what one types goes there, and what is printed there comes back."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from spillover.client.asks import ask, session_input, session_output
from spillover.client.errors import SpillError, Unreachable
from spillover.wire import endpoints
from spillover.wire.api import SessionRequest, SessionView
from spillover.wire.parameters import OfJob
from spillover.wire.relay import BadFrame, Frame, FrameKind, FrameReader

if TYPE_CHECKING:
    from spillover.client.asynchronous.sender import AsyncSender

AT_ONCE: Final = 64 << 10
"""Bytes of input in one request."""
LOOPBACK: Final = "127.0.0.1"
_AHEAD: Final = 256 << 10
"""Bytes of input that may wait to be sent; then `send` waits."""


class LiveSession:
    """One session. Use it with `async with`, and read `frames` to their end."""

    def __init__(self, client: "AsyncSender", job: str, asked: SessionRequest) -> None:
        self._client = client
        self._job = job
        self._asked = asked
        self._unsent = bytearray()
        self._sent = 0
        self._changed = asyncio.Condition()
        self._over = False
        self._sending: asyncio.Task[None] | None = None
        self.view: SessionView
        """The session, once it is open."""

    async def __aenter__(self) -> Self:
        request = ask(endpoints.OPEN_SESSION, OfJob(self._job), self._asked, repeatable=False)
        self.view = await self._client._ask(request)  # noqa: SLF001 - a part of the client
        self._sending = asyncio.create_task(self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def send(self, *frames: Frame) -> None:
        """Send frames, in their order; wait while the task does not read them."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._over or len(self._unsent) < _AHEAD)
            for frame in frames:
                self._unsent += frame.encoded()
            self._changed.notify_all()

    async def _send(self) -> None:
        """Send input, one request at a time. What comes meanwhile goes into the next one."""
        with contextlib.suppress(SpillError):  # the end of the output says why
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: bool(self._unsent))
                    data = bytes(self._unsent[:AT_ONCE])
                given = session_input(self.view.id, self._sent, data)
                self._sent = (await self._client._ask(given)).received  # noqa: SLF001 - likewise
                async with self._changed:
                    del self._unsent[: len(data)]
                    self._changed.notify_all()
        self._over = True
        async with self._changed:
            self._changed.notify_all()

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """Yield what comes from the task, up to EXIT or ERROR. Without one of them, the connection was lost."""
        reader, began = FrameReader(), False
        asked = session_output(self.view.id)
        try:
            async with aclosing(self._client._chunks(asked)) as chunks:  # noqa: SLF001 - likewise
                async for chunk in chunks:
                    began = True
                    for frame in reader.feed(chunk):
                        if frame.kind is FrameKind.ALIVE:
                            continue
                        yield frame
                        if frame.kind in {FrameKind.EXIT, FrameKind.ERROR}:
                            return
        except Unreachable:
            if not began:
                raise
        except BadFrame as error:
            raise Unreachable(f"the server sent something else than a session: {error}") from None


class Forwarding:
    """Listens on a port of this machine, and connects whoever comes to a port of a task's machine."""

    def __init__(
        self, client: "AsyncSender", job: str, port: int, task: int, tell: Callable[[str], None]
    ) -> None:
        self._client = client
        self._job = job
        self._asked = SessionRequest("forward", task, port=port)
        self._tell = tell
        """Receives why a connection failed."""
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.host = LOOPBACK
        self.port = 0
        """The port that it listens on, once it does."""

    async def probe(self) -> str:
        """Connect once; return why that fails though the job may be reached, or an empty string. Raise SpillError."""
        async with (
            LiveSession(self._client, self._job, self._asked) as session,
            aclosing(session.frames()) as frames,
        ):
            self._job = session.view.job  # a name may be that of another job later
            async for frame in frames:
                return frame.text if frame.kind is FrameKind.ERROR else ""
        return ""

    async def open(self, local: int) -> None:
        """Listen on the loopback interface; port 0 is any free one. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, self.host, local)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._server is not None:
            self._server.close()
        serving = list(self._serving)
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        try:
            async with LiveSession(self._client, self._job, self._asked) as session:
                inwards = asyncio.create_task(_inwards(reader, session))
                outwards = asyncio.create_task(self._outwards(writer, session))
                try:
                    await asyncio.wait({inwards, outwards}, return_when=asyncio.FIRST_COMPLETED)
                    if inwards.done():
                        inwards.result()  # our side has said everything, or hung up
                    await outwards
                finally:
                    for each in (inwards, outwards):
                        each.cancel()
                    await asyncio.gather(inwards, outwards, return_exceptions=True)
        except SpillError as error:
            self._tell(str(error))
        except OSError:
            pass  # our own side hung up
        finally:
            writer.close()

    async def _outwards(self, writer: asyncio.StreamWriter, session: LiveSession) -> None:
        async with aclosing(session.frames()) as frames:
            async for frame in frames:
                match frame.kind:
                    case FrameKind.DATA:
                        writer.write(frame.data)
                        await writer.drain()
                    case FrameKind.END:
                        return
                    case FrameKind.ERROR:
                        self._tell(frame.text)
                    case _:
                        pass


async def _inwards(reader: asyncio.StreamReader, session: LiveSession) -> None:
    """Send what our side says, until it has said everything."""
    while data := await reader.read(AT_ONCE):
        await session.send(Frame(FrameKind.DATA, data))
    await session.send(Frame(FrameKind.END))
