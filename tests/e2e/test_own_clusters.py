"""The example of a kind of cluster runs jobs on a real server; one that is broken is named in one line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.processes import ServerProcess, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "clusters"
CLUSTERS = [
    {"name": "onprem", "local": [{"name": "n1", "cpu": 1}]},
    {"name": "scratch", "kind": "subprocesses", "subprocesses": {"slots": 2}},
]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages that every server and command of this test sees, with the example in it."""
    folder = tmp_path / "site"
    folder.mkdir()
    paths = [str(folder), str(EXAMPLE / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths).strip(":"))
    register(folder, "subprocesses", "spillover_subprocesses:SubprocessesKind")
    return folder


def register(site: Path, name: str, where: str) -> None:
    """As an installed package is."""
    info = site / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[spillover.clusters]\n{name} = {where}\n")


def test_jobs_run_on_a_kind_of_cluster_that_a_package_brings(
    site: Path, servers: Callable[..., ServerProcess]
) -> None:
    (site / "broken_kind.py").write_text("import no_such_module\n")
    register(site, "broken", "broken_kind:Broken")
    server = servers(clusters=CLUSTERS).up()
    assert "the cluster kind broken of broken cannot be used: ModuleNotFoundError" in server.last_words()

    def ready() -> bool:
        found = json.loads(server.spill("clusters", "--json").stdout)
        return ("scratch", "READY") in [(each["name"], each["state"]) for each in found]

    wait_until(ready, "the cluster is ready")
    job = "apiVersion: spillover/v1\nkind: Job\nmetadata: {name: NAME}\nspec: {run: 'COMMAND', where: {cluster: scratch}}\n"
    good = job.replace("NAME", "good").replace("COMMAND", "echo hello from $SPILL_CLUSTER")
    done = server.spill("submit", "-", "--wait", typed=good)
    assert (done.returncode, done.stderr) == (0, "")
    assert server.spill("logs", "good").stdout == "hello from scratch\n"
    bad = server.spill("submit", "-", "--wait", typed=job.replace("NAME", "bad").replace("COMMAND", "exit 3"))
    assert bad.returncode == 1
    shown = json.loads(server.spill("show", "bad", "--json").stdout)
    assert (shown["cluster"], shown["node"], shown["exit_code"]) == ("scratch", "here", 3)
    server.spill("submit", "-", typed=job.replace("NAME", "long").replace("COMMAND", "sleep 100"))
    wait_until(
        lambda: json.loads(server.spill("show", "long", "--json").stdout)["state"] == "RUNNING", "it runs"
    )
    assert server.spill("cancel", "long").returncode == 0
    assert server.spill("wait", "long").returncode == 1
    assert json.loads(server.spill("show", "long", "--json").stdout)["state"] == "CANCELLED"


def test_a_kind_that_is_installed_while_the_server_runs_can_be_used_at_once(
    site: Path, servers: Callable[..., ServerProcess]
) -> None:
    info = site / "subprocesses-1.dist-info"
    info.rename(site / "later")
    server = servers(clusters=CLUSTERS[:1]).up()
    entry = json.dumps({"name": "scratch", "kind": "subprocesses"})
    assert server.spill("clusters", "add", "-f", "-", typed=entry).returncode == 2
    (site / "later").rename(info)
    assert server.spill("clusters", "add", "scratch=subprocesses:slots=2").returncode == 0
    job = "apiVersion: spillover/v1\nkind: Job\nspec: {run: 'echo here', where: {cluster: scratch}}\n"
    done = server.spill("submit", "-", "--wait", typed=job)
    assert (done.returncode, done.stderr) == (0, "")
    long = server.spill("submit", "-", typed=job.replace("echo here", "sleep 100")).stdout.strip()
    wait_until(
        lambda: json.loads(server.spill("show", long, "--json").stdout)["state"] == "RUNNING", "it runs"
    )
    assert server.spill("clusters", "remove", "scratch", "--cancel").returncode == 0
    assert server.spill("wait", long).returncode == 1
    wait_until(lambda: "scratch" not in server.spill("clusters").stdout, "the cluster is gone")
    assert not [*(server.data / "subprocesses" / "scratch").iterdir()], "what had ended there is deleted"


FLAKY = """
from pathlib import Path
from msgspec import Struct
from spillover.ports.kinds import CannotOpen
from spillover_subprocesses import SubprocessesKind

class Form(Struct, frozen=True, forbid_unknown_fields=True):
    door: str = ""
    slots: str = "1"
    ram: str = "1Gi"

class Flaky(SubprocessesKind):
    name = "flaky"
    form = Form

    def missing(self, form, environ, home):
        return [] if Path(form.door).exists() else [f"there is no {form.door}"]

    def open(self, form, opening):
        if not Path(form.door).exists():
            raise CannotOpen(f"there is no {form.door}")
        return super().open(form, opening)
"""


def test_one_that_cannot_be_opened_is_tried_again_and_one_that_changed_is_opened_anew(
    site: Path, servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    (site / "flaky_kind.py").write_text(FLAKY)
    register(site, "flaky", "flaky_kind:Flaky")
    server = servers(clusters=CLUSTERS[:1]).up()
    door = tmp_path / "door"
    refused = server.spill("clusters", "add", f"shed=flaky:door={door}")
    assert (refused.returncode, refused.stderr) == (2, f"spill: cluster shed: there is no {door}\n")
    assert server.spill("clusters", "add", f"shed=flaky:door={door}", "--no-check").returncode == 0

    def shed() -> dict[str, object]:
        found = json.loads(server.spill("clusters", "--json").stdout)
        return dict(next(each for each in found if each["name"] == "shed"))

    wait_until(lambda: shed()["why"] == f"there is no {door}", "it says why")
    assert shed()["life"] == "requested"
    server.stop()
    server.up()
    assert shed()["life"] == "requested", "the server starts without it"
    door.touch()
    wait_until(lambda: shed()["life"] == "ready", "it is opened after all")
    config = yaml.safe_load((tmp_path / "spill.yaml").read_text())
    config["clusters"].append({"name": "shed", "kind": "flaky", "flaky": {"door": str(door), "slots": "3"}})
    (tmp_path / "spill.yaml").write_text(yaml.safe_dump(config))
    assert server.spill("config", "apply").returncode == 0
    wait_until(lambda: shed()["capacity"] == {"cpu": 3.0, "memory": 2.0**30, "gpu": 0.0}, "it has more room")
    assert (shed()["configured"], shed()["added_by"]) == (True, None)
    job = "apiVersion: spillover/v1\nkind: Job\nspec: {run: 'true', where: {cluster: shed}}\n"
    assert server.spill("submit", "-", "--wait", typed=job).returncode == 0


def test_the_tests_of_the_example_pass(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(EXAMPLE / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
