"""The example package is installed as people would, and runs jobs on a real agent; one that fails does no harm."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess

EXAMPLE = Path(__file__).parents[2] / "examples" / "runners"
JOB = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: greeter}
spec: {container: {image: tools, command: [greet, you]}}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages that every agent of this test sees."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).strip(":")
    )
    return folder


@pytest.fixture
def installed(site: Path) -> None:
    """The example, without a network."""
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    words = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(EXAMPLE)]
    subprocess.run(words, check=True, capture_output=True, timeout=120)


@pytest.mark.usefixtures("installed")
def test_an_installed_runner_runs_its_kind_of_work(
    start_server: Callable[..., ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "images" / "tools"
    tools.mkdir(parents=True)
    greet = tools / "greet"
    greet.write_text("#!/bin/sh\necho hello $1, from $SPILL_CLUSTER\n")
    greet.chmod(0o755)
    monkeypatch.setenv("FOLDER_IMAGES", str(tmp_path / "images"))
    server = start_server("--slots", "1")
    done = server.spill("submit", "-", "--wait", typed=JOB)
    assert (done.returncode, done.stderr) == (0, "")
    assert server.spill("logs", "greeter").stdout.startswith("hello you, from ")
    unknown = server.spill("submit", "-", "--wait", typed=JOB.replace("image: tools", "image: others"))
    assert unknown.returncode == 1
    why = json.loads(server.spill("why", unknown.stdout.split()[0], "--json").stdout)
    assert "there is no image others" in why["sentence"]


def test_without_a_runner_a_job_waits_and_says_why(
    start_server: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no engine is there
    server = start_server("--slots", "1")
    server.spill("run", "--wait", "--", "/bin/true")
    server.spill("submit", "-", typed=JOB)
    why = json.loads(server.spill("why", "greeter", "--json").stdout)
    assert (why["reason"]["code"], why["reason"]["never"]) == ("not_offered", True)
    assert "no cluster offers container: " in why["sentence"]
    assert "PATH has neither podman nor docker" in why["sentence"]


def test_a_runner_that_cannot_be_made_is_left_out(
    start_server: Callable[..., ServerProcess], site: Path
) -> None:
    (site / "own.py").write_text(
        "class Broken:\n    def __init__(self, house):\n        raise OSError('no licence')\n"
    )
    info = site / "own-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[spillover.runners]\nbroken = own:Broken\n")
    server = start_server("--slots", "1")
    assert server.spill("run", "--wait", "--", "echo", "hi").stdout == "hi\n"
    logs = "".join(path.read_text() for path in server.data.glob("agents/*/*.log"))
    assert "runner broken cannot be used: OSError: no licence" in logs + server.log.read_text()
