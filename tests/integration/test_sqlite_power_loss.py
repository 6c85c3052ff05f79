"""What SQLite was told to be on the disk is there after power is lost, and nothing by halves.

A layer under SQLite notes every write and sync. At seeded moments, in the middle of commits and of checkpoints of the log, it takes a
picture of what the disk would hold if power failed right then: all that was synced, and of the rest what chance let through:
nothing, some of the writes, or the first sectors of one.
"""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from spillover.ports.journal import Batch, Changed
from spillover.stores.sqlite.open import open_sqlite
from spillover.testing.stores import a_batch, a_finished, lead, records_of, tail_of
from tests.support.tiers import few_of

SECTOR = 512
KEPT = (".db", ".db-wal", ".db-journal")
"""Files that outlive a loss of power; the index of the log is made anew."""


class Platter:
    """One file: what is certain to be on the disk, and what was written since it was last synced."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []
        """Writes (offset, data) and truncations (size), in order."""

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.synced, change)
        self.pending.clear()

    def after_loss(self, dice: random.Random) -> bytes:
        """What chance leaves: each write that was not synced is there, is not, or is torn."""
        image = bytearray(self.synced)
        luck = dice.choice((0.0, 0.5, 0.9))
        for change in self.pending:
            if dice.random() >= luck:
                continue
            if isinstance(change, tuple) and dice.random() < 0.3:
                offset, data = change
                change = (offset, data[: SECTOR * dice.randrange(1 + len(data) // SECTOR)])  # noqa: PLW2901
            _apply(image, change)
        return bytes(image)


def _apply(image: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del image[change:]
        return
    offset, data = change
    image.extend(bytes(max(0, offset - len(image))))
    image[offset : offset + len(data)] = data


class Disk(apsw.VFS):
    """Lets SQLite work on real files, and remembers what was synced."""

    numbers = itertools.count()

    def __init__(self) -> None:
        self.name = f"power-loss-{next(self.numbers)}"
        self.platters: dict[str, Platter] = {}
        self.operations = 0
        self.moments: dict[int, tuple[int, dict[str, bytes]]] = {}
        """By number of operation: how many batches were acknowledged, and the files."""
        self.due: frozenset[int] = frozenset()
        self.acknowledged = 0
        self.dice = random.Random(0)
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return File(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        super().xDelete(filename, syncdir)
        self.platters.pop(Path(filename).name, None)

    def tick(self) -> None:
        """Something happens to the disk; just before it, power may have failed."""
        self.operations += 1
        if self.operations in self.due:
            self.moments[self.operations] = (
                self.acknowledged,
                {name: platter.after_loss(self.dice) for name, platter in self.platters.items()},
            )


class File(apsw.VFSFile):
    """One file of the disk."""

    def __init__(self, disk: Disk, path: str | None, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._platter = Platter()
        if path is not None and path.endswith(KEPT):
            self._platter = disk.platters.setdefault(Path(path).name, self._platter)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.tick()
        super().xWrite(data, offset)
        self._platter.pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.tick()
        super().xTruncate(newsize)
        self._platter.pending.append(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.tick()
        super().xSync(flags)
        self._platter.sync()


@contextmanager
def a_disk() -> Iterator[Disk]:
    disk = Disk()
    try:
        yield disk
    finally:
        disk.unregister()


def batches(dice: random.Random) -> list[Batch]:
    """Some small, some large, in all more than what makes SQLite move the log into the file."""
    return [
        a_batch(
            *(dice.randbytes(dice.choice((20, 300, 5_000))) for _ in range(dice.choice((1, 1, 3, 40)))),
            at=number,
            blobs={b"%d" % (number % 7): b"blob"},
        )
        for number in range(200)
    ]


async def write_all(disk: Disk, folder: Path, todo: list[Batch]) -> None:
    store = await open_sqlite(folder, vfs=disk.name)
    epoch = await lead(store)
    revision = 0
    for number, batch in enumerate(todo):
        revision = await store.journal.append(revision, batch, epoch)
        disk.acknowledged = number + 1
        if number % 20 == 19:
            await store.archive.put([a_finished(number=number)], epoch)
            records: dict[tuple[str, str], bytes | None] = {("job", "x"): b"%d" % revision}
            await store.journal.checkpoint(Changed(revision=revision, records=records), epoch)
    await store.close()


async def check(folder: Path, todo: list[Batch], acknowledged: int) -> int:
    """Whether all that was acknowledged is there, in order and whole; how many batches are there."""
    store = await open_sqlite(folder)
    loaded = await store.journal.load()
    stored = [(event.at, event.event) for event in await tail_of(store.journal)]
    ends = list(itertools.accumulate(len(batch.events) for batch in todo))
    there = ends.index(loaded.last) + 1 if loaded.last else 0
    assert acknowledged <= there <= acknowledged + 1
    assert stored == [(batch.at, event) for batch in todo[:there] for event in batch.events]
    assert await records_of(store.journal) == (
        [("job", "x", b"%d" % loaded.checkpoint)] if loaded.checkpoint else []
    )
    await lead(store)
    assert (
        await store.journal.append(loaded.last, a_batch(b"goes on"), 2 if acknowledged else 1) > loaded.last
    )
    await store.close()
    return there


@pytest.mark.parametrize("seed", few_of(2, range(4)))
async def test_what_was_acknowledged_survives_a_loss_of_power_at_any_moment(
    seed: int, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    todo = batches(dice)
    with a_disk() as disk:
        await write_all(disk, tmp_path / "count", todo)
        operations = disk.operations
    with a_disk() as disk:
        disk.dice = dice
        disk.due = frozenset(dice.sample(range(100, operations), 60))
        await write_all(disk, tmp_path / "whole", todo)
    assert len(disk.moments) >= 55
    assert len({acknowledged for acknowledged, _ in disk.moments.values()}) > 20
    for moment, (acknowledged, files) in sorted(disk.moments.items()):
        folder = tmp_path / str(moment)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        await check(folder, todo, acknowledged)


async def test_the_test_sees_what_is_lost_without_syncs(tmp_path: Path) -> None:
    dice = random.Random(1)
    with a_disk() as disk:
        disk.due = frozenset({1500})
        store = await open_sqlite(tmp_path / "data", vfs=disk.name)
        epoch = await lead(store)
        await store.journal._database.write(lambda connection: connection.pragma("synchronous", "off"))  # type: ignore[attr-defined]
        revision = 0
        for number, batch in enumerate(batches(dice)):
            revision = await store.journal.append(revision, batch, epoch)
            disk.acknowledged = number + 1
        await store.close()
    acknowledged, files = disk.moments[1500]
    folder = tmp_path / "lost"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    store = await open_sqlite(folder)
    assert acknowledged > 0
    assert (await store.journal.load()).last < acknowledged
    await store.close()
