"""Two real clusters that all tests of this folder share: each test takes a namespace of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kube import Cluster, NotBuilt, clusters, find_binaries

HERE = Path(__file__).parent


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
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


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
