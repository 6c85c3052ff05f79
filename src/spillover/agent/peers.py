"""Tasks between agents: whoever takes a lease over asks the agent that gave it up what it runs, and the server if that fails.

Who may have which lease is the server's word alone. A ticket, which the server gave both, tells that one may know what it runs.
"""

import asyncio
import hmac
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from msgspec import Struct

from spillover.agent import convert
from spillover.agent.files import Files
from spillover.agent.transfers import ServerAway, ServerTransfers, TransferRefused
from spillover.agent.values import Fetch, Grant, Task
from spillover.core.events import Lease
from spillover.model.hosts import is_loopback
from spillover.wire import agents_pb2 as pb
from spillover.wire.keepalive import GRPC_ASKING, GRPC_SERVING
from spillover.wire.tasks import task_digest

SERVICE: Final = "spillover.agents.v1.Peers"
LOOPBACK: Final = "127.0.0.1:0"
KEPT: Final = 60.0
"""Seconds for which a task can be asked for after its lease was given up."""
PEER_LIMIT: Final = 10.0
"""Seconds that a peer may take to tell what its leases run, files included."""
SERVER_LIMIT: Final = 5.0
"""Seconds that the server may take."""
MOST: Final = 64
"""Leases in one request."""
SPARE: Final = 64
"""Tasks that are remembered beyond those of leases that wait."""
MESSAGE_LIMIT: Final = 64 << 20

log = logging.getLogger("spillover.agent")


class Listening(Struct, frozen=True):
    """Where an agent can be asked by others."""

    address: str = LOOPBACK
    """HOST:PORT; empty listens nowhere, and port 0 picks a free one."""
    cert: Path | None = None
    """PEM; None speaks in the clear, which is for loopback only."""
    key: Path | None = None


class _Offered(NamedTuple):
    """A task that may be asked for."""

    ticket: bytes
    task: pb.Task
    until: float


