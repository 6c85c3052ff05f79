"""A disk that is full or read-only: a clear error, reading goes on, nothing acknowledged is lost, and room helps at once."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from spillover.ports.journal import Journal, Unreadable, Unwritable
from spillover.stores.open import open_store
from spillover.testing.stores import a_batch, a_finished, events_of, lead

OLD = Path(__file__).parent.parent / "fixtures" / "store-version-0" / "sqlite.sql"
LIMITED = """
import asyncio, json, resource, sys
from pathlib import Path
from spillover.ports.journal import Unwritable
from spillover.stores.open import open_store
from spillover.testing.stores import a_batch, lead, events_of

async def main():
    store = await open_store("sqlite", Path(sys.argv[1]))
    epoch = await lead(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    revision, errors = 0, []
    while len(errors) < 3:
        try:
            revision = await store.journal.append(revision, a_batch(b"%d" % revision * 2000), epoch)
        except Unwritable as error:
            errors.append(str(error))
    during = await events_of(store.journal)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = await store.journal.append(revision, a_batch(b"room"), epoch)
    print(json.dumps([revision, errors, [number for number, _ in during], after]))
    await store.close()

asyncio.run(main())
"""
KILLED = """
import asyncio, os, sys
from pathlib import Path
from spillover.stores.open import open_store
from spillover.testing.stores import a_batch, a_finished, lead

async def main():
    store = await open_store("sqlite", Path(sys.argv[1]))
    epoch = await lead(store)
    await store.journal.append(0, a_batch(b"a", b"b", blobs={b"d": b"blob"}), epoch)
    await store.archive.put([a_finished()], epoch)
    if sys.argv[2] == "clean":
        await store.close()
    os._exit(0)

asyncio.run(main())
"""


def run(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


class Small:
    """A file system of its own, of a megabyte."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.data = where / "data"

    def remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self.where)], check=True)

    def fill(self) -> None:
        with (self.where / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass

    def clear(self) -> None:
        (self.where / "filler").unlink()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    if shutil.which("mount") is None:
        pytest.skip("needs mount")
    where = tmp_path / "small"
    where.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)], capture_output=True, check=False
    ).returncode:
        pytest.skip("needs the right to mount")
    yield Small(where)
    subprocess.run(["umount", "--lazy", str(where)], check=True)


async def append_until_full(journal: Journal, revision: int, epoch: int) -> tuple[int, str]:
    while True:
        try:
            revision = await journal.append(revision, a_batch(bytes(20_000)), epoch)
        except Unwritable as error:
            return revision, str(error)


def test_a_file_that_may_not_grow_refuses_appends_until_it_may(tmp_path: Path) -> None:
    revision, errors, during, after = json.loads(run(LIMITED, tmp_path))
    assert revision > 10
    assert during == list(range(1, revision + 1))
    assert after == revision + 1
    assert all(error.startswith(f"cannot write {tmp_path}/spill.db: ") for error in errors)


async def test_a_full_disk_refuses_appends_until_there_is_room(small: Small) -> None:
    store = await open_store("sqlite", small.data)
    epoch = await lead(store)
    revision = await store.journal.append(0, a_batch(b"a"), epoch)
    small.fill()
    revision, error = await append_until_full(store.journal, revision, epoch)
    assert error == f"cannot write {small.data}/spill.db: the disk is full"
    assert [number for number, _ in await events_of(store.journal)] == list(range(1, revision + 1))
    with pytest.raises(Unwritable, match="the disk is full"):
        await store.archive.put([a_finished(why=bytes(20_000))], epoch)
    assert await store.archive.count() == 0
    small.clear()
    assert await store.journal.append(revision, a_batch(b"room"), epoch) == revision + 1
    await store.archive.put([a_finished(why=bytes(20_000))], epoch)
    await store.close()


