"""Looks at a database file without changing it: of which version it is, and what SQLite itself finds wrong with it."""

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
"""Lines of what is wrong; one damaged page can lead to thousands."""
_TITLE: Final = "*** in database main ***"
_STEPS: Final = 100_000
"""Instructions of SQLite between two calls that say that it goes on."""


def version(folder: Path) -> int:
    """The version of the data; raises Unreadable, or NoData if there are none."""
    with closing(_open(folder)) as connection:
        found = _guarded(folder, lambda: version_of(connection))
    if found is None:
        raise NoData(f"there are no data in {folder}")
    return found


def integrity(folder: Path, going_on: Callable[[], None]) -> list[str]:
    """What SQLite finds wrong with the whole file; nothing as a rule. Raises Moved if a server was started meanwhile."""
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
    if found != ["ok"] and reading.stale():  # what was read as a file that nobody changes was changed
        raise Moved("a server was started while the data were read")
    return [] if found == ["ok"] else found


def _open(folder: Path) -> apsw.Connection:
    return _guarded(folder, Reading(folder / FILE, untouched=True, require=_anything).open)


def _anything(connection: apsw.Connection, folder: Path) -> None:
    """Whatever version it is; the file itself must be one of SQLite."""
    del folder
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _guarded(folder: Path, work: Callable[[], T]) -> T:
    try:
        return work()
    except (apsw.Error, OSError, TypeError, ValueError) as error:
        raise Unreadable(f"cannot read {folder / FILE}: {cause(error, folder)}") from error
