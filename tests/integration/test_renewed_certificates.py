"""Certificates that are replaced while a server runs: real handshakes before and after, on both ports."""

import asyncio
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from spillover.api.grpc.agent_checks import PROTOCOL
from spillover.api.grpc.agents import SERVICE, AgentsService, serve_agents
from spillover.api.http.app import build_app
from spillover.api.http.serving import serving
from spillover.config.config import Tls
from spillover.control.agents.requests import AgentRequests
from spillover.model.units import DAY
from spillover.server import tls
from spillover.server.certificates import make_certificates
from spillover.server.server import _show
from spillover.server.tls import CertificateRenewal, load_identity
from spillover.wire import agents_pb2 as pb
from tests.support.served import served

TOKEN = "a-token-for-tests"
FILES = ("server.pem", "server-key.pem")


class Listening:
    """A server's two ports, with the files that it shows."""

    def __init__(self, folder: Path, http: int, agents: int, renewal: CertificateRenewal) -> None:
        self.folder, self.http, self.agents, self.renewal = folder, http, agents, renewal

    def replace(self, *names: str, by: Path) -> None:
        """Put other files in the place of those that are shown."""
        for name in names:
            shutil.copyfile(by / name, self.folder / f"{name}.new")
            (self.folder / f"{name}.new").rename(self.folder / name)

    async def shown(self) -> str:
        """The certificate that people see, PEM."""
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.http))

    async def ask(self, host: str, authority: Path) -> bytes:
        """The first line of an answer to someone who believes an authority."""
        context = ssl.create_default_context(cafile=authority / "ca.pem")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.http, ssl=context, server_hostname=host
        )
        writer.write(f"GET /v1/server HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        line = await reader.readline()
        writer.close()
        return line.strip()

    def dial(self, authority: Path) -> grpc.aio.Channel:
        """What an agent that believes an authority has."""
        trusted = grpc.ssl_channel_credentials((authority / "ca.pem").read_bytes())
        return grpc.aio.secure_channel(
            f"127.0.0.1:{self.agents}", trusted, options=[("grpc.use_local_subchannel_pool", 1)]
        )


async def register(channel: grpc.aio.Channel, name: str) -> grpc.StatusCode:
    """Whether an agent gets through."""
    call = channel.unary_unary(
        f"/{SERVICE}/Register",
        request_serializer=pb.RegisterRequest.SerializeToString,
        response_deserializer=pb.RegisterReply.FromString,
    )
    capacity = pb.Resources(cpu=1000, memory=1)
    request = pb.RegisterRequest(protocol=PROTOCOL, cluster="onprem", name=name, capacity=capacity)
    try:
        await call(request, metadata=(("authorization", f"Bearer {TOKEN}"),), timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.fixture
def old(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "old", ["localhost", "127.0.0.1"], 10)
    return tmp_path / "old"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "new", ["localhost", "127.0.0.1", "build.example"], 10)
    return tmp_path / "new"


@pytest.fixture
async def server(tmp_path: Path, old: Path) -> AsyncIterator[Listening]:
    folder = tmp_path / "shown"
    shutil.copytree(old, folder)
    identity = load_identity(Tls(*(str(folder / name) for name in FILES)), time.time())
    renewal = CertificateRenewal(identity)
    sock = socket.create_server(("127.0.0.1", 0))
    async with served() as inside:
        app = build_app(inside.commands, TOKEN, None, identity.hosts())
        async with serving(app, sock, (identity.cert, identity.key)) as http:
            renewal.on_change(partial(_show, http.config.ssl, app))
            loop, hub = inside.control.loop, inside.hub
            service = AgentsService(AgentRequests(loop, hub, DAY), hub, TOKEN, lambda: loop.epoch)
            agents, port = await serve_agents(service, "127.0.0.1:0", renewal.pair)
            yield Listening(folder, sock.getsockname()[1], port, renewal)
            await agents.stop(0)


async def test_who_connects_after_a_renewal_sees_the_new_certificate(
    server: Listening, old: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK", 0.01)
    before = await server.shown()
    assert before == (old / FILES[0]).read_text()
    assert await server.ask("localhost", old) == b"HTTP/1.1 401 Unauthorized"
    async with server.dial(old) as connected:
        assert await register(connected, "n1") is grpc.StatusCode.OK
        looking = asyncio.create_task(server.renewal.run())
        server.replace(*FILES, by=new)
        async with asyncio.timeout(10):
            while await server.shown() == before:
                pass
        looking.cancel()
        assert await server.shown() == (new / FILES[0]).read_text()
        assert await server.ask("build.example", new) == b"HTTP/1.1 401 Unauthorized", "also by its new name"
        with pytest.raises(ssl.SSLCertVerificationError):
            await server.ask("localhost", old)
        async with server.dial(new) as channel:
            assert await register(channel, "n2") is grpc.StatusCode.OK
        async with server.dial(old) as channel:
            assert await register(channel, "n3") is grpc.StatusCode.UNAVAILABLE
        assert await register(connected, "n1") is grpc.StatusCode.OK, "who was connected still is"


async def test_files_that_cannot_be_used_are_left_until_they_can(
    server: Listening, old: Path, new: Path
) -> None:
    now = time.time()
    assert not server.renewal.look(now)
    server.replace(FILES[0], by=new)
    assert not server.renewal.look(now), "its key is still to come"
    assert await server.ask("localhost", old) == b"HTTP/1.1 401 Unauthorized"
    (server.folder / FILES[1]).unlink()
    assert not server.renewal.look(now)
    async with server.dial(old) as channel:
        assert await register(channel, "n1") is grpc.StatusCode.OK
    server.replace(FILES[1], by=new)
    assert not server.renewal.look(now + 11 * DAY / 1e9), "nobody believes what has expired"
    server.replace(*FILES, by=new)
    assert server.renewal.look(now)
    assert not server.renewal.look(now), "nothing has changed since"
    assert await server.shown() == (new / FILES[0]).read_text()
