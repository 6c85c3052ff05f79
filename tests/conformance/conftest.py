"""Stores for the suites: each test has data of its own, on every kind of store."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

for port in ("journal", "election", "archive", "audit", "blobs", "driver"):
    pytest.register_assert_rewrite(f"spillover.testing.{port}_suite")

from spillover.stores.memory import Shelf, open_memory  # noqa: E402 - after the rewriting of assertions is asked for
from spillover.stores.postgresql.open import open_postgresql  # noqa: E402
from spillover.stores.sqlite.open import open_sqlite  # noqa: E402
from spillover.stores.store import TERM, Store  # noqa: E402
from spillover.testing.stores import Opener  # noqa: E402
from tests.support.postgresql import PostgresqlServer  # noqa: E402

Opening = Callable[[float, Callable[[], float]], Awaitable[Store]]


@pytest.fixture(scope="package")
def postgresql() -> Iterator[PostgresqlServer]:
    """One for all; its thousands of files are removed before they are all on the disk, which is much quicker."""
    server = PostgresqlServer()
    yield server
    server.stop()


async def _memory(_: pytest.FixtureRequest) -> Opening:
    shelf = Shelf()

    async def opening(term: float, monotonic: Callable[[], float]) -> Store:
        return open_memory(shelf, term, monotonic)

    return opening


async def _sqlite(request: pytest.FixtureRequest) -> Opening:
    folder: Path = request.getfixturevalue("tmp_path")

    async def opening(term: float, monotonic: Callable[[], float]) -> Store:
        return await open_sqlite(folder, term, monotonic)

    return opening


async def _postgresql(request: pytest.FixtureRequest) -> Opening:
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    url = await server.fresh()

    async def opening(term: float, monotonic: Callable[[], float]) -> Store:
        return await open_postgresql(url, term, monotonic)

    return opening


@pytest.fixture(params=[_memory, _sqlite, _postgresql], ids=["memory", "sqlite", "postgresql"])
async def opener(request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    opening: Opening = await request.param(request)
    opened: list[Store] = []

    async def open_one(term: float = TERM, monotonic: Callable[[], float] = time.monotonic) -> Store:
        opened.append(await opening(term, monotonic))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()
