"""The agents' service over real gRPC: what is granted arrives, whatever its size, and a name has one owner."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec import structs

from spillover.api.grpc import agents
from spillover.api.grpc import blobs as sending
from spillover.api.grpc.agent_checks import PROTOCOL
from spillover.api.grpc.agents import SERVICE, AgentsService, serve_agents
from spillover.api.grpc.entry import SESSION
from spillover.api.grpc.methods import MOST_MESSAGE
from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests
from spillover.core.events import JobState
from spillover.core.proposals import Act, AgentGone, Change, Register
from spillover.core.records.jobs import Ended, Placed
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.stores.blobs import FileBlobs
from spillover.wire import agents_pb2 as pb
from tests.support.inside import Inside, form, leading
from tests.support.waiting import until

TOKEN = "a-token-for-tests"
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
METADATA = (("authorization", f"Bearer {TOKEN}"),)
INTRODUCTION = pb.RegisterRequest(
    protocol=PROTOCOL,
    cluster="onprem",
    name="n1",
    capacity=pb.Resources(cpu=1000, memory=2**40),
    stream=True,
)


class Wire:
    """An agent's end of the wire."""

    def __init__(self, channel: grpc.aio.Channel, control: Inside, hub: Hub) -> None:
        self._channel = channel
        self.hub = hub
        self.control = control
        self.hub = hub
        self.sessions: dict[int, bytes] = {}
        """Of each registration."""

    async def register(self, cluster: str, name: str, *, cpus: int = 1, offers: tuple[str, ...] = ()) -> int:
        request = pb.RegisterRequest(
            protocol=PROTOCOL,
            cluster=cluster,
            name=name,
            capacity=pb.Resources(cpu=cpus * 1000, memory=2**40),
            offers=offers,
        )
        reply = await self.unary("Register", request, pb.RegisterReply, METADATA)
        self.sessions[reply.incarnation] = reply.session
        return int(reply.incarnation)

    def metadata(self, incarnation: int | None = None) -> Any:
        """What calls of a registration carry, of the last if none is named."""
        return (*METADATA, (SESSION, self.sessions[incarnation or max(self.sessions)]))

    async def report(self, request: pb.ReportRequest) -> pb.ReportReply:
        metadata = self.metadata(request.incarnation)
        reply: pb.ReportReply = await self.unary("Report", request, pb.ReportReply, metadata)
        return reply

    def listen(self, incarnation: int) -> "grpc.aio.UnaryStreamCall[pb.ListenRequest, pb.FromServer]":
        call = self._channel.unary_stream(
            f"/{SERVICE}/Listen",
            request_serializer=pb.ListenRequest.SerializeToString,
            response_deserializer=pb.FromServer.FromString,
        )
        return call(pb.ListenRequest(incarnation=incarnation), metadata=self.metadata(incarnation))

    def session(self, incarnation: int) -> Any:
        call: Any = self._channel.stream_stream(
            f"/{SERVICE}/Session",
            request_serializer=pb.HeartbeatRequest.SerializeToString,
            response_deserializer=pb.FromServer.FromString,
        )
        return call(metadata=self.metadata(incarnation), timeout=20)

    def join(self) -> Any:
        call: Any = self._channel.stream_stream(
            f"/{SERVICE}/Join",
            request_serializer=pb.HeartbeatRequest.SerializeToString,
            response_deserializer=pb.FromServer.FromString,
        )
        return call(metadata=METADATA, timeout=20)

    async def blob(self, digest: str, offset: int = 0, metadata: Any = None) -> bytes:
        metadata = self.metadata() if metadata is None else metadata
        call = self._channel.unary_stream(
            f"/{SERVICE}/GetBlob",
            request_serializer=pb.BlobRequest.SerializeToString,
            response_deserializer=pb.BlobPiece.FromString,
        )
        pieces = call(pb.BlobRequest(digest=digest, offset=offset), metadata=metadata, timeout=10)
        return b"".join([piece.data async for piece in pieces])

    async def put_blob(self, digest: str, data: bytes) -> None:
        async def pieces() -> AsyncIterator[pb.BlobPiece]:
            yield pb.BlobPiece(digest=digest)
            for at in range(0, len(data), 1 << 20):
                yield pb.BlobPiece(data=data[at : at + (1 << 20)])

        await self.send_blob(pieces())

    async def send_blob(self, pieces: AsyncIterator[pb.BlobPiece]) -> None:
        call = self._channel.stream_unary(
            f"/{SERVICE}/PutBlob",
            request_serializer=pb.BlobPiece.SerializeToString,
            response_deserializer=pb.BlobReply.FromString,
        )
        await call(pieces, metadata=self.metadata(), timeout=10)

    async def unary(self, method: str, request: Any, kind: Any, metadata: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return await call(request, metadata=metadata, timeout=10)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    async with leading() as control:
        hub = Hub()
        runner = LeaseSender(control.loop, hub, control.specs)
        running = asyncio.create_task(runner.run())
        blobs = FileBlobs(tmp_path / "blobs")
        service = AgentsService(
            AgentRequests(control.loop, hub, DAY), hub, TOKEN, lambda: control.loop.epoch, blobs
        )
        server, port = await serve_agents(service, "127.0.0.1:0")
        options = (("grpc.max_receive_message_length", MOST_MESSAGE),)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            yield Wire(channel, control, hub)
        await server.stop(0)
        assert not running.done(), running.exception()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_server_whose_term_ended_ends_the_stream_instead_of_saying_anything(wire: Wire) -> None:
    loop, clock = wire.control.loop, wire.control.clock
    incarnation = await wire.register("onprem", "n1")
    stream = wire.listen(incarnation)
    loop.led_until(clock.monotonic() + SECOND)
    clock.pass_by(1)
    wire.hub.wake("onprem/n1")
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async with asyncio.timeout(10):
            await anext(aiter(stream))
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_array_of_large_tasks_arrives_whole_beside_a_job_that_cannot_be_sent(wire: Wire) -> None:
    plain = form("huge")
    huge = structs.replace(plain, spec=structs.replace(plain.spec, env={"V": "x" * (40 << 20)}))
    large = form("large", array="1-100", env={f"V{at}": "x" * 100_000 for at in range(9)})
    await wire.control.submitting.submit([huge, large, form("small")], "ada")
    incarnation = await wire.register("onprem", "n1", cpus=102)
    got: list[tuple[str, int]] = []
    async with asyncio.timeout(30):
        stream = wire.listen(incarnation)
        async for message in stream:
            got += [(grant.task.name, grant.task.ByteSize()) for grant in message.grants]
            if len(got) == 101:
                break
        stream.cancel()
    assert [name for name, _ in got] == ["large"] * 100 + ["small"]
    assert min(size for _, size in got[:100]) > 900_000


async def test_an_outcome_that_the_server_does_not_know_is_answered_and_not_told_for_ever(wire: Wire) -> None:
    (job,) = await wire.control.submit("train")
    incarnation = await wire.register("onprem", "n1")
    phase = wire.control.loop.state.jobs[JobId(job)].phase
    assert isinstance(phase, Placed)
    lease = wire.control.loop.state.jobs[JobId(job)].lease
    known = pb.TaskResult(lease=pb.Lease(job=job, attempt=lease.attempt, seq=lease.seq))
    unknown = pb.TaskResult.FromString(known.SerializeToString() + b"\x10\x2a")
    reply = await wire.report(pb.ReportRequest(incarnation=incarnation, results=[unknown]))
    assert [answer.verdict for answer in reply.results] == [pb.ACCEPTED]
    assert wire.control.loop.state.jobs[JobId(job)].lost == 1


async def test_two_agents_of_one_name_in_two_clusters_work_side_by_side(wire: Wire) -> None:
    here, there = await wire.register("onprem", "n1"), await wire.register("cloud", "n1")
    (job,) = await wire.control.submit("train")
    async with asyncio.timeout(10):
        message = await wire.listen(here).read()
    assert isinstance(message, pb.FromServer)
    (grant,) = message.grants
    result = pb.TaskResult(lease=grant.lease, exit_code=0)
    other = await wire.report(pb.ReportRequest(incarnation=there, results=[result]))
    assert [answer.verdict for answer in other.results] == [pb.FENCED]
    assert wire.control.loop.state.jobs[JobId(job)].state is JobState.PLACED
    own = await wire.report(pb.ReportRequest(incarnation=here, results=[result]))
    assert [answer.verdict for answer in own.results] == [pb.ACCEPTED]


async def renew(stream: Any, terms: int = 0) -> pb.FromServer:
    """Send a heartbeat and take what comes next."""
    await stream.write(pb.HeartbeatRequest(terms=terms))
    message: pb.FromServer = await stream.read()
    return message


async def test_leases_and_answers_to_heartbeats_come_on_one_stream(wire: Wire) -> None:
    incarnation = await wire.register("onprem", "n1")
    stream = wire.session(incarnation)
    plain = await renew(stream)
    assert plain.renewed == pb.HeartbeatReply(epoch=wire.control.loop.epoch)
    (job,) = await wire.control.submit("train")
    assert [grant.lease.job for grant in (await stream.read()).grants] == [job]
    await wire.control.propose(Change(Act.CANCEL, (JobId(job),), "ada"))
    assert (await stream.read()).heartbeat_now
    assert [order.lease.job for order in (await renew(stream)).renewed.stops] == [job]
    contact = wire.hub.contact("onprem/n1")
    assert contact is not None
    assert contact.connected
    await stream.done_writing()
    assert await stream.read() is EOF
    await until(lambda: not _connected(wire, "onprem/n1"), "the end of the connection")


def _connected(wire: Wire, node: str) -> bool:
    contact = wire.hub.contact(node)
    return contact is not None and contact.connected


async def test_an_agent_that_another_registration_follows_is_told_so_without_having_asked(wire: Wire) -> None:
    old = wire.session(await wire.register("onprem", "n1"))
    await renew(old)
    new = wire.session(await wire.register("onprem", "n1"))
    assert (await old.read()).renewed.fenced
    assert await old.read() is EOF
    assert not (await renew(new)).renewed.fenced
    new.cancel()


async def test_a_stream_ends_when_its_agent_was_given_up(wire: Wire) -> None:
    incarnation = await wire.register("onprem", "n1")
    stream = wire.session(incarnation)
    await renew(stream)
    await wire.control.propose(AgentGone(ClusterName("onprem"), NodeName("n1"), incarnation))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await renew(stream)
    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "register again",
    )


