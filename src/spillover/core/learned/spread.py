"""Learns how far runtimes differ from what was expected: a histogram of actual divided by expected runtime.

Only forecasts that people see use it. No decision does, so plans stay the same.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt
from typing import Final

from spillover.core.learned.samples import About, Sample
from spillover.core.state import State

ONE: Final = 1_000_000
"""The ratio of a job that ran as long as expected. Ratios are in millionths."""
_NEAR: Final = ONE // 1000
"""Ratios this near to one count as one."""
EDGES: Final = (
    *(isqrt(ONE * ONE >> halves) for halves in range(18, 0, -1)),
    ONE - _NEAR,
    ONE + _NEAR + 1,
    *(isqrt(ONE * ONE << halves) for halves in (1, 2, 3, 4, 6, 8)),
)
"""Where one bin ends and the next begins. The first bin begins at 0, the last has ratios of 16 and more."""
BINS: Final = len(EDGES) + 1
_AS_EXPECTED: Final = EDGES.index(ONE - _NEAR) + 1
WINDOW: Final = 512
"""The least number of recent jobs that count fully; older ones are halved again and again."""
OF_USER: Final = 32
"""The same for jobs of one user, who often submits similar jobs for a while."""
ENOUGH: Final = 16
"""Jobs that a histogram needs before it is used."""
_OTHERS: Final = 4
"""As many jobs of all users count together with those of one user."""
_LONGEST: Final = 32
_KINDS: Final = tuple(f"spread {halves}" for halves in range(_LONGEST + 1))
"""Kinds of jobs by expected runtime: each has four times as long ones as the one before."""
_OF_ALL: Final[tuple[About, ...]] = tuple((kind, "", "", None) for kind in _KINDS)
"""The same of all users."""
_PART: Final = 1 << 16


def ratio_of(ran: int, expected: int) -> int:
    """Return actual divided by expected runtime, in millionths."""
    return ran * ONE // max(1, expected)


def kinds_of(user: str, expected: int) -> tuple[About, About]:
    """Return the kinds of jobs that one belongs to: of its user, and of all users.

    Jobs that ask for much time use more of it, so those with about the same expected runtime are compared.
    """
    return _kinds_of(user, expected.bit_length() >> 1)


@lru_cache(maxsize=4096)  # because `learn` asks for every job that ends
def _kinds_of(user: str, halves: int) -> tuple[About, About]:
    of_all = _OF_ALL[halves if halves < _LONGEST else _LONGEST]
    return (of_all[0], user, "", None), of_all


def is_known(state: State) -> bool:
    """Return whether anything is known about jobs of any kind."""
    return any(about in state.history for about in _OF_ALL)


def spread_of(state: State, user: str, expected: int) -> Sequence[int] | None:
    """Return the histogram of the most similar jobs; None if too few have ended."""
    own, others = (_bins(state, about) for about in kinds_of(user, expected))
    total = sum(others)
    if total < ENOUGH:
        return None
    if not own:
        return others
    return [(mine << 10) + (each << 10) * _OTHERS // total for mine, each in zip(own, others, strict=True)]


def _bins(state: State, about: About) -> Sequence[int]:
    sample = state.history.get(about)
    return () if sample is None else sample.bins


def draw_ratio(bins: Sequence[int], above: int, chance: int) -> int | None:
    """Return the ratio that this share of jobs (in 65536ths) stays below, of those beyond `above`; None if none was."""
    weights = [_weight(bins[at], at, above) for at in range(len(bins))]
    total = sum(weights)
    if total <= 0:
        return None
    left = total * chance // _PART
    for at, weight in enumerate(weights):
        if left < weight:
            if at == _AS_EXPECTED:
                return ONE
            low, high = _span(at)
            low = max(low, above)
            return low + (high - low) * left // weight
        left -= weight
    return None


def _span(at: int) -> tuple[int, int]:
    """Return where a bin begins and ends."""
    return EDGES[at - 1] if at else 0, EDGES[at] if at < len(EDGES) else 2 * EDGES[-1]


def _weight(count: int, at: int, above: int) -> int:
    """Return the weight of the part of a bin beyond a ratio."""
    low, high = _span(at)
    if not count or above >= high or (at == _AS_EXPECTED and above >= ONE):
        return 0
    if above <= low or at == _AS_EXPECTED:
        return count << 10
    return (count << 10) * (high - above) // (high - low)


def halve(sample: Sample) -> None:
    """Halve the weight of all jobs counted so far."""
    sample.bins = [count // 2 for count in sample.bins]
    sample.count = sum(sample.bins)
