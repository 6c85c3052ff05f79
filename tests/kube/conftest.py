"""Two real clusters that all tests of this folder share: each test takes a namespace of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillover.testing.kube import Cluster, NotBuilt, clusters, find_binaries

HERE = Path(__file__).parent
LONG = {
    "test_adoption.py",
    "test_bad_clusters.py",
    "test_control_plane.py",
    "test_deploy.py",
    "test_deploy_roles.py",
    "test_failing_clusters.py",
    "test_readme_clusters.py",
    "test_reasons.py",
}
"""What is left to `make test-kube`: `make test` is to be over within a quarter of an hour."""


def _missing() -> str:
    """Why clusters cannot be started; empty if they can."""
    try:
        find_binaries()
    except NotBuilt as missing:
        return str(missing)
    return ""


@pytest.hookimpl(tryfirst=True)  # before some are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = _missing()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kube)
            if item.path.name in LONG:
                item.add_marker(pytest.mark.slow)
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if missing := _missing():
        terminalreporter.write_line(f"Tests on a real Kubernetes were left out: {missing}")


@pytest.fixture(scope="session")
def both() -> Iterator[tuple[Cluster, ...]]:
    with clusters("onprem", "cloud") as started:
        yield started


@pytest.fixture(scope="session")
def onprem(both: tuple[Cluster, ...]) -> Cluster:
    return both[0]


@pytest.fixture(scope="session")
def cloud(both: tuple[Cluster, ...]) -> Cluster:
    return both[1]
