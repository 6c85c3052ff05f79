"""A timeline gives nothing twice, and finds the first span that a naive calendar finds."""

import pytest

from tests.support.tiers import few_of
from tests.support.timelines import main, play


@pytest.mark.parametrize("first", few_of(4, range(0, 4000, 100)))
def test_a_timeline_answers_like_a_naive_calendar(first: int) -> None:
    for seed in range(first, first + 100):
        play(seed)


def test_long_stories_agree_too() -> None:
    assert main(["--seeds", "20", "--steps", "60"]) == 0
