import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from spillover.ports.journal import StoreError
from spillover.stores.open import open_store
from spillover.stores.postgresql.connection import public_name
from spillover.stores.upgrade import GROUP, batches_from_v0


async def test_an_unknown_store_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"unknown store 'mysql://x': write memory, sqlite or postgresql://"):
        await open_store("mysql://x", tmp_path)


async def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "asyncpg":
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith(("asyncpg", "spillover.stores.postgresql"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(StoreError, match=r"needs the package asyncpg: pip install 'spillover\[postgresql\]'"):
        await open_store("postgresql://host/db", tmp_path)


async def test_memory_opens_empty_each_time(tmp_path: Path) -> None:
    one, two = await open_store("memory", tmp_path), await open_store("memory", tmp_path)
    assert await one.election.campaign("one", "") == 1
    assert await two.election.campaign("two", "") == 1


def test_a_password_is_never_shown() -> None:
    assert (
        public_name("postgresql://ada:secret@db.example:5433/spill?sslmode=require")
        == "postgresql://db.example:5433/spill"
    )
    assert public_name("postgresql://ada:secret@/spill?host=/tmp") == "postgresql://localhost/spill"


def test_an_upgrade_makes_no_batch_without_bound() -> None:
    rows = [(revision, 7, 1, b"") for revision in range(1, 2 * GROUP + 2)]
    assert [row[:4] for row in batches_from_v0(rows)] == [
        (1, GROUP, 7, 1),
        (GROUP + 1, 2 * GROUP, 7, 1),
        (2 * GROUP + 1, 2 * GROUP + 1, 7, 1),
    ]
