"""Stores messages to people in SQLite."""

from collections.abc import Sequence
from typing import Any

import apsw

from spillover.ports.outbox import Message, OutboxQuery, Waiting
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
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.files import transaction
from spillover.stores.sqlite.journal import fence, one
from spillover.stores.sqlite.schema import PUT_MESSAGE


class SqliteOutbox:
    """The outbox in the file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def noted(self) -> int:
        """See Outbox."""
        return await self._database.read(lambda connection: one(connection, NOTED))

    async def put(self, after: int, upto: int, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        rows = [message_row(each) for each in messages]

        def work(connection: apsw.Connection) -> None:
            with transaction(connection):
                fence(connection, epoch)
                check_noted(one(connection, NOTED), after, upto, one(connection, LAST))
                connection.executemany(PUT_MESSAGE, rows)
                connection.execute("UPDATE meta SET value = ? WHERE name = 'noted'", (upto,))

        await self._database.write(work)

    async def add(self, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        await self._many(PUT_MESSAGE, [message_row(each) for each in messages], epoch)

    async def next(self, channel: str, limit: int, after: tuple[int, str] = (-1, "")) -> list[Message]:
        """See Outbox."""
        return await self._found(NEXT_MESSAGES, (channel, *after, limit))

    async def page(self, query: OutboxQuery) -> list[Message]:
        """See Outbox."""
        failed = -1 if query.failed is None else int(query.failed)
        at, identity = query.before or (-1, "")
        return await self._found(MESSAGES, (failed, at, identity, query.limit))

    async def some(self, ids: Sequence[str]) -> list[Message]:
        """See Outbox."""

        def work(connection: apsw.Connection) -> list[Message]:
            return [
                message_of(row)
                for each in ids
                for row in connection.execute(MESSAGES_BY_ID, (each,)).fetchall()
            ]

        return await self._database.read(work)

    async def change(self, messages: Sequence[Message], epoch: int) -> None:
        """See Outbox."""
        rows = [(each.due, each.tries, int(each.failed), each.error, each.id) for each in messages]
        await self._many(
            "UPDATE outbox SET due = ?, tries = ?, failed = ?, error = ? WHERE id = ?", rows, epoch
        )

    async def remove(self, ids: Sequence[str], epoch: int) -> None:
        """See Outbox."""
        await self._many("DELETE FROM outbox WHERE id = ?", [(each,) for each in ids], epoch)

    async def counts(self) -> list[Waiting]:
        """See Outbox."""
        return await self._database.read(
            lambda connection: [Waiting(*row) for row in connection.execute(WAITING_MESSAGES)]
        )

    async def forget(self, before: int, most: int, epoch: int) -> int:
        """See Outbox."""

        def work(connection: apsw.Connection) -> int:
            with transaction(connection):
                fence(connection, epoch)
                gone = 0
                for which, values in (
                    (OLD_MESSAGES, (before, STEP_ROWS)),
                    (MORE_MESSAGES, (STEP_ROWS, most)),
                ):
                    connection.execute(f"DELETE FROM outbox WHERE id IN ({which})", values)  # noqa: S608 - constants
                    gone += connection.changes()
                return gone

        gone = 0
        while some := await self._database.write(work):
            gone += some
        return gone

    async def _found(self, statement: str, values: tuple[Any, ...]) -> list[Message]:
        return await self._database.read(
            lambda connection: [message_of(row) for row in connection.execute(statement, values).fetchall()]
        )

    async def _many(self, statement: str, rows: Sequence[tuple[Any, ...]], epoch: int) -> None:
        """Execute a statement once for each row, in one transaction."""

        def work(connection: apsw.Connection) -> None:
            with transaction(connection):
                fence(connection, epoch)
                connection.executemany(statement, rows)

        await self._database.write(work)
