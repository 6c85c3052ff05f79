"""Which cases of a test every change is tried with, and which only `make test-stories` adds."""

from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import settings

STORIES: Final = "stories"
"""The profile of hypothesis of `make test-stories`; `tests/conftest.py` registers it."""


def examples(all_of_them: int) -> int:
    """How many examples hypothesis tries: all in `make test-stories`, a third of them with every change."""
    return all_of_them if settings.get_current_profile_name() == STORIES else all_of_them // 3


def few_of(few: int, cases: Iterable[object]) -> list[object]:
    """Parameters of a test: the first few run always, the others are slow."""
    return [case if at < few else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(cases)]
