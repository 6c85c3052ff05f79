"""Files of an agent: fetched once, taken up again, checked, and deleted when there is no room."""

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spillover.agent.connection.transfers import ServerAway, TransferRefused
from spillover.agent.files.cache import Files, Unfetched
from spillover.ports.blobs import digest_of
from tests.support.waiting import turn, until

PIECE = 1000


class Shelf:
    """A server's blobs, and a line to it that breaks when told to."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        self.breaks: list[int] = []
        """After how many bytes each of the next calls breaks off."""
        self.put_breaks = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.back = asyncio.Event()
        self.back.set()
        self.awaited = False
        """Whether somebody waited for it to be back."""

    def add(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.blobs[name] = data
        return name

    async def ready(self) -> None:
        self.awaited = True
        await self.gate.wait()
        await self.back.wait()

    async def get(self, digest: str, offset: int) -> AsyncIterator[bytes]:
        self.asked.append((digest, offset))
        await self.gate.wait()
        if digest not in self.blobs:
            raise TransferRefused(f"there is no blob {digest}")
        left = self.breaks.pop(0) if self.breaks else None
        data = self.blobs[digest]
        for at in range(offset, len(data), PIECE):
            if left is not None and left <= 0:
                raise ServerAway("broken")
            yield data[at : at + PIECE]
            left = None if left is None else left - PIECE

    async def put(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        data = b"".join([piece async for piece in pieces])
        if self.put_breaks:
            self.put_breaks -= 1
            raise ServerAway("broken")
        if len(data) > 10_000:
            raise TransferRefused("a blob is limited to 10000")
        self.blobs[digest] = data


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillover.agent.files.cache.PAUSE", 0.0)


def opened(folder: Path, shelf: Shelf, bound: int = 1 << 20) -> Files:
    files = Files(folder, shelf, bound)
    files.open()
    return files


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("??/*")}


async def test_a_file_is_fetched_once_however_many_want_it(tmp_path: Path) -> None:
    shelf = Shelf()
    files = opened(tmp_path, shelf)
    name = shelf.add(b"some" * 1000)
    shelf.gate.clear()
    reading = [asyncio.create_task(files.read(name)) for _ in range(5)]
    await asyncio.sleep(0)
    shelf.gate.set()
    assert {await each for each in reading} == {b"some" * 1000}
    assert await files.read(name) == b"some" * 1000
    assert shelf.asked == [(name, 0)]


async def test_a_download_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    shelf = Shelf()
    data = bytes(range(256)) * 20
    name = shelf.add(data)
    shelf.breaks = [2000, 1000]
    assert await opened(tmp_path, shelf).read(name) == data
    assert shelf.asked == [(name, 0), (name, 2000), (name, 3000)]


async def test_the_next_life_goes_on_with_a_download_and_looks_at_what_there_is(tmp_path: Path) -> None:
    shelf = Shelf()
    whole, half = shelf.add(b"w" * 5000), shelf.add(b"h" * 5000)
    torn = shelf.add(b"t" * 5000)
    files = opened(tmp_path, shelf)
    await files.read(whole)
    await files.read(torn)
    (tmp_path / torn[:2] / torn).write_bytes(b"t" * 4000 + b"\0" * 1000)
    (tmp_path / "half" / half).write_bytes(b"h" * 3000)
    shelf.asked.clear()
    files = opened(tmp_path, shelf)
    assert [await files.read(name) for name in (whole, half, torn)] == [
        b"w" * 5000,
        b"h" * 5000,
        b"t" * 5000,
    ]
    assert shelf.asked == [(half, 3000), (torn, 0)]


async def test_a_half_that_is_wrong_is_fetched_anew(tmp_path: Path) -> None:
    shelf = Shelf()
    name = shelf.add(b"right" * 1000)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / name).write_bytes(b"wrong" * 100)
    assert await opened(tmp_path, shelf).read(name) == b"right" * 1000
    assert shelf.asked == [(name, 500), (name, 0)]


async def test_what_cannot_be_had_is_told(tmp_path: Path) -> None:
    shelf = Shelf()
    files = opened(tmp_path, shelf)
    with pytest.raises(Unfetched, match="there is no blob"):
        await files.read("0" * 64)
    name = shelf.add(b"right")
    shelf.blobs[name] = b"wrong"
    with pytest.raises(Unfetched, match="do not match the digest"):
        await files.read(name)
    shelf.blobs[name] = b"right"
    assert await files.read(name) == b"right"


async def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    shelf = Shelf()
    files = opened(tmp_path, shelf)
    name = shelf.add(b"data")
    shelf.breaks = [0]
    shelf.gate.clear()
    reading = asyncio.create_task(files.read(name))
    done, _ = await asyncio.wait({reading}, timeout=0.05)
    assert not done
    shelf.gate.set()
    assert await reading == b"data"


async def test_what_nobody_waits_for_any_more_stops_at_the_next_break(tmp_path: Path) -> None:
    shelf = Shelf()
    files = opened(tmp_path, shelf)
    name = shelf.add(b"d" * 5000)
    shelf.breaks = [1000]
    shelf.gate.clear()
    reading = asyncio.create_task(files.read(name))
    await until(lambda: shelf.asked, "a request")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    shelf.gate.set()
    await until(lambda: not files._coming, "the end of the download")
    assert shelf.asked == [(name, 0)]
    assert await files.read(name) == b"d" * 5000


async def test_who_wants_a_file_as_its_download_stops_has_it_fetched_anew(tmp_path: Path) -> None:
    shelf = Shelf()
    files = opened(tmp_path, shelf)
    name = shelf.add(b"d" * 5000)
    shelf.breaks = [1000]
    shelf.back.clear()
    reading = asyncio.create_task(files.read(name))
    await until(lambda: shelf.awaited, "the break")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    async def read_then() -> bytes:
        await shelf.back.wait()
        return await files.read(name)

    again = asyncio.create_task(read_then())
    await turn()
    shelf.gate.clear()
    shelf.back.set()  # wakes the download, which sees that nobody wants the file, and in the same turn one who does
    await until(lambda: len(shelf.asked) == 2, "another request")
    others = asyncio.create_task(files.read(name))
    await turn()
    shelf.gate.set()
    assert await again == await others == b"d" * 5000
    assert shelf.asked == [(name, 0), (name, 1000)]


async def test_the_least_recently_used_goes_first_and_never_what_is_held(tmp_path: Path) -> None:
    shelf = Shelf()
    files = opened(tmp_path, shelf, bound=10_000)
    names = [shelf.add(bytes([at]) * 4000) for at in range(4)]
    async with files.held(names[0]) as path:
        for name in names[1:]:
            await files.read(name)
        assert path.read_bytes() == bytes([0]) * 4000
    assert kept(tmp_path) == {names[0], names[3]}
    await files.read(names[0])
    await files.read(names[1])
    assert kept(tmp_path) == {names[0], names[1]}
    await opened(tmp_path, shelf, bound=4000).read(names[0])
    assert kept(tmp_path) == {names[0]}


async def test_an_upload_is_tried_until_it_is_done_or_refused(tmp_path: Path) -> None:
    shelf = Shelf()
    files = opened(tmp_path / "files", shelf)
    (tmp_path / "made").write_bytes(b"made" * 100)
    shelf.put_breaks = 3
    name = await files.upload(tmp_path / "made")
    assert shelf.blobs[name] == b"made" * 100
    assert shelf.blobs[await files.upload(b"bytes")] == b"bytes"
    with pytest.raises(Unfetched, match="10000"):
        await files.upload(b"x" * 10_001)


@pytest.mark.parametrize("name", ["", "../../x", "/etc/passwd", "0" * 63, "A" * 64])
async def test_what_is_no_digest_names_no_file(tmp_path: Path, name: str) -> None:
    shelf = Shelf()
    files = opened(tmp_path / "files", shelf)
    with pytest.raises(Unfetched, match="is not a SHA-256"):
        await files.read(name)
    assert shelf.asked == []


async def test_a_disk_that_does_not_take_a_file_is_told(tmp_path: Path) -> None:
    shelf = Shelf()
    name = shelf.add(b"data")
    files = opened(tmp_path, shelf)
    (tmp_path / name[:2]).write_bytes(b"where a folder should be")
    with pytest.raises(Unfetched, match="the agent cannot store it: File exists"):
        await files.read(name)
    assert list((tmp_path / "half").iterdir()) == []


async def test_a_file_from_elsewhere_that_nobody_waits_for_any_more_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(path: Path) -> str:
        begun.set()
        go_on.wait(20)
        return digest_of(path)

    monkeypatch.setattr("spillover.agent.files.cache.digest_of", slowly)
    files = opened(tmp_path, Shelf())
    scratch = files.scratch()
    scratch.write_bytes(b"data")
    adopting = asyncio.create_task(files.adopt("0" * 64, scratch))
    await asyncio.to_thread(begun.wait, 20)
    adopting.cancel()
    await asyncio.gather(adopting, return_exceptions=True)
    go_on.set()
    assert list((tmp_path / "half").iterdir()) == []


async def test_a_file_from_elsewhere_that_the_disk_does_not_take_is_deleted(tmp_path: Path) -> None:
    shelf = Shelf()
    name = shelf.add(b"data")
    files = opened(tmp_path, shelf)
    (tmp_path / name[:2]).write_bytes(b"where a folder should be")
    scratch = files.scratch()
    scratch.write_bytes(b"data")
    with pytest.raises(FileExistsError):
        await files.adopt(name, scratch)
    assert list((tmp_path / "half").iterdir()) == []


def test_what_an_earlier_life_had_from_elsewhere_and_did_not_adopt_is_deleted(tmp_path: Path) -> None:
    files = opened(tmp_path, Shelf())
    files.scratch().write_bytes(b"data")
    half = tmp_path / "half" / ("0" * 64)
    half.write_bytes(b"goes on")
    opened(tmp_path, Shelf())
    assert list((tmp_path / "half").iterdir()) == [half]
