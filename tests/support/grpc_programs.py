"""Programs that talk to a server over real gRPC, on the real inside of the server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import msgspec
import pytest
from msgspec.structs import replace

from spillover.api.grpc.agents import AgentsService, serve_agents
from spillover.api.grpc.jobs import SERVICE, JobsService
from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.core.events import Usage
from spillover.core.proposals import (
    Outcome,
    Result,
    Started,
    StartEpoch,
)
from spillover.core.records.jobs import Placed, Running
from spillover.model import inside as machine
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole
from spillover.model.topology import Level
from spillover.model.units import DAY, SECOND
from spillover.ports.callers import ADMIN, Caller, Stranger
from spillover.testing.world import OWNED, RENTED
from spillover.wire import jobs_pb2 as pb
from tests.support.inside import Inside, leading

CALLERS = {
    "admin": ADMIN,
    "vision": Caller(TokenRole.SUBMIT, "t1", "mira", "vision"),
    "agent": Caller(TokenRole.AGENT, "t2"),
    "other": Caller(TokenRole.SUBMIT, "t3", "bob", "vision"),
    "reader": Caller(TokenRole.READ, "t4"),
}
S = pb.JobState


class Known:
    """Tokens that are names."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    def caller(self, shown: str) -> Caller:
        if shown not in CALLERS:
            raise Stranger("the token is invalid")
        return CALLERS[shown]

    def is_valid(self, token: str) -> bool:
        return token not in self.revoked


class Program:
    """Somebody's program, with a stub made of the messages alone."""

    def __init__(
        self, channel: grpc.aio.Channel, control: Inside, known: Known, requests: AgentRequests
    ) -> None:
        self.channel = channel
        self._requests = requests
        self.known = known
        self.control = control

    async def join_gpus(self) -> None:
        """Let machines of two sockets with linked GPUs join, in two racks of a zone."""
        inside = machine.Inside(
            (machine.Domain(0, ("0-3",), ("0", "1")), machine.Domain(1, ("4-7",), ("2", "3"))),
            ("0", "1", "2", "3"),
            (machine.Link("nvlink", ("0", "1")), machine.Link("nvlink", ("2", "3"))),
        )
        for number in (1, 2):
            labels = {"example.com/zone": "z", "example.com/rack": f"r{number}"}
            node = Introduction(
                ClusterName("onprem"),
                NodeName(f"gpu{number}"),
                Resources(8000, 2**40, 4),
                (),
                labels,
                0,
                (),
                0,
                gangs=True,
                inside=inside,
            )
            await self._requests.register(node)

    async def ask(self, method: str, request: Any, reply: Any, token: str = "admin", **more: str) -> Any:
        call = self.channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        metadata = (
            ("authorization", f"Bearer {token}"),
            *((name.replace("_", "-"), text) for name, text in more.items()),
        )
        return await call(request, metadata=metadata if token else ())

    async def submit(self, *jobs: pb.NewJob, token: str = "admin", **more: str) -> list[str]:
        reply = await self.ask("SubmitJob", pb.SubmitJobRequest(jobs=jobs), pb.SubmitJobReply, token, **more)
        return list(reply.jobs)

    async def status(self, *jobs: str, token: str = "admin") -> list[pb.JobStatus]:
        reply = await self.ask("GetJobStatus", pb.GetJobStatusRequest(jobs=jobs), pb.GetJobStatusReply, token)
        return list(reply.jobs)

    async def cancel(self, *jobs: str, token: str = "admin") -> list[str]:
        reply = await self.ask("CancelJob", pb.CancelJobRequest(jobs=jobs), pb.CancelJobReply, token)
        return list(reply.jobs)

    def watch(self, *jobs: str, token: str = "admin", **fields: Any) -> Any:
        call = self.channel.unary_stream(
            f"/{SERVICE}/WatchJobs",
            request_serializer=pb.WatchJobsRequest.SerializeToString,
            response_deserializer=pb.WatchJobsReply.FromString,
        )
        return call(
            pb.WatchJobsRequest(jobs=jobs, **fields), metadata=(("authorization", f"Bearer {token}"),)
        )

    async def start(self, job: str) -> None:
        found = self.control.loop.state.jobs[JobId(job)]
        assert isinstance(found.phase, Placed)
        await self.control.propose(Started(found.phase.key, found.lease, 0))

    async def end(self, job: str, code: int = 0) -> None:
        found = self.control.loop.state.jobs[JobId(job)]
        assert isinstance(found.phase, Placed | Running)
        usage = Usage(SECOND)
        await self.control.propose(Result(found.phase.key, found.lease, Outcome.EXITED, code, None, usage, 0))


@asynccontextmanager
async def a_program() -> AsyncIterator[Program]:
    """A program and its server, with one machine of two CPUs."""
    async with leading() as control:
        hub = Hub()
        requests = AgentRequests(control.loop, hub, DAY)
        levels = (Level("zone", "example.com/zone"), Level("rack", "example.com/rack"))
        clusters = (replace(OWNED, gangs=True, levels=levels), RENTED)
        await control.propose(StartEpoch(control.loop.epoch, clusters, PolicySet(wait=Choice("never"))))
        node = Introduction(
            ClusterName("onprem"), NodeName("n1"), Resources(2000, 2**40), (), {}, 0, (), 0, gangs=True
        )
        await requests.register(node)
        parts = Parts(
            control.loop,
            control.store.journal,
            control.store.archive,
            hub,
            control.specs,
            control.lookup,
            control.submitting,
        )
        known = Known()
        service = JobsService(LiveCommands(parts).of, known)
        agents = AgentsService(requests, hub, "of-agents", lambda: control.loop.epoch)
        server, port = await serve_agents(agents, "127.0.0.1:0", None, [service])
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Program(channel, control, known, requests)
        finally:
            await server.stop(0)


def job(name: str = "train", **fields: Any) -> pb.NewJob:
    return pb.NewJob(job=pb.Job(name=name, **({"run": "true"} | fields)))


def document(**spec: Any) -> pb.NewJob:
    doc = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": "doc"},
        "spec": {"run": "true"} | spec,
    }
    return pb.NewJob(document=msgspec.json.encode(doc).decode())


async def refused(call: Any) -> tuple[grpc.StatusCode, str, dict[str, Any]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing: Any = caught.value.trailing_metadata()
    return caught.value.code(), caught.value.details() or "", dict(trailing)
