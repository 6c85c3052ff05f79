"""Plugins of flux-burst as a provider: what they are told, what is wrong with options, and what failures leave."""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from spillover.model.pools import RefusalCause
from spillover.ports.provider import Listed, Made, Presence, Refused
from spillover.providers.fluxburst import plugins
from spillover.providers.fluxburst.machine import MODULE, Told, agent_words, command
from spillover.providers.fluxburst.provider import (
    MOST_CLUSTER,
    FluxburstForm,
    FluxburstKind,
    FluxburstProvider,
    cluster_name,
)
from spillover.providers.process.machines import marked
from spillover.providers.userdata import offer_options
from spillover.testing.provider_suite import ProviderSuite, an_opening
from tests.support.fluxburst import put_toy
from tests.support.processes import wait_until

run = asyncio.run
SUITE = ProviderSuite()
ORDER = SUITE.an_order(offer=replace(SUITE.offer, labels={"said": "it's $HOME"}))


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FluxburstProvider:
    put_toy(tmp_path / "packages")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    (tmp_path / "cloud").mkdir()
    return reopened(tmp_path)


def reopened(folder: Path, **environ: str) -> FluxburstProvider:
    form = FluxburstForm("toy", {"cloud": str(folder / "cloud")})
    opening = an_opening(folder / "machines")
    return FluxburstKind().open(form, replace(opening, environ={**opening.environ, **environ}))


def only(provider: FluxburstProvider) -> Listed:
    (listed,) = run(provider.list()).machines
    return listed


def running(provider: FluxburstProvider) -> None:
    wait_until(lambda: only(provider).presence is Presence.RUNNING, "the plugin having made the machine")


def clusters(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "cloud").iterdir() if each.name not in {"fault", "calls"})


def test_the_plugin_gets_a_job_that_starts_an_agent(toy: FluxburstProvider, tmp_path: Path) -> None:
    assert isinstance(run(toy.create(ORDER)), Made)
    running(toy)
    told = (tmp_path / "cloud" / ORDER.name).read_text()
    assert told == f"small {' '.join(command(ORDER, 'python3'))}"
    text = told.split()[-1]
    assert text.replace("-", "").replace("_", "").isalnum(), "a shell would take it apart"
    options = agent_words(text, tmp_path / "machine")
    assert options == [
        *("--join", str(tmp_path / "machine/join.json"), "--data", str(tmp_path / "machine")),
        *offer_options(ORDER.offer),
    ]
    join = tmp_path / "machine/join.json"
    assert (json.loads(join.read_text())["token"], join.stat().st_mode & 0o777) == (ORDER.join.token, 0o600)


def test_the_machine_module_is_what_the_command_names() -> None:
    python, flag, module, text = command(ORDER, sys.executable)
    assert (python, flag, module) == (sys.executable, "-m", MODULE)
    padded = text + "=" * (-len(text) % 4)
    assert msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Told).join == ORDER.join


def test_variables_do_not_rename_a_cluster(toy: FluxburstProvider, tmp_path: Path) -> None:
    del toy
    provider = reopened(tmp_path, FLUXBURST_CLUSTER_NAME="other", FLUXBURST_ISOLATED_BURST="")
    run(provider.create(ORDER))
    running(provider)
    assert clusters(tmp_path) == [ORDER.name]


def test_a_plugin_that_exits_leaves_what_is_removed_and_is_not_called_again(
    toy: FluxburstProvider, tmp_path: Path
) -> None:
    (tmp_path / "cloud/fault").write_text("exit")
    made = run(toy.create(ORDER))
    wait_until(lambda: only(toy).presence is Presence.STOPPING, "the plugin having ended")
    assert only(toy).reason.startswith("the plugin exited with 7; see ")
    assert run(toy.create(ORDER)) == made
    (tmp_path / "cloud/fault").unlink()
    # There is no such cluster, and that counts as removed.
    assert run(toy.destroy([ORDER.name])) == {}
    assert not run(toy.list()).machines
    assert (tmp_path / "cloud/calls").read_text() == f"create {ORDER.name}\n"


def test_a_machine_that_is_still_made_can_be_destroyed_by_the_next_server(
    toy: FluxburstProvider, tmp_path: Path
) -> None:
    (tmp_path / "cloud/fault").write_text("slow")
    run(toy.create(ORDER))
    wait_until(lambda: clusters(tmp_path), "the plugin having begun")
    assert only(toy).presence is Presence.PENDING
    assert run(reopened(tmp_path).destroy([ORDER.name])) == {}
    assert not run(toy.list()).machines
    assert not clusters(tmp_path)
    folder = tmp_path / "machines" / ORDER.name
    assert not marked([folder])[str(folder)]


