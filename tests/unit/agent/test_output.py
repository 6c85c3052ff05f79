"""The last line of what was written: all that is read of it."""

from pathlib import Path

import pytest

from spillover.agent.output import LAST_WORDS, last_line


@pytest.mark.parametrize(
    ("written", "last"),
    [
        (b"", ""),
        (b"one", "one"),
        (b"one\ntwo\n\n", "two"),
        (b"caf\xe9\n", "caf\ufffd"),
        (b"x" * 5_000 + b"\n", "x" * (LAST_WORDS - 1)),
    ],
)
def test_the_last_line_is_found(tmp_path: Path, written: bytes, last: str) -> None:
    path = tmp_path / "job.err"
    path.write_bytes(written)
    assert last_line(path) == last


def test_no_file_has_no_last_line(tmp_path: Path) -> None:
    assert last_line(tmp_path / "job.err") == ""


def test_a_file_that_no_memory_could_hold_has_a_last_line(tmp_path: Path) -> None:
    path = tmp_path / "job.err"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # all but its end is a hole
        file.seek(0, 2)
        file.write(b"\nno space left\n")
    assert last_line(path) == "no space left"