async def test_what_is_no_heartbeat_ends_the_stream_that_it_came_on_and_no_other(wire: Wire) -> None:
    good = wire.session(await wire.register("onprem", "n1"))
    bad = wire.session(await wire.register("onprem", "n2"))
    await renew(bad)
    bad._request_serializer = bytes
    await bad.write(b"\xff\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError, match="not a valid HeartbeatRequest"):
        await bad.read()
    assert not (await renew(good)).renewed.fenced
    good.cancel()


async def test_an_agent_is_told_other_terms_on_its_stream_when_others_come(wire: Wire) -> None:
    stream = wire.session(await wire.register("onprem", "n1"))
    assert not (await renew(stream)).renewed.HasField("terms")
    for number in range(600):
        await wire.control.propose(
            Register(
                ClusterName("onprem"), NodeName(f"m{number}"), 1000 + number, Resources(1000), (), {}, 0, ()
            )
        )
    told = (await renew(stream)).renewed.terms
    assert (told.number, told.heartbeat, told.short_term) == (1, 601 * SECOND // 125 + SECOND, 30 * SECOND)
    assert (await renew(stream)).renewed.terms == told, "until it lives by them"
    assert not (await renew(stream, terms=1)).renewed.HasField("terms")
    stream.cancel()


async def test_one_stream_is_enough_to_register_and_to_be_given_work(wire: Wire) -> None:
    stream = wire.join()
    await stream.write(pb.HeartbeatRequest(introduction=INTRODUCTION))
    welcome = (await stream.read()).welcome
    assert (welcome.incarnation, welcome.stream, len(welcome.session)) == (1, True, 40)
    wire.sessions[welcome.incarnation] = welcome.session
    (job,) = await wire.control.submit("one")
    said = await stream.read()
    assert [grant.lease.job for grant in said.grants] == [job]
    assert not (await renew(stream)).renewed.fenced
    lease = said.grants[0].lease
    report = pb.ReportRequest(incarnation=1, results=[pb.TaskResult(lease=lease, exit_code=0)])
    assert len((await wire.report(report)).results) == 1
    await wire.register("onprem", "n1")
    assert (await stream.read()).renewed.fenced
    assert await stream.read() is EOF


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (pb.HeartbeatRequest(incarnation=1), "exactly one introduction"),
        (pb.HeartbeatRequest(introduction=pb.RegisterRequest(protocol=PROTOCOL, name="!")), "not a name"),
        (
            pb.HeartbeatRequest(introduction=pb.RegisterRequest(name="x" * (8 << 20))),
            "an introduction of at most 8388608 bytes",
        ),
        (
            pb.HeartbeatRequest(introduction=pb.RegisterRequest(held=[pb.Held()] * 100_001)),
            "at most 100000 fields",
        ),
        (None, "must begin with an introduction"),
    ],
    ids=["none", "wrong", "large", "long", "nothing"],
)
async def test_a_stream_without_a_good_introduction_registers_nobody(
    wire: Wire, first: pb.HeartbeatRequest | None, told: str
) -> None:
    stream = wire.join()
    if first is None:
        await stream.done_writing()
    else:
        await stream.write(first)
    with pytest.raises(grpc.aio.AioRpcError, match=told) as refused:
        await stream.read()
    assert refused.value.code() in {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
    assert not wire.control.loop.state.agents


async def test_who_joins_and_does_not_say_who_it_is_is_not_waited_for(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "FIRST_MESSAGE", 0.05)
    with pytest.raises(grpc.aio.AioRpcError, match="the agent sent no introduction"):
        await wire.join().read()


@pytest.mark.parametrize("sent", [0, 1, 3], ids=["nothing", "its name", "some of it"])
async def test_a_sender_that_stops_is_told_so_and_leaves_nothing_behind(
    wire: Wire, sent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.register("onprem", "n1")
    monkeypatch.setattr(sending, "PATIENCE", 0.2)
    data = b"x" * (2 << 20)
    name = hashlib.sha256(data).hexdigest()
    first = [pb.BlobPiece(digest=name), pb.BlobPiece(data=data[: 1 << 20]), pb.BlobPiece(data=b"x")]

    async def pieces() -> AsyncIterator[pb.BlobPiece]:
        for piece in first[:sent]:
            yield piece
        await asyncio.Event().wait()

    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await wire.send_blob(pieces())
    said = "the upload stalled for 0.2 s; send the blob again"
    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.DEADLINE_EXCEEDED, said)
    assert files_below(tmp_path) == []
    monkeypatch.undo()
    await wire.put_blob(name, data)
    assert await wire.blob(name) == data


async def test_agents_put_and_read_blobs(wire: Wire) -> None:
    await wire.register("onprem", "n1")
    data = bytes(range(256)) * 20_000
    name = hashlib.sha256(data).hexdigest()
    await wire.put_blob(name, data)
    await wire.put_blob(name, data)
    assert await wire.blob(name) == data
    assert await wire.blob(name, 5_000_000) == data[5_000_000:]
    refusals = {
        "0" * 64: (grpc.StatusCode.NOT_FOUND, "there is no blob"),
        "abc": (grpc.StatusCode.INVALID_ARGUMENT, "64 hexadecimal digits"),
    }
    for wrong, (code, said) in refusals.items():
        with pytest.raises(grpc.aio.AioRpcError, match=said) as refused:
            await wire.blob(wrong)
        assert refused.value.code() == code
    with pytest.raises(grpc.aio.AioRpcError, match="SHA-256") as refused:
        await wire.put_blob("0" * 64, data)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await wire.blob(name, metadata=())
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("offer", ["a b", "", "x" * 101, "a\nb"])
async def test_an_offer_that_no_job_could_need_is_refused(wire: Wire, offer: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await wire.register("onprem", "n1", offers=("gpu:a100", offer))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is not a valid word" in (refused.value.details() or "")


async def test_a_result_that_cannot_be_used_costs_its_own_job_and_is_answered(wire: Wire) -> None:
    jobs = await wire.control.submit("good", "bad", "odd")
    incarnation = await wire.register("onprem", "n1", cpus=3)
    leases = [wire.control.lease(job) for job in jobs]
    told = [
        pb.TaskResult(lease=pb.Lease(job=each.job, attempt=each.attempt, seq=each.seq), exit_code=0)
        for each in leases
    ]
    told[1].value_digest = "/etc/passwd"
    told[2].value_digest = "0" * 63 + "\0"
    nobody = pb.TaskResult(lease=pb.Lease(job="\0", attempt=2**32 - 1, seq=2**64 - 1), exit_code=0)
    report = pb.ReportRequest(incarnation=incarnation, results=[*told, nobody])
    reply = await wire.report(report)
    assert [answer.verdict for answer in reply.results] == [pb.ACCEPTED] * 3 + [pb.FENCED]
    ended = [wire.control.loop.state.jobs[JobId(job)] for job in jobs]
    assert [job.state for job in ended] == ["SUCCEEDED", "FAILED", "FAILED"]
    why = [str(job.phase.why) for job in ended[1:] if isinstance(job.phase, Ended)]
    assert why[0] == (
        "it ended, but onprem/n1 reported an invalid result: value_digest is '/etc/passwd', which is not a "
        "SHA-256"
    )
    again = await wire.report(report)
    assert [answer.verdict for answer in again.results] == [pb.DUPLICATE] * 3 + [pb.FENCED]


async def test_a_report_of_more_than_agents_ever_send_is_refused(wire: Wire) -> None:
    incarnation = await wire.register("onprem", "n1")
    released = [pb.Lease(job="a", attempt=1, seq=1)] * 10_001
    with pytest.raises(grpc.aio.AioRpcError, match="released has 10001 entries") as refused:
        await wire.report(pb.ReportRequest(incarnation=incarnation, released=released))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("epoch", 2**64 - 1),
        ("number", 2**63),
        ("life", "x" * 101),
        ("peer", "host\0:1"),
        ("labels", {"zone": "a\0b"}),
        ("labels", {"\x1b[2J": "a"}),
    ],
)
async def test_a_registration_with_what_no_agent_of_ours_says_is_refused_by_name(
    wire: Wire, field: str, said: Any
) -> None:
    request = pb.RegisterRequest(
        protocol=PROTOCOL, cluster="onprem", name="n1", capacity=pb.Resources(cpu=1), **{field: said}
    )
    with pytest.raises(grpc.aio.AioRpcError, match=field) as refused:
        await wire.unary("Register", request, pb.RegisterReply, METADATA)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert wire.control.loop.state.agents == {}


async def test_an_agent_of_a_later_epoch_is_refused_and_no_other(wire: Wire) -> None:
    request = pb.RegisterRequest(
        protocol=PROTOCOL, cluster="onprem", name="n1", capacity=pb.Resources(cpu=1), epoch=2**63 - 1
    )
    with pytest.raises(grpc.aio.AioRpcError, match="has started; this server is in epoch") as refused:
        await wire.unary("Register", request, pb.RegisterReply, METADATA)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert await wire.register("onprem", "n2")
