"""Machines of the provider `podman`: containers whose agents join a server over a network of their own."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.model.pools import MachineId, Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import Listed, Made, Order, Presence, Refused, order_token
from spillover.providers.podman.provider import AGENT_MEMORY, PodmanForm, PodmanKind, PodmanProvider
from spillover.providers.userdata import FOLDER
from spillover.testing.provider_suite import OTHER, OWNER, ProviderSuite, an_opening
from tests.e2e.conftest import Joinable
from tests.support.containers import IMAGE, ContainerEngine, an_engine, machine_mounts, missing
from tests.support.processes import ServerProcess, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

run = asyncio.run
ORDER = ProviderSuite().an_order()
SPILL = str(Path(sys.prefix) / "bin" / "spill")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ContainerEngine]:
    with an_engine(tmp_path / "engine") as made:
        yield made


def opened(engine: ContainerEngine, folder: Path, form: PodmanForm) -> PodmanProvider:
    assert not PodmanKind().check(form, [])
    return PodmanKind().open(form, an_opening(folder / "machines", OWNER, {**os.environ, **engine.env}))


def stubbed(engine: ContainerEngine, folder: Path, script: str, **options: object) -> PodmanProvider:
    """A provider whose machines run a script of the test in place of an agent."""
    stub = folder / "stub"
    stub.write_text(f"#!/bin/sh\n{script}\n")
    stub.chmod(0o755)
    mount = f"--volume={stub}:/bin/spill:ro"
    return opened(engine, folder, PodmanForm(IMAGE, engine_options=[mount, "--user=10001"], **options))  # type: ignore[arg-type]


def only(provider: PodmanProvider) -> Listed:
    (listed,) = run(provider.list()).machines
    return listed


def test_a_container_joins_over_the_network_and_runs_jobs(
    joinable: Joinable, engine: ContainerEngine, tmp_path: Path
) -> None:
    server = joinable.server
    offer = Offer("small", Resources(1500, 2**28), 100_000, labels={"rack": "a b"})
    order = Order(MachineId("cloud-1"), order_token(OWNER, "cloud-1"), OWNER, offer, joinable.join)
    options = [*machine_mounts(), "--user=10001", "--env=HOME=/tmp"]
    form = PodmanForm(IMAGE, f"ns:/run/netns/{joinable.namespace}", engine_options=options, program=SPILL)
    provider = opened(engine, tmp_path, form)

    assert run(provider.create(order)) == Made(order.name, only(provider).at)

    def ready() -> list[dict[str, str]]:
        with server.client() as client:
            return [agent.labels for agent in client.agents() if agent.state == "ready"]

    try:
        (labels,) = wait_until(ready, "the machine joining", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}; the machine says: {engine.run('logs', order.name)}") from None
    assert labels["rack"] == "a b"
    ran = server.spill("run", "--wait", "--cpu", "1.5", "--workdir", "/tmp", "--", "sh", "-c", "id -u")
    assert (ran.returncode, ran.stdout) == (0, "10001\n"), ran
    assert only(provider).presence is Presence.RUNNING
    assert run(provider.destroy([order.name])) == {}
    assert not engine.containers()
    wait_until(lambda: not ready(), "the machine having left")
    assert "registered with" in (tmp_path / "machines/ended" / order.name).read_text()


def test_only_the_user_of_the_container_can_read_what_it_joins_with(
    engine: ContainerEngine, tmp_path: Path
) -> None:
    provider = stubbed(
        engine, tmp_path, f"ls -ln {FOLDER}; cat {FOLDER}/join.json; touch {FOLDER}/state && exec sleep 100"
    )
    run(provider.create(ORDER))
    said = wait_until(lambda: engine.run("logs", ORDER.name), "the machine having started")
    wait_until(lambda: ORDER.join.token in engine.run("logs", ORDER.name), "the machine reading its token")
    assert said.splitlines()[1].startswith("-rw-------    1 10001 ")
    inspected = engine.run("inspect", ORDER.name)
    assert ORDER.join.token not in inspected
    (file,) = (tmp_path / "machines/join").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    (container,) = json.loads(inspected)
    assert container["Config"]["Labels"] == ORDER.tags
    limits = container["HostConfig"]
    assert (limits["NanoCpus"], limits["Memory"]) == (10**9, 2**30 + AGENT_MEMORY)


def test_a_container_that_ended_is_not_started_again(engine: ContainerEngine, tmp_path: Path) -> None:
    provider = stubbed(engine, tmp_path, "echo it cannot join; exit 3")
    made = run(provider.create(ORDER))
    wait_until(lambda: only(provider).presence is Presence.STOPPING, "the machine having ended")
    assert only(provider).reason == f"its agent ended with exit code 3; see: podman logs {ORDER.name}"
    assert run(provider.create(ORDER)) == made
    assert only(provider).presence is Presence.STOPPING
    assert run(provider.destroy([ORDER.name])) == {}
    assert (tmp_path / "machines/ended" / ORDER.name).read_text() == "it cannot join\n"


def test_a_container_that_cannot_start_is_refused_and_removed(
    engine: ContainerEngine, tmp_path: Path
) -> None:
    provider = stubbed(engine, tmp_path, "", program="no-such-program")
    answer = run(provider.create(ORDER))
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.INVALID
    assert '"no-such-program": executable file not found' in answer.why
    assert not engine.containers()
    assert not [*(tmp_path / "machines/join").iterdir()]


def test_an_order_that_stopped_before_its_container_started_starts_it(
    engine: ContainerEngine, tmp_path: Path
) -> None:
    provider = stubbed(engine, tmp_path, "exec sleep 100")
    provider._write_join(ORDER)
    mount = f"--volume={provider._join_file(ORDER.name)}:{FOLDER}/join.json:ro"
    labels = [f"--label={key}={value}" for key, value in ORDER.tags.items()]
    engine.run("create", f"--name={ORDER.name}", mount, *labels, IMAGE, "sleep", "100")
    assert only(provider).presence is Presence.PENDING
    assert isinstance(run(provider.create(ORDER)), Made)
    assert only(provider).presence is Presence.RUNNING


def test_a_container_without_labels_is_known_by_its_name_and_one_of_others_is_not_touched(
    engine: ContainerEngine, tmp_path: Path
) -> None:
    provider = stubbed(engine, tmp_path, "exec sleep 100")
    engine.run("run", "--detach", f"--name={ORDER.name}", IMAGE, "sleep", "100")
    second = ProviderSuite().an_order(2)
    theirs = replace(second, owner=OTHER).tags
    labels = [f"--label={key}={value}" for key, value in theirs.items()]
    engine.run("run", "--detach", f"--name={second.name}", *labels, IMAGE, "sleep", "100")
    listed = only(provider)
    assert (listed.id, listed.machine, listed.owner, listed.name) == (ORDER.name, "", "", ORDER.name)
    assert isinstance(run(provider.create(ORDER)), Made)
    answer = run(provider.create(second))
    assert isinstance(answer, Refused)
    assert answer.why == (
        f"there is a container {second.name} of somebody else; remove it with: podman rm --force {second.name}"
    )
    assert run(provider.destroy([ORDER.name, second.name, "--all"])) == {}
    assert engine.containers() == [second.name]


def test_a_pool_of_containers_is_rented_for_a_job(
    servers: Callable[..., ServerProcess],
    engine: ContainerEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in engine.env.items():
        monkeypatch.setenv(name, value)
    options = {"image": IMAGE, "network": "host", "program": SPILL, "engine_options": machine_mounts()}
    offers = [{"type": "small", "cpu": 1, "memory": "256Mi", "hour": 0.1}]
    pool = {"provider": {"podman": options}, "offers": offers, "max": 1, "idle": "0s"}
    clusters = [{"name": "cloud", "role": "rented", "pool": pool}]
    server = servers(clusters=clusters, policy={"wait": "zero"}).up()
    ran = server.spill("run", "--wait", "--workdir", "/tmp", "--", "sh", "-c", "echo rented")
    assert (ran.returncode, ran.stdout) == (0, "rented\n"), ran
    wait_until(lambda: not engine.containers(), "the machine having been given back", 60)
