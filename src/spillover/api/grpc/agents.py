"""The agents' service: decode, call the desk, encode; nothing else."""

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn, TypeVar

import grpc
import structlog

from spillover.api.grpc.blobs import send_blob, take_blob
from spillover.clusters.agents.hub import Hub
from spillover.control.agents import Desk, Introduction
from spillover.model.ids import NAME_RULE, ClusterName, NodeName, is_name
from spillover.ports.blobs import Blobs
from spillover.ports.commands import CommandError, Kind
from spillover.ports.journal import StoreError
from spillover.stores.blobs import MemoryBlobs
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import answer_out, lease_in, lease_out, resources_in, result_in, started_in

log = structlog.get_logger()

SERVICE: Final = "spillover.agents.v1.Agents"
PROTOCOL: Final = 1
MOST_MESSAGE: Final = 64 << 20
"""Bytes of one message."""
MOST_QUEUE: Final = 10_000
"""Leases that an agent may ask for ahead of room."""

_CODES: Final = {
    Kind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Kind.UNKNOWN: grpc.StatusCode.INVALID_ARGUMENT,
    Kind.AMBIGUOUS: grpc.StatusCode.INVALID_ARGUMENT,
    Kind.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    Kind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Kind.NOT_LEADER: grpc.StatusCode.UNAVAILABLE,
    Kind.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    Kind.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
}

Request = TypeVar("Request")
Reply = TypeVar("Reply")
ServicerContext = grpc.aio.ServicerContext


