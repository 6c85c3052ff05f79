"""Machines of the providers `process` and `command` with real agents on a real server."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from spillover.ports.provider import Join, Made, Order, Presence, ProviderOpening, Refused
from spillover.providers.command.provider import CommandForm, CommandKind
from spillover.providers.process.machines import Machines, marked
from spillover.providers.process.provider import ProcessForm, ProcessKind, ProcessProvider
from tests.support.processes import ServerProcess, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples/providers"
CLUSTER = ClusterName("cloud")
OWNER = "5d1f0c7a9b3e2468"
OFFER = Offer("small", Resources(1000, 2**30), 100_000, labels={"zone": "a"})


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[ProcessProvider]:
    folder = tmp_path / "machines"
    opening = ProviderOpening(CLUSTER, OWNER, folder, dict(os.environ), agent_options=("--isolation", "none"))
    provider = ProcessKind().open(ProcessForm(), opening)
    yield provider
    asyncio.run(provider.close())
    machines = Machines(folder)
    with machines.alone():
        names = [each.name for each in machines.found()]
    assert not machines.end(names)


def ordered(server: ServerProcess, number: int) -> Order:
    made = server.spill("token", "create", "--role", "agent")
    assert made.returncode == 0, made
    address = json.loads((server.data / "server.json").read_text())["grpc"]
    name = MachineId(f"cloud-{number}")
    join = Join(address, CLUSTER, name, made.stdout.strip(), time.time_ns() + HOUR)
    return Order(name, f"token-{number}", OWNER, OFFER, join)


def ready(server: ServerProcess) -> list[str]:
    with server.client() as client:
        return sorted(agent.name for agent in client.agents() if agent.state == "ready")


def test_machines_join_run_jobs_and_leave_nothing_behind(
    servers: Callable[..., ServerProcess], provider: ProcessProvider, tmp_path: Path
) -> None:
    server = servers(clusters=[{"name": "cloud"}]).up()
    orders = [ordered(server, number) for number in (1, 2)]
    for order in orders:
        assert isinstance(asyncio.run(provider.create(order)), Made)
    wait_until(lambda: ready(server) == ["cloud-1", "cloud-2"], "both machines being ready")
    ran = server.spill("run", "--wait", "--cpu", "1", "--", "echo", "rented")
    assert (ran.returncode, ran.stdout) == (0, "rented\n"), ran
    for _ in orders:
        begun = server.spill(
            "run", "--detach", "--cpu", "1", "--", "sh", "-c", "setsid sleep 1000 & sleep 1000"
        )
        assert begun.returncode == 0, begun
    folders = [tmp_path / "machines" / order.name for order in orders]

    def sleeping() -> bool:
        pids = [pid for each in marked(folders).values() for pid in each]
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
        return sum(line.startswith(b"sleep\0") for line in lines) == 4

    wait_until(sleeping, "the tasks of both machines")
    (first, second), listed = orders, asyncio.run(provider.list()).machines
    assert [(each.machine, each.presence) for each in listed] == [
        ("cloud-1", Presence.RUNNING),
        ("cloud-2", Presence.RUNNING),
    ]
    # One stops in order, the other's agent dies first.
    agent = int((folders[1] / "pid").read_text())
    os.killpg(agent, signal.SIGKILL)
    assert asyncio.run(provider.destroy([first.name, second.name])) == {}
    assert not any(marked(folders).values())
    assert not asyncio.run(provider.list()).machines


def test_machines_outlive_their_server_and_join_the_next_one(
    servers: Callable[..., ServerProcess], provider: ProcessProvider
) -> None:
    server = servers(clusters=[{"name": "cloud"}]).up()
    provider._opening = ProviderOpening(
        CLUSTER,
        OWNER,
        provider._opening.data,
        dict(os.environ),
        agent_options=("--isolation", "none", "--server-file", str(server.data / "server.json")),
    )
    order = ordered(server, 1)
    asyncio.run(provider.create(order))
    wait_until(lambda: ready(server) == ["cloud-1"], "the machine being ready")
    server.kill()
    server.up()
    wait_until(lambda: ready(server) == ["cloud-1"], "the machine being ready again")
    assert asyncio.run(provider.create(order)) == asyncio.run(provider.create(order))
    assert asyncio.run(provider.destroy([order.name])) == {}


def test_machines_of_the_programs_in_the_example_join_and_run_jobs(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers(clusters=[{"name": "cloud"}]).up()
    create, listing, destroy = (
        [sys.executable, str(EXAMPLE / f"{name}.py")] for name in ("create", "list", "destroy")
    )
    spill = Path(sys.executable).with_name("spill")
    env = {"MACHINES": str(tmp_path / "machines"), "SPILL": str(spill)}
    opening = ProviderOpening(CLUSTER, OWNER, tmp_path / "command", dict(os.environ))
    order = ordered(server, 1)
    lacking = CommandKind().open(CommandForm(create, listing, destroy, env | {"SPILL": "/no/spill"}), opening)
    told = "there is no program /no/spill; set SPILL in `env` to its path"
    refused = asyncio.run(lacking.create(order))
    assert isinstance(refused, Refused)
    assert (refused.cause, told in refused.why) == (RefusalCause.INVALID, True), refused
    provider = CommandKind().open(CommandForm(create, listing, destroy, env), opening)
    assert asyncio.run(provider.create(order)) == Made(order.name)
    try:
        wait_until(lambda: ready(server) == ["cloud-1"], "the machine being ready")
        ran = server.spill("run", "--wait", "--cpu", "1", "--", "echo", "rented")
        assert (ran.returncode, ran.stdout) == (0, "rented\n"), ran
        assert asyncio.run(provider.create(order)) == Made(order.name)
        (listed,) = asyncio.run(provider.list()).machines
        assert (listed.machine, listed.presence) == ("cloud-1", Presence.RUNNING)
    finally:
        assert asyncio.run(provider.destroy([order.name])) == {}
    assert not asyncio.run(provider.list()).machines
    assert not (tmp_path / "machines" / order.name).exists()
