"""Opens a store by its name. No other module knows which stores there are."""

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
    """Open `memory`, `sqlite` (in the data folder) or `postgresql://...`; raise StoreError with a one-line message."""
    if where == "memory":
        return open_memory(None, term, monotonic)
    if where == "sqlite":
        from spillover.stores.sqlite.open import open_sqlite  # noqa: PLC0415 - load only the store in use

        return await open_sqlite(data, term, monotonic)
    if where.startswith(_POSTGRESQL):
        with _driver():
            from spillover.stores.postgresql.open import open_postgresql  # noqa: PLC0415 - an optional dependency
        return await open_postgresql(where, term, monotonic)
    raise StoreError(f"unknown store {where!r}: write memory, sqlite or postgresql://USER@HOST/DATABASE")


async def open_journal(where: str, data: Path) -> Journal:
    """Open the journal of a store for reading, even while a server writes it; raise StoreError like `open_store`."""
    if where == "sqlite":
        from spillover.stores.sqlite.open import sqlite_journal  # noqa: PLC0415 - load only the store in use

        return sqlite_journal(data)
    if where.startswith(_POSTGRESQL):
        with _driver():
            from spillover.stores.postgresql.open import postgresql_journal  # noqa: PLC0415 - as above
        return await postgresql_journal(where)
    return (await open_store(where, data)).journal


async def version_of(where: str, data: Path) -> int:
    """Return the version of the data in SQLite or PostgreSQL, known or not, without writing; raise StoreError."""
    if where == "sqlite":
        from spillover.stores.sqlite import examining  # noqa: PLC0415 - load only the store in use

        return examining.version(data)
    with _driver():
        from spillover.stores.postgresql.open import postgresql_version  # noqa: PLC0415 - as above
    return await postgresql_version(where)


@contextmanager
def _driver() -> Iterator[None]:
    """Turn a missing PostgreSQL driver into a StoreError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StoreError(
            "a PostgreSQL store needs the package asyncpg: pip install 'spillover[postgresql]'"
        ) from error
