"""The agents' service: decode, call the desk, encode; nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError

from spillover.api.faults import logged_fault
from spillover.api.grpc.admission import Admission, Metadata, Service
from spillover.api.grpc.agent_checks import too_many, wrong_registration
from spillover.api.grpc.blobs import send_blob, take_blob
from spillover.api.grpc.entry import Denied, GrpcEntry, abort
from spillover.api.grpc.methods import CODES, MOST_MESSAGE, SMALL, MethodBounds, decoded, fields, method
from spillover.clusters.agents.hub import Hub, Session
from spillover.control.agents import Desk, Introduction, Orders
from spillover.control.lives import Followed
from spillover.core.jobs import Job
from spillover.model.ids import ClusterName, NodeKey, NodeName
from spillover.ports.blobs import Blobs
from spillover.ports.callers import Caller, Callers, OneToken
from spillover.ports.cluster import Start
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import StoreError
from spillover.stores.blobs import MemoryBlobs
from spillover.wire import agents_pb2 as pb
from spillover.wire.keepalive import GRPC_SERVING
from spillover.wire.tasks import (
    answer_out,
    chunk_in,
    lease_in,
    lease_out,
    resources_in,
    result_in,
    started_in,
    yielded_in,
)

SERVICE: Final = "spillover.agents.v1.Agents"
REGISTRATION: Final = MethodBounds(8 << 20, 100_000)
"""It names the leases that an agent holds: what runs, and up to `MOST_QUEUE` more."""
REPORT: Final = MethodBounds(MOST_MESSAGE, 40_000)
"""Agents put up to 2,000 entries of each kind into one, of which results may have 32 KiB."""
PIECE: Final = MethodBounds(4 << 20, 1_000)
"""Of a file, or of output: agents send a MiB at the most."""
FIRST_MESSAGE: Final = 30.0
"""Seconds within which one who joins has to introduce itself."""
MOST_TASKS: Final = 64
"""Leases whose tasks an agent may ask for at once."""

_CODES: Final = CODES | {
    # An agent that names something unknown has to be mended; it would look for what is not found elsewhere.
    ErrorKind.UNKNOWN: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorKind.AMBIGUOUS: grpc.StatusCode.INVALID_ARGUMENT,
}

_INTRODUCTION: Final = pb.HeartbeatRequest.INTRODUCTION_FIELD_NUMBER
_EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it

Reply = TypeVar("Reply")
ServicerContext = grpc.aio.ServicerContext


Pair: TypeAlias = Callable[[], tuple[bytes, bytes]]
"""Key and certificate as they are now, PEM."""
Starts: TypeAlias = Callable[[Sequence[Job]], Awaitable[list[Start]]]
"""What placed jobs run."""


class AgentsService:
    """What agents can ask."""

    name = SERVICE

    def __init__(
        self,
        desk: Desk,
        hub: Hub,
        callers: Callers | str,
        epoch: Callable[[], int],
        blobs: Blobs | None = None,
        starts: Starts | None = None,
    ) -> None:
        self._starts = starts or _no_starts
        self._blobs: Blobs = blobs if blobs is not None else MemoryBlobs()
        self._desk = desk
        self._hub = hub
        self._entry = GrpcEntry(OneToken(callers) if isinstance(callers, str) else callers, hub)
        self._epoch = epoch
        self._plain_answer = -1, b""
        """An epoch, and what heartbeats are answered in it when there is nothing to say."""

    def handler(self) -> Any:
        """All methods, for a server."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "Register": method(unary, self._admitted, pb.RegisterRequest, REGISTRATION),
            "Heartbeat": method(unary, self._registered(self._heartbeat), pb.HeartbeatRequest, SMALL),
            "Report": method(unary, self._registered(self._report), pb.ReportRequest, REPORT),
            "Listen": method(stream, self._listen, pb.ListenRequest, SMALL),
            # These decode by themselves, and so write bytes: most heartbeats get the same answer.
            "Session": grpc.stream_stream_rpc_method_handler(self._session),
            "Join": grpc.stream_stream_rpc_method_handler(self._join),
            "GetTasks": method(unary, self._get_tasks, pb.TasksRequest, SMALL),
            "Output": method(grpc.stream_unary_rpc_method_handler, self._output, pb.OutputChunk, PIECE),
            "GetBlob": method(stream, self._get_blob, pb.BlobRequest, SMALL),
            "PutBlob": method(grpc.stream_unary_rpc_method_handler, self._put_blob, pb.BlobPiece, PIECE),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def admit(self, method: str, metadata: Metadata) -> None:
        """See Service."""
        if method in {"Register", "Join"}:
            self._entry.known(metadata)
        else:
            self._entry.registered(metadata)

    async def refuse(self, context: Any, error: Exception) -> NoReturn:
        """See Service."""
        if isinstance(error, Denied):
            await abort(context, error.code, error.message)
        await abort(context, grpc.StatusCode.INTERNAL, logged_fault("call failed", error))

    async def _admitted(
        self, request: pb.RegisterRequest, context: "ServicerContext[pb.RegisterRequest, pb.RegisterReply]"
    ) -> pb.RegisterReply:
        caller = await self._entry.caller(context)
        return await _told(self._register(request, caller), context)

    async def _register(self, request: pb.RegisterRequest, caller: Caller) -> pb.RegisterReply:
        problem = wrong_registration(request)
        if problem is not None:
            raise CommandError(ErrorKind.INVALID, problem)
        if caller.cluster not in {None, request.cluster}:
            told = f"the token {caller.token} is for agents of cluster {caller.cluster!r}, not {request.cluster!r}"
            raise CommandError(ErrorKind.FORBIDDEN, told)
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
                caller.token,
                caller.is_admin,
                tuple(lease_in(held.lease) for held in request.held if held.phase == pb.WAITING),
                request.peer,
                request.life,
                request.number,
                request.boot,
                request.stream,
            )
        )
        return pb.RegisterReply(
            epoch=welcome.epoch,
            incarnation=welcome.incarnation,
            keep=[lease_out(lease) for lease in welcome.keep],
            heartbeat=welcome.terms.heartbeat,
            short_term=welcome.terms.short,
            log_retention=welcome.log_retention,
            keep_output=welcome.keep_output,
            now=welcome.now,
            session=self._entry.admit(welcome.incarnation, caller),
            stream=request.stream,
            spread=welcome.spread,
        )

    async def _heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        return _orders_out(await self._desk.heartbeat(request.incarnation, request.load, request.wall))

    async def _join(self, _: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> None:
        caller = await self._entry.caller(context)
        try:
            async with asyncio.timeout(FIRST_MESSAGE):
                data = await context.read()
        except TimeoutError:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "no introduction came")
        welcome = await _told(self._introduced(data, caller), context)
        session = self._hub.session(welcome.incarnation)
        if session is None:  # a newer registration counts already
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register anew")
        await context.write(pb.FromServer(epoch=welcome.epoch, welcome=welcome).SerializeToString())
        await self._attend(session, context)

    async def _introduced(self, data: bytes, caller: Caller) -> pb.RegisterReply:
        """Register with the first message of a stream."""
        if data is _EOF or len(data) > REGISTRATION.size:
            raise CommandError(
                ErrorKind.INVALID,
                f"a stream begins with an introduction of at most {REGISTRATION.size} bytes",
            )
        try:
            given = [data[start:end] for number, start, end in fields(data) if number == _INTRODUCTION]
        except DecodeError:
            given = []
        if len(given) != 1:
            raise CommandError(ErrorKind.INVALID, "the first message has no introduction, or several")
        return await self._register(decoded(pb.RegisterRequest, given[0], REGISTRATION), caller)

    async def _session(self, _: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> None:
        session = await self._entry.session(context)
        if session is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register anew")
        await self._attend(session, context)

    async def _attend(self, session: Session, context: "ServicerContext[bytes, bytes]") -> None:
        """Take heartbeats and say what there is to say, on one stream."""
        # Read and written with the calls of the context: an iterator and a generator would cost a fifth more.
        turn = asyncio.Lock()  # gRPC takes one message at a time
        renewing = asyncio.create_task(_told(self._renew(session, context, turn), context))
        renewing.add_done_callback(session.look_again)
        try:
            await _told(self._say(session, context, turn, renewing.done), context)
        finally:
            renewing.cancel()
            (ended,) = await asyncio.gather(renewing, return_exceptions=True)
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            raise ended  # also that the call was aborted
        if not self._entry.holds(session):
            await abort(context, grpc.StatusCode.UNAUTHENTICATED, "the token is not valid any more")

    async def _renew(
        self, session: Session, context: "ServicerContext[bytes, bytes]", turn: asyncio.Lock
    ) -> None:
        """Take heartbeats and answer them, until the agent hangs up."""
        while (data := await context.read()) is not _EOF and self._entry.holds(session):
            request = decoded(pb.HeartbeatRequest, data, SMALL)
            orders = await self._desk.heartbeat(
                session.incarnation, request.load, request.wall, request.terms
            )
            said = self._plain(orders.epoch) if orders.is_plain else _renewed(orders)
            async with turn:
                await context.write(said)

    def _plain(self, epoch: int) -> bytes:
        """The answer to most heartbeats, which is the same for all: encoded once, as thousands of agents are given it."""
        if self._plain_answer[0] != epoch:
            self._plain_answer = epoch, _renewed(Orders(epoch, fenced=False))
        return self._plain_answer[1]

    async def _say(
        self,
        session: Session,
        context: "ServicerContext[bytes, bytes]",
        turn: asyncio.Lock,
        is_over: Callable[[], bool],
    ) -> None:
        """Say what there is to say, until the stream is over or another registration counts; that is said last."""
        async for message in session.messages(self._epoch(), is_over):
            if not self._entry.holds(session):
                return
            async with turn:
                # What is not said here is lost: the agent registers anew, with us or with another, and that tells what it misses.
                self._desk.check_lead()
                await context.write(message.SerializeToString())
        if self._entry.holds(session) and not is_over():
            orders = await self._desk.heartbeat(session.incarnation)
            async with turn:
                await context.write(_renewed(orders))

    async def _report(self, request: pb.ReportRequest) -> pb.ReportReply:
        if (problem := too_many(request)) is not None:
            raise CommandError(ErrorKind.INVALID, problem)
        node = NodeKey(self._hub.current(request.incarnation) or "")
        answers = await self._desk.report(
            request.incarnation,
            [started_in(node, started) for started in request.started],
            [result_in(node, result) for result in request.results],
            [lease_in(lease) for lease in request.released],
            yielded=[yielded_in(node, yielded) for yielded in request.yielded],
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
            yielded=[lease_out(lease) for lease in answers.yielded],
        )

    async def _get_tasks(
        self, request: pb.TasksRequest, context: "ServicerContext[pb.TasksRequest, pb.TasksReply]"
    ) -> pb.TasksReply:
        session = await self._entry.session(context)
        if session is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register anew")
        return await _told(self._tasks(session.node, request), context)

    async def _tasks(self, node: str, request: pb.TasksRequest) -> pb.TasksReply:
        """What leases run that an agent holds and whose tasks a peer did not give it."""
        jobs = await self._desk.leased(node, [lease_in(lease) for lease in request.leases[:MOST_TASKS]])
        starts = await self._starts(jobs)
        self._desk.check_lead()  # specs were read meanwhile
        return pb.TasksReply(grants=self._hub.grants(starts))

    async def _listen(
        self, request: pb.ListenRequest, context: "ServicerContext[pb.ListenRequest, pb.FromServer]"
    ) -> AsyncIterator[pb.FromServer]:
        session = await self._entry.session(context, request.incarnation)
        if session is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register anew")
        async for message in session.messages(self._epoch()):
            if not self._entry.holds(session):
                await abort(context, grpc.StatusCode.UNAUTHENTICATED, "the token is not valid any more")
            # What is not said here is lost: the agent registers anew, with us or with another, and that tells what it misses.
            await _told(self._leading(), context)
            yield message
        if not self._entry.holds(session):
            await abort(context, grpc.StatusCode.UNAUTHENTICATED, "the token is not valid any more")

    async def _leading(self) -> None:
        """Refuse to speak unless this server surely leads."""
        self._desk.check_lead()

    async def _output(
        self,
        chunks: AsyncIterator[pb.OutputChunk],
        context: "ServicerContext[pb.OutputChunk, pb.OutputReply]",
    ) -> pb.OutputReply:
        session = await self._entry.session(context)
        async for chunk in chunks:
            # Only of the session that the call belongs to, whatever the chunk says of itself.
            if session is not None and not session.fenced and chunk.incarnation == session.incarnation:
                await self._hub.chunk(chunk_in(chunk))
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

    def _registered(
        self, method: Callable[[Any], Awaitable[Reply]]
    ) -> Callable[[Any, Any], Awaitable[Reply]]:
        """A method for those who have registered and may speak for the registration that they name."""

        async def check(request: Any, context: Any) -> Reply:
            await self._entry.session(context, request.incarnation)
            return await _told(method(request), context)

        return check

    async def _check(self, context: Any) -> None:
        """Refuse a call that belongs to no current registration."""
        if await self._entry.session(context) is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register anew")


async def _no_starts(jobs: Sequence[Job]) -> list[Start]:
    """Nothing, where nobody has the specs of jobs."""
    del jobs
    return []


async def _told(call: Awaitable[Reply], context: Any) -> Reply:
    """What comes of a call, with refusals told as gRPC has them."""
    try:
        return await call
    except Followed as error:
        await abort(context, grpc.StatusCode.ABORTED, error.message)  # tells it that it is fenced
    except CommandError as error:
        await abort(context, _CODES[error.kind], error.message)
    except StoreError as error:
        await abort(context, grpc.StatusCode.UNAVAILABLE, str(error))


def _orders_out(orders: Orders) -> pb.HeartbeatReply:
    """The answer to a heartbeat."""
    reply = pb.HeartbeatReply(
        epoch=orders.epoch,
        fenced=orders.fenced,
        stops=[
            pb.StopOrder(lease=lease_out(lease), overdue=lease in orders.overdue) for lease in orders.stops
        ],
        revoked=[lease_out(lease) for lease in orders.revoked],
        drain=orders.drain,
        yields=[pb.YieldOrder(lease=lease_out(lease), ticket=ticket) for lease, ticket in orders.yields],
    )
    if orders.offer is not None:
        number, terms = orders.offer
        reply.terms.MergeFrom(pb.Terms(number=number, heartbeat=terms.heartbeat, short_term=terms.short))
    return reply


def _renewed(orders: Orders) -> bytes:
    """The answer to a heartbeat that came on a stream."""
    return pb.FromServer(epoch=orders.epoch, renewed=_orders_out(orders)).SerializeToString()


def _latest(pair: Pair, shown: list[tuple[bytes, bytes]]) -> Any:
    """What is to be shown from now on; None if that is what is `shown`."""
    now = pair()
    if now == shown[0]:
        return None
    shown[0] = now
    return grpc.ssl_server_certificate_configuration([now])


async def serve_agents(
    service: AgentsService, address: str, pair: Pair | None = None, others: Sequence[Service] = ()
) -> tuple[grpc.aio.Server, int]:
    """Listen for agents, with TLS if key and certificate are given, and for `others`; returns the server and its port.

    Raises OSError if the address is taken. `pair` is asked at every new connection, in a thread of gRPC.
    """
    services = (service, *others)
    server = grpc.aio.server(
        interceptors=(Admission(services),),
        options=(
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MOST_MESSAGE),
            ("grpc.max_send_message_length", MOST_MESSAGE),
            *GRPC_SERVING,
        ),
    )
    server.add_generic_rpc_handlers(tuple(each.handler() for each in services))
    try:
        if pair is None:
            port = server.add_insecure_port(address)
        else:
            first = grpc.ssl_server_certificate_configuration([pair()])
            latest = partial(_latest, pair, [pair()])
            port = server.add_secure_port(address, grpc.dynamic_ssl_server_credentials(first, latest))
    except RuntimeError:
        port = 0
    if not port:
        raise OSError(f"cannot listen on {address} for agents: the port is in use, or not ours to take")
    await server.start()
    return server, port
