"""A well-behaved agent: runs and reports its tasks at once. If its job does not end, other input is the cause."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Final, Self

import grpc

from spillover.api.grpc.agent_checks import PROTOCOL
from spillover.api.grpc.agents import SERVICE
from spillover.api.grpc.entry import SESSION
from spillover.wire import agents_pb2 as pb

LIMIT: Final = 30.0
"""Seconds that one call may take."""


class Canary:
    """Stays registered while the block runs."""

    def __init__(self, address: str, token: str, cluster: str, name: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._metadata: Any = (("authorization", f"Bearer {token}"),)
        self._request = pb.RegisterRequest(
            protocol=PROTOCOL,
            cluster=cluster,
            name=name,
            life=name,
            number=1,
            capacity=pb.Resources(cpu=1000, memory=1 << 40),
        )
        self._incarnation = 0
        self._working: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()
        """Set once it has started a task."""
        self.trouble: str = "none"
        """The error that ended its last call."""

    async def __aenter__(self) -> Self:
        reply = await self.call("Register", self._request, pb.RegisterReply)
        self._incarnation = reply.incarnation
        self._metadata = (*self._metadata, (SESSION, reply.session))
        self._working = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        with contextlib.suppress(grpc.aio.AioRpcError):
            leaving = pb.ReportRequest(incarnation=self._incarnation, leaving=True)
            await self.call("Report", leaving, pb.ReportReply)
        await self._channel.close(None)

    async def call(self, method: str, request: Any, kind: Any) -> Any:
        """Call a method of the server."""
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return await call(request, metadata=self._metadata, timeout=LIMIT)

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen())
                group.create_task(self._beat())
        except* grpc.aio.AioRpcError as errors:
            self.trouble = str(errors.exceptions[0])

    async def _listen(self) -> None:
        listen = self._channel.unary_stream(
            f"/{SERVICE}/Listen",
            request_serializer=pb.ListenRequest.SerializeToString,
            response_deserializer=pb.FromServer.FromString,
        )
        async for message in listen(pb.ListenRequest(incarnation=self._incarnation), metadata=self._metadata):
            if message.grants:
                await self._run([grant.lease for grant in message.grants])

    async def _run(self, leases: list[pb.Lease]) -> None:
        report = pb.ReportRequest(
            incarnation=self._incarnation,
            started=[pb.StartedTask(lease=lease) for lease in leases],
            results=[
                pb.TaskResult(lease=lease, outcome=pb.EXITED, exit_code=0, ran=1_000_000) for lease in leases
            ],
        )
        await self.call("Report", report, pb.ReportReply)

    async def begin(self, leases: list[pb.Lease]) -> None:
        """Report that tasks run, and nothing more."""
        started = [pb.StartedTask(lease=lease) for lease in leases]
        await self.call(
            "Report", pb.ReportRequest(incarnation=self._incarnation, started=started), pb.ReportReply
        )
        self.begun.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1)
            await self.call(
                "Heartbeat", pb.HeartbeatRequest(incarnation=self._incarnation), pb.HeartbeatReply
            )
