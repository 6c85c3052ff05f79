"""A machine that runs its user data for real: what EC2 was given boots a container, whose agent joins over a network."""

import asyncio
import base64
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from spillover.core.events import MachineAdmitted, MachineGone, MachineJoined
from spillover.model.pools import MachineId, Offer
from spillover.model.resources import Resources
from spillover.ports.provider import Made, Order, order_token
from spillover.providers.aws.options import AwsForm
from spillover.providers.aws.provider import AwsProvider
from spillover.server.certificates import make_certificates
from spillover.testing.provider_suite import OWNER, an_opening
from spillover.wire.api import AgentView
from tests.e2e.conftest import Joinable
from tests.support.clouds.ec2 import KEYS, REGION, ZONES, Ec2Server, ec2_server
from tests.support.containers import IMAGE, ContainerEngine, an_engine, machine_mounts, missing
from tests.support.processes import ServerProcess, free_ports, read_journal, wait_until
from tests.support.wires import Wires

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
    with an_engine(tmp_path / "engine") as made:
        yield made


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

    def __init__(
        self, engine: ContainerEngine, folder: Path, script: bytes, network: str, name: str = "machine"
    ) -> None:
        self._engine = engine
        self.name = name
        file = folder / f"user-data-{name}"
        file.write_bytes(script)
        engine.run(
            *("run", "--detach", f"--name={name}", f"--network=ns:/run/netns/{network}"),
            *machine_mounts(),
            f"--volume={file}:/user-data:ro",
            *(IMAGE, "sh", "-c", "sh /user-data >/boot.log 2>&1; exec sleep 600"),
        )

    def run(self, *words: str) -> str:
        return self._engine.run("exec", self.name, *words)

    def log(self) -> str:
        return self.run("sh", "-c", "cat /boot.log /var/lib/spillover/agent.log 2>&1 || true")


def test_a_machine_that_boots_with_what_ec2_was_given_joins_and_runs_jobs(
    joinable: Joinable, engine: ContainerEngine, tmp_path: Path
) -> None:
    server = joinable.server
    order = Order(MachineId("cloud-1"), order_token(OWNER, "cloud-1"), OWNER, OFFER, joinable.join)
    script = ordered(order, ["echo 'made by the operator' >/etc/prepared"])
    machine = Machine(engine, tmp_path, script, joinable.namespace)

    view = joined(server, machine)
    assert (view.cluster, view.capacity["cpu"]) == ("cloud", 1.5)
    assert "rented" in view.offers
    assert {key: view.labels[key] for key in OFFER.labels} == OFFER.labels
    ran = server.spill("run", "--wait", "--need", "rented", "--workdir", "/tmp", "--", "cat", "/etc/prepared")
    assert (ran.returncode, ran.stdout) == (0, "made by the operator\n"), ran
    assert machine.run("/usr/bin/stat", "-c", "%a %u", "/var/lib/spillover/join.json") == "600 0\n"


class Hypervisor:
    """What EC2 runs its machines on: each that EC2 has is a container, which boots with its user data and goes with it."""

    def __init__(self, ec2: Ec2Server, engine: ContainerEngine, folder: Path, network: str) -> None:
        self._ec2 = ec2
        self._engine = engine
        self._folder = folder
        self._network = network
        self.booted: dict[str, Machine] = {}
        """All machines that ever ran, by their ids at EC2."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hypervisor")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def script(self, id_: str) -> bytes:
        """Return the user data of a machine that EC2 has, or had."""
        (found,) = [each for each in self._ec2.backend.all_instances() if each.id == id_]
        return base64.b64decode(str(found.user_data))

    def log(self) -> str:
        return "\n".join(
            [each.log() for each in self.booted.values() if each.name in self._engine.containers()]
        )

    def _work(self) -> None:
        gone: set[str] = set()
        while not self._over.wait(0.1):
            there = [str(each.id) for each in self._ec2.machines]
            for id_ in [each for each in there if each not in self.booted]:
                self.booted[id_] = Machine(self._engine, self._folder, self.script(id_), self._network, id_)
            for id_ in [each for each in self.booted if each not in there and each not in gone]:
                self._engine.run("rm", "--force", "--time=0", id_)
                gone.add(id_)


def test_a_pool_of_ec2_rents_a_machine_for_a_job_and_gives_it_back(
    servers: Callable[..., ServerProcess],
    engine: ContainerEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    tls = tmp_path / "tls"
    make_certificates(tls, ["127.0.0.1", "localhost"], 5)
    files = {"cert": str(tls / "server.pem"), "key": str(tls / "server-key.pem"), "ca": str(tls / "ca.pem")}
    wires, (port,) = Wires(1), free_ports(1)
    try:
        (wire,) = wires.wires
        if wire.namespace is None:
            pytest.skip("networks of their own need root and ip: apt-get install iproute2")
        wires.open([port])
        with ec2_server() as ec2, Hypervisor(ec2, engine, tmp_path, wire.namespace) as hypervisor:
            ec2.reset()
            pool = a_pool_of(ec2, idle="5s")
            server = servers(
                clusters=[{"name": "cloud", "role": "rented", "pool": pool}],
                policy={"wait": "zero"},
                tls=files,
                grpc=f"127.0.0.1:{port}",
                agents={"address": f"{wire.host}:{port}"},
            ).up()
            ran = server.spill(
                *("run", "--wait", "--cpu", "1", "--workdir", "/tmp", "--", "cat", "/etc/prepared"),
                timeout=90,
            )
            assert (ran.returncode, ran.stdout) == (0, "by the operator\n"), f"{ran} {hypervisor.log()}"
            (machine,) = hypervisor.booted
            # Whoever reads the script afterwards gains nothing.
            copy = Machine(engine, tmp_path, hypervisor.script(machine), wire.namespace, "copy")
            wait_until(lambda: "was used already" in copy.log(), "the copy of the machine being refused", 60)
            wait_until(lambda: not ec2.machines, "EC2 having terminated the machine", 90)
            wait_until(lambda: engine.containers() == ["copy"], "its container having gone")
            wait_until(lambda: not live(server), "the server knowing that", 60)
            assert server.stop() == 0
            orders = [asked for action, asked in ec2.calls if action == "RunInstances"]
            assert len([asked for asked in orders if "DryRun" not in asked]) == 1
    finally:
        wires.close()
    events = read_journal(server.data)
    for kind in (MachineAdmitted, MachineJoined, MachineGone):
        assert len([event for event in events if isinstance(event, kind)]) == 1, kind


def live(server: ServerProcess) -> list[str]:
    with server.client() as client:
        (pool,) = client.pools()
        return [each.id for each in pool.machines if each.state not in {"gone", "refused"}]


def a_pool_of(ec2: Ec2Server, **changes: Any) -> dict[str, Any]:
    options = {
        "region": REGION,
        "image": ec2.image(),
        "endpoint": ec2.url,
        "setup": ["echo 'by the operator' >/etc/prepared"],
        "program": str(Path(sys.prefix) / "bin" / "spill"),
    }
    offer = {"type": "m5.large", "cpu": 1, "memory": "1Gi", "hour": 0.1, "zones": [ZONES[0]]}
    return {"provider": {"aws": options}, "offers": [offer], "max": 2, **changes}


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
