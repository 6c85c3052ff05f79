"""A machine that runs its user data for real: what EC2 was given boots a container, whose agent joins over a network."""

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import spillover
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer
from spillover.model.resources import Resources
from spillover.ports.provider import Join, Made, Order, order_token
from spillover.providers.aws.options import AwsForm
from spillover.providers.aws.provider import AwsProvider
from spillover.server.certificates import make_certificates
from spillover.testing.provider_suite import OWNER, an_opening
from spillover.wire.api import AgentView
from tests.support.clouds.ec2 import KEYS, REGION, ZONES, ec2_server
from tests.support.containers import IMAGE, ContainerEngine, missing
from tests.support.processes import ServerProcess, wait_until
from tests.support.wires import Wire, Wires

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

OFFER = Offer(
    "m5.large",
    Resources(1500, 2**30),
    115_000,
    ZONES[0],
    words=("rented",),
    labels={"zone": ZONES[0], "said": "it's $HOME"},
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ContainerEngine]:
    made = ContainerEngine(tmp_path / "engine")
    made.load()
    yield made
    made.clear()


@pytest.fixture
def wire() -> Iterator[Callable[[int], Wire]]:
    """Connect a machine in a network of its own to a port of this one."""
    wires = Wires(1)
    if not wires.apart:
        wires.close()
        pytest.skip("networks of their own need root and ip: apt-get install iproute2")

    def opened(port: int) -> Wire:
        wires.open([port])
        return wires.wires[0]

    yield opened
    wires.close()


def ordered(order: Order, setup: list[str]) -> bytes:
    """Return the user data with which EC2 would boot the machine of an order."""
    program = str(Path(sys.prefix) / "bin" / "spill")

    async def create(url: str, image: str) -> None:
        form = AwsForm(region=REGION, image=image, endpoint=url, setup=setup, program=program)
        provider = AwsProvider(form, an_opening(Path(), OWNER, KEYS))
        assert isinstance(await provider.create(order), Made)
        await provider.close()

    with ec2_server() as ec2:
        ec2.reset()
        asyncio.run(create(ec2.url, ec2.image()))
        (machine,) = ec2.machines
        return base64.b64decode(str(machine.user_data))


class Machine:
    """A container that boots as cloud-init does: it runs the script as root, once, and goes on."""

    def __init__(self, engine: ContainerEngine, folder: Path, script: bytes, network: str | None) -> None:
        self._engine = engine
        (folder / "user-data").write_bytes(script)
        source = Path(spillover.__file__).parents[1]
        # A program of this machine, with its libraries, stands for what the image of a cloud machine has.
        there = {Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.prefix), Path(sys.base_prefix), source}
        mounts = [f"--volume={path}:{path}:ro" for path in sorted(there) if path.exists()]
        engine.run(
            *("run", "--detach", "--name=machine", f"--network=ns:/run/netns/{network}", *mounts),
            f"--volume={folder / 'user-data'}:/user-data:ro",
            *(IMAGE, "sh", "-c", "sh /user-data >/boot.log 2>&1; exec sleep 600"),
        )

    def run(self, *words: str) -> str:
        return self._engine.run("exec", "machine", *words)

    def log(self) -> str:
        return self.run("sh", "-c", "cat /boot.log /var/lib/spillover/agent.log 2>&1 || true")


def test_a_machine_that_boots_with_what_ec2_was_given_joins_and_runs_jobs(
    servers: Callable[..., ServerProcess],
    wire: Callable[[int], Wire],
    engine: ContainerEngine,
    tmp_path: Path,
) -> None:
    tls = tmp_path / "tls"
    make_certificates(tls, ["127.0.0.1", "localhost"], 5)
    files = {"cert": str(tls / "server.pem"), "key": str(tls / "server-key.pem"), "ca": str(tls / "ca.pem")}
    server = servers(clusters=[{"name": "cloud"}], tls=files).up()
    token = server.spill("token", "create", "--role", "agent").stdout.strip()
    port = int(json.loads((server.data / "server.json").read_text())["grpc"].rpartition(":")[2])
    wired = wire(port)
    pin = sha256(ssl.PEM_cert_to_DER_cert((tls / "server.pem").read_text())).hexdigest()
    join = Join(f"{wired.host}:{port}", ClusterName("cloud"), "cloud-1", token, 1_900_000_000 * 10**9, pin)
    order = Order(MachineId("cloud-1"), order_token(OWNER, "cloud-1"), OWNER, OFFER, join)
    script = ordered(order, ["echo 'made by the operator' >/etc/prepared"])
    machine = Machine(engine, tmp_path, script, wired.namespace)

    view = joined(server, machine)
    assert (view.cluster, view.capacity["cpu"]) == ("cloud", 1.5)
    assert "rented" in view.offers
    assert {key: view.labels[key] for key in OFFER.labels} == OFFER.labels
    ran = server.spill("run", "--wait", "--need", "rented", "--workdir", "/tmp", "--", "cat", "/etc/prepared")
    assert (ran.returncode, ran.stdout) == (0, "made by the operator\n"), ran
    assert machine.run("/usr/bin/stat", "-c", "%a %u", "/var/lib/spillover/join.json") == "600 0\n"


def joined(server: ServerProcess, machine: Machine) -> AgentView:
    """Return the agent of the machine, once it is ready."""

    def look() -> Any:
        with server.client() as client:
            return next((agent for agent in client.agents() if agent.state == "ready"), None)

    try:
        found: AgentView = wait_until(look, "the machine joining", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}; the machine says: {machine.log()}") from None
    return found
