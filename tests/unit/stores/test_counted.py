"""What is counted of a store of blobs."""

from pathlib import Path

import pytest

from spillover.ports.blobs import BlobBounds, Differs, NoSpace, TooLarge, one_piece
from spillover.stores.blobs import FileBlobs
from spillover.stores.counted import CountedBlobs
from spillover.testing.blobs_suite import content, digest, keep

FAR = 2**62


@pytest.fixture
def blobs(tmp_path: Path) -> CountedBlobs:
    return CountedBlobs(FileBlobs(tmp_path / "blobs", BlobBounds(file=100, total=150)))


def numbers(blobs: CountedBlobs) -> tuple[tuple[int, int] | None, int, int]:
    return blobs.stock, blobs.taken, blobs.given


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


async def test_what_comes_goes_and_stays_is_counted(blobs: CountedBlobs) -> None:
    assert numbers(blobs) == (None, 0, 0)
    await keep(blobs, b"a" * 60)
    assert numbers(blobs) == ((1, 60), 60, 0)
    assert not await keep(blobs, b"a" * 60)
    assert numbers(blobs) == ((1, 60), 60, 0), "what is there is not read again"
    await content(blobs, digest(b"a" * 60), 20)
    assert numbers(blobs) == ((1, 60), 60, 40)
    with pytest.raises(Differs):
        await blobs.put("0" * 64, one_piece(b"b" * 7))
    assert numbers(blobs) == ((1, 60), 67, 40), "it came, and was not kept"
    await blobs.forget((), FAR)
    assert numbers(blobs) == ((0, 0), 67, 40)


async def test_what_is_refused_for_its_size_is_counted(blobs: CountedBlobs) -> None:
    with pytest.raises(TooLarge):
        await keep(blobs, b"a" * 101)
    await keep(blobs, b"a" * 90)
    for _ in range(2):
        with pytest.raises(NoSpace):
            await keep(blobs, b"b" * 90)
    with pytest.raises(Differs):
        await blobs.put("0" * 64, one_piece(b"b"))
    assert blobs.refused == {"too_large": 1, "no_room": 2}


async def test_who_stops_reading_leaves_no_file_open(blobs: CountedBlobs) -> None:
    await keep(blobs, b"a" * 60)
    before = open_files()
    pieces = blobs.get(digest(b"a" * 60))
    await anext(pieces)
    await pieces.aclose()
    assert open_files() == before
