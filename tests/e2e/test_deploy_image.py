"""The image of deploy/, built by podman from a base that is made here, and what compose.yaml starts with it: server, token, agent, a job."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import yaml

from tests.support.processes import wait_until

ROOT = Path(__file__).parents[2]
NEEDED = ("podman", "runc", "debootstrap")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not os.environ.get("SPILL_TEST_IMAGE"),
        reason="left out: `make test-deploy` builds the image and runs it",
    ),
]


class Podman:
    """podman with a store of its own, gone after the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        settings = folder / "containers.conf"
        settings.write_text(
            '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]\n[engine]\nevents_logger = "none"\n'
        )
        self._environment = os.environ | {"CONTAINERS_CONF": str(settings)}

    def __call__(self, *words: str, seconds: float = 120, stdin: int | IO[bytes] | None = None) -> str:
        """What a command prints; it must succeed."""
        done = self.tried(*words, seconds=seconds, stdin=stdin)
        assert done.returncode == 0, f"podman {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def tried(
        self, *words: str, seconds: float = 120, stdin: int | IO[bytes] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """What comes of a command."""
        place = ("--root", str(self._folder / "root"), "--runroot", str(self._folder / "run"))
        how = ("--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs")
        return subprocess.run(
            ["podman", *place, *how, *words],
            env=self._environment,
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid():
        pytest.fail(f"make test-deploy needs root, and {', '.join(missing or NEEDED)}")
    folder = tmp_path_factory.mktemp("podman")
    made = Podman(folder)
    try:
        yield made
    finally:
        made.tried("rm", "--all", "--force", "--time", "0")
        made.tried("volume", "rm", "--all", "--force")
        made.tried("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("base")
    packages = "python3-minimal,python3-venv,python-is-python3"
    words = [
        "debootstrap",
        "--variant=minbase",
        f"--include={packages}",
        _suite(),
        str(folder / "root"),
        _mirror(),
    ]
    subprocess.run(words, check=True, capture_output=True, timeout=600)
    with subprocess.Popen(["tar", "-C", str(folder / "root"), "-c", "."], stdout=subprocess.PIPE) as archive:
        podman("import", "-", "spillover-base", seconds=300, stdin=archive.stdout)
    wheels = folder / "wheels"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--dest",
        str(wheels),
        "--constraint",
        "constraints.txt",
    ]
    subprocess.run([*pip, "hatchling", f"{ROOT}[kubernetes,postgresql]"], cwd=ROOT, check=True, timeout=600)
    for own in wheels.glob("spillover-*"):
        own.unlink()
    podman(
        *(
            "build",
            "--format",
            "docker",
            "--layers=false",
            "--network",
            "none",
            "--file",
            "deploy/Dockerfile",
        ),
        *("--volume", f"{wheels}:/wheels:ro", "--build-arg", "BASE=localhost/spillover-base"),
        *("--build-arg", "PIP_OPTIONS=--no-index --find-links /wheels", "--tag", "spillover", str(ROOT)),
        seconds=900,
    )
    return "spillover"


def _suite() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _mirror() -> str:
    """Where this machine gets its own packages."""
    words = [
        "apt-get",
        "indextargets",
        "--format",
        "$(SITE)",
        "Created-By: Packages",
        f"Codename: {_suite()}",
    ]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return said.split()[0]


def test_a_server_an_agent_and_a_job_in_containers(podman: Podman, image: str) -> None:
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]

    def words(name: str) -> list[str]:
        """The command of a service; in one network they find the server on loopback."""
        return [word.replace("https://server:", "https://localhost:") for word in services[name]["command"]]

    def volumes(name: str) -> list[str]:
        return [f"--volume={each}" for each in services[name]["volumes"] if not each.startswith(".")]

    closed = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
    podman(
        "run",
        "--rm",
        "--network=none",
        *closed,
        *volumes("certificates"),
        "--entrypoint=sh",
        image,
        "-c",
        *words("certificates"),
    )
    podman(
        "run",
        "--detach",
        "--name=server",
        "--network=none",
        *closed,
        *volumes("server"),
        image,
        *words("server"),
    )
    wait_until(
        lambda: podman.tried("healthcheck", "run", "server").returncode == 0, "health of the server", 60, 0.5
    )
    inside = "--network=container:server"
    podman("run", "--rm", inside, *closed, *volumes("token"), "--entrypoint=sh", image, "-c", *words("token"))
    podman("run", "--detach", "--name=agent", inside, *closed, *volumes("agent"), image, *words("agent"))
    told = podman(
        "exec", "server", "spill", "run", "--wait", "--", "sh", "-c", "id -un; echo done", seconds=60
    )
    assert told.split() == ["spillover", "done"]
    podman("stop", "--time=45", "agent")
    assert podman("inspect", "agent", "--format={{.State.ExitCode}}").strip() == "0"
    podman("rm", "agent")
    podman("stop", "--time=15", "server")
    assert podman("inspect", "server", "--format={{.State.ExitCode}}").strip() == "0"
