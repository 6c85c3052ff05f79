"""Checks the contract of blob stores, for any implementation."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

import pytest

from spillover.model.units import DAY
from spillover.ports.blobs import BlobBounds, Blobs, Differs, NoBlob, NoSpace, TooLarge, one_piece

Opening = Callable[[BlobBounds, Callable[[], int]], Blobs]
NONE = "0" * 64


class Hand:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self.now


def digest(data: bytes) -> str:
    """Return the name of some bytes."""
    return hashlib.sha256(data).hexdigest()


async def content(blobs: Blobs, name: str, offset: int = 0) -> bytes:
    """Read a blob from an offset on."""
    return b"".join([piece async for piece in blobs.get(name, offset)])


async def keep(blobs: Blobs, data: bytes, project: str | None = None) -> bool:
    """Store some bytes under their digest."""
    return await blobs.put(digest(data), one_piece(data), project)


class BlobsSuite:
    """The contract of `Blobs`."""

    @pytest.fixture
    def clock(self) -> Hand:
        """Return the clock of the store."""
        return Hand()

    @pytest.fixture
    def blobs(self, blob_opener: Opening, clock: Hand) -> Blobs:
        """Open an empty store."""
        return blob_opener(BlobBounds(), clock)

    @pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 7])
    async def test_what_was_put_comes_back(self, blobs: Blobs, size: int) -> None:
        """The whole blob, and from any offset on."""
        data = bytes(at % 251 for at in range(1000)) * (size // 1000 + 1)
        data = data[:size]

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, size, 100_000):
                yield data[at : at + 100_000]

        assert await blobs.put(digest(data), pieces()) is True
        assert await content(blobs, digest(data)) == data
        for offset in (size // 2, size, size + 5, 2**63 - 1, 2**64 - 1):
            assert await content(blobs, digest(data), offset) == data[offset:]
        assert await blobs.sizes([digest(data), NONE]) == {digest(data): size}
        assert await blobs.used() == (1, size)

    async def test_what_is_there_is_not_read_again(self, blobs: Blobs) -> None:
        """Regardless of its size."""
        await keep(blobs, b"data")
        asked = 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal asked
            asked += 1
            yield b"data"

        assert await blobs.put(digest(b"data"), pieces()) is False
        assert asked == 0

    async def test_what_is_not_there_is_said_so(self, blobs: Blobs) -> None:
        """`get` raises NoBlob; `sizes` omits the blob."""
        with pytest.raises(NoBlob, match=NONE):
            await content(blobs, NONE)
        assert await blobs.sizes([NONE]) == {}
        assert await blobs.sizes([]) == {}

    async def test_what_differs_from_its_digest_is_refused(self, blobs: Blobs) -> None:
        """The store keeps nothing of it, and then accepts the right bytes."""
        with pytest.raises(Differs, match=digest(b"other")):
            await blobs.put(digest(b"data"), one_piece(b"other"))
        assert await blobs.used() == (0, 0)
        assert await keep(blobs, b"data") is True

    async def test_what_breaks_off_leaves_nothing(self, blobs: Blobs) -> None:
        """Whether the upload fails or its task is cancelled."""
        data = b"x" * (3 << 20)
        begun = asyncio.Event()

        async def failing() -> AsyncIterator[bytes]:
            yield data[: 2 << 20]
            raise ConnectionError

        async def endless() -> AsyncIterator[bytes]:
            yield data[: 2 << 20]
            begun.set()
            await asyncio.Event().wait()

        with pytest.raises(ConnectionError):
            await blobs.put(digest(data), failing())
        putting = asyncio.create_task(blobs.put(digest(data), endless()))
        await begun.wait()
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        assert await blobs.sizes([digest(data)]) == {}
        assert await blobs.used() == (0, 0)
        assert await keep(blobs, data) is True

    async def test_the_same_put_by_several_at_once_is_kept_once(self, blobs: Blobs) -> None:
        """All of them succeed."""
        data = b"y" * (2 << 20)
        await asyncio.gather(*(keep(blobs, data) for _ in range(5)))
        assert await blobs.used() == (1, len(data))
        assert await content(blobs, digest(data)) == data

    async def test_one_that_is_too_large_is_refused_before_it_came(self, blob_opener: Opening) -> None:
        """The store accepts the largest size, and refuses one byte more."""
        blobs = blob_opener(BlobBounds(file=2000), Hand())
        came = 0

        async def long() -> AsyncIterator[bytes]:
            nonlocal came
            for _ in range(100):
                came += 1
                yield b"z" * 500

        with pytest.raises(TooLarge, match="max_file"):
            await blobs.put(NONE, long())
        assert came == 5
        assert await keep(blobs, b"z" * 2000) is True

    async def test_all_together_are_bounded(self, blob_opener: Opening, clock: Hand) -> None:
        """Deleted blobs make room for others."""
        blobs = blob_opener(BlobBounds(total=1000), clock)
        await keep(blobs, b"a" * 900)
        with pytest.raises(NoSpace, match="max_total"):
            await keep(blobs, b"b" * 101)
        await keep(blobs, b"c" * 100)
        assert await blobs.used() == (2, 1000)
        clock.now += DAY + 1
        assert await blobs.forget({digest(b"c" * 100)}, clock.now) == 1
        assert await keep(blobs, b"d" * 900) is True

    async def test_only_what_nobody_keeps_or_wants_is_forgotten(self, blobs: Blobs, clock: Hand) -> None:
        """Asking for a blob or storing it again keeps it for another day."""
        for data in (b"old", b"but", b"asked", b"again", b"kept"):
            await keep(blobs, data)
        await blobs.keep([digest(b"kept"), NONE], clock.now + 5 * DAY)
        await blobs.keep([digest(b"kept")], clock.now + 2 * DAY)
        clock.now += DAY
        assert await blobs.forget((), clock.now) == 0
        clock.now += 1
        await keep(blobs, b"new")
        await blobs.sizes([digest(b"asked")])
        await keep(blobs, b"again")
        assert await blobs.forget({digest(b"but")}, clock.now) == 1
        names = [digest(data) for data in (b"old", b"but", b"asked", b"again", b"kept", b"new")]
        assert list(await blobs.sizes(names)) == names[1:]
        clock.now += 2 * DAY
        assert await blobs.forget((), clock.now) == 4
        assert list(await blobs.sizes(names)) == [digest(b"kept")]
        clock.now += 3 * DAY
        assert await blobs.forget((), clock.now) == 1

    async def test_one_that_is_being_read_is_read_to_its_end(self, blobs: Blobs, clock: Hand) -> None:
        """Even if the blob is deleted meanwhile."""
        data = b"w" * (3 << 20)
        await keep(blobs, data)
        reading = blobs.get(digest(data))
        got = await anext(reading)
        clock.now += DAY + 1
        assert await blobs.forget((), clock.now) == 1
        got += b"".join([piece async for piece in reading])
        assert got == data

    async def test_a_project_has_what_it_put(self, blobs: Blobs) -> None:
        """Other projects own it once they upload it themselves; access without a project includes everything."""
        name = digest(b"data")
        assert await keep(blobs, b"data", "vision") is True
        assert await keep(blobs, b"data", "vision") is False
        assert await blobs.sizes([name], "vision") == await blobs.sizes([name]) == {name: 4}
        assert await blobs.sizes([name], "nlp") == {}
        assert await keep(blobs, b"data", "nlp") is True
        assert await blobs.sizes([name], "nlp") == {name: 4}
        assert await keep(blobs, b"data") is False
        assert await blobs.used() == (1, 4)

    async def test_what_is_of_no_project_is_not_shown_to_one(self, blobs: Blobs) -> None:
        """Until the project uploads it or gets it by `give`."""
        await keep(blobs, b"data")
        assert await blobs.sizes([digest(b"data")], "vision") == {}
        await blobs.give([digest(b"data"), NONE], "vision")
        assert await blobs.sizes([digest(b"data"), NONE], "vision") == {digest(b"data"): 4}
        assert await blobs.used() == (1, 4)

    async def test_a_project_cannot_have_what_it_cannot_show(self, blobs: Blobs) -> None:
        """Knowing the digest of a blob of another project gives no access to it."""
        name = digest(b"data")
        await keep(blobs, b"data", "vision")
        with pytest.raises(Differs, match=digest(b"guess")):
            await blobs.put(name, one_piece(b"guess"), "nlp")
        assert await blobs.sizes([name], "nlp") == {}
        assert await content(blobs, name) == b"data"

    async def test_what_is_there_needs_no_room_for_another_project(self, blob_opener: Opening) -> None:
        """The store keeps it once, but still limits the size of an upload."""
        blobs = blob_opener(BlobBounds(file=900, total=1000), Hand())
        await keep(blobs, b"a" * 900, "vision")
        assert await keep(blobs, b"a" * 900, "nlp") is True
        with pytest.raises(TooLarge, match="max_file"):
            await blobs.put(digest(b"a" * 900), one_piece(b"a" * 901), "speech")

    async def test_what_is_dropped_is_of_no_project_any_more(self, blobs: Blobs, clock: Hand) -> None:
        """A request by a project that does not own the blob does not keep it alive."""
        for project in ("vision", "nlp"):
            await keep(blobs, b"data", project)
        clock.now += DAY + 1
        await blobs.sizes([digest(b"data")], "speech")
        assert await blobs.forget((), clock.now) == 1
        await keep(blobs, b"data")
        assert await blobs.sizes([digest(b"data")], "vision") == {}

    @pytest.mark.parametrize(
        "name", ["", "..", "/etc/passwd", "ab", "0" * 63, "0" * 65, "A" * 64, "0" * 63 + "\0", "\udc80" * 64]
    )
    async def test_what_is_no_digest_is_never_there(self, blobs: Blobs, name: str) -> None:
        """The store refuses to write under such a name."""
        with pytest.raises(Differs, match="64 hexadecimal digits"):
            await blobs.put(name, one_piece(b"data"))
        with pytest.raises(NoBlob):
            await content(blobs, name)
        await blobs.give([name], "vision")
        assert await blobs.sizes([name]) == await blobs.sizes([name], "vision") == {}
        await blobs.keep([name], 10**30)
        assert await blobs.forget({name}, 10**30) == 0
        assert await blobs.used() == (0, 0)
