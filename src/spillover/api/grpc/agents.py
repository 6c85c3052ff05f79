"""Serves agents over gRPC: decodes, calls `AgentRequests`, encodes, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError

from spillover.api.faults import logged_fault
from spillover.api.grpc.admission import Admission, Metadata, Service
from spillover.api.grpc.agent_checks import MOST_VERSION, too_many, wrong_registration
from spillover.api.grpc.blobs import send_blob, take_blob
from spillover.api.grpc.entry import Denied, GrpcEntry, abort
from spillover.api.grpc.methods import CODES, MOST_MESSAGE, SMALL, MethodBounds, decoded, fields, method
from spillover.clusters.agents.hub import Hub, Session
from spillover.clusters.agents.relays import AgentRelay
from spillover.control.agents.registrations import Followed
from spillover.control.agents.requests import AgentRequests, Introduction, Orders
from spillover.control.requests.tokens import draw_token
from spillover.control.secrets.delivery import Withheld
from spillover.core.events import Lease
from spillover.core.records.jobs import Job
from spillover.model.bounds import plain
from spillover.model.ids import ClusterName, NodeKey, NodeName
from spillover.model.tokens import digest_of
from spillover.ports.blobs import Blobs
from spillover.ports.callers import AgentCallers, Caller, OneToken
from spillover.ports.cluster import Start
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import StoreError
from spillover.stores.blobs import MemoryBlobs
from spillover.wire import agents_pb2 as pb
from spillover.wire.keepalive import GRPC_SERVING
from spillover.wire.tasks import (
    answer_out,
    chunk_in,
    inside_in,
    lease_in,
    lease_out,
    prepared_in,
    resources_in,
    result_in,
    started_in,
    yielded_in,
)

SERVICE: Final = "spillover.agents.v1.Agents"
REGISTRATION: Final = MethodBounds(8 << 20, 100_000)
"""A registration lists the leases that an agent holds: the running ones, and up to `MOST_QUEUE` more."""
REPORT: Final = MethodBounds(MOST_MESSAGE, 40_000)
"""Agents put up to 2,000 entries of each kind into a report. A result may have 32 KiB."""
PIECE: Final = MethodBounds(4 << 20, 1_000)
"""A piece of a file or of output. Agents send at most a MiB."""
FIRST_MESSAGE: Final = 30.0
"""Seconds within which a joining agent must introduce itself."""
MOST_TASKS: Final = 64
"""Most leases whose tasks an agent may request at once."""

MOST_ABILITIES: Final = 100
"""Most abilities of an agent to look at."""

_CODES: Final = CODES | {
    # An agent that names something unknown needs a fix. After NOT_FOUND it would look elsewhere.
    ErrorKind.UNKNOWN: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorKind.AMBIGUOUS: grpc.StatusCode.INVALID_ARGUMENT,
}

_INTRODUCTION: Final = pb.HeartbeatRequest.INTRODUCTION_FIELD_NUMBER
_EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs

Reply = TypeVar("Reply")
ServicerContext = grpc.aio.ServicerContext


Pair: TypeAlias = Callable[[], tuple[bytes, bytes]]
"""Returns the current key and certificate, PEM."""
Starts: TypeAlias = Callable[[Sequence[Job]], Awaitable[list[Start]]]
"""Returns what placed jobs run."""
Secrets: TypeAlias = Callable[[str, Lease], Awaitable[dict[str, bytes]]]
"""Returns the secrets of a task for the agent that holds its lease; raises Withheld."""


class AgentsService:
    """The service for agents."""

    name = SERVICE

    def __init__(
        self,
        requests: AgentRequests,
        hub: Hub,
        callers: AgentCallers | str,
        epoch: Callable[[], int],
        blobs: Blobs | None = None,
        starts: Starts | None = None,
        authority: Callable[[], bytes] = bytes,
        secrets: Secrets | None = None,
    ) -> None:
        self._authority = authority
        """Returns the authority of the server's certificate, PEM; empty if it has none of its own."""
        self._starts = starts or _no_starts
        self._secrets = secrets or _no_secrets
        self._blobs: Blobs = blobs if blobs is not None else MemoryBlobs()
        self._requests = requests
        self._hub = hub
        self._entry = GrpcEntry(OneToken(callers) if isinstance(callers, str) else callers, hub)
        self._epoch = epoch
        self._plain_answer = -1, b""
        """An epoch, and the encoded answer to heartbeats of that epoch that carry no orders."""

    def handler(self) -> Any:
        """Return all methods, for a server."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "Register": method(unary, self._admitted, pb.RegisterRequest, REGISTRATION),
            "Heartbeat": method(unary, self._registered(self._heartbeat), pb.HeartbeatRequest, SMALL),
            "Report": method(unary, self._registered(self._report), pb.ReportRequest, REPORT),
            "Listen": method(stream, self._listen, pb.ListenRequest, SMALL),
            # These decode messages themselves, and write bytes, because most heartbeats get the same answer.
            "Session": grpc.stream_stream_rpc_method_handler(self._session),
            "Join": grpc.stream_stream_rpc_method_handler(self._join),
            "Relay": grpc.stream_stream_rpc_method_handler(self._relay),
            "GetTasks": method(unary, self._get_tasks, pb.TasksRequest, SMALL),
            "GetSecrets": method(unary, self._get_secrets, pb.SecretsRequest, SMALL),
            "Output": method(grpc.stream_unary_rpc_method_handler, self._output, pb.OutputChunk, PIECE),
            "GetBlob": method(stream, self._get_blob, pb.BlobRequest, SMALL),
            "PutBlob": method(grpc.stream_unary_rpc_method_handler, self._put_blob, pb.BlobPiece, PIECE),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def admit(self, method: str, metadata: Metadata) -> None:
        """See Service."""
        if method in {"Register", "Join"}:
            self._entry.joiner(metadata)
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
            told = (
                f"token {caller.token} is for agents of cluster {caller.cluster!r}, not {request.cluster!r}"
            )
            raise CommandError(ErrorKind.FORBIDDEN, told)
        if caller.node not in {None, request.name}:
            raise CommandError(
                ErrorKind.FORBIDDEN, f"this token is for agent {caller.node!r}, not {request.name!r}"
            )
        # Drawn here, so that only the answer to this call contains the secret.
        drawn = draw_token() if caller.joins else None
        if drawn is not None:
            caller = Caller(caller.role, drawn.id, cluster=caller.cluster, node=caller.node)
        welcome = await self._requests.register(
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
                request.address,
                request.gangs,
                inside_in(request.inside) if request.HasField("inside") else None,
                None if drawn is None else digest_of(drawn.secret),
                tuple(request.abilities[:MOST_ABILITIES]),
                plain(request.version, MOST_VERSION),
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
            token="" if drawn is None else str(drawn),
            authority=b"" if drawn is None else self._authority(),
        )

    async def _heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        orders = await self._requests.heartbeat(request.incarnation, request.load, request.wall)
        if request.leaving and (session := self._hub.session(request.incarnation)) is not None:
            session.signed_off = True
        return _orders_out(orders)

    async def _join(self, _: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> None:
        caller = await self._entry.caller(context)
        try:
            async with asyncio.timeout(FIRST_MESSAGE):
                data = await context.read()
        except TimeoutError:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "the agent sent no introduction")
        welcome = await _told(self._introduced(data, caller), context)
        session = self._hub.session(welcome.incarnation)
        if session is None:  # a newer registration has replaced it already
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register again")
        await context.write(pb.FromServer(epoch=welcome.epoch, welcome=welcome).SerializeToString())
        await self._follow_stream(session, context)

    async def _introduced(self, data: bytes, caller: Caller) -> pb.RegisterReply:
        """Register with the first message of a stream."""
        if data is _EOF or len(data) > REGISTRATION.size:
            raise CommandError(
                ErrorKind.INVALID,
                f"a stream must begin with an introduction of at most {REGISTRATION.size} bytes",
            )
        try:
            given = [data[start:end] for number, start, end in fields(data) if number == _INTRODUCTION]
        except DecodeError:
            given = []
        if len(given) != 1:
            raise CommandError(ErrorKind.INVALID, "the first message must have exactly one introduction")
        return await self._register(decoded(pb.RegisterRequest, given[0], REGISTRATION), caller)

    async def _session(self, _: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> None:
        session = await self._entry.session(context)
        if session is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register again")
        await self._follow_stream(session, context)

    async def _follow_stream(self, session: Session, context: "ServicerContext[bytes, bytes]") -> None:
        """Receive heartbeats and send messages, on one stream."""
        # Uses the calls of the context, because an iterator and a generator would cost a fifth more.
        turn = asyncio.Lock()  # gRPC takes one message at a time
        renewing = asyncio.create_task(_told(self._renew(session, context, turn), context))
        renewing.add_done_callback(session.look_again)
        try:
            await _told(self._say(session, context, turn, renewing.done), context)
        finally:
            renewing.cancel()
            (ended,) = await asyncio.gather(renewing, return_exceptions=True)
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            raise ended  # includes the error that aborted the call
        if not self._entry.holds(session):
            await abort(context, grpc.StatusCode.UNAUTHENTICATED, "the token is no longer valid")

    async def _renew(
        self, session: Session, context: "ServicerContext[bytes, bytes]", turn: asyncio.Lock
    ) -> None:
        """Receive heartbeats and answer them, until the agent hangs up."""
        while (data := await context.read()) is not _EOF and self._entry.holds(session):
            request = decoded(pb.HeartbeatRequest, data, SMALL)
            orders = await self._requests.heartbeat(
                session.incarnation, request.load, request.wall, request.terms
            )
            said = self._plain(orders.epoch) if orders.is_plain else _renewed(orders)
            async with turn:
                await context.write(said)

    def _plain(self, epoch: int) -> bytes:
        """Return the encoded answer without orders, cached because thousands of agents get the same."""
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
        """Send messages until the stream ends or another registration replaces it; then say so last."""
        async for message in session.messages(self._epoch(), is_over):
            if not self._entry.holds(session):
                return
            async with turn:
                # A message that is not sent is lost. That is safe: the agent registers again, here or elsewhere, and
                # gets what it missed.
                self._requests.check_lead()
                await context.write(message.SerializeToString())
        if self._entry.holds(session) and not is_over():
            orders = await self._requests.heartbeat(session.incarnation)
            async with turn:
                await context.write(_renewed(orders))

    async def _report(self, request: pb.ReportRequest) -> pb.ReportReply:
        if (problem := too_many(request)) is not None:
            raise CommandError(ErrorKind.INVALID, problem)
        node = NodeKey(self._hub.current(request.incarnation) or "")
        answers = await self._requests.report(
            request.incarnation,
            [started_in(node, started) for started in request.started],
            [result_in(node, result) for result in request.results],
            [lease_in(lease) for lease in request.released],
            yielded=[yielded_in(node, yielded) for yielded in request.yielded],
            prepared=[prepared_in(prepared) for prepared in request.prepared],
            leaving=request.leaving,
            taken_back=request.taken_back,
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
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register again")
        return await _told(self._tasks(session.node, request), context)

    async def _tasks(self, node: str, request: pb.TasksRequest) -> pb.TasksReply:
        """Return the tasks of leases that an agent holds and could not fetch from a peer."""
        jobs = await self._requests.leased(node, [lease_in(lease) for lease in request.leases[:MOST_TASKS]])
        starts = await self._starts(jobs)
        self._requests.check_lead()  # reading the specs took time
        return pb.TasksReply(grants=self._hub.grants(starts))

    async def _get_secrets(
        self, request: pb.SecretsRequest, context: "ServicerContext[pb.SecretsRequest, pb.SecretsReply]"
    ) -> pb.SecretsReply:
        session = await self._entry.session(context)
        if session is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register again")
        return await _told(self._values(session.node, lease_in(request.lease)), context)

    async def _values(self, node: str, lease: Lease) -> pb.SecretsReply:
        """Return the secrets of a task that an agent is about to start, or why it gets none."""
        self._requests.check_lead()
        try:
            values = await self._secrets(node, lease)
        except Withheld as error:
            return pb.SecretsReply(refused=str(error))
        self._requests.check_lead()  # reading them took time
        return pb.SecretsReply(
            secrets=[pb.SecretValue(name=name, value=value) for name, value in values.items()]
        )

    async def _listen(
        self, request: pb.ListenRequest, context: "ServicerContext[pb.ListenRequest, pb.FromServer]"
    ) -> AsyncIterator[pb.FromServer]:
        session = await self._entry.session(context, request.incarnation)
        if session is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register again")
        async for message in session.messages(self._epoch()):
            if not self._entry.holds(session):
                await abort(context, grpc.StatusCode.UNAUTHENTICATED, "the token is no longer valid")
            # A message that is not sent is lost. That is safe: the agent registers again, here or elsewhere, and gets
            # what it missed.
            await _told(self._leading(), context)
            yield message
        if not self._entry.holds(session):
            await abort(context, grpc.StatusCode.UNAUTHENTICATED, "the token is no longer valid")

    async def _leading(self) -> None:
        """Raise unless this server certainly leads."""
        self._requests.check_lead()

    async def _output(
        self,
        chunks: AsyncIterator[pb.OutputChunk],
        context: "ServicerContext[pb.OutputChunk, pb.OutputReply]",
    ) -> pb.OutputReply:
        session = await self._entry.session(context)
        async for chunk in chunks:
            # Only from the session of this call, whatever the chunk claims.
            if session is not None and not session.fenced and chunk.incarnation == session.incarnation:
                await self._hub.chunk(chunk_in(chunk))
        return pb.OutputReply()

    async def _relay(self, _: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]") -> None:
        """Carry a session between its client and a task."""
        session = await self._entry.session(context)
        relay = None
        if session is not None and (data := await self._first(context)) is not _EOF:
            relay = self._hub.relays.find(decoded(pb.RelayPiece, data, PIECE).id, session.node)
        if relay is None or not relay.join():
            await abort(context, grpc.StatusCode.NOT_FOUND, "nobody waits for this session any more")
        ways = [asyncio.create_task(each(relay, context)) for each in (_from_agent, _to_agent)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await relay.ended()
            for each in ways:
                each.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    @staticmethod
    async def _first(context: "ServicerContext[bytes, bytes]") -> Any:
        """Return the first message of a stream."""
        try:
            async with asyncio.timeout(FIRST_MESSAGE):
                return await context.read()
        except TimeoutError:
            await abort(
                context, grpc.StatusCode.INVALID_ARGUMENT, "the agent did not say which session it is"
            )

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
        """Wrap a method so that only the owner of the registration it names can call it."""

        async def check(request: Any, context: Any) -> Reply:
            await self._entry.session(context, request.incarnation)
            return await _told(method(request), context)

        return check

    async def _check(self, context: Any) -> None:
        """Refuse a call that belongs to no current registration."""
        if await self._entry.session(context) is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "register again")


async def _from_agent(relay: AgentRelay, context: "ServicerContext[bytes, bytes]") -> None:
    """Pass pieces of an agent on to the client, as fast as that reads them."""
    while (data := await context.read()) is not _EOF:
        if not await relay.heard(decoded(pb.RelayPiece, data, PIECE).data):
            return


async def _to_agent(relay: AgentRelay, context: "ServicerContext[bytes, bytes]") -> None:
    """Pass pieces of a client on to its agent."""
    while (piece := await relay.next()) is not None:
        await context.write(pb.RelayPiece(data=piece).SerializeToString())


async def _no_secrets(node: str, lease: Lease) -> dict[str, bytes]:
    """Refuse, for a server without secrets."""
    del node, lease
    raise Withheld("this server does not store secrets")


async def _no_starts(jobs: Sequence[Job]) -> list[Start]:
    """Return nothing, for a server without specs of jobs."""
    del jobs
    return []


async def _told(call: Awaitable[Reply], context: Any) -> Reply:
    """Await a call, and turn refusals into gRPC statuses."""
    try:
        return await call
    except Followed as error:
        await abort(context, grpc.StatusCode.ABORTED, error.message)  # the agent reads this status as fenced
    except CommandError as error:
        await abort(context, _CODES[error.kind], error.message)
    except StoreError as error:
        await abort(context, grpc.StatusCode.UNAVAILABLE, str(error))


def _orders_out(orders: Orders) -> pb.HeartbeatReply:
    """Encode the answer to a heartbeat."""
    reply = pb.HeartbeatReply(
        epoch=orders.epoch,
        fenced=orders.fenced,
        stops=[
            pb.StopOrder(lease=lease_out(lease), overdue=lease in orders.overdue) for lease in orders.stops
        ],
        revoked=[lease_out(lease) for lease in orders.revoked],
        drain=orders.drain,
        yields=[pb.YieldOrder(lease=lease_out(lease), ticket=ticket) for lease, ticket in orders.yields],
        walltimes=[
            pb.WalltimeOrder(lease=lease_out(lease), walltime=walltime)
            for lease, walltime in orders.walltimes
        ],
    )
    if orders.offer is not None:
        number, terms = orders.offer
        reply.terms.MergeFrom(pb.Terms(number=number, heartbeat=terms.heartbeat, short_term=terms.short))
    return reply


def _renewed(orders: Orders) -> bytes:
    """Encode the answer to a heartbeat on a stream."""
    return pb.FromServer(epoch=orders.epoch, renewed=_orders_out(orders)).SerializeToString()


def _latest(pair: Pair, shown: list[tuple[bytes, bytes]]) -> Any:
    """Return a new certificate configuration; None if `shown` is still current."""
    now = pair()
    if now == shown[0]:
        return None
    shown[0] = now
    return grpc.ssl_server_certificate_configuration([now])


async def serve_agents(
    service: AgentsService, address: str, pair: Pair | None = None, others: Sequence[Service] = ()
) -> tuple[grpc.aio.Server, int]:
    """Listen for agents and for `others`, with TLS if `pair` is given; return the server and its port.

    Raises OSError if the address is taken. gRPC calls `pair` in one of its threads for every new connection.
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
        raise OSError(f"cannot listen on {address} for agents: the port is in use or not permitted")
    await server.start()
    return server, port
