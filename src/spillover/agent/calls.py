"""The calls that an agent makes to its server, all on one channel, and the one heartbeat that is under way on its stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from spillover.agent.convert import Unspeakable
from spillover.agent.finding import Target
from spillover.wire import agents_pb2 as pb
from spillover.wire.keepalive import GRPC_AGENT

MESSAGE_LIMIT: Final = 64 << 20
"""Bytes; a batch of leases with large environments must pass."""
EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
HUNG_UP: Final = "Internal error from Core"
"""What gRPC says of a message that could not be sent because the server had ended the stream."""
_PATH: Final = "/spillover.agents.v1.Agents/"
_SESSION: Final = "spillover-session-bin"


def dial(target: Target) -> grpc.aio.Channel:
    """A channel to the server."""
    options = (
        ("grpc.use_local_subchannel_pool", 1),  # or its back-off would outlive the connection
        ("grpc.max_receive_message_length", MESSAGE_LIMIT),
        *GRPC_AGENT,
    )
    if target.tls:
        credentials = grpc.ssl_channel_credentials(root_certificates=target.ca)
        return grpc.aio.secure_channel(target.address, credentials, options=options)
    return grpc.aio.insecure_channel(target.address, options=options)


class Beats:
    """The one heartbeat that is under way on a stream."""

    def __init__(self) -> None:
        self._answer = asyncio.Event()
        self._sent: int | None = None
        """When it was sent; None if none is under way."""

    def sends(self, sent: int) -> None:
        """One is about to be sent."""
        self._sent = sent
        self._answer.clear()

    def answered(self) -> int | None:
        """An answer came: when the heartbeat was sent; None if nothing was asked."""
        sent, self._sent = self._sent, None
        self._answer.set()
        return sent

    async def is_answered(self, patience: float) -> bool:
        """Whether the answer comes within some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._answer.wait()
        return self._answer.is_set()


class Calls:
    """All calls, on one channel."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self.metadata: tuple[tuple[str, str | bytes], ...] = (("authorization", f"Bearer {token}"),)

    def is_connected(self) -> bool:
        """Whether the other end answers, if only that it is there."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    def admitted(self, session: bytes) -> None:
        """All further calls belong to a registration."""
        self.metadata = (*self.metadata, (_SESSION, session))

    async def unary(self, name: str, request: Any, reply: Any, limit: float) -> Any:
        """A call with one answer, within some seconds."""
        call = self._channel.unary_unary(_PATH + name, type(request).SerializeToString, reply.FromString)
        return await call(request, metadata=self.metadata, timeout=limit)

    def listen(self, request: pb.ListenRequest) -> Any:
        """The stream from the server."""
        call = self._channel.unary_stream(
            _PATH + "Listen", pb.ListenRequest.SerializeToString, pb.FromServer.FromString
        )
        return call(request, metadata=self.metadata)

    async def join(self, introduction: pb.RegisterRequest, limit: float) -> tuple[pb.RegisterReply, Any]:
        """The stream both ways, once its server has let us in, and its welcome; raises TimeoutError after some seconds."""
        stream = self._both_ways("Join")
        limited = asyncio.timeout(limit)
        try:
            async with limited:
                with contextlib.suppress(
                    asyncio.InvalidStateError
                ):  # it has ended already, and reading says why
                    await stream.write(pb.HeartbeatRequest(introduction=introduction))
                answer = await stream.read()
        except grpc.aio.AioRpcError as error:
            if limited.expired():  # gRPC tells as an error of the call that nobody waits for it any more
                raise TimeoutError from error
            raise
        except BaseException:
            stream.cancel()
            raise
        if answer is EOF or not answer.HasField("welcome"):
            raise Unspeakable("the server did not answer a registration as servers do")
        return answer.welcome, stream

    def session(self) -> Any:
        """The stream both ways, of a registration."""
        return self._both_ways("Session")

    def _both_ways(self, name: str) -> Any:
        call: Any = self._channel.stream_stream(
            _PATH + name, pb.HeartbeatRequest.SerializeToString, pb.FromServer.FromString
        )
        return call(metadata=self.metadata)

    async def output(self, chunks: AsyncIterator[pb.OutputChunk]) -> None:
        """The stream to the server."""
        call = self._channel.stream_unary(
            _PATH + "Output", pb.OutputChunk.SerializeToString, pb.OutputReply.FromString
        )
        await call(chunks, metadata=self.metadata)
