"""Keeps two connections to PostgreSQL, one to write and one to read, and reopens each after a failure.

PostgreSQL ends a transaction whose client is silent. So a stopped leader cannot keep the lock on the epoch from its
successor.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import asyncpg
from asyncpg.transaction import Transaction

from spillover.ports.journal import StoreError, Unreadable, Unwritable

SCHEMA: Final = "spillover"
"""The namespace of our tables."""
CONNECT_S: Final = 10.0
COMMAND_S: Final = 60.0
"""Seconds after which a statement counts as hanging."""
COMMON: Final = {
    "search_path": SCHEMA,
    "application_name": "spillover",
}
WRITING: Final = {
    **COMMON,
    "synchronous_commit": "on",  # whatever the default of the server: a commit that returned is on its disk
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
}
READING: Final = {**COMMON, "default_transaction_read_only": "on"}
FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Line:
    """One connection, used by one caller at a time."""

    def __init__(
        self, url: str, settings: Mapping[str, str], failing: Callable[[Exception], StoreError]
    ) -> None:
        self._url = url
        self._settings = dict(settings)
        self._failing = failing
        self._turn = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        """None before the first use and after a failure."""
        self._closed = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Yield the connection; drop it after any failure except our own refusals."""
        async with self._turn:
            try:
                if self._closed:
                    raise asyncpg.InterfaceError("the store is closed")  # noqa: TRY301 - reported like other failures
                if self._connection is None or self._connection.is_closed():
                    self._connection = await asyncpg.connect(
                        self._url,
                        timeout=CONNECT_S,
                        command_timeout=COMMAND_S,
                        server_settings=self._settings,
                    )
                yield self._connection
            except StoreError:
                raise  # the transaction was rolled back on its way here
            except FAILURES as error:
                self._drop()
                raise self._failing(error) from error
            except BaseException:
                self._drop()  # the state after a cancelled statement is unknown
                raise

    async def close(self) -> None:
        """Close the connection."""
        async with self._turn:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=CONNECT_S)
                except FAILURES:
                    connection.terminate()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


class PostgresDatabase:
    """One PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self.name = public_name(url)
        self._writing = Line(
            url, WRITING, lambda error: Unwritable(f"cannot write {self.name}: {_cause(error)}")
        )
        self._reading = Line(
            url, READING, lambda error: Unreadable(f"cannot read {self.name}: {_cause(error)}")
        )

    @asynccontextmanager
    async def write(self) -> AsyncIterator[asyncpg.Connection]:
        """Run a transaction; raise Unwritable if it fails."""
        async with self._writing.use() as connection, _within(connection.transaction()):
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[asyncpg.Connection]:
        """Open a consistent view of the data; raise Unreadable if that fails."""
        async with (
            self._reading.use() as connection,
            _within(connection.transaction(isolation="repeatable_read", readonly=True)),
        ):
            yield connection

    async def close(self) -> None:
        """Close both connections."""
        await self._reading.close()
        await self._writing.close()


@asynccontextmanager
async def _within(transaction: Transaction) -> AsyncIterator[None]:
    """Commit at the end, or roll back on our own refusals; other failures drop the connection instead."""
    await transaction.start()
    try:
        yield
    except StoreError:
        await transaction.rollback()
        raise
    else:
        await transaction.commit()


def may_be_stored(values: Iterable[object]) -> bool:
    """Return whether texts could be in the database, which keeps none with a NUL character and fails if asked for one."""
    return not any(isinstance(value, str) and "\0" in value for value in values)


def public_name(url: str) -> str:
    """Return the location of the data, without the password."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    return f"postgresql://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _cause(error: Exception) -> str:
    """Return the cause of an error, on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, TimeoutError):
        return text or "it did not answer in time"
    return text or type(error).__name__
