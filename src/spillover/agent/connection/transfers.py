"""Transfers files and tasks between the server and this agent, over the current connection."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Protocol

import grpc

from spillover.agent.connection.convert import lease_out
from spillover.agent.connection.finding import Target
from spillover.core.events import Lease
from spillover.wire import agents_pb2 as pb

PIECE: Final = 1 << 20
"""Bytes in one message."""
SECRETS_LIMIT: Final = 30.0
"""Seconds that a request for secrets may take."""
_PATH: Final = "/spillover.agents.v1.Agents/"
_FINAL: Final = {
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""Status codes that a retry would not change. All others are worth a retry."""


class ServerAway(Exception):
    """The server is unreachable or cannot answer now; try again."""


class Full(ServerAway):
    """The server has no space for the file now."""


class TransferRefused(Exception):
    """The server refuses for good; the message says why."""


class Transfers(Protocol):
    """Moves blobs from and to the server."""

    async def ready(self) -> None:
        """Wait until there is a connection."""
        ...

    def get(self, digest: str, offset: int) -> AsyncIterator[bytes]:
        """Read a blob from an offset on."""
        ...

    async def put(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        """Store a blob on the server."""
        ...


class ServerTransfers:
    """Makes its calls on the channel of the link, while there is one."""

    def __init__(self) -> None:
        self._channel: grpc.aio.Channel | None = None
        self._metadata: Any = ()
        self._connected = asyncio.Event()
        self.target: Target | None = None
        """The server of the current or last connection; None before the first."""

    def connected(self, channel: grpc.aio.Channel, metadata: Any, target: Target | None = None) -> None:
        """Use this channel, and send this metadata with every call."""
        self._channel, self._metadata, self.target = channel, metadata, target
        self._connected.set()

    def disconnected(self) -> None:
        """Forget the channel, because the connection ended."""
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
            raise _failure_of(error) from None

    async def put(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        """See Transfers."""
        call = self._open().stream_unary(
            _PATH + "PutBlob", pb.BlobPiece.SerializeToString, pb.BlobReply.FromString
        )

        unread: OSError | None = None

        async def messages() -> AsyncIterator[pb.BlobPiece]:
            nonlocal unread
            # The digest goes first. If the server has the blob, it answers before the rest is sent.
            yield pb.BlobPiece(digest=digest)
            try:
                async for piece in pieces:
                    yield pb.BlobPiece(data=piece)
            except OSError as error:  # gRPC hides this error and only cancels the call
                unread = error
                raise

        try:
            await call(messages(), metadata=self._metadata)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            failure = _failure_of(error)
            if unread is not None and isinstance(failure, ServerAway):
                raise TransferRefused(f"it cannot be read: {unread.strerror}") from None
            raise failure from None

    async def tasks(self, leases: Iterable[pb.Lease], limit: float) -> list[pb.Grant]:
        """Fetch the tasks of leases, within so many seconds; leave out leases that this agent no longer holds."""
        call = self._open().unary_unary(
            _PATH + "GetTasks", pb.TasksRequest.SerializeToString, pb.TasksReply.FromString
        )
        try:
            reply = await call(pb.TasksRequest(leases=leases), metadata=self._metadata, timeout=limit)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise _failure_of(error) from None
        return list(reply.grants)

    async def secrets(self, lease: Lease) -> dict[str, bytes]:
        """Fetch the secrets of a task that is about to start; raise ServerAway or TransferRefused."""
        call = self._open().unary_unary(
            _PATH + "GetSecrets", pb.SecretsRequest.SerializeToString, pb.SecretsReply.FromString
        )
        try:
            request = pb.SecretsRequest(lease=lease_out(lease))
            reply = await call(request, metadata=self._metadata, timeout=SECRETS_LIMIT)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            raise _failure_of(error) from None
        if reply.refused:
            raise TransferRefused(reply.refused)
        return {each.name: each.value for each in reply.secrets}

    def _open(self) -> grpc.aio.Channel:
        """Return the channel; raise ServerAway if there is none."""
        if self._channel is None:
            raise ServerAway("the server is not reachable")
        return self._channel


def _failure_of(error: grpc.aio.AioRpcError | asyncio.CancelledError) -> BaseException:
    """Return the exception for a failed call."""
    if isinstance(error, asyncio.CancelledError):
        # A closed channel cancels its calls. To the caller that looks like a cancellation of its own task.
        task = asyncio.current_task()
        return error if task is not None and task.cancelling() else ServerAway("the connection was lost")
    said = error.details() or error.code().name
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Full(said)
    return TransferRefused(said) if error.code() in _FINAL else ServerAway(said)
