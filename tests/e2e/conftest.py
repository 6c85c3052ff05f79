"""Real servers, started and stopped as a person would."""

import json
import ssl
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from spillover.model.ids import ClusterName
from spillover.model.units import SECOND
from spillover.ports.provider import Join
from spillover.server.certificates import make_certificates
from tests.support.far_agents import Far
from tests.support.processes import ServerProcess, nothing_left, write_config
from tests.support.remote_agent import RemoteAgent
from tests.support.wires import Wires


@pytest.fixture(autouse=True)
def _nothing_is_left_running(tmp_path: Path) -> Iterator[None]:
    """No server, agent or task outlives its test."""
    yield
    nothing_left(tmp_path)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Make servers on `data` below the test's folder, with settings of a configuration; all are ended in the end."""
    made: list[ServerProcess] = []

    def make(
        *options: str, folder: Path = tmp_path, data: Path | None = None, **settings: object
    ) -> ServerProcess:
        folder.mkdir(exist_ok=True)
        data = data or folder / "data"
        server = ServerProcess(
            folder, *write_config(folder, **{"data": str(data)} | settings), *options, data=data
        )
        made.append(server)
        return server

    yield make
    for server in made:
        server.clear()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Callable[..., RemoteAgent]]:
    """Make agents in folders of their own, which are ended in the end."""
    made: list[RemoteAgent] = []

    def make(*words: str, folder: str = "away", **environment: str) -> RemoteAgent:
        made.append(RemoteAgent(tmp_path / folder, *words, **environment))
        return made[-1]

    yield make
    for agent in made:
        agent.clear()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Start servers without a configuration, with options; all are stopped in the end."""
    started: list[ServerProcess] = []

    def start(*options: str, data: Path | None = None) -> ServerProcess:
        folder = data or tmp_path / "data"
        ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        server = ServerProcess(tmp_path, "--data", str(folder), *ports, *options, data=folder)
        started.append(server)
        return server.up()

    yield start
    for server in started:
        server.clear()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """As `server`, for the tests of one file: each ends what it began there, and looks at jobs of its own."""
    folder = tmp_path_factory.mktemp("standing")
    ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    server = ServerProcess(folder, "--data", str(folder / "data"), *ports, "--slots", "2")
    try:
        yield server.up()
    finally:
        server.clear()


@pytest.fixture
def server(start_server: Callable[..., ServerProcess]) -> ServerProcess:
    """A server with one owned cluster of two CPUs on this machine."""
    return start_server("--slots", "2")


class Joinable(NamedTuple):
    """A server with TLS that a machine in a network of its own can reach."""

    server: ServerProcess
    namespace: str
    """Network namespace of the machine."""
    join: Join
    """Of the machine `cloud-1`."""


@pytest.fixture
def joinable(servers: Callable[..., ServerProcess], tmp_path: Path) -> Iterator[Joinable]:
    tls = tmp_path / "tls"
    make_certificates(tls, ["127.0.0.1", "localhost"], 5)
    files = {"cert": str(tls / "server.pem"), "key": str(tls / "server-key.pem"), "ca": str(tls / "ca.pem")}
    wires = Wires(1)
    try:
        (wire,) = wires.wires
        if wire.namespace is None:
            pytest.skip("networks of their own need root and ip: apt-get install iproute2")
        server = servers(clusters=[{"name": "cloud"}], tls=files).up()
        port = int(json.loads((server.data / "server.json").read_text())["grpc"].rpartition(":")[2])
        wires.open([port])
        token = server.spill("token", "create", "--role", "agent").stdout.strip()
        pin = sha256(ssl.PEM_cert_to_DER_cert((tls / "server.pem").read_text())).hexdigest()
        address, until = f"{wire.host}:{port}", 1_900_000_000 * SECOND
        yield Joinable(
            server, wire.namespace, Join(address, ClusterName("cloud"), "cloud-1", token, until, pin)
        )
    finally:
        wires.close()


@pytest.fixture
def wires(request: pytest.FixtureRequest) -> Iterator[Wires]:
    """So many wires as the parameter says."""
    made = Wires(request.param)
    yield made
    made.close()


@pytest.fixture
def far_agents(wires: Wires) -> Iterator[list[Far]]:
    """Agents on these wires, which are ended in the end; a test adds them."""
    del wires
    made: list[Far] = []
    yield made
    for agent in made:
        agent.clear()
