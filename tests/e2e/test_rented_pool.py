"""A real server that rents machines of the provider `process` when jobs need them, and gives them back."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml

from spillover.core.events import (
    ClusterRemoved,
    MachineGone,
    MachineJoined,
    MachinesEarmarked,
    MachinesWanted,
)
from tests.support.processes import ServerProcess, nothing_left, processes_of, read_journal, wait_until

POOL = {
    "provider": "process",
    "offers": [{"type": "small", "cpu": 1, "memory": "1Gi", "hour": 0.1}],
    "max": 3,
    "boot": "1s",
    "idle": "1s",
}


def a_pool(**changes: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": "cloud", "role": "rented", "pool": {**POOL, **changes}}],
        "policy": {"wait": "zero"},
    }


def machines(server: ServerProcess, *states: str) -> list[str]:
    with server.client() as client:
        (pool,) = client.pools()
        return [each.id for each in pool.machines if each.state in states]


def figures(server: ServerProcess) -> str:
    token = (server.data / "token").read_text().strip()
    return httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {token}"}).text


def agents(server: ServerProcess) -> list[str]:
    with server.client() as client:
        return [each.name for each in client.agents() if each.state == "ready"]


def test_a_job_makes_the_server_rent_a_machine_and_give_it_back(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(**a_pool()).up()
    ran = server.spill("run", "--wait", "--cpu", "1", "--", "echo", "rented")
    assert (ran.returncode, ran.stdout) == (0, "rented\n"), ran
    wait_until(lambda: machines(server, "gone"), "the machine being gone", 40)
    assert server.stop() == 0
    events = read_journal(server.data)
    wishes = [wish for event in events if isinstance(event, MachinesWanted) for wish in event.wishes]
    assert len(wishes) == 1
    assert len([each for each in events if isinstance(each, MachineJoined)]) == 1
    (gone,) = [each for each in events if isinstance(each, MachineGone)]
    assert gone.paid == gone.boot + gone.useful + gone.idle > 0
    nothing_left(server.data)


def test_a_gang_gets_the_machine_that_is_always_there_and_a_new_one(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(**a_pool(min=1, max=2)).up()
    wait_until(lambda: machines(server, "ready"), "the machine that is always there", 40)
    ran = server.spill("run", "--wait", "--cpu", "1", "--tasks", "2", "--", "echo", "together")
    assert (ran.returncode, ran.stdout.count("together")) == (0, 2), ran
    assert server.stop() == 0
    events = read_journal(server.data)
    wishes = [wish.machine for event in events if isinstance(event, MachinesWanted) for wish in event.wishes]
    assert wishes[:2] == ["cloud-1", "cloud-2"], "two new ones would be one more than the pool may have"
    assert [each.machines for each in events if isinstance(each, MachinesEarmarked)][:1] == [("cloud-1",)]


def test_a_server_that_was_killed_finds_its_machine_again(servers: Callable[..., ServerProcess]) -> None:
    server = servers(**a_pool(idle="1h")).up()
    assert server.spill("run", "--wait", "--cpu", "1", "--", "true").returncode == 0
    (machine,) = machines(server, "ready")
    server.kill()
    assert processes_of(server.data), "the machine is gone with its server"
    server.up()
    wait_until(lambda: agents(server) == [machine], "the machine joining again")
    ran = server.spill("run", "--wait", "--cpu", "1", "--", "echo", "again")
    assert (ran.returncode, ran.stdout) == (0, "again\n"), ran
    assert machines(server, "ready") == [machine]
    assert server.stop() == 0
    wait_until(lambda: not processes_of(server.data), "the machine ending with its server")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"refuse": {"*": "auth"}}, "the provider refused (auth): the option `refuse` has *: auth"),
        ({"refuse": {"*": "invalid"}}, "the provider refused (invalid): the option `refuse` has *: invalid"),
        ({"fail": 1.0}, "3 machines in a row did not join within 1s"),
    ],
)
def test_a_pool_that_cannot_rent_is_paused_and_everybody_is_told(
    servers: Callable[..., ServerProcess], options: dict[str, Any], why: str
) -> None:
    server = servers(**a_pool(provider={"process": options}, join_within="1s")).up()
    job = server.spill("run", "--detach", "--cpu", "1", "--", "true").stdout.strip()
    wait_until(lambda: 'spill_pool_paused{pool="cloud"} 1.0' in figures(server), "the pool being paused", 40)
    paused = f"the pool of cloud is paused: {why}; resume it with `spill pools resume cloud`"
    assert paused in server.spill("why", job).stdout
    assert why in server.spill("pools").stdout
    assert "a pool is paused" in server.log.read_text()
    assert why in server.log.read_text()
    before = len(machines(server, "refused", "gone", "ending"))
    assert server.spill("pools", "resume", "cloud").returncode == 0
    wait_until(lambda: len(machines(server, "refused", "gone", "ending")) > before, "another try", 40)


def test_a_pool_that_is_added_works_and_its_cluster_is_removed_after_its_machines(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(clusters=[{"name": "onprem"}], policy={"wait": "zero"}).up()
    with server.client() as client:
        client.add_cluster({"name": "cloud", "role": "rented", "pool": {**POOL, "idle": "1h"}})
        assert server.spill("run", "--wait", "--cpu", "1", "--", "true").returncode == 0
        assert machines(server, "ready") == ["cloud-1"]
        assert 'spill_machines{pool="cloud",state="ready"} 1.0' in figures(server)
        assert 'spill_provider_calls_total{call="create",outcome="made",pool="cloud"} 1.0' in figures(server)
        client.remove_clusters("cloud")
        wait_until(lambda: "cloud" not in [each.name for each in client.clusters()], "its removal", 40)
    assert server.stop() == 0
    events = read_journal(server.data)
    gone = [at for at, each in enumerate(events) if isinstance(each, MachineGone)]
    removed = [at for at, each in enumerate(events) if isinstance(each, ClusterRemoved)]
    assert len(gone) == len(removed) == 1
    assert gone < removed
    nothing_left(server.data)


def test_a_restart_without_the_pool_says_that_its_machines_cost_money(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(**a_pool(idle="1h")).up()
    assert server.spill("run", "--wait", "--cpu", "1", "--", "true").returncode == 0
    server.kill()
    settings = server.folder / "spill.yaml"
    document = yaml.safe_load(settings.read_text())
    settings.write_text(yaml.safe_dump({**document, "clusters": [{"name": "onprem"}]}))
    server.up()
    assert "rented machines cost money" in server.log.read_text()
