"""Iterates over a binary heap in order without changing it."""

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def in_order(heap: Sequence[T]) -> Iterator[T]:
    """Yield the items of a heap, smallest first, at O(log k) for the k-th. The heap must not change meanwhile."""
    if not heap:
        return
    front: list[tuple[Any, int]] = [(heap[0], 0)]
    while front:
        item, at = heapq.heappop(front)
        yield item
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heapq.heappush(front, (heap[child], child))