@pytest.mark.parametrize("end", ["clean", "killed"])
async def test_data_on_a_full_disk_can_be_opened_and_read(small: Small, end: str) -> None:
    run(KILLED, small.data, end)
    small.fill()
    store = await open_store("sqlite", small.data)
    await reads_all(store.journal)
    with pytest.raises(Unwritable, match=r"cannot write .*spill\.db: "):
        await store.election.campaign("one", "")
    small.clear()
    assert await lead(store) == 2
    assert await store.journal.append(2, a_batch(b"room"), 2) == 3
    assert await events_of(store.journal, 2) == [(3, b"room")]
    await store.close()


@pytest.mark.parametrize("end", ["clean", "killed"])
async def test_read_only_data_can_be_opened_and_read(small: Small, end: str) -> None:
    run(KILLED, small.data, end)
    small.remount("ro")
    store = await open_store("sqlite", small.data)
    await reads_all(store.journal)
    assert await store.archive.get(a_finished().job) == a_finished()
    holder = await store.election.holder()
    assert holder is not None
    assert holder.epoch == 1
    refused = f"cannot write {small.data}/spill.db: "
    for write in (
        store.election.campaign("one", ""),
        store.election.renew(1),
        store.journal.append(2, a_batch(b"c"), 1),
        store.archive.forget(0, 1),
    ):
        with pytest.raises(Unwritable, match=refused + r"(it is read-only|Read-only file system)"):
            await write
    await reads_all(store.journal)
    await store.close()
    small.remount("rw")
    store = await open_store("sqlite", small.data)
    assert await lead(store) == 2
    await store.close()


@pytest.mark.parametrize("end", ["clean", "killed"])
async def test_read_only_data_that_become_writable_are_written_without_a_restart(
    small: Small, end: str
) -> None:
    run(KILLED, small.data, end)
    small.remount("ro")
    store = await open_store("sqlite", small.data)
    await reads_all(store.journal)
    small.remount("rw")
    assert await lead(store) == 2
    assert await store.journal.append(2, a_batch(b"c"), 2) == 3
    assert await events_of(store.journal, 2) == [(3, b"c")]
    await store.close()


async def test_no_data_on_a_read_only_disk_is_a_clear_error(small: Small) -> None:
    small.remount("ro")
    with pytest.raises(Unwritable, match=f"cannot write {small.data}/spill.db: Read-only file system"):
        await open_store("sqlite", small.data)


async def test_no_data_on_a_full_disk_is_a_clear_error_and_room_helps(small: Small) -> None:
    small.data.mkdir()
    small.fill()
    with pytest.raises(
        Unwritable, match=rf"cannot write {small.data}/spill\.db: (the disk is full|No space left)"
    ):
        await open_store("sqlite", small.data)
    small.clear()
    store = await open_store("sqlite", small.data)
    assert await lead(store) == 1
    await store.close()


async def test_old_data_that_cannot_be_upgraded_are_a_clear_error(small: Small) -> None:
    small.data.mkdir()
    connection = apsw.Connection(str(small.data / "spill.db"))
    connection.execute(OLD.read_text()).fetchall()
    connection.close()
    small.remount("ro")
    refused = f"the data in {small.data} have version 0 and need an upgrade, but cannot be written"
    with pytest.raises(Unreadable, match=refused):
        await open_store("sqlite", small.data)


async def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "spill.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(Unreadable, match=r"spill\.db: it is damaged or not a Spillover database"):
        await open_store("sqlite", tmp_path)
    assert (tmp_path / "spill.db").read_bytes().startswith(b"something else")


async def test_a_data_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(Unwritable, match=r"cannot write .*: (Not a directory|unable to open database file)"):
        await open_store("sqlite", tmp_path / "data")


async def reads_all(journal: Journal) -> None:
    assert (await journal.load()).last == 2
    assert await events_of(journal) == [(1, b"a"), (2, b"b")]
    assert await journal.blobs([b"d"]) == {b"d": b"blob"}


def test_nothing_is_left_open(tmp_path: Path) -> None:
    script = "import asyncio, sys\nfrom pathlib import Path\nfrom spillover.stores.open import open_store\n"
    script += "async def main():\n    store = await open_store('sqlite', Path(sys.argv[1]))\n"
    script += "    await store.election.campaign('a', '')\n    await store.close()\nasyncio.run(main())"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["leader.lock", "spill.db"]
