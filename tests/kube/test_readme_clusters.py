"""The tour of two Kubernetes clusters is true: on clusters that are started as it says, its commands print what it shows."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kube import find_binaries
from tests.support.tours import Shell

ROOT = Path(__file__).parents[2]
START = "python -m tests.support.kube"
IN_CLONE = os.environ | {"PYTHONPATH": str(ROOT)}
"""As if it were started in the clone, which is where the page has it started."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Two clusters, started by hand; nothing is left of them."""
    with subprocess.Popen(
        [sys.executable, *START.split()[1:]], cwd=tmp_path, env=IN_CLONE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            path = tmp_path / "kubeconfig"
            assert process.stdout.readline() == f"two clusters are up: export KUBECONFIG={path}\n"
            yield path
        finally:
            process.terminate()
    assert process.returncode == 0


def test_the_tour_of_two_clusters_prints_what_its_page_shows(kubeconfig: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "kubernetes-tour.md").read_text()
    assert START in page
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = f"{Path(sys.executable).parent}:{find_binaries().kubectl.parent}:{os.environ['PATH']}"
    with Shell(tmp_path, {"KUBECONFIG": str(kubeconfig), "PATH": path}) as shell:
        assert shell.tour(page) > 10
        assert shell.server is None


def test_whoever_has_not_built_them_is_told_what_to_do(tmp_path: Path) -> None:
    nothing = {"SPILL_KUBE_CACHE": str(tmp_path), "KUBEBUILDER_ASSETS": ""}
    done = subprocess.run(
        [sys.executable, *START.split()[1:]],
        cwd=tmp_path,
        env=IN_CLONE | nothing,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "run make kube" in done.stdout
    assert not done.stderr
