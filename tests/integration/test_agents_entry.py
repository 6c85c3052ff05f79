"""Who may speak as an agent, over real gRPC: tokens let one register, and sessions keep agents from speaking for each other."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from spillover.api.grpc.agent_checks import PROTOCOL
from spillover.api.grpc.agents import SERVICE, AgentsService, serve_agents
from spillover.api.grpc.entry import SESSION
from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests
from spillover.control.requests.tokens import Tokens
from spillover.core.events import Lease
from spillover.core.records.jobs import Placed
from spillover.model.ids import JobId
from spillover.model.units import DAY
from spillover.ports.cluster import OutputAsked
from spillover.wire import agents_pb2 as pb
from spillover.wire.api import TokenRequest
from tests.support.inside import Inside, leading
from tests.support.waiting import until

OWN = "the-token-of-the-server"
METHODS: dict[str, tuple[str, Any, Any]] = {
    "Register": ("unary_unary", pb.RegisterRequest, pb.RegisterReply),
    "Heartbeat": ("unary_unary", pb.HeartbeatRequest, pb.HeartbeatReply),
    "Report": ("unary_unary", pb.ReportRequest, pb.ReportReply),
    "GetTasks": ("unary_unary", pb.TasksRequest, pb.TasksReply),
    "GetSecrets": ("unary_unary", pb.SecretsRequest, pb.SecretsReply),
    "Listen": ("unary_stream", pb.ListenRequest, pb.FromServer),
    "Session": ("stream_stream", pb.HeartbeatRequest, pb.FromServer),
    "Join": ("stream_stream", pb.HeartbeatRequest, pb.FromServer),
    "GetBlob": ("unary_stream", pb.BlobRequest, pb.BlobPiece),
    "Output": ("stream_unary", pb.OutputChunk, pb.OutputReply),
    "PutBlob": ("stream_unary", pb.BlobPiece, pb.BlobReply),
    "Relay": ("stream_stream", pb.RelayPiece, pb.RelayPiece),
}
LATER = sorted(METHODS.keys() - {"Register", "Join"})


class Agent:
    """One agent's end of the wire."""

    def __init__(self, house: "House", token: str, incarnation: int = 0, session: bytes = b"") -> None:
        self.house = house
        self.token = token
        self.incarnation = incarnation
        self.session = session

    def metadata(self) -> Any:
        return (("authorization", f"Bearer {self.token}"), (SESSION, self.session))

    async def heartbeat(self, incarnation: int | None = None) -> pb.HeartbeatReply:
        request = pb.HeartbeatRequest(incarnation=self.incarnation if incarnation is None else incarnation)
        reply: pb.HeartbeatReply = await self.house.call("Heartbeat", request, self.metadata())
        return reply

    def listen(self, incarnation: int | None = None) -> Any:
        request = pb.ListenRequest(incarnation=self.incarnation if incarnation is None else incarnation)
        return self.house.stub("Listen")(request, metadata=self.metadata(), timeout=20)

    async def report(self, lease: Lease, incarnation: int | None = None) -> pb.ReportReply:
        told = pb.Lease(job=lease.job, attempt=lease.attempt, seq=lease.seq)
        request = pb.ReportRequest(
            incarnation=self.incarnation if incarnation is None else incarnation,
            results=[pb.TaskResult(lease=told, exit_code=0)],
        )
        reply: pb.ReportReply = await self.house.call("Report", request, self.metadata())
        return reply


