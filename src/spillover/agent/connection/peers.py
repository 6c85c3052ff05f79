"""Transfers tasks of moved leases between agents.

An agent asks the previous holder of a lease for the task, and the server if that fails. Only the server decides which
agent holds a lease. It gives both agents a ticket, which lets the new holder read the task.
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

from spillover.agent.connection import convert
from spillover.agent.connection.transfers import ServerAway, ServerTransfers, TransferRefused
from spillover.agent.files.cache import Files
from spillover.agent.leases.values import Fetch, Grant, Task
from spillover.core.events import Lease
from spillover.model.hosts import is_loopback
from spillover.wire import agents_pb2 as pb
from spillover.wire.keepalive import GRPC_ASKING, GRPC_SERVING
from spillover.wire.tasks import task_digest

SERVICE: Final = "spillover.agents.v1.Peers"
LOOPBACK: Final = "127.0.0.1:0"
KEPT: Final = 60.0
"""Seconds for which a task can be fetched after its lease was given up."""
PEER_LIMIT: Final = 10.0
"""Seconds that a peer may take to send its tasks, including their files."""
SERVER_LIMIT: Final = 5.0
"""Seconds that the server may take to send tasks."""
MOST: Final = 64
"""Most leases in one request."""
SPARE: Final = 64
"""Number of tasks to keep beyond those of waiting leases before old ones are dropped."""
MESSAGE_LIMIT: Final = 64 << 20

log = logging.getLogger("spillover.agent")


class Listening(Struct, frozen=True):
    """Where an agent listens for other agents."""

    address: str = LOOPBACK
    """HOST:PORT. Empty does not listen. Port 0 picks a free port."""
    cert: Path | None = None
    """Path of a PEM file; None serves without TLS, which is allowed on loopback only."""
    key: Path | None = None


class _Offered(NamedTuple):
    """A task that another agent may fetch."""

    ticket: bytes
    task: pb.Task
    until: float


class Peers:
    """Serves tasks to other agents, and fetches tasks from them."""

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
        """Encoded tasks of waiting leases. Keeping a whole message would keep all tasks that came with it."""
        self._offered: dict[Lease, _Offered] = {}
        """Tasks that others may fetch, the oldest first."""
        self._fetches: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Listen for other agents; return the address to publish, or an empty string if there is none."""
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
            log.warning("cannot serve tasks to other agents: %s", error)
            self._grpc = None
            return ""
        await self._grpc.start()
        host = self._listening.address.rpartition(":")[0]
        return f"{host}:{port}"

    async def close(self) -> None:
        """Stop serving, and cancel all fetches."""
        for fetch in tuple(self._fetches):
            fetch.cancel()
        await asyncio.gather(*self._fetches, return_exceptions=True)
        if self._grpc is not None:
            await self._grpc.stop(None)

    # --- serving

    def remember(self, grants: Iterable[tuple[Grant, pb.Grant]], waiting: Collection[Lease]) -> None:
        """Keep the tasks of waiting leases as the server sent them, because another agent may take them over."""
        for grant, sent in grants:
            if grant.task is not None and grant.lease in waiting:
                self._tasks[grant.lease] = sent.task.SerializeToString()
        if len(self._tasks) > 2 * len(waiting) + SPARE:
            self._tasks = {lease: task for lease, task in self._tasks.items() if lease in waiting}

    def offer(self, lease: Lease, ticket: bytes) -> None:
        """Let the holder of the ticket fetch the task of a lease that was given up."""
        self._forget_old()
        task = self._tasks.pop(lease, None)
        if task is not None:
            self._offered[lease] = _Offered(ticket, pb.Task.FromString(task), time.monotonic() + KEPT)

    def _forget_old(self) -> None:
        now = time.monotonic()
        for lease in [lease for lease, offered in self._offered.items() if offered.until <= now]:
            del self._offered[lease]

    async def _steal_jobs(self, request: pb.StealRequest, context: Any) -> AsyncIterator[pb.StealReply]:
        """Serve `StealJobs`: first all tasks, then their files."""
        self._forget_old()
        found = [self._wanted(each) for each in request.wanted[:MOST]]
        if None in found:  # one answer for both, so that nobody can find out which leases exist
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no task is offered for this ticket")
        for offered, wanted in zip(found, request.wanted, strict=False):
            if offered is not None:
                yield pb.StealReply(source=wanted.source, task=offered.task)
        for offered, wanted in zip(found, request.wanted, strict=False):
            if offered is not None:
                async for piece in self._pieces(offered.task):
                    yield pb.StealReply(source=wanted.source, blob=piece)

    def _wanted(self, wanted: pb.Peer) -> _Offered | None:
        """Return the task that a ticket gives access to; None if it gives none."""
        try:
            offered = self._offered.get(convert.lease_in(wanted.source))
        except convert.InvalidMessage:
            return None
        known = offered.ticket if offered is not None else b""
        same = hmac.compare_digest(known, wanted.ticket)
        return offered if same and known else None

    async def _pieces(self, task: pb.Task) -> AsyncIterator[pb.BlobPiece]:
        """Yield the files of a task that are in the cache, in pieces."""
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
        """Bind the port; raise RuntimeError or OSError if that fails."""
        if listening.cert is None or listening.key is None:
            if not is_loopback(listening.address):
                raise OSError(f"{listening.address} is not on loopback, and there is no certificate for it")
            return server.add_insecure_port(listening.address)
        pair = listening.key.read_bytes(), listening.cert.read_bytes()
        return server.add_secure_port(listening.address, grpc.ssl_server_credentials([pair]))

    # --- fetching

    def fetch(self, fetches: Sequence[Fetch]) -> None:
        """Fetch the tasks of leases that were taken over; `arrived` or `failed` receives each."""
        by_peer: dict[str, list[Fetch]] = {}
        for fetch in fetches:
            by_peer.setdefault(fetch.source.address, []).append(fetch)
        for address, some in by_peer.items():
            for first in range(0, len(some), MOST):
                asking = asyncio.create_task(self._ask(address, some[first : first + MOST]))
                self._fetches.add(asking)
                asking.add_done_callback(self._fetches.discard)

    async def _ask(self, address: str, fetches: Sequence[Fetch]) -> None:
        """Ask a peer for tasks, and the server for those that the peer did not send."""
        left = {fetch.source.lease: fetch.lease for fetch in fetches}
        try:
            async with asyncio.timeout(PEER_LIMIT):
                await self._ask_peer(address, fetches, left)
        except (grpc.aio.AioRpcError, TimeoutError, convert.InvalidMessage, OSError) as error:
            said = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error) or "no answer"
            if left:
                log.warning("agent at %s did not send %d tasks: %s", address, len(left), said)
        if left:
            await self._ask_server(list(left.values()))

    async def _ask_peer(self, address: str, fetches: Sequence[Fetch], left: dict[Lease, Lease]) -> None:
        """Ask the agent that gave the leases up; remove each task that it sends from `left`."""
        wanted = [
            pb.Peer(ticket=fetch.source.ticket, source=convert.lease_out(fetch.source.lease))
            for fetch in fetches
        ]
        digests = {fetch.source.lease: fetch.source.digest for fetch in fetches}
        tasks: dict[Lease, pb.Task] = {}
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
                            log.warning("agent at %s sent another task than that of %s", address, source.job)
                        else:
                            tasks[source] = reply.task
                    elif reply.HasField("blob"):
                        await blobs.take(reply.blob)
                await blobs.end()
            finally:
                await blobs.drop()
                # A task can run even if its files did not arrive, because the server has them as well.
                for source, task in tasks.items():
                    lease = left.pop(source, None)
                    if lease is not None:
                        self._tell(lease, task)

    async def _ask_server(self, leases: Sequence[Lease]) -> None:
        """Ask the server for tasks; fail those that it does not send either."""
        tasks: dict[Lease, pb.Task] = {}
        try:
            grants = await self._server.tasks([convert.lease_out(lease) for lease in leases], SERVER_LIMIT)
            tasks = {convert.lease_in(grant.lease): grant.task for grant in grants}
        except (ServerAway, TransferRefused, convert.InvalidMessage) as error:
            log.warning("the server did not send %d tasks: %s", len(leases), error)
        for lease in leases:
            if lease in tasks:
                self._tell(lease, tasks[lease])
            else:
                self._failed(lease)

    def _tell(self, lease: Lease, task: pb.Task) -> None:
        """Pass a task on if it can be decoded, else fail its lease."""
        try:
            grant = convert.grant_in(pb.Grant(lease=convert.lease_out(lease), task=task))
        except convert.InvalidMessage as error:
            log.warning("cannot read the spec of %s: %s", lease.job, error)
            self._failed(lease)
            return
        if grant.task is not None:
            self._tasks[lease] = task.SerializeToString()
            self._arrived(lease, grant.task)

    def _dial(self, address: str) -> grpc.aio.Channel:
        """Open a channel to a peer, with TLS if the server uses TLS and the peer is not on loopback."""
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
    """Receives files in pieces, one file after the other."""

    def __init__(self, files: Files | None) -> None:
        self._files = files
        self._digest = ""
        self._path: Path | None = None

    async def take(self, piece: pb.BlobPiece) -> None:
        """Store the next piece. A piece with a digest begins the next file."""
        if piece.digest:
            await self.end()
            self._digest = piece.digest
            self._path = self._files.scratch() if self._files is not None else None
        if self._path is not None:
            await asyncio.to_thread(_append, self._path, piece.data)

    async def end(self) -> None:
        """Add the last file to the cache, if it is complete and correct."""
        path, self._path = self._path, None
        if path is not None and self._files is not None and not await self._files.adopt(self._digest, path):
            log.warning("a peer sent bytes that do not match the digest %s", self._digest)

    async def drop(self) -> None:
        """Delete a file that is incomplete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _append(path: Path, data: bytes) -> None:
    """Append to a file; raise FileNotFoundError if it was deleted meanwhile."""
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(data)


def _digests(task: pb.Task) -> list[str]:
    """Return the digests of all files that a task needs."""
    needed = [file.digest for file in task.inputs]
    if task.HasField("stdin"):
        needed.append(task.stdin.digest)
    if task.saved:
        needed.append(task.saved)
    if task.WhichOneof("work") == "python":
        needed += [digest for digest in (task.python.function, task.python.items) if digest]
        needed += [each.digest for each in task.python.values if each.digest]
    return list(dict.fromkeys(needed))
