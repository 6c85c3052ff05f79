"""A database whose bytes somebody changed: what SQLite does not see is told as damage too, in one line."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from spillover.ports.journal import Unreadable
from spillover.stores.sqlite.database import SqliteDatabase
from spillover.stores.sqlite.journal import one


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path)
    await database.open()
    yield database
    await database.close()


def selecting(value: str) -> Any:
    return lambda connection: connection.execute(f"SELECT {value}").get


@pytest.mark.parametrize("value", ["NULL", "'x'", "x'00'", "1.5"])
async def test_a_number_that_is_none_is_a_damage(database: SqliteDatabase, value: str) -> None:
    def number(connection: apsw.Connection) -> int:
        return one(connection, f"SELECT {value}")

    for ask in (database.read, database.write):
        with pytest.raises(
            Unreadable, match=r"^cannot read .*spill\.db: it is damaged or not a Spillover database"
        ):
            await ask(number)


async def test_a_row_that_cannot_be_read_is_a_damage(database: SqliteDatabase) -> None:
    for work in (lambda connection: len(selecting("NULL")(connection)), selecting("CAST(x'ff' AS TEXT)")):
        with pytest.raises(Unreadable, match=r"spill\.db: it is damaged: it holds impossible data"):
            await database.read(work)
    assert await database.read(selecting("5")) == 5
