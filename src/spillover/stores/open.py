"""The one place that knows which stores there are."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spillover.ports.journal import Journal, StoreError
from spillover.stores.memory import open_memory
from spillover.stores.store import TERM, Store

_POSTGRESQL: Final = ("postgresql://", "postgres://")


async def open_store(
    where: str, data: Path, term: float = TERM, monotonic: Callable[[], float] = time.monotonic
) -> Store:
    """Open `memory`, `sqlite` (in the data folder) or `postgresql://...`; raises StoreError with one clear line."""
    if where == "memory":
        return open_memory(None, term, monotonic)
    if where == "sqlite":
        from spillover.stores.sqlite.open import open_sqlite  # noqa: PLC0415 - only what is used is loaded

        return await open_sqlite(data, term, monotonic)
    if where.startswith(_POSTGRESQL):
        with _driver():
            from spillover.stores.postgresql.open import open_postgresql  # noqa: PLC0415 - an optional dependency
        return await open_postgresql(where, term, monotonic)
    raise StoreError(f"unknown store {where!r}: write memory, sqlite or postgresql://USER@HOST/DATABASE")


async def open_journal(where: str, data: Path) -> Journal:
    """Open the journal of a store, which a server may be writing, to read it; raises StoreError as `open_store` does."""
    if where == "sqlite":
        from spillover.stores.sqlite.open import sqlite_journal  # noqa: PLC0415 - only what is used is loaded

        return sqlite_journal(data)
    if where.startswith(_POSTGRESQL):
        with _driver():
            from spillover.stores.postgresql.open import postgresql_journal  # noqa: PLC0415 - as above
        return await postgresql_journal(where)
    return (await open_store(where, data)).journal


async def version_of(where: str, data: Path) -> int:
    """The version of the data in SQLite or PostgreSQL, be it known here or not; raises StoreError. Nothing is written."""
    if where == "sqlite":
        from spillover.stores.sqlite import examining  # noqa: PLC0415 - only what is used is loaded

        return examining.version(data)
    with _driver():
        from spillover.stores.postgresql.open import postgresql_version  # noqa: PLC0415 - as above
    return await postgresql_version(where)


@contextmanager
def _driver() -> Iterator[None]:
    """Say what is missing where a store of PostgreSQL is loaded."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StoreError(
            "a PostgreSQL store needs the package asyncpg: pip install 'spillover[postgresql]'"
        ) from error
