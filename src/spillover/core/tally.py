"""What was seen of all jobs so far: sums that wait policies learn from. A fold over events, kept in the book."""

from functools import lru_cache

from msgspec import Struct

from spillover.model.job import Shape


class Tally(Struct, array_like=True):
    """Sums over all jobs since the first event. Size is GPUs, or CPUs of a job without GPUs, in thousandths."""

    jobs: int = 0
    """Submitted, with a runtime that was expected of them."""
    expected: int = 0
    """Nanoseconds that those were expected to run."""
    size: int = 0
    work: int = 0
    """Size times expected nanoseconds."""
    waited: int = 0
    """Nanoseconds that jobs waited for the place that they got first."""
    ran: int = 0
    """Nanoseconds that jobs ran which got a place: as expected, until they ended; as it was from then on."""
    granted: int = 0
    """Nanoseconds that queued jobs may wait in all, those that wait without limit left out."""
    settled: int = 0
    """Nanoseconds that jobs had been granted which got a place: `waited` is what they needed of it."""

    def submit(self, shape: Shape, expected: int, count: int) -> None:
        """So many jobs are there, of which this runtime is expected."""
        size = size_of(shape)
        self.jobs += count
        self.expected += expected * count
        self.size += size * count
        self.work += size * expected * count


@lru_cache(maxsize=4096)
def size_of(shape: Shape) -> int:
    """Thousandths of GPUs of all tasks together, or of CPUs for a job without GPUs."""
    total = shape.total
    return total.gpu * 1000 if total.gpu else total.cpu
