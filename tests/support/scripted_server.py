"""A server for agents that follows the script of a test: real gRPC, no scheduler."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc

from spillover.model.units import MINUTE, SECOND
from spillover.wire import agents_pb2 as pb

_SERVICE: Final = "spillover.agents.v1.Agents"
TOKEN: Final = "scripted"

Key = tuple[str, int, int, int]
"""Job, attempt, seq and task of a lease."""


def key_of(lease: pb.Lease) -> Key:
    """Return a lease as a hashable key."""
    return (lease.job, lease.attempt, lease.seq, lease.task)


class ScriptedServer:
    """Records what agents report, and answers as scripted."""

    def __init__(self, data: Path, *, epoch: int = 1) -> None:
        self.data = data
        self.epoch = epoch
        self.heartbeat = SECOND // 5
        self.short_term = 30 * SECOND
        self.keeps: Callable[[pb.Lease], bool] = lambda _: True
        """Which of the reported leases the agent may keep."""
        self.verdict: Callable[[pb.TaskResult], int] | None = None
        """The verdict on a result; None accepts the first result of each lease."""
        self.acknowledges = True
        """Whether starts are acknowledged."""
        self.silent = False
        """Whether heartbeats and registrations get no answer."""
        self.streams = True
        """Whether agents may renew on their stream; older servers do not support it."""
        self.attended = 0
        """Number of such streams so far."""
        self.next_heartbeat: list[pb.HeartbeatReply] = []
        """Answers to the next heartbeats; plain answers follow."""
        self.registrations: list[pb.RegisterRequest] = []
        self.heartbeats = 0
        self.last_heartbeat = pb.HeartbeatRequest()
        self.reports = 0
        self.started: Counter[Key] = Counter()
        self.results: dict[Key, pb.TaskResult] = {}
        """The first result of each lease."""
        self.told: Counter[Key] = Counter()
        """How often each result was reported."""
        self.released: Counter[Key] = Counter()
        self.prepared: dict[Key, pb.PreparedTask] = {}
        """Tasks of gangs that wait for the word to start."""
        self.output: dict[int, bytearray] = {}
        self.output_ended: dict[int, str] = {}
        """Ended requests for output, with their errors."""
        self.secrets: dict[str, bytes] = {}
        """The secrets of all tasks."""
        self.uploads = 0
        """Number of uploads that agents began."""
        self.taking = asyncio.Event()
        """While it is not set, uploads get no answer."""
        self.taking.set()
        self.incarnation = 0
        self._queues: dict[int, asyncio.Queue[pb.FromServer | None]] = {}
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on a free port, and publish the address."""
        server = grpc.aio.server()
        unary: dict[str, tuple[Any, Any]] = {
            "Register": (self._register, pb.RegisterRequest),
            "Heartbeat": (self._heartbeat, pb.HeartbeatRequest),
            "Report": (self._report, pb.ReportRequest),
            "GetSecrets": (self._get_secrets, pb.SecretsRequest),
        }
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(call, request.FromString, _serialize)
            for name, (call, request) in unary.items()
        }
        handlers["Listen"] = grpc.unary_stream_rpc_method_handler(
            self._listen, pb.ListenRequest.FromString, _serialize
        )
        handlers["Session"] = grpc.stream_stream_rpc_method_handler(
            self._session, pb.HeartbeatRequest.FromString, _serialize
        )
        handlers["Output"] = grpc.stream_unary_rpc_method_handler(
            self._output, pb.OutputChunk.FromString, _serialize
        )
        handlers["PutBlob"] = grpc.stream_unary_rpc_method_handler(
            self._put_blob, pb.BlobPiece.FromString, _serialize
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._server = server
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "token").write_text(TOKEN)
        described = {"grpc": f"127.0.0.1:{port}", "http": "", "epoch": self.epoch, "pid": 0}
        new = self.data / "server.json.new"
        new.write_text(json.dumps(described))
        new.replace(self.data / "server.json")

    async def stop(self) -> None:
        """Stop at once, as if killed."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def until(self, holds: Callable[[], bool], seconds: float = 20) -> None:
        """Wait until a condition holds; check it after every message of an agent."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(holds)

    async def connected(self) -> None:
        """Wait until the agent of the last registration listens."""
        await self.until(lambda: self.incarnation > 0 and self.incarnation in self._queues)

    def grant(self, *grants: pb.Grant, incarnation: int | None = None, epoch: int | None = None) -> None:
        """Send leases, by default on the current stream."""
        message = pb.FromServer(epoch=self.epoch if epoch is None else epoch, grants=grants)
        self._queues[incarnation or self.incarnation].put_nowait(message)

    def start_gang(self, lease: pb.Lease, tasks: int) -> None:
        """Give the word to start a gang, all of whose tasks are on one agent."""
        start = pb.GangStart(
            job=lease.job,
            attempt=lease.attempt,
            seq=lease.seq,
            nodes=["n1"] * tasks,
            hosts=["127.0.0.1"] * tasks,
            port=1,
            ports=[1] * tasks,
        )
        self._queues[self.incarnation].put_nowait(pb.FromServer(epoch=self.epoch, gangs=[start]))

    def read(self, read: pb.OutputRead) -> None:
        """Request output."""
        self.output[read.id] = bytearray()
        self._queues[self.incarnation].put_nowait(pb.FromServer(epoch=self.epoch, reads=[read]))

    def order(self, reply: pb.HeartbeatReply) -> None:
        """Answer the next heartbeat with this, and request it now."""
        self.next_heartbeat.append(reply)
        self._queues[self.incarnation].put_nowait(pb.FromServer(epoch=self.epoch, heartbeat_now=True))

    def replace(self) -> None:
        """Simulate the registration of another agent with the same name."""
        self._queues[self.incarnation].put_nowait(None)
        self.incarnation += 1

    # --- calls

    async def _register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterReply:
        await self._check(context)
        self.incarnation += 1
        self.registrations.append(request)
        await self._notify()
        return pb.RegisterReply(
            epoch=self.epoch,
            incarnation=self.incarnation,
            keep=[held.lease for held in request.held if self.keeps(held.lease)],
            heartbeat=self.heartbeat,
            short_term=self.short_term,
            log_retention=MINUTE,
            stream=request.stream and self.streams,
        )

    async def _listen(self, request: pb.ListenRequest, context: Any) -> AsyncIterator[pb.FromServer]:
        await self._check(context)
        queue: asyncio.Queue[pb.FromServer | None] = asyncio.Queue()
        self._queues[request.incarnation] = queue
        await self._notify()
        while (message := await queue.get()) is not None:
            yield message

    async def _session(
        self, heartbeats: AsyncIterator[pb.HeartbeatRequest], context: Any
    ) -> AsyncIterator[pb.FromServer]:
        await self._check(context)
        self.attended += 1
        queue: asyncio.Queue[pb.FromServer | None] = asyncio.Queue()
        self._queues[self.incarnation] = queue
        answering = asyncio.create_task(self._answer(heartbeats, queue))
        await self._notify()
        try:
            while (message := await queue.get()) is not None:
                yield message
            fenced = pb.HeartbeatReply(epoch=self.epoch, fenced=True)
            yield pb.FromServer(epoch=self.epoch, renewed=fenced)
        finally:
            answering.cancel()

    async def _answer(
        self, heartbeats: AsyncIterator[pb.HeartbeatRequest], queue: "asyncio.Queue[pb.FromServer | None]"
    ) -> None:
        """Answer the heartbeats of a stream."""
        async for request in heartbeats:
            if not self.silent:
                reply = await self._renewed(request)
                queue.put_nowait(pb.FromServer(epoch=self.epoch, renewed=reply))

    async def _heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatReply:
        await self._check(context)
        return await self._renewed(request)

    async def _renewed(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        self.heartbeats += 1
        self.last_heartbeat = request
        await self._notify()
        if self.next_heartbeat:
            return self.next_heartbeat.pop(0)
        return pb.HeartbeatReply(epoch=self.epoch, fenced=request.incarnation != self.incarnation)

    async def _get_secrets(self, request: pb.SecretsRequest, _: Any) -> pb.SecretsReply:
        del request
        return pb.SecretsReply(
            secrets=[pb.SecretValue(name=name, value=value) for name, value in self.secrets.items()]
        )

    async def _report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        await self._check(context)
        self.reports += 1
        answers = []
        for result in request.results:
            key = key_of(result.lease)
            verdict = pb.DUPLICATE if key in self.results else pb.ACCEPTED
            if self.verdict is not None:
                answers.append(pb.Answer(lease=result.lease, verdict=pb.Verdict.Name(self.verdict(result))))
            else:
                answers.append(pb.Answer(lease=result.lease, verdict=verdict))
            self.results.setdefault(key, result)
            self.told[key] += 1
        self.started.update(key_of(start.lease) for start in request.started)
        self.released.update(map(key_of, request.released))
        self.prepared |= {key_of(task.lease): task for task in request.prepared}
        await self._notify()
        return pb.ReportReply(
            epoch=self.epoch,
            fenced=request.incarnation != self.incarnation,
            results=answers,
            started=[start.lease for start in request.started] if self.acknowledges else [],
        )

    async def _output(self, chunks: AsyncIterator[pb.OutputChunk], context: Any) -> pb.OutputReply:
        await self._check(context)
        async for chunk in chunks:
            self.output[chunk.id] += chunk.data
            if chunk.end:
                self.output_ended[chunk.id] = chunk.error
            await self._notify()
        return pb.OutputReply()

    async def _put_blob(self, pieces: AsyncIterator[pb.BlobPiece], context: Any) -> pb.BlobReply:
        await self._check(context)
        self.uploads += 1
        await self._notify()
        async for _ in pieces:
            pass
        await self.taking.wait()
        return pb.BlobReply()

    async def _check(self, context: Any) -> None:
        """Refuse callers without the token; never answer while silent."""
        if ("authorization", f"Bearer {TOKEN}") not in tuple(context.invocation_metadata()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no valid token")
        if self.silent:
            await asyncio.Event().wait()

    async def _notify(self) -> None:
        """Wake those who wait in `until`."""
        async with self._changed:
            self._changed.notify_all()


def _serialize(message: Any) -> bytes:
    """Serialize a message."""
    return bytes(message.SerializeToString())
