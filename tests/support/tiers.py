"""Which cases of a test every change is tried with, and which only `make test-stories` adds."""

from collections.abc import Iterable

import pytest


def few_of(few: int, cases: Iterable[object]) -> list[object]:
    """Parameters of a test: the first few run always, the others are slow."""
    return [case if at < few else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(cases)]
