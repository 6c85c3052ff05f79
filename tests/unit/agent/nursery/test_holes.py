"""Output that is bounded while it grows."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillover.agent.files.output import BoundedOutput as Reader
from spillover.agent.nursery.holes import BLOCK, BoundedFile

LIMIT = 8 * BLOCK


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "out", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    yield opened
    os.close(opened)


def numbers(first: int, last: int) -> bytes:
    return b"".join(b"%015d\n" % number for number in range(first, last))


def whole(file: int, offset: int = 0) -> bytes:
    reader, out = Reader(file, offset), b""
    while piece := reader.next():
        out += piece
    return out


def test_what_is_within_the_limit_is_let_be(file: int) -> None:
    text = numbers(0, LIMIT // 16)
    os.write(file, text)
    stream = BoundedFile(file, LIMIT)
    assert stream.trim() == LIMIT
    assert stream.trim() == 0
    assert whole(file) == text


def test_head_and_tail_are_kept_however_often_it_is_looked_at(file: int) -> None:
    stream, text = BoundedFile(file, LIMIT), b""
    for part in range(40):
        more = numbers(part * 10_000, (part + 1) * 10_000)
        os.write(file, more)
        text += more
        stream.trim()
        assert os.fstat(file).st_blocks * 512 <= LIMIT + 2 * BLOCK
    seen = whole(file)
    head, _, rest = seen.partition(b"\n[... ")
    count, _, tail = rest.partition(b" bytes left out ...]\n")
    assert head == text[: LIMIT // 2]
    assert text.endswith(tail)
    assert len(tail) >= LIMIT // 2
    assert len(head) + int(count) + len(tail) == len(text)


def test_a_reader_may_begin_anywhere(file: int) -> None:
    os.write(file, numbers(0, 400_000))
    BoundedFile(file, LIMIT).trim()
    seen = whole(file)
    for offset in range(0, len(seen) + 100, 4_999):
        assert whole(file, offset) == seen[offset:], offset


def test_a_reader_that_is_overtaken_goes_on_behind_the_hole(file: int) -> None:
    os.write(file, numbers(0, 40_000))
    reader, stream = Reader(file, 0), BoundedFile(file, LIMIT)
    first = reader.next()
    os.write(file, numbers(40_000, 400_000))
    stream.trim()
    rest = b""
    while piece := reader.next():
        rest += piece
    assert (first + rest).startswith(numbers(0, LIMIT // 32))
    assert b" bytes left out ...]\n" in rest
    assert rest.endswith(numbers(399_000, 400_000))


def test_a_reader_that_comes_back_goes_on_where_it_was_though_more_is_left_out_by_then(file: int) -> None:
    stream, at, seen, position = BoundedFile(file, LIMIT), 0, 0, 0
    for upto in range(20_000, 400_000, 20_000):
        os.write(file, numbers(at, upto))
        rest, again = b"", Reader(file, seen, position)
        while piece := again.next():
            rest += piece
        assert rest == numbers(at, upto), "each was read as soon as it was written"
        seen, position, at = seen + len(rest), again.position, upto
        stream.trim()
    os.write(file, numbers(at, 2 * at))
    stream.trim()
    late = Reader(file, seen, position)
    assert late.next().startswith(b"\n[... ")
    assert late.next().endswith(b"\n")
