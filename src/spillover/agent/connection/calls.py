"""Makes the agent's calls to its server, all on one channel, and tracks the heartbeat in flight on the stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from spillover.agent.connection.convert import InvalidMessage
from spillover.agent.connection.finding import Target
from spillover.wire import agents_pb2 as pb
from spillover.wire.keepalive import GRPC_AGENT

MESSAGE_LIMIT: Final = 64 << 20
"""Bytes. Large enough for a batch of leases with large environments."""
EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
HUNG_UP: Final = "Internal error from Core"
"""The details that gRPC gives when it could not send a message because the server had ended the stream."""
_PATH: Final = "/spillover.agents.v1.Agents/"
_SESSION: Final = "spillover-session-bin"


def dial(target: Target) -> grpc.aio.Channel:
    """Open a channel to the server."""
    options = (
        # A shared pool would keep its backoff after this channel closes.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", MESSAGE_LIMIT),
        *GRPC_AGENT,
    )
    if target.tls:
        credentials = grpc.ssl_channel_credentials(root_certificates=target.ca)
        named = (("grpc.ssl_target_name_override", target.shown_as),) if target.shown_as else ()
        return grpc.aio.secure_channel(target.address, credentials, options=(*options, *named))
    return grpc.aio.insecure_channel(target.address, options=options)


class Beats:
    """The heartbeat in flight on a stream. There is at most one."""

    def __init__(self) -> None:
        self._answer = asyncio.Event()
        self._sent: int | None = None
        """When the agent sent it, on the monotonic clock; None if none is in flight."""

    def sends(self, sent: int) -> None:
        """Record that a heartbeat is about to be sent."""
        self._sent = sent
        self._answer.clear()

    def answered(self) -> int | None:
        """Record an answer; return when its heartbeat was sent, or None if none was in flight."""
        sent, self._sent = self._sent, None
        self._answer.set()
        return sent

    async def is_answered(self, patience: float) -> bool:
        """Return whether the answer arrives within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._answer.wait()
        return self._answer.is_set()


class Calls:
    """All calls of one connection."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self.token = token
        self.metadata: tuple[tuple[str, str | bytes], ...] = (("authorization", f"Bearer {token}"),)

    def is_connected(self) -> bool:
        """Return whether the channel is up, even if calls time out."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    def admitted(self, session: bytes, token: str = "") -> None:
        """Attach the session of a registration to all further calls, and another token if the answer has one."""
        self.token = token or self.token
        self.metadata = (("authorization", f"Bearer {self.token}"), (_SESSION, session))

    async def unary(self, name: str, request: Any, reply: Any, limit: float) -> Any:
        """Make a call with one answer, within so many seconds."""
        call = self._channel.unary_unary(_PATH + name, type(request).SerializeToString, reply.FromString)
        return await call(request, metadata=self.metadata, timeout=limit)

    def listen(self, request: pb.ListenRequest) -> Any:
        """Open the stream from the server, for servers without a two-way stream."""
        call = self._channel.unary_stream(
            _PATH + "Listen", pb.ListenRequest.SerializeToString, pb.FromServer.FromString
        )
        return call(request, metadata=self.metadata)

    async def join(self, introduction: pb.RegisterRequest, limit: float) -> tuple[pb.RegisterReply, Any]:
        """Open the two-way stream and register on it; return the welcome and the stream, or raise TimeoutError."""
        stream = self._both_ways("Join")
        limited = asyncio.timeout(limit)
        try:
            async with limited:
                # If the stream has ended already, reading gives the reason.
                with contextlib.suppress(asyncio.InvalidStateError):
                    await stream.write(pb.HeartbeatRequest(introduction=introduction))
                answer = await stream.read()
        except grpc.aio.AioRpcError as error:
            if limited.expired():  # gRPC reports our own timeout as an error of the call
                raise TimeoutError from error
            raise
        except BaseException:
            stream.cancel()
            raise
        if answer is EOF or not answer.HasField("welcome"):
            raise InvalidMessage("the server sent an invalid answer to the registration")
        return answer.welcome, stream

    def session(self) -> Any:
        """Open the two-way stream of an existing registration."""
        return self._both_ways("Session")

    def _both_ways(self, name: str) -> Any:
        call: Any = self._channel.stream_stream(
            _PATH + name, pb.HeartbeatRequest.SerializeToString, pb.FromServer.FromString
        )
        return call(metadata=self.metadata)

    async def output(self, chunks: AsyncIterator[pb.OutputChunk]) -> None:
        """Stream output of tasks to the server."""
        call = self._channel.stream_unary(
            _PATH + "Output", pb.OutputChunk.SerializeToString, pb.OutputReply.FromString
        )
        await call(chunks, metadata=self.metadata)

    def relay(self) -> Any:
        """Open the two-way stream of a session with a task."""
        call: Any = self._channel.stream_stream(
            _PATH + "Relay", pb.RelayPiece.SerializeToString, pb.RelayPiece.FromString
        )
        return call(metadata=self.metadata)
