"""Two connections to PostgreSQL, one to write and one to read, each opened anew after it failed.

The server ends a transaction whose client fell silent, so a stopped leader cannot keep its lock on the epoch from a successor.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
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
"""A statement that takes longer hangs."""
COMMON: Final = {
    "search_path": SCHEMA,
    "application_name": "spillover",
}
WRITING: Final = {
    **COMMON,
    "synchronous_commit": "on",  # whatever the server's default: what returned is on its disk
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
        """The connection for a while; any failure but our own refusals costs it."""
        async with self._turn:
            try:
                if self._closed:
                    raise asyncpg.InterfaceError("the store is closed")  # noqa: TRY301 - told like other failures
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
                self._drop()  # what a cancelled statement left behind is not known
                raise

    async def close(self) -> None:
        """Say good-bye."""
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
        """A transaction; raises Unwritable when it cannot be done."""
        async with self._writing.use() as connection, _within(connection.transaction()):
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[asyncpg.Connection]:
        """One view of the data; raises Unreadable when there is none."""
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
    """Commit at the end, and roll back on our own refusals; any other failure drops the connection, and waits for no answer."""
    await transaction.start()
    try:
        yield
    except StoreError:
        await transaction.rollback()
        raise
    else:
        await transaction.commit()


def public_name(url: str) -> str:
    """Where the data are, without the password."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    return f"postgresql://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _cause(error: Exception) -> str:
    """What went wrong, on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, TimeoutError):
        return text or "it did not answer in time"
    return text or type(error).__name__
