"""The agent's end of one live session: frames on a call that it opened to the server."""

import asyncio
import contextlib
from typing import Any, Final

import grpc

from spillover.wire import agents_pb2 as pb
from spillover.wire.relay import BadFrame, Frame, FrameReader

EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs


class SessionOver(Exception):
    """The client or the server is gone."""


class SessionWire:
    """Frames of one session. One task may receive, any may send."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._turn = asyncio.Lock()  # gRPC takes one message at a time
        self._frames: asyncio.Queue[list[Frame] | None] = asyncio.Queue(2)
        """Frames of the client, and None at the end."""
        # A read that is cancelled would cancel the whole call, so this task reads for all.
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Read until the client or the server is gone."""
        reader = FrameReader()
        try:
            while (message := await self._stream.read()) is not EOF:
                await self._frames.put(reader.feed(message.data))
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError, BadFrame):
            pass
        await self._frames.put(None)

    async def begin(self, number: str) -> None:
        """Say which session this is."""
        await self._write(pb.RelayPiece(id=number))

    async def send(self, *frames: Frame) -> None:
        """Send frames; wait while the client is slow. Raise SessionOver if it is gone."""
        for frame in frames:
            await self._write(pb.RelayPiece(data=frame.encoded()))

    async def _write(self, piece: pb.RelayPiece) -> None:
        try:
            async with self._turn:
                await self._stream.write(piece)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            raise SessionOver from None

    async def receive(self) -> list[Frame]:
        """Return the next frames; raise SessionOver when the client is gone."""
        frames = await self._frames.get()
        if frames is None:
            await self._frames.put(None)
            raise SessionOver
        return frames

    async def finish(self) -> None:
        """Say that nothing more comes, and wait until the server has everything."""
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError, SessionOver):
            async with self._turn:
                await self._stream.done_writing()
            while True:
                await self.receive()

    async def close(self) -> None:
        """Hang up."""
        self._stream.cancel()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