class AgentsService:
    """What agents can ask."""

    def __init__(
        self, desk: Desk, hub: Hub, token: str, epoch: Callable[[], int], blobs: Blobs | None = None
    ) -> None:
        self._blobs: Blobs = blobs if blobs is not None else MemoryBlobs()
        self._desk = desk
        self._hub = hub
        self._token = token
        self._epoch = epoch

    def handler(self) -> Any:
        """All methods, for a server."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "Register": _method(unary, self._guarded(self._register), pb.RegisterRequest),
            "Heartbeat": _method(unary, self._guarded(self._heartbeat), pb.HeartbeatRequest),
            "Report": _method(unary, self._guarded(self._report), pb.ReportRequest),
            "Listen": _method(stream, self._listen, pb.ListenRequest),
            "Output": _method(grpc.stream_unary_rpc_method_handler, self._output, pb.OutputChunk),
            "GetBlob": _method(stream, self._get_blob, pb.BlobRequest),
            "PutBlob": _method(grpc.stream_unary_rpc_method_handler, self._put_blob, pb.BlobPiece),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _register(self, request: pb.RegisterRequest) -> pb.RegisterReply:
        problem = _wrong(request)
        if problem is not None:
            raise CommandError(Kind.INVALID, problem)
        taken = self._hub.namesake(f"{request.cluster}/{request.name}")
        if taken is not None:
            raise CommandError(Kind.CONFLICT, _taken(taken))
        welcome = await self._desk.register(
            Introduction(
                ClusterName(request.cluster),
                NodeName(request.name),
                resources_in(request.capacity),
                tuple(request.offers),
                dict(request.labels),
                request.queue,
                tuple(lease_in(held.lease) for held in request.held),
                request.epoch,
            )
        )
        return pb.RegisterReply(
            epoch=welcome.epoch,
            incarnation=welcome.incarnation,
            keep=[lease_out(lease) for lease in welcome.keep],
            heartbeat=welcome.terms.heartbeat,
            short_term=welcome.terms.short,
            log_retention=welcome.log_retention,
        )

    async def _heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        orders = await self._desk.heartbeat(request.incarnation)
        return pb.HeartbeatReply(
            epoch=orders.epoch,
            fenced=orders.fenced,
            stops=[pb.StopOrder(lease=lease_out(lease)) for lease in orders.stops],
            revoked=[lease_out(lease) for lease in orders.revoked],
            drain=orders.drain,
        )

    async def _report(self, request: pb.ReportRequest) -> pb.ReportReply:
        key = self._hub.current(request.incarnation)
        node = NodeName(key.partition("/")[2]) if key is not None else NodeName("")
        answers = await self._desk.report(
            request.incarnation,
            [started_in(node, started) for started in request.started],
            [result_in(node, result) for result in request.results],
            [lease_in(lease) for lease in request.released],
            leaving=request.leaving,
        )
        return pb.ReportReply(
            epoch=answers.epoch,
            fenced=answers.fenced,
            results=[
                answer_out(result, verdict)
                for result, verdict in zip(request.results, answers.verdicts, strict=not answers.fenced)
            ],
            started=[lease_out(lease) for lease in answers.started],
        )

    async def _listen(
        self, request: pb.ListenRequest, context: "ServicerContext[pb.ListenRequest, pb.FromServer]"
    ) -> AsyncIterator[pb.FromServer]:
        await self._check(context)
        session = self._hub.session(request.incarnation)
        if session is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "register anew")
        taken = self._hub.namesake(session.node)  # if both registered before either listened
        if taken is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, _taken(taken))
        async for message in session.messages(self._epoch()):
            yield message

    async def _output(
        self,
        chunks: AsyncIterator[pb.OutputChunk],
        context: "ServicerContext[pb.OutputChunk, pb.OutputReply]",
    ) -> pb.OutputReply:
        await self._check(context)
        async for chunk in chunks:
            if self._hub.current(chunk.incarnation) is not None:
                await self._hub.chunk(chunk)
        return pb.OutputReply()

    async def _get_blob(
        self, request: pb.BlobRequest, context: "ServicerContext[pb.BlobRequest, pb.BlobPiece]"
    ) -> AsyncIterator[pb.BlobPiece]:
        await self._check(context)
        async for piece in send_blob(self._blobs, request, context):
            yield piece

    async def _put_blob(
        self, pieces: AsyncIterator[pb.BlobPiece], context: "ServicerContext[pb.BlobPiece, pb.BlobReply]"
    ) -> pb.BlobReply:
        await self._check(context)
        return await take_blob(self._blobs, pieces, context)

    def _guarded(
        self, method: Callable[[Request], Awaitable[Reply]]
    ) -> Callable[[Request, Any], Awaitable[Reply]]:
        """A method behind the token, with refusals told as gRPC has them."""

        async def call(request: Request, context: Any) -> Reply:
            await self._check(context)
            try:
                return await method(request)
            except CommandError as error:
                await _abort(context, _CODES[error.kind], error.message)
            except StoreError as error:
                await _abort(context, grpc.StatusCode.UNAVAILABLE, str(error))

        return call

    async def _check(self, context: Any) -> None:
        """Refuse a call without the token."""
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        said = given if isinstance(given, str) else given.decode(errors="replace")
        if not hmac.compare_digest(said.encode(), f"Bearer {self._token}".encode()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")


async def _abort(context: Any, code: grpc.StatusCode, message: str) -> NoReturn:
    await context.abort(code, message)
    raise AssertionError("abort does not return")


def _method(kind: Any, behaviour: Any, request: Any) -> Any:
    return kind(
        behaviour,
        request_deserializer=request.FromString,
        response_serializer=lambda reply: reply.SerializeToString(),
    )


def _wrong(request: pb.RegisterRequest) -> str | None:
    """What is wrong with a registration, if anything."""
    if request.protocol != PROTOCOL:
        return f"protocol {request.protocol} is not spoken here; this server speaks {PROTOCOL}"
    for what in (request.cluster, request.name):
        if not is_name(what):
            return f"{what[:80]!r} is not a name: {NAME_RULE}"
    if not 0 < request.capacity.cpu < 2**40 or not 0 <= request.capacity.memory < 2**62:
        return "capacity.cpu and capacity.memory must be above 0, and not absurd"
    if request.queue > MOST_QUEUE:
        return f"queue is {request.queue}; the most is {MOST_QUEUE}"
    if len(request.labels) > 100 or len(request.offers) > 1000:
        return "at most 100 labels and 1000 offers"
    return None


def _taken(key: str) -> str:
    """Why an agent may not have the name that it has: results are told by the name of their agent."""
    cluster, _, name = key.partition("/")
    return f"an agent {name!r} of cluster {cluster!r} is connected; give this one another name"


async def serve_agents(service: AgentsService, address: str) -> tuple[grpc.aio.Server, int]:
    """Listen for agents; returns the server and its port. Raises OSError if the address is taken."""
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MOST_MESSAGE),
            ("grpc.max_send_message_length", MOST_MESSAGE),
        )
    )
    server.add_generic_rpc_handlers((service.handler(),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise OSError(f"cannot listen on {address} for agents: the port is in use, or not ours to take")
    await server.start()
    return server, port
