"""Agents ask each other for tasks over real gRPC: with the right ticket, or not at all, and then the server."""

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from spillover.agent.connection import convert
from spillover.agent.connection.finding import Target
from spillover.agent.connection.peers import SERVICE, Listening, Peers
from spillover.agent.connection.transfers import ServerAway, ServerTransfers
from spillover.agent.files.cache import Files
from spillover.agent.leases.values import Fetch, Source, Task
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.server.certificates import make_certificates
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import task_digest

OLD, NEW = Lease(JobId("job"), 1, 4), Lease(JobId("job"), 1, 5)
TICKET = b"right" * 6


class Server(ServerTransfers):
    """A server that knows some tasks, or is away."""

    def __init__(self, *, knows: bool = True, away: bool = False) -> None:
        super().__init__()
        self.knows, self.away = knows, away
        self.asked: list[Lease] = []

    async def tasks(self, leases: object, limit: float) -> list[pb.Grant]:
        del limit
        wanted = [convert.lease_in(lease) for lease in leases]  # type: ignore[attr-defined]
        self.asked += wanted
        if self.away:
            raise ServerAway("the server is not reachable")
        task = pb.Task(shell="from the server")
        return [pb.Grant(lease=convert.lease_out(lease), task=task) for lease in wanted if self.knows]


class Side:
    """One agent's end."""

    def __init__(
        self, server: Server, files: Files | None = None, listening: Listening | None = None
    ) -> None:
        self.server = server
        self.news = asyncio.Event()
        self.tasks: dict[Lease, Task] = {}
        self.failed: list[Lease] = []
        self.peers = Peers(self.arrived, self.fails, server, files, listening or Listening())

    def arrived(self, lease: Lease, task: Task) -> None:
        self.tasks[lease] = task
        self.news.set()

    def fails(self, lease: Lease) -> None:
        self.failed.append(lease)
        self.news.set()

    async def fetch(
        self, address: str, ticket: bytes = TICKET, source: Lease = OLD, digest: bytes = b""
    ) -> str:
        """Who told what to run, in the end."""
        self.peers.fetch([Fetch(NEW, Source(address, ticket, source, digest))])
        async with asyncio.timeout(20):
            await self.news.wait()
        if self.failed:
            return "nobody"
        work = self.tasks[NEW].work
        assert isinstance(work, Shell)
        return work.run


def a_folder(path: Path, server: Server) -> Files:
    files = Files(path, server)
    files.open()
    return files


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[tuple[Side, str]]:
    """An agent that gave a lease up, and where it is."""
    server = Server()
    side = Side(server, a_folder(tmp_path / "victim", server))
    address = await side.peers.open()
    grant = pb.Grant(lease=convert.lease_out(OLD), task=pb.Task(shell="from the peer"))
    side.peers.remember([(convert.grant_in(grant), grant)], [OLD])
    side.peers.offer(OLD, TICKET)
    yield side, address
    await side.peers.close()


async def test_a_thief_gets_the_task_from_its_peer(victim: tuple[Side, str]) -> None:
    thief = Side(Server())
    assert await thief.fetch(victim[1]) == "from the peer"
    assert thief.server.asked == []


async def test_a_peer_cannot_have_a_thief_run_another_task(victim: tuple[Side, str]) -> None:
    honest = Side(Server())
    digest = task_digest(pb.Task(shell="from the peer"))
    assert await honest.fetch(victim[1], digest=digest) == "from the peer"
    cheated = Side(Server())
    digest = task_digest(pb.Task(shell="from the server"))
    assert await cheated.fetch(victim[1], digest=digest) == "from the server"
    assert cheated.server.asked == [NEW]


