import pytest

from spillover.ports.journal import Moved
from spillover.stores.rows import BatchRow, encode_events
from spillover.stores.tail import read_tail


def row(first: int, *events: bytes) -> BatchRow:
    return first, first + len(events) - 1, 0, 1, encode_events(events)


class Pages:
    """Pages as a store would give them, one row a page, with what was asked."""

    def __init__(self, *rows: BatchRow) -> None:
        self.rows = list(rows)
        self.asked: list[tuple[int, int, int]] = []

    async def __call__(self, due: int, end: int, rows: int) -> list[BatchRow]:
        self.asked.append((due, end, rows))
        return [row for row in self.rows if row[1] >= due and row[0] <= end][:1]


async def test_a_reader_asks_for_no_more_rows_than_it_may_return_events() -> None:
    pages = Pages(row(1, b"a"), row(2, b"b"), row(3, b"c"))
    assert [stored.event async for stored in read_tail(pages, 0, 3, 2)] == [b"a", b"b"]
    assert pages.asked == [(1, 3, 2), (2, 3, 1)]


async def test_a_reader_stops_at_what_was_durable_when_it_asked() -> None:
    pages = Pages(row(1, b"a", b"b", b"c"))
    assert [stored.revision async for stored in read_tail(pages, 0, 2, None)] == [1, 2]


async def test_a_reader_starts_at_the_oldest_that_is_kept() -> None:
    pages = Pages(row(5, b"e", b"f"))
    assert [stored.revision async for stored in read_tail(pages, 2, 6, None)] == [5, 6]


@pytest.mark.parametrize("left", [(), (row(3, b"c"),)], ids=["all gone", "one gone"])
async def test_a_gap_is_told(left: tuple[BatchRow, ...]) -> None:
    pages = Pages(row(1, b"a"), row(2, b"b"), row(3, b"c"))
    reader = read_tail(pages, 0, 3, None)
    assert (await anext(reader)).revision == 1
    pages.rows = list(left)
    with pytest.raises(Moved, match="events from 2 on were deleted while they were read; load again"):
        await anext(reader)
