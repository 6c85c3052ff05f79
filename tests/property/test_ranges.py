"""Arithmetic on ranges is that on sets of indexes."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.model import ranges
from spillover.model.job import Range
from spillover.model.ranges import Ranges

INDEXES = st.sets(st.integers(0, 60), max_size=40)


def of(indexes: set[int]) -> Ranges:
    return ranges.merged(Range(index, index) for index in indexes)


@given(INDEXES, INDEXES)
def test_less_others(some: set[int], others: set[int]) -> None:
    left = ranges.minus(of(some), of(others))
    assert set(ranges.indexes(left)) == some - others
    assert ranges.size(left) == len(some - others)
    assert list(left) == sorted(left, key=lambda part: part.first)
    assert all(part.first <= part.last for part in left)


@given(INDEXES, st.integers(0, 60))
def test_less_one(some: set[int], index: int) -> None:
    assert set(ranges.indexes(ranges.without(of(some), index))) == some - {index}


@given(INDEXES, INDEXES, st.integers(0, 60))
def test_unions_and_common_parts(some: set[int], others: set[int], one: int) -> None:
    a, b, single = of(some), of(others), of({one})
    assert ranges.union(a, b) == of(some | others)
    assert ranges.union(a, single) == of(some | {one})
    assert ranges.common(a, b) == of(some & others)
    assert ranges.common(a, single) == of(some & {one})
    assert ranges.minus(a, single) == ranges.without(a, one) == of(some - {one})
    assert ranges.outside(a, [b, single]) == of(some - others - {one})
    assert ranges.contains(a, one) == (one in some)
