"""Files between the server and this agent, over whatever connection there is now."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Protocol

import grpc

from spillover.agent.finding import Target
from spillover.wire import agents_pb2 as pb

PIECE: Final = 1 << 20
"""Bytes in one message."""
_PATH: Final = "/spillover.agents.v1.Agents/"
_FINAL: Final = {
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""Answers that will be the same when asked again; all others may be better later."""


class ServerAway(Exception):
    """The server cannot be asked now, or cannot do it now: try again."""


class Full(ServerAway):
    """The server has no room for it now."""


class TransferRefused(Exception):
    """The server will not do it, however often it is asked; the message says why."""


class Transfers(Protocol):
    """A way to the server."""

    async def ready(self) -> None:
        """Return when it can be asked."""
        ...

    def get(self, digest: str, offset: int) -> AsyncIterator[bytes]:
        """A blob from an offset on."""
        ...

    async def put(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        """Have the server keep a blob."""
        ...


class ServerTransfers:
    """Calls on the channel of the link, while it has one."""

    def __init__(self) -> None:
        self._channel: grpc.aio.Channel | None = None
        self._metadata: Any = ()
        self._connected = asyncio.Event()
        self.target: Target | None = None
        """The server that it is connected to, or was last."""

    def connected(self, channel: grpc.aio.Channel, metadata: Any, target: Target | None = None) -> None:
        """There is a connection; every call carries this metadata."""
        self._channel, self._metadata, self.target = channel, metadata, target
        self._connected.set()

    def disconnected(self) -> None:
        """It is gone."""
        self._channel = None
        self._connected.clear()

    async def ready(self) -> None:
        """See Transfers."""
        await self._connected.wait()

    async def get(self, digest: str, offset: int) -> AsyncIterator[bytes]:
        """See Transfers."""
        call = self._open().unary_stream(
            _PATH + "GetBlob", pb.BlobRequest.SerializeToString, pb.BlobPiece.FromString
        )
        try:
            async for piece in call(pb.BlobRequest(digest=digest, offset=offset), metadata=self._metadata):
                yield piece.data
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise _told(error) from None

    async def put(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        """See Transfers."""
        call = self._open().stream_unary(
            _PATH + "PutBlob", pb.BlobPiece.SerializeToString, pb.BlobReply.FromString
        )

        unread: OSError | None = None

        async def messages() -> AsyncIterator[pb.BlobPiece]:
            nonlocal unread
            # The name goes ahead: what the server has, it answers before the rest is sent.
            yield pb.BlobPiece(digest=digest)
            try:
                async for piece in pieces:
                    yield pb.BlobPiece(data=piece)
            except OSError as error:  # which the call would not tell: it is only cancelled
                unread = error
                raise

        try:
            await call(messages(), metadata=self._metadata)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            told = _told(error)
            if unread is not None and isinstance(told, ServerAway):
                raise TransferRefused(f"it cannot be read: {unread.strerror}") from None
            raise told from None

    async def tasks(self, leases: Iterable[pb.Lease], limit: float) -> list[pb.Grant]:
        """What leases of this agent run, within some seconds; of those that it does not hold any more, nothing."""
        call = self._open().unary_unary(
            _PATH + "GetTasks", pb.TasksRequest.SerializeToString, pb.TasksReply.FromString
        )
        try:
            reply = await call(pb.TasksRequest(leases=leases), metadata=self._metadata, timeout=limit)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise _told(error) from None
        return list(reply.grants)

    def _open(self) -> grpc.aio.Channel:
        """The channel; raises Away while there is none."""
        if self._channel is None:
            raise ServerAway("the server is away")
        return self._channel


def _told(error: grpc.aio.AioRpcError | asyncio.CancelledError) -> BaseException:
    """What a failed call means."""
    if isinstance(error, asyncio.CancelledError):
        # A channel that is closed cancels its calls, which looks as if whoever waits for them was cancelled.
        task = asyncio.current_task()
        return error if task is not None and task.cancelling() else ServerAway("the connection is gone")
    said = error.details() or error.code().name
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Full(said)
    return TransferRefused(said) if error.code() in _FINAL else ServerAway(said)
