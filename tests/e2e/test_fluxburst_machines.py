"""The real plugins of flux-burst for GKE and EKS, unchanged and without their clouds: their machines join and run jobs."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from spillover.ports.provider import Join, Made, Order, Presence, ProviderOpening, Refused, order_token
from spillover.providers.fluxburst.plugins import CREDENTIALS
from spillover.providers.fluxburst.provider import FluxburstForm, FluxburstKind
from spillover.testing.provider_suite import OWNER
from tests.support.fluxburst import put_stand_ins, real_plugins
from tests.support.processes import ServerProcess, wait_until

pytestmark = pytest.mark.slow

run = asyncio.run
CLUSTER = ClusterName("cloud")
KEYS = {"GOOGLE_APPLICATION_CREDENTIALS": "key.json", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
OFFER = Offer("n2-standard-2", Resources(1000, 2**30), 100_000, labels={"said": "it's $HOME"})


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the cloud of the real plugins."""
    plugins = real_plugins()
    if plugins is None:
        pytest.skip("PyPI does not answer, and the plugins of flux-burst are downloaded from there once")
    put_stand_ins(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(plugins))
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    made = tmp_path / "cloud"
    made.mkdir()
    return made


@pytest.mark.parametrize(("plugin", "params"), [("gke", {"project": "physics"}), ("eks", {})])
def test_a_machine_of_a_real_plugin_joins_runs_a_job_and_goes(
    servers: Callable[..., ServerProcess],
    cloud: Path,
    tmp_path: Path,
    plugin: str,
    params: dict[str, str],
) -> None:
    server = servers(clusters=[{"name": "cloud"}]).up()
    token = server.spill("token", "create", "--role", "agent").stdout.strip()
    address = json.loads((server.data / "server.json").read_text())["grpc"]
    join = Join(address, CLUSTER, "cloud-1", token, time.time_ns() + HOUR)
    order = Order(MachineId("cloud-1"), order_token(OWNER, "cloud-1"), OWNER, OFFER, join)
    operator = tmp_path / "operator.yaml"
    operator.touch()
    form = FluxburstForm(
        plugin,
        {**params, "image": "registry/spillover", "flux_operator_yaml": str(operator)},
        python=sys.executable,
    )
    kind = FluxburstKind()
    environ = {**os.environ, **KEYS, "CLOUD": str(cloud)}
    assert not kind.check(form, [OFFER])
    assert not kind.missing(form, environ, Path())
    provider = kind.open(form, ProviderOpening(CLUSTER, OWNER, tmp_path / "machines", environ))

    def ready() -> list[str]:
        with server.client() as client:
            return [agent.name for agent in client.agents() if agent.state == "ready"]

    assert isinstance(run(provider.create(order)), Made)
    try:
        wait_until(lambda: ready() == ["cloud-1"], "the machine joining", 30)
        ran = server.spill("run", "--wait", "--cpu", "1", "--", "echo", "rented")
        assert (ran.returncode, ran.stdout) == (0, "rented\n"), ran
        made = json.loads((cloud / order.name).read_text())
        assert (made["nodes"], made["machine_type"], made["image"]) == (1, OFFER.type, "registry/spillover")
        (listed,) = run(provider.list()).machines
        assert (listed.machine, listed.presence) == ("cloud-1", Presence.RUNNING)
    finally:
        # As the next server does, which has another instance of the plugin.
        provider = kind.open(form, ProviderOpening(CLUSTER, OWNER, tmp_path / "machines", environ))
        assert run(provider.destroy([order.name])) == {}
    wait_until(lambda: not run(provider.list()).machines, "the plugin having removed the machine")
    assert not (cloud / order.name).exists()
    wait_until(lambda: not ready(), "the machine having left")


@pytest.mark.parametrize("plugin", ["gke", "eks"])
def test_a_pool_of_a_real_plugin_rents_a_machine_for_a_job_and_gives_it_back(
    servers: Callable[..., ServerProcess],
    cloud: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plugin: str,
) -> None:
    for name, value in {**KEYS, "CLOUD": str(cloud), "PYTHONPATH": os.pathsep.join(sys.path)}.items():
        monkeypatch.setenv(name, value)
    operator = tmp_path / "operator.yaml"
    operator.touch()
    params = {"image": "registry/spillover", "flux_operator_yaml": str(operator)}
    params |= {"project": "physics"} if plugin == "gke" else {}
    options = {"plugin": plugin, "params": params, "python": sys.executable}
    offers = [{"type": "n2-standard-2", "cpu": 1, "memory": "1Gi", "hour": 0.1}]
    pool = {"provider": {"fluxburst": options}, "offers": offers, "max": 2, "idle": "0s", "alone_for": "0s"}
    clusters = [{"name": "cloud", "role": "rented", "pool": pool}]
    server = servers(clusters=clusters, policy={"wait": "zero"}).up()
    ran = server.spill("run", "--wait", "--cpu", "1", "--", "echo", "rented", timeout=90)
    assert (ran.returncode, ran.stdout) == (0, "rented\n"), f"{ran} {server.last_words()}"
    wait_until(lambda: not made_by(cloud), "the plugin having removed the machine", 60)

    def gone() -> list[str]:
        with server.client() as client:
            return [each.state for each in client.pools()[0].machines]

    wait_until(lambda: gone() == ["gone"], "the server knowing that", 60)
    assert server.stop() == 0


def made_by(cloud: Path) -> list[str]:
    """Return the clusters that the plugin has made and not removed."""
    return [each.name for each in cloud.iterdir() if not each.suffix]


@pytest.mark.parametrize("plugin", ["gke", "eks"])
def test_credentials_that_a_real_plugin_lacks_are_told_before_the_server_starts(
    cloud: Path, plugin: str
) -> None:
    params = {"project": "physics"} if plugin == "gke" else {}
    without = {key: value for key, value in os.environ.items() if key not in KEYS}
    lines = FluxburstKind().missing(FluxburstForm(plugin, params), without, Path())
    lacks = CREDENTIALS[plugin]
    assert [line.split(" is not set in the environment of the server")[0] for line in lines] == [*lacks]
    assert not FluxburstKind().missing(FluxburstForm(plugin, params), without | KEYS, Path())


def test_what_a_real_plugin_lacks_is_told(cloud: Path, tmp_path: Path) -> None:
    form = FluxburstForm("gke", {"projct": "physics"})
    flaws = FluxburstKind().check(form, [])
    assert [flaw.path for flaw in flaws] == [("params", "projct"), ("params",)]
    assert flaws[1].message == (
        "project is missing, which fluxburst_gke requires; write params: {project: ...}"
    )
    environ = {key: value for key, value in os.environ.items() if key not in KEYS}
    opening = ProviderOpening(CLUSTER, OWNER, tmp_path / "machines", environ)
    provider = FluxburstKind().open(FluxburstForm("gke", {"project": "physics"}), opening)
    join = Join("127.0.0.1:9", CLUSTER, "cloud-1", "secret", 0)
    order = Order(MachineId("cloud-1"), order_token(OWNER, "cloud-1"), OWNER, OFFER, join)
    answer = run(provider.create(order))
    assert answer == Refused(
        RefusalCause.AUTH,
        "GOOGLE_APPLICATION_CREDENTIALS not found in environment, cannot schedule to GKE.",
    )
    assert not [*cloud.iterdir()]
