"""Stores messages to people in PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from spillover.ports.outbox import Message, OutboxQuery, Waiting
from spillover.stores.postgresql.connection import PostgresDatabase
from spillover.stores.postgresql.journal import fence
from spillover.stores.postgresql.schema import PUT_MESSAGE
from spillover.stores.queries import (
    LAST,
    MESSAGES,
    MESSAGES_BY_ID,
    MORE_MESSAGES,
    NEXT_MESSAGES,
    NOTED,
    OLD_MESSAGES,
    WAITING_MESSAGES,
)
from spillover.stores.rows import STEP_ROWS, check_noted, message_of, message_row


class PostgresqlOutbox:
    """The outbox in the database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def noted(self) -> int:
        """See Outbox."""
        async with self._database.read() as connection:
            return int(await connection.fetchval(NOTED))

    async def put(self, after: int, upto: int, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        rows = [_row(each) for each in messages]
        async with self._database.write() as connection:
            await fence(connection, epoch)
            check_noted(await connection.fetchval(NOTED), after, upto, await connection.fetchval(LAST))
            await connection.executemany(PUT_MESSAGE, rows)
            await connection.execute("UPDATE meta SET value = $1 WHERE name = 'noted'", upto)

    async def add(self, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        await self._many(PUT_MESSAGE, [_row(each) for each in messages], epoch)

    async def next(self, channel: str, limit: int, after: tuple[int, str] = (-1, "")) -> list[Message]:
        """See Outbox."""
        return await self._found(NEXT_MESSAGES, channel, *after, limit)

    async def page(self, query: OutboxQuery) -> list[Message]:
        """See Outbox."""
        failed = -1 if query.failed is None else int(query.failed)
        at, identity = query.before or (-1, "")
        return await self._found(MESSAGES, failed, at, identity, query.limit)

    async def some(self, ids: Sequence[str]) -> list[Message]:
        """See Outbox."""
        async with self._database.read() as connection:
            rows = [await connection.fetchrow(MESSAGES_BY_ID, each) for each in ids]
        return [message_of(tuple(row)) for row in rows if row is not None]

    async def change(self, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        rows = [(each.due, each.tries, int(each.failed), _text(each.error), each.id) for each in messages]
        await self._many(
            "UPDATE outbox SET due = $1, tries = $2, failed = $3, error = $4 WHERE id = $5", rows, epoch
        )

    async def remove(self, ids: Sequence[str], epoch: int) -> None:
        """See Outbox."""
        await self._many("DELETE FROM outbox WHERE id = $1", [(each,) for each in ids], epoch)

    async def counts(self) -> list[Waiting]:
        """See Outbox."""
        async with self._database.read() as connection:
            rows = await connection.fetch(WAITING_MESSAGES)
        return [Waiting(row[0], int(row[1]), int(row[2])) for row in rows]

    async def forget(self, before: int, most: int, epoch: int) -> int:
        """See Outbox."""
        gone = 0
        while some := await self._forget_some(before, most, epoch):
            gone += some
        return gone

    async def _forget_some(self, before: int, most: int, epoch: int) -> int:
        gone = 0
        async with self._database.write() as connection:
            await fence(connection, epoch)
            for which, values in ((OLD_MESSAGES, (before, STEP_ROWS)), (MORE_MESSAGES, (STEP_ROWS, most))):
                statement = f"DELETE FROM outbox WHERE id IN ({which})"  # noqa: S608 - constants
                gone += int((await connection.execute(statement, *values)).rpartition(" ")[2])
        return gone

    async def _found(self, statement: str, *values: Any) -> list[Message]:
        async with self._database.read() as connection:
            rows = await connection.fetch(statement, *values)
        return [message_of(tuple(row)) for row in rows]

    async def _many(self, statement: str, rows: Sequence[tuple[Any, ...]], epoch: int) -> None:
        """Execute a statement once for each row, in one transaction."""
        async with self._database.write() as connection:
            await fence(connection, epoch)
            await connection.executemany(statement, rows)


def _row(message: Message) -> tuple[object, ...]:
    *fields, error = message_row(message)
    return (*fields, _text(str(error)))


def _text(text: str) -> str:
    """Return a text without NUL, which texts of PostgreSQL cannot hold."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
