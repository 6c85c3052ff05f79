"""Examines a database file without changing it: its version, and damage that SQLite finds."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

import apsw

from spillover.ports.journal import Moved, Unreadable
from spillover.stores.sqlite.database import FILE
from spillover.stores.sqlite.files import Reading
from spillover.stores.sqlite.schema import NoData, version_of
from spillover.stores.sqlite.worker import cause

T = TypeVar("T")
MOST: Final = 20
"""Most lines of damage to report. One damaged page can cause thousands."""
_TITLE: Final = "*** in database main ***"
_STEPS: Final = 100_000
"""Instructions of SQLite between two calls that show progress."""


def version(folder: Path) -> int:
    """Return the version of the data; raise Unreadable, or NoData if there are none."""
    with closing(_open(folder)) as connection:
        found = _guarded(folder, lambda: version_of(connection))
    if found is None:
        raise NoData(f"there is no data in {folder}")
    return found


def integrity(folder: Path, going_on: Callable[[], None]) -> list[str]:
    """Return the damage that SQLite finds in the file; raise Moved if a server started meanwhile."""
    reading = Reading(folder / FILE, untouched=True, require=_anything)
    with closing(_guarded(folder, reading.open)) as connection:

        def tick() -> bool:
            going_on()
            return False

        connection.set_progress_handler(tick, _STEPS)

        def lines() -> list[str]:
            rows = connection.execute(f"PRAGMA integrity_check({MOST})")
            return [" ".join(str(line).removeprefix(_TITLE).split()) for (line,) in rows]

        found = _guarded(folder, lines)
    if found != ["ok"] and reading.stale():  # the file was read as unchanging, but has changed
        raise Moved("a server started while the data was read")
    return [] if found == ["ok"] else found


def _open(folder: Path) -> apsw.Connection:
    return _guarded(folder, Reading(folder / FILE, untouched=True, require=_anything).open)


def _anything(connection: apsw.Connection, folder: Path) -> None:
    """Accept any version, but require a valid SQLite file."""
    del folder
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _guarded(folder: Path, work: Callable[[], T]) -> T:
    try:
        return work()
    except (apsw.Error, OSError, TypeError, ValueError) as error:
        raise Unreadable(f"cannot read {folder / FILE}: {cause(error, folder)}") from error