@pytest.mark.parametrize(("ticket", "source"), [(b"wrong", OLD), (b"", OLD), (TICKET, NEW)])
async def test_without_the_ticket_of_that_lease_nothing_is_told_and_the_server_is_asked(
    victim: tuple[Side, str], ticket: bytes, source: Lease
) -> None:
    thief = Side(Server())
    assert await thief.fetch(victim[1], ticket, source) == "from the server"
    assert thief.server.asked == [NEW]
    async with grpc.aio.insecure_channel(victim[1]) as channel:
        call = channel.unary_stream(
            f"/{SERVICE}/StealJobs", pb.StealRequest.SerializeToString, pb.StealReply.FromString
        )
        wanted = pb.Peer(ticket=ticket, source=convert.lease_out(source))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            [reply async for reply in call(pb.StealRequest(wanted=[wanted]))]
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_lease_that_was_never_given_up_is_not_told(victim: tuple[Side, str]) -> None:
    held = Lease(JobId("held"), 1, 1)
    grant = pb.Grant(lease=convert.lease_out(held), task=pb.Task(shell="secret"))
    victim[0].peers.remember([(convert.grant_in(grant), grant)], [held])
    thief = Side(Server(knows=False))
    assert await thief.fetch(victim[1], b"", held) == "nobody"


async def test_a_peer_that_cannot_be_reached_is_made_up_for_by_the_server() -> None:
    thief = Side(Server())
    assert await thief.fetch("127.0.0.1:1") == "from the server"


@pytest.mark.parametrize("server", [Server(knows=False), Server(away=True)])
async def test_what_nobody_tells_is_handed_back(server: Server) -> None:
    thief = Side(server)
    assert await thief.fetch("127.0.0.1:1") == "nobody"
    assert thief.failed == [NEW]


async def test_files_come_along_and_are_checked(victim: tuple[Side, str], tmp_path: Path) -> None:
    data = b"x" * 3_000_000
    digest = hashlib.sha256(data).hexdigest()
    side, address = victim
    files = side.peers._files
    assert files is not None
    scratch = files.scratch()
    scratch.write_bytes(data)
    assert await files.adopt(digest, scratch)
    wrong = files.scratch()
    wrong.write_bytes(b"other")
    assert not await files.adopt("0" * 64, wrong)
    task = pb.Task(shell="from the peer", inputs=[pb.File(path="in", digest=digest, size=len(data))])
    grant = pb.Grant(lease=convert.lease_out(OLD), task=task)
    side.peers.remember([(convert.grant_in(grant), grant)], [OLD])
    side.peers.offer(OLD, TICKET)
    server = Server()
    kept = a_folder(tmp_path / "thief", server)
    thief = Side(server, kept)
    assert await thief.fetch(address) == "from the peer"
    assert await kept.read(digest) == data, "which the server was never asked for"
    assert [path.name for path in (tmp_path / "thief" / "half").iterdir()] == []


async def test_nobody_listens_beyond_loopback_in_the_clear() -> None:
    side = Side(Server(), listening=Listening("0.0.0.0:0"))
    assert await side.peers.open() == ""
    await side.peers.close()
    nowhere = Side(Server(), listening=Listening(""))
    assert await nowhere.peers.open() == ""


def an_address_beyond_loopback() -> str:
    """Of this machine; the test is skipped where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no network")
        host = str(probe.getsockname()[0])
    if host.startswith("127."):
        pytest.skip("this machine has loopback only")
    return host


async def test_beyond_loopback_agents_speak_tls_under_the_authority_of_their_server(tmp_path: Path) -> None:
    host = an_address_beyond_loopback()
    make_certificates(tmp_path / "tls", [host], 1)
    cert, key = tmp_path / "tls" / "server.pem", tmp_path / "tls" / "server-key.pem"
    victim = Side(Server(), listening=Listening(f"{host}:0", cert, key))
    address = await victim.peers.open()
    try:
        grant = pb.Grant(lease=convert.lease_out(OLD), task=pb.Task(shell="from the peer"))
        victim.peers.remember([(convert.grant_in(grant), grant)], [OLD])
        victim.peers.offer(OLD, TICKET)
        trusting, other = Side(Server()), Side(Server())
        authority = (tmp_path / "tls" / "ca.pem").read_bytes()
        trusting.server.target = Target("server", "token", tls=True, ca=authority)
        assert await trusting.fetch(address) == "from the peer"
        make_certificates(tmp_path / "others", [host], 1)
        stranger = (tmp_path / "others" / "ca.pem").read_bytes()
        other.server.target = Target("server", "token", tls=True, ca=stranger)
        assert await other.fetch(address) == "from the server"
    finally:
        await victim.peers.close()
