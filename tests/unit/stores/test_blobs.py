"""Blobs in files: what a killed process leaves, a disk that is full, and one that is not ours."""

import asyncio
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillover.model.units import DAY
from spillover.ports.blobs import BlobBounds, NoSpace
from spillover.stores.blobs import FileBlobs
from spillover.testing.blobs_suite import content, digest, keep
from tests.support.waiting import until

WRITING = """
import asyncio, sys
from pathlib import Path
from spillover.stores.blobs import FileBlobs

async def main():
    async def pieces():
        yield b"k" * (2 << 20)
        print("begun", flush=True)
        await asyncio.sleep(60)
    await FileBlobs(Path(sys.argv[1])).put("0" * 64, pieces())

asyncio.run(main())
"""


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def half(tmp_path: Path) -> None:
    """A process was killed in the midst of a put."""
    with subprocess.Popen([sys.executable, "-c", WRITING, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        writer.send_signal(signal.SIGKILL)
    assert len(files(tmp_path)) == 1


@pytest.mark.usefixtures("half")
async def test_what_a_killed_process_was_writing_is_deleted_by_the_next(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    await keep(blobs, b"data")
    assert [path.name for path in files(tmp_path)] == [digest(b"data")]


async def test_what_is_there_is_counted_by_the_next_process(tmp_path: Path) -> None:
    await keep(FileBlobs(tmp_path), b"a" * 700)
    blobs = FileBlobs(tmp_path, BlobBounds(total=1000))
    assert await blobs.used() == (1, 700)
    with pytest.raises(NoSpace):
        await keep(FileBlobs(tmp_path, BlobBounds(total=1000)), b"b" * 400)


async def test_time_is_that_of_the_wall(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    await keep(blobs, b"data")
    assert await blobs.forget((), time.time_ns() + DAY - 10**10) == 0
    assert await blobs.forget((), time.time_ns() + DAY + 1) == 1


@pytest.fixture
def small_files() -> Iterator[int]:
    """No file may have more bytes than this: as a full disk has it, in the midst of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, hard))
    yield 1 << 21
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


async def test_a_disk_that_takes_no_more_is_told_and_nothing_is_left(
    tmp_path: Path, small_files: int
) -> None:
    blobs = FileBlobs(tmp_path)
    with pytest.raises(NoSpace, match="cannot store blobs now"):
        await keep(blobs, b"f" * (small_files + 1))
    assert files(tmp_path) == []
    assert await blobs.used() == (0, 0)
    assert await keep(blobs, b"small") is True


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoSpace, match="cannot store blobs now"):
        await keep(FileBlobs(tmp_path / "file" / "blobs"), b"data")


async def test_a_writer_that_outlives_its_caller_does_no_harm(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    each = 64 << 20
    for letter in b"abc":  # each its own: one that was cancelled may have been kept
        data = bytes([letter]) * each
        putting = asyncio.create_task(keep(blobs, data))
        await until(lambda: files(tmp_path / "new"), "a byte on the disk", every=0.001)
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
    count, size = await blobs.used()
    assert size == count * each
    await keep(blobs, data)
    assert await content(blobs, digest(data)) == data
    assert {path.name for path in files(tmp_path)} <= {digest(bytes([letter]) * each) for letter in b"abc"}


async def test_a_read_that_is_cancelled_while_it_opens_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path)
    await keep(blobs, b"data")
    begun, going = threading.Event(), threading.Event()
    opens, closes = os.open, os.close
    opened: list[int] = []
    closed: list[int] = []

    def slow_open(path: Path, flags: int) -> int:
        begun.set()
        assert going.wait(20)
        opened.append(opens(path, flags))
        return opened[0]

    def seen_close(file: int) -> None:
        closed.append(file)
        closes(file)

    monkeypatch.setattr(os, "open", slow_open)
    monkeypatch.setattr(os, "close", seen_close)
    reading = asyncio.create_task(content(blobs, digest(b"data")))
    await until(begun.is_set, "an open")
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()
    going.set()
    await until(lambda: opened and opened == closed, "a close of what was opened")


async def test_only_the_owner_may_read(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    await keep(blobs, b"data")
    path = blobs.path(digest(b"data"))
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert files(tmp_path / "blobs") == [path]


async def test_the_last_of_a_disk_is_left_to_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = shutil.disk_usage(tmp_path)
    blobs = FileBlobs(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(total=100_000, free=2_100))
    with pytest.raises(NoSpace, match="the disk is almost full, and the rest is reserved for the journal"):
        await keep(blobs, b"x" * 101)
    assert files(tmp_path) == []
    assert await keep(blobs, b"x" * 100) is True


async def test_what_is_of_a_project_is_so_for_the_next_process(tmp_path: Path) -> None:
    await keep(FileBlobs(tmp_path), b"data", "vision")
    blobs = FileBlobs(tmp_path)
    assert await blobs.sizes([digest(b"data")], "vision") == {digest(b"data"): 4}
    assert await blobs.used() == (1, 4)


async def test_a_mark_without_its_blob_is_deleted_by_a_sweep(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    for data in (b"data", b"other"):
        await keep(blobs, data, "vision")
    blobs.path(digest(b"data")).unlink()
    await blobs.forget((), 0)
    assert sorted(path.name for path in files(tmp_path)) == [
        digest(b"other"),
        f"{digest(b'other')}.vision",
    ]


async def test_a_file_that_is_no_blob_is_neither_kept_nor_dropped(tmp_path: Path) -> None:
    outside = tmp_path / "journal"
    outside.write_bytes(b"history")
    stray = tmp_path / "blobs" / "ab" / "notes.txt"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"somebody's")
    times = [path.stat().st_mtime_ns for path in (outside, stray)]
    blobs = FileBlobs(tmp_path / "blobs")
    await blobs.keep([str(outside), "../journal", "notes.txt"], time.time_ns() + DAY)
    assert await blobs.sizes([str(outside)]) == {}
    assert await blobs.forget((), time.time_ns() + 900 * DAY) == 0
    assert [path.stat().st_mtime_ns for path in (outside, stray)] == times


async def test_a_disk_that_takes_nothing_keeps_nobody_from_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    blobs = FileBlobs(tmp_path)
    await keep(blobs, b"data")
    monkeypatch.setattr(Path, "touch", full)
    await blobs.give([digest(b"data")], "vision")
    assert await blobs.sizes([digest(b"data")], "vision") == {digest(b"data"): 4}
    with pytest.raises(NoSpace, match="the disk is full"):
        await keep(blobs, b"data", "nlp")
    assert await blobs.sizes([digest(b"data")], "nlp") == {}