class House:
    """A server with its tokens, seen by agents."""

    def __init__(self, control: Inside, tokens: Tokens, hub: Hub, channel: grpc.aio.Channel) -> None:
        self.control = control
        self.tokens = tokens
        self.hub = hub
        self._channel = channel

    def stub(self, method: str) -> Any:
        kind, request, reply = METHODS[method]
        return getattr(self._channel, kind)(
            f"/{SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=reply.FromString,
        )

    async def call(self, method: str, request: Any, metadata: Any) -> Any:
        """Call any method with one message, and take one answer."""
        kind = METHODS[method][0]
        if kind == "unary_stream":
            return await self.stub(method)(request, metadata=metadata, timeout=10).read()
        if kind == "stream_unary":
            return await self.stub(method)(iter([request]), metadata=metadata, timeout=10)
        if kind == "stream_stream":
            return await self.stub(method)(iter([request]), metadata=metadata, timeout=10).read()
        return await self.stub(method)(request, metadata=metadata, timeout=10)

    async def token(self, role: Any = "agent", **limits: Any) -> str:
        return (await self.tokens.create(TokenRequest(role, **limits), "ada")).token

    async def join(self, name: str, token: str, *, cluster: str = "onprem") -> Agent:
        request = pb.RegisterRequest(
            protocol=PROTOCOL, cluster=cluster, name=name, capacity=pb.Resources(cpu=1000, memory=2**40)
        )
        reply = await self.call("Register", request, (("authorization", f"Bearer {token}"),))
        return Agent(self, token, reply.incarnation, reply.session)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with leading() as control:
        hub, tokens = Hub(), Tokens(OWN, control.loop)
        runner = LeaseSender(control.loop, hub, control.specs)
        running = asyncio.create_task(runner.run())
        service = AgentsService(
            AgentRequests(control.loop, hub, DAY), hub, tokens, lambda: control.loop.epoch
        )
        server, port = await serve_agents(service, "127.0.0.1:0")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield House(control, tokens, hub, channel)
        await server.stop(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def denied(call: Any, code: grpc.StatusCode) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert refused.value.code() is code, refused.value.details()
    return str(refused.value.details())


async def connected(house: House, *names: str) -> None:
    """Wait until agents listen."""

    def all_listen() -> bool:
        contacts = [house.hub.contact(f"onprem/{name}") for name in names]
        return all(contact is not None and contact.connected for contact in contacts)

    await until(all_listen, "the connection of agents")


def placed(house: House, job: str) -> Lease:
    found = house.control.loop.state.jobs[JobId(job)]
    assert isinstance(found.phase, Placed)
    return found.lease


def test_every_method_is_tried_here() -> None:
    assert {method.name for method in pb.DESCRIPTOR.services_by_name["Agents"].methods} == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
async def test_no_call_without_a_token_nor_with_one_that_is_not_for_agents(house: House, method: str) -> None:
    request = METHODS[method][1]()
    for metadata in ((), (("authorization", ""),), (("authorization", "Bearer nonsense"),)):
        told = await denied(house.call(method, request, metadata), grpc.StatusCode.UNAUTHENTICATED)
        assert "nonsense" not in told
    text = await house.token("submit", project="vision")
    shown = (("authorization", f"Bearer {text}"), (SESSION, bytes(40)))
    told = await denied(house.call(method, request, shown), grpc.StatusCode.PERMISSION_DENIED)
    assert told.startswith("agents cannot use a token of role submit")
    assert text not in told


@pytest.mark.parametrize("method", LATER)
async def test_no_call_without_the_session_of_a_registration(house: House, method: str) -> None:
    agent = await house.join("n1", await house.token())
    request = METHODS[method][1]()
    bearer = ("authorization", f"Bearer {agent.token}")
    for session in ((), ((SESSION, b""),), ((SESSION, b"short"),)):
        told = await denied(
            house.call(method, request, (bearer, *session)), grpc.StatusCode.PERMISSION_DENIED
        )
        assert SESSION in told
    forged = agent.session[:-1] + bytes([agent.session[-1] ^ 1])
    if hasattr(request, "incarnation") and method != "Output":
        request.incarnation = agent.incarnation
    told = await denied(
        house.call(method, request, (bearer, (SESSION, forged))), grpc.StatusCode.PERMISSION_DENIED
    )
    assert told == "this registration belongs to another agent"


async def test_sessions_of_two_registrations_differ_and_each_is_good_for_its_own(house: House) -> None:
    token = await house.token()
    first, second = await house.join("n1", token), await house.join("n2", token)
    assert first.session != second.session
    assert not (await first.heartbeat()).fenced
    assert not (await second.heartbeat()).fenced
    for call in (
        first.heartbeat(second.incarnation),
        first.listen(second.incarnation).read(),
        first.report(Lease(JobId("a"), 1, 1), second.incarnation),
    ):
        await denied(call, grpc.StatusCode.PERMISSION_DENIED)


async def test_a_session_is_of_no_use_with_another_token(house: House) -> None:
    agent = await house.join("n1", await house.token())
    agent.token = await house.token()
    await denied(agent.heartbeat(), grpc.StatusCode.PERMISSION_DENIED)


async def test_an_old_session_is_told_that_it_is_fenced(house: House) -> None:
    token = await house.token()
    old = await house.join("n1", token)
    await house.join("n1", token)
    assert (await old.heartbeat()).fenced
    await denied(old.listen().read(), grpc.StatusCode.UNAVAILABLE)


async def test_an_agent_cannot_report_for_the_lease_of_another(house: House) -> None:
    token = await house.token()
    owner = await house.join("n1", token)
    (job,) = await house.control.submit("train")
    thief = await house.join("n2", token)
    lease = placed(house, job)
    reply = await thief.report(lease)
    assert [answer.verdict for answer in reply.results] == [pb.FENCED]
    assert placed(house, job) == lease
    reply = await owner.report(lease)
    assert [answer.verdict for answer in reply.results] == [pb.ACCEPTED]


async def test_an_agent_of_the_same_name_in_another_cluster_cannot_either(house: House) -> None:
    await house.join("n1", await house.token(cluster="onprem"))
    (job,) = await house.control.submit("train")
    lease = placed(house, job)
    namesake = await house.join("n1", await house.token(cluster="cloud"), cluster="cloud")
    reply = await namesake.report(lease)
    assert [answer.verdict for answer in reply.results] == [pb.FENCED]
    assert placed(house, job) == lease


async def test_an_agent_cannot_answer_for_output_that_another_was_asked_for(house: House) -> None:
    token = await house.token()
    asked, other = await house.join("n1", token), await house.join("n2", token)
    stream = asked.listen()
    reading = asyncio.ensure_future(stream.read())
    await connected(house, "n1")
    pieces: list[bytes] = []

    async def read() -> None:
        wanted = OutputAsked(Lease(JobId("a"), 1, 1), stderr=False, offset=0, follow=False)
        pieces.extend([piece async for piece in house.hub.output("onprem/n1", wanted)])

    reader = asyncio.create_task(read())
    number = (await reading).reads[0].id
    for agent, incarnation, data, end in (
        (other, other.incarnation, b"forged", False),
        (other, asked.incarnation, b"forged", False),
        (asked, asked.incarnation, b"true", True),
    ):
        chunk = pb.OutputChunk(incarnation=incarnation, id=number, data=data, end=end)
        await house.call("Output", chunk, agent.metadata())
    await reader
    assert pieces == [b"true"]
    stream.cancel()


async def test_a_token_of_a_cluster_is_for_agents_of_that_cluster(house: House) -> None:
    token = await house.token(cluster="onprem")
    await house.join("n1", token)
    told = await denied(house.join("v1", token, cluster="cloud"), grpc.StatusCode.PERMISSION_DENIED)
    assert "is for agents of cluster 'onprem', not 'cloud'" in told
    assert token not in told


async def test_revoking_a_token_ends_the_sessions_of_its_agents_and_of_no_others(house: House) -> None:
    gone, stays = await house.join("n1", await house.token()), await house.join("n2", await house.token())
    ending, lasting = gone.listen(), stays.listen()
    reading = asyncio.ensure_future(ending.read())
    other = asyncio.ensure_future(lasting.read())
    await connected(house, "n1", "n2")
    await house.tokens.revoke(gone.token.split("_")[1], "ada")
    assert await denied(reading, grpc.StatusCode.UNAUTHENTICATED) == "the token is no longer valid"
    told = await denied(gone.heartbeat(), grpc.StatusCode.UNAUTHENTICATED)
    assert "was revoked" in told
    await denied(house.join("n1", gone.token), grpc.StatusCode.UNAUTHENTICATED)
    assert not other.done()
    assert not (await stays.heartbeat()).fenced
    lasting.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_a_stream_ends_with_the_token_of_its_agent(house: House) -> None:
    expires, gone = await house.token(expires_s=60), await house.token()
    streams = []
    for name, token in (("n1", expires), ("n2", gone)):
        stream = house.stub("Session")(metadata=(await house.join(name, token)).metadata(), timeout=20)
        await stream.write(pb.HeartbeatRequest())
        assert not (await stream.read()).renewed.fenced
        streams.append(stream)
    house.control.clock.pass_by(61)
    await streams[0].write(pb.HeartbeatRequest())
    await house.tokens.revoke(gone.split("_")[1], "ada")
    for stream in streams:
        told = await denied(stream.read(), grpc.StatusCode.UNAUTHENTICATED)
        assert told == "the token is no longer valid"


async def test_an_agent_whose_token_expires_is_given_nothing_more(house: House) -> None:
    agent = await house.join("n1", await house.token(expires_s=60))
    stream = agent.listen()
    reading = asyncio.ensure_future(stream.read())
    await connected(house, "n1")
    house.control.clock.pass_by(61)
    await house.control.submit("train")
    assert await denied(reading, grpc.StatusCode.UNAUTHENTICATED) == "the token is no longer valid"
    assert "has expired" in await denied(agent.heartbeat(), grpc.StatusCode.UNAUTHENTICATED)


async def test_the_token_of_the_server_is_good_for_agents_and_takes_any_name(house: House) -> None:
    await house.join("n1", await house.token())
    agent = await house.join("n1", OWN)
    assert not (await agent.heartbeat()).fenced
