"""A machine that runs its user data for real: what EC2 was given boots a container, whose agent joins over a network."""

import asyncio
import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillover.model.pools import MachineId, Offer
from spillover.model.resources import Resources
from spillover.ports.provider import Made, Order, order_token
from spillover.providers.aws.options import AwsForm
from spillover.providers.aws.provider import AwsProvider
from spillover.testing.provider_suite import OWNER, an_opening
from spillover.wire.api import AgentView
from tests.e2e.conftest import Joinable
from tests.support.clouds.ec2 import KEYS, REGION, ZONES, ec2_server
from tests.support.containers import IMAGE, ContainerEngine, an_engine, machine_mounts, missing
from tests.support.processes import ServerProcess, wait_until

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

    def __init__(self, engine: ContainerEngine, folder: Path, script: bytes, network: str | None) -> None:
        self._engine = engine
        (folder / "user-data").write_bytes(script)
        engine.run(
            *("run", "--detach", "--name=machine", f"--network=ns:/run/netns/{network}"),
            *machine_mounts(),
            f"--volume={folder / 'user-data'}:/user-data:ro",
            *(IMAGE, "sh", "-c", "sh /user-data >/boot.log 2>&1; exec sleep 600"),
        )

    def run(self, *words: str) -> str:
        return self._engine.run("exec", "machine", *words)

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
