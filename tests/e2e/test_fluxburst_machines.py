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
    assert not kind.check(form, [OFFER])
    assert not kind.missing(form, os.environ, Path())
    environ = {**os.environ, **KEYS, "CLOUD": str(cloud)}
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
