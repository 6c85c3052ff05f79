"""Frames of live sessions: they survive any split of the stream, and nothing else passes for them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from spillover.wire.relay import MOST, BadFrame, Frame, FrameKind, FrameReader, ended, failed, resize, signal

FRAMES = some.lists(some.builds(Frame, some.sampled_from(FrameKind), some.binary(max_size=40)), max_size=8)


@given(FRAMES, some.lists(some.integers(0, 400), max_size=6))
def test_frames_survive_any_split_of_the_stream(frames: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame.encoded() for frame in frames)
    at = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = FrameReader()
    found = [frame for start, end in pairwise(at) for frame in reader.feed(stream[start:end])]
    assert found == frames
    assert not reader.torn


def test_much_data_becomes_several_frames() -> None:
    reader = FrameReader()
    frames = reader.feed(Frame(FrameKind.DATA, bytes(2 * MOST + 1)).encoded())
    assert [len(frame.data) for frame in frames] == [MOST, MOST, 1]


def test_frames_of_a_later_release_are_skipped() -> None:
    assert FrameReader().feed(b"\xfe\0\0\0\2xy" + Frame(FrameKind.END).encoded()) == [Frame(FrameKind.END)]


def test_a_frame_that_does_not_end_is_torn() -> None:
    reader = FrameReader()
    assert reader.feed(Frame(FrameKind.DATA, b"abc").encoded()[:-1]) == []
    assert reader.torn


@pytest.mark.parametrize("stream", [b"GET / HTTP/1.1\r\n\r\n", b"\1\xff\xff\xff\xff"])
def test_other_bytes_are_refused(stream: bytes) -> None:
    with pytest.raises(BadFrame, match="announces"):
        FrameReader().feed(stream)


def test_values_come_back() -> None:
    assert resize(24, 80).size == (24, 80)
    assert resize(-1, 1 << 20).size == (0, 65535)
    assert (ended(7).number, ended(-9).number, signal(2).number) == (7, -9, 2)
    assert failed("there is no bash").text == "there is no bash"
    with pytest.raises(BadFrame):
        assert Frame(FrameKind.RESIZE, b"1").size
    with pytest.raises(BadFrame):
        assert Frame(FrameKind.EXIT).number
