"""Numbers and texts from outside, brought within what every store holds."""

import pytest

from spillover.model.bounds import bounded, is_plain, plain
from spillover.model.units import FOREVER


@pytest.mark.parametrize(
    ("number", "within"),
    [(-1, 0), (0, 0), (7, 7), (FOREVER, FOREVER), (2**64 - 1, FOREVER), (10**40, FOREVER)],
)
def test_a_number_out_of_bounds_becomes_the_nearest_that_is_not(number: int, within: int) -> None:
    assert bounded(number) == within


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("no such file", "no such file"),
        ("Zürich\tline\nline 漢", "Zürich\tline\nline 漢"),
        ("a\0b", "a\ufffdb"),
        ("\x1b[2J", "\ufffd[2J"),
        ("\udc80", "\ufffd"),
        ("x" * 1000, "x" * 500),
    ],
)
def test_a_text_keeps_what_can_be_stored_and_shown(said: str, kept: str) -> None:
    assert plain(said) == kept
    kept.encode()
    assert is_plain(kept, 500)
    assert is_plain(said, 500) == (said == kept)
