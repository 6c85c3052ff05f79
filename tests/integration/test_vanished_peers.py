"""A peer that vanishes while something is on its way to it is let go of in time, by both sides of every long-lived connection."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest

from spillover.agent.connection.finding import Target
from spillover.agent.connection.link import LinkEnvironment
from spillover.api.grpc.agents import SERVICE, AgentsService, serve_agents
from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests
from spillover.model.units import DAY
from spillover.wire.keepalive import GRPC_ASKING, KEPT_ALIVE, kept_alive
from tests.support.http import http_server
from tests.support.inside import leading
from tests.support.served import served

MINUTE = 60_000


def patience(port: int) -> dict[str, int]:
    """Milliseconds that each side of the connection to a port waits for what it sent to be acknowledged; 0 is a quarter of an hour."""
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        with _socket(int(entry.name)) as sock:
            if sock is not None and port in {sock.getsockname()[1], sock.getpeername()[1]}:
                side = "server" if sock.getsockname()[1] == port else "client"
                found[side] = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    return found


@contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket | None]:
    """A copy of a connected socket; None if it is none."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        yield None
        return
    try:
        sock = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        yield None
        return
    with sock:
        try:
            sock.getpeername()[1]
        except (OSError, IndexError):
            yield None
        else:
            yield sock


def test_a_silent_peer_and_one_that_acknowledges_nothing_are_given_the_same_time() -> None:
    times = dict(KEPT_ALIVE)
    silent = times["TCP_KEEPIDLE"] + times["TCP_KEEPINTVL"] * times["TCP_KEEPCNT"]
    assert silent * 1000 == times["TCP_USER_TIMEOUT"] == MINUTE


@pytest.mark.parametrize("own", [False, True])
async def test_http(own: bool) -> None:
    async with served() as inside, http_server(inside.commands) as url:
        transport = httpx.AsyncHTTPTransport(socket_options=kept_alive() if own else None)
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            await client.get(f"{url}/v1/health")
            assert patience(int(url.rpartition(":")[2])) == {"server": MINUTE, "client": MINUTE if own else 0}


async def test_grpc_between_server_and_agent() -> None:
    async with leading() as control:
        hub = Hub()
        service = AgentsService(
            AgentRequests(control.loop, hub, DAY), hub, "token", lambda: control.loop.epoch
        )
        server, port = await serve_agents(service, "127.0.0.1:0")
        async with LinkEnvironment().dial(Target(f"127.0.0.1:{port}", "token")) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(f"/{SERVICE}/Heartbeat", bytes, bytes)(b"", timeout=20)
            expected = dict(GRPC_ASKING)["grpc.keepalive_timeout_ms"]
            assert patience(port) == {"server": expected, "client": expected}
        await server.stop(0)