def test_a_machine_whose_folder_is_lost_is_removed_by_its_name(
    toy: FluxburstProvider, tmp_path: Path
) -> None:
    run(toy.create(ORDER))
    running(toy)
    (tmp_path / "machines").rename(tmp_path / "lost")
    assert run(toy.destroy([ORDER.name, "..", "spill-other-1"])) == {}
    assert not clusters(tmp_path)
    assert not run(toy.list()).machines


def test_what_a_plugin_only_logs_when_it_removes_is_a_failure(toy: FluxburstProvider, tmp_path: Path) -> None:
    run(toy.create(ORDER))
    running(toy)
    (tmp_path / "cloud/fault").write_text("refused_destroy")
    why = f"Issue deleting {ORDER.name}: RuntimeError: operation in progress"
    assert run(toy.destroy([ORDER.name])) == {ORDER.name: why}
    assert only(toy).reason.startswith(why)
    (tmp_path / "cloud/fault").unlink()
    assert run(toy.destroy([ORDER.name])) == {}
    assert not clusters(tmp_path)


def test_an_order_that_the_plugin_does_not_take_leaves_nothing(
    toy: FluxburstProvider, tmp_path: Path
) -> None:
    (tmp_path / "cloud/fault").write_text("auth")
    assert run(toy.create(ORDER)) == Refused(RefusalCause.AUTH, "TOY_KEY not found: no credentials")
    assert not run(toy.list()).machines
    assert isinstance(run(toy.create(ORDER)), Refused)


def test_names_of_clusters_are_short_and_apart() -> None:
    orders = [replace(ORDER, machine=f"a-very-long-name-of-a-cluster-{number}") for number in (1, 2)]
    names = {cluster_name(order.name) for order in orders}
    assert len(names) == 2
    assert all(len(name) <= MOST_CLUSTER for name in names)
    assert cluster_name(ORDER.name) == ORDER.name


@pytest.mark.parametrize(
    ("plugin", "params", "flaws"),
    [
        ("", {}, [(("plugin",), "is missing; name a plugin of flux-burst: toy")]),
        ("local", {}, [(("plugin",), plugins.NEED_FLUX["local"])]),
        ("compute_engine", {}, [(("plugin",), plugins.NEED_FLUX["compute_engine"])]),
        (
            "toy",
            {"machin_type": "x", "nodes": "four", "cluster_name": "mine"},
            [
                (
                    ("params", "machin_type"),
                    "is not a parameter of fluxburst_toy; there are cloud, machine_type, nodes",
                ),
                (("params", "nodes"), "'four' is not of type int"),
                (("params", "cluster_name"), "is set by Spillover; leave it out"),
                (
                    ("params",),
                    "cloud is missing, which fluxburst_toy requires; write params: {cloud: ...}",
                ),
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_plugin_and_its_parameters_is_told(
    toy: FluxburstProvider,
    monkeypatch: pytest.MonkeyPatch,
    plugin: str,
    params: dict[str, Any],
    flaws: list[Any],
) -> None:
    del toy
    assert [*FluxburstKind().check(FluxburstForm(plugin, params), [SUITE.offer])] == flaws


def test_offers_that_plugins_cannot_be_are_told(toy: FluxburstProvider) -> None:
    offers = [replace(SUITE.offer, spot=True), replace(SUITE.offer, zone="a")]
    assert [flaw.path for flaw in FluxburstKind().check(FluxburstForm("local"), offers)] == [
        ("plugin",),
        ("offers", 0),
        ("offers", 1),
    ]


def test_a_plugin_that_is_not_installed_or_broken_says_what_to_install(
    toy: FluxburstProvider, tmp_path: Path
) -> None:
    (line,) = FluxburstKind().missing(FluxburstForm("gke_x"), {}, Path())
    assert line == (
        "'gke_x' is not an installed plugin of flux-burst; there are toy; run: pip install flux-burst-gke-x"
    )
    plugin = tmp_path / "packages/fluxburst_toy/plugin.py"
    plugin.write_text(f"import kubescaler_x\n{plugin.read_text()}")
    (line,) = FluxburstKind().missing(FluxburstForm("toy"), {}, Path())
    assert line == (
        "fluxburst_toy cannot be used: ModuleNotFoundError: No module named 'kubescaler_x'; "
        "install it with what it needs: pip install flux-burst-toy"
    )
    answer = run(toy.create(ORDER))
    assert isinstance(answer, Refused)
    assert "No module named 'kubescaler_x'" in answer.why
