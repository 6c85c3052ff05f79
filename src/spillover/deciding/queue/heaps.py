"""Binary heaps with void entries: how many are tolerated, and how to iterate over one without changing it."""

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

SPARE: Final = 1024
"""Void entries that are tolerated before a heap is cleaned."""


def in_order(heap: Sequence[T]) -> Iterator[T]:
    """Yield the items of a heap, smallest first, at O(log k) for the k-th. The heap must not change meanwhile."""
    if not heap:
        return
    size = len(heap)
    front: list[tuple[Any, int]] = [(heap[0], 0)]
    while front:
        item, at = front[0]
        yield item
        child = 2 * at + 1
        if child >= size:
            heapq.heappop(front)
            continue
        heapq.heapreplace(front, (heap[child], child))  # one step instead of two, which cost most of the walk
        child += 1
        if child < size:
            heapq.heappush(front, (heap[child], child))