class Peers:
    """What an agent tells others, and asks them."""

    def __init__(
        self,
        arrived: Callable[[Lease, Task], None],
        failed: Callable[[Lease], None],
        server: ServerTransfers,
        files: Files | None = None,
        listening: Listening = Listening(),  # noqa: B008 - a value that never changes
    ) -> None:
        self._arrived = arrived
        self._failed = failed
        self._server = server
        self._files = files
        self._listening = listening
        self._grpc: grpc.aio.Server | None = None
        self._tasks: dict[Lease, bytes] = {}
        """Of leases that wait, as the server sent them; a message that is kept would keep all that came with it."""
        self._offered: dict[Lease, _Offered] = {}
        """The oldest first."""
        self._fetches: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Listen; returns the address that others are told, or nothing if there is none."""
        if not self._listening.address:
            return ""
        self._grpc = grpc.aio.server(options=(("grpc.so_reuseport", 0), *GRPC_SERVING))
        method = grpc.unary_stream_rpc_method_handler(
            self._steal_jobs, pb.StealRequest.FromString, lambda reply: reply.SerializeToString()
        )
        self._grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"StealJobs": method}),)
        )
        try:
            port = self._bind(self._grpc, self._listening)
        except (RuntimeError, OSError) as error:
            log.warning("other agents cannot ask this one for tasks: %s", error)
            self._grpc = None
            return ""
        await self._grpc.start()
        host = self._listening.address.rpartition(":")[0]
        return f"{host}:{port}"

    async def close(self) -> None:
        """Tell nothing more, and ask nobody."""
        for fetch in tuple(self._fetches):
            fetch.cancel()
        await asyncio.gather(*self._fetches, return_exceptions=True)
        if self._grpc is not None:
            await self._grpc.stop(None)

    # --- telling

    def remember(self, grants: Iterable[tuple[Grant, pb.Grant]], waiting: Collection[Lease]) -> None:
        """Keep tasks of leases that wait as they were sent, as somebody may take them over."""
        for grant, sent in grants:
            if grant.task is not None and grant.lease in waiting:
                self._tasks[grant.lease] = sent.task.SerializeToString()
        if len(self._tasks) > 2 * len(waiting) + SPARE:
            self._tasks = {lease: task for lease, task in self._tasks.items() if lease in waiting}

    def offer(self, lease: Lease, ticket: bytes) -> None:
        """Let whoever has the ticket know what a lease runs that was given up."""
        self._forget_old()
        task = self._tasks.pop(lease, None)
        if task is not None:
            self._offered[lease] = _Offered(ticket, pb.Task.FromString(task), time.monotonic() + KEPT)

    def _forget_old(self) -> None:
        now = time.monotonic()
        for lease in [lease for lease, offered in self._offered.items() if offered.until <= now]:
            del self._offered[lease]

    async def _steal_jobs(self, request: pb.StealRequest, context: Any) -> AsyncIterator[pb.StealReply]:
        """See the protocol."""
        self._forget_old()
        found = [self._wanted(each) for each in request.wanted[:MOST]]
        if None in found:  # whether there is no such lease, or the ticket is another's, is nobody's business
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no task is offered for this ticket")
        for offered, wanted in zip(found, request.wanted, strict=False):
            if offered is not None:
                yield pb.StealReply(source=wanted.source, task=offered.task)
        for offered, wanted in zip(found, request.wanted, strict=False):
            if offered is not None:
                async for piece in self._pieces(offered.task):
                    yield pb.StealReply(source=wanted.source, blob=piece)

    def _wanted(self, wanted: pb.Peer) -> _Offered | None:
        """What a ticket opens."""
        try:
            offered = self._offered.get(convert.lease_in(wanted.source))
        except convert.Unspeakable:
            return None
        known = offered.ticket if offered is not None else b""
        same = hmac.compare_digest(known, wanted.ticket)
        return offered if same and known else None

    async def _pieces(self, task: pb.Task) -> AsyncIterator[pb.BlobPiece]:
        """The files of a task that are here."""
        files = self._files
        if files is None:
            return
        for digest in _digests(task):
            first = True
            async for data in files.pieces(digest):
                yield pb.BlobPiece(digest=digest if first else "", data=data)
                first = False

    @staticmethod
    def _bind(server: grpc.aio.Server, listening: Listening) -> int:
        """Take the port; raises RuntimeError or OSError if that cannot be."""
        if listening.cert is None or listening.key is None:
            if not is_loopback(listening.address):
                raise OSError(f"{listening.address} is not on loopback, and there is no certificate for it")
            return server.add_insecure_port(listening.address)
        pair = listening.key.read_bytes(), listening.cert.read_bytes()
        return server.add_secure_port(listening.address, grpc.ssl_server_credentials([pair]))

    # --- asking

    def fetch(self, fetches: Sequence[Fetch]) -> None:
        """Find out what leases run that were taken over; each one is told when it is known, or when it cannot be."""
        by_peer: dict[str, list[Fetch]] = {}
        for fetch in fetches:
            by_peer.setdefault(fetch.source.address, []).append(fetch)
        for address, some in by_peer.items():
            for first in range(0, len(some), MOST):
                asking = asyncio.create_task(self._ask(address, some[first : first + MOST]))
                self._fetches.add(asking)
                asking.add_done_callback(self._fetches.discard)

    async def _ask(self, address: str, fetches: Sequence[Fetch]) -> None:
        """Ask a peer, and the server for what it did not tell."""
        left = {fetch.source.lease: fetch.lease for fetch in fetches}
        try:
            async with asyncio.timeout(PEER_LIMIT):
                await self._ask_peer(address, fetches, left)
        except (grpc.aio.AioRpcError, TimeoutError, convert.Unspeakable, OSError) as error:
            said = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error) or "no answer"
            if left:
                log.warning("agent at %s did not give %d tasks: %s", address, len(left), said)
        if left:
            await self._ask_server(list(left.values()))

    async def _ask_peer(self, address: str, fetches: Sequence[Fetch], left: dict[Lease, Lease]) -> None:
        """Ask the agent that gave the leases up; what it told is not left any more."""
        wanted = [
            pb.Peer(ticket=fetch.source.ticket, source=convert.lease_out(fetch.source.lease))
            for fetch in fetches
        ]
        digests = {fetch.source.lease: fetch.source.digest for fetch in fetches}
        told: dict[Lease, pb.Task] = {}
        async with self._dial(address) as channel:
            call = channel.unary_stream(
                f"/{SERVICE}/StealJobs", pb.StealRequest.SerializeToString, pb.StealReply.FromString
            )
            answer = call(pb.StealRequest(wanted=wanted), timeout=PEER_LIMIT)
            blobs = _Blobs(self._files)
            try:
                async for reply in answer:
                    if reply.HasField("task"):
                        source = convert.lease_in(reply.source)
                        if digests.get(source) not in {b"", task_digest(reply.task)}:
                            log.warning("agent at %s tells of another task than %s runs", address, source.job)
                        else:
                            told[source] = reply.task
                    elif reply.HasField("blob"):
                        await blobs.take(reply.blob)
                await blobs.end()
            finally:
                await blobs.drop()
                # Files that did not come are fetched from the server: a task that did come is one that can run.
                for source, task in told.items():
                    lease = left.pop(source, None)
                    if lease is not None:
                        self._tell(lease, task)

    async def _ask_server(self, leases: Sequence[Lease]) -> None:
        """Ask the server; what it does not tell either is handed back."""
        told: dict[Lease, pb.Task] = {}
        try:
            grants = await self._server.tasks([convert.lease_out(lease) for lease in leases], SERVER_LIMIT)
            told = {convert.lease_in(grant.lease): grant.task for grant in grants}
        except (ServerAway, TransferRefused, convert.Unspeakable) as error:
            log.warning("the server did not give %d tasks: %s", len(leases), error)
        for lease in leases:
            if lease in told:
                self._tell(lease, told[lease])
            else:
                self._failed(lease)

    def _tell(self, lease: Lease, task: pb.Task) -> None:
        """A task is known, if it can be read."""
        try:
            grant = convert.grant_in(pb.Grant(lease=convert.lease_out(lease), task=task))
        except convert.Unspeakable as error:
            log.warning("what %s runs cannot be read: %s", lease.job, error)
            self._failed(lease)
            return
        if grant.task is not None:
            self._tasks[lease] = task.SerializeToString()
            self._arrived(lease, grant.task)

    def _dial(self, address: str) -> grpc.aio.Channel:
        """A channel to a peer, as safe as the one to the server."""
        options = (
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            *GRPC_ASKING,
        )
        target = self._server.target
        if target is not None and target.tls and not is_loopback(address):
            credentials = grpc.ssl_channel_credentials(root_certificates=target.ca)
            return grpc.aio.secure_channel(address, credentials, options=options)
        return grpc.aio.insecure_channel(address, options=options)


class _Blobs:
    """Files that come in pieces, one after the other."""

    def __init__(self, files: Files | None) -> None:
        self._files = files
        self._digest = ""
        self._path: Path | None = None

    async def take(self, piece: pb.BlobPiece) -> None:
        """The next piece; one with a name begins the next file."""
        if piece.digest:
            await self.end()
            self._digest = piece.digest
            self._path = self._files.scratch() if self._files is not None else None
        if self._path is not None:
            await asyncio.to_thread(_append, self._path, piece.data)

    async def end(self) -> None:
        """Keep the file that came last."""
        path, self._path = self._path, None
        if path is not None and self._files is not None and not await self._files.adopt(self._digest, path):
            log.warning("a peer sent other bytes than those of %s", self._digest)

    async def drop(self) -> None:
        """Be rid of what did not come to its end."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _append(path: Path, data: bytes) -> None:
    """Write on, unless the file was deleted meanwhile."""
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(data)


def _digests(task: pb.Task) -> list[str]:
    """Of all files that a task needs."""
    needed = [file.digest for file in task.inputs]
    if task.WhichOneof("work") == "python":
        needed += [digest for digest in (task.python.function, task.python.items) if digest]
    return list(dict.fromkeys(needed))
