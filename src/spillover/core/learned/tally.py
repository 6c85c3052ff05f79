"""Sums over all jobs so far, for wait policies. They follow from events and are part of the state."""

from functools import lru_cache

from msgspec import Struct

from spillover.model.job import Shape


class Tally(Struct, array_like=True):
    """Sums over all jobs since the first event. Size is GPUs, or CPUs of a job without GPUs, in thousandths."""

    jobs: int = 0
    """Submitted jobs with an expected runtime."""
    expected: int = 0
    """Sum of their expected runtimes in nanoseconds."""
    size: int = 0
    work: int = 0
    """Size times expected runtime in nanoseconds."""
    waited: int = 0
    """Nanoseconds that jobs waited for their first placement."""
    ran: int = 0
    """Runtime of placed jobs in nanoseconds: expected until they end, actual afterwards."""
    granted: int = 0
    """Sum of the waits of queued jobs in nanoseconds, without unlimited waits."""
    settled: int = 0
    """Sum of the waits that placed jobs had been granted, in nanoseconds; `waited` is the part that they used."""

    def submit(self, shape: Shape, expected: int, count: int) -> None:
        """Add jobs with this expected runtime."""
        size = size_of(shape)
        self.jobs += count
        self.expected += expected * count
        self.size += size * count
        self.work += size * expected * count


@lru_cache(maxsize=4096)
def size_of(shape: Shape) -> int:
    """Return the GPUs of all tasks, or the CPUs of a job without GPUs, in thousandths."""
    total = shape.total
    return total.gpu * 1000 if total.gpu else total.cpu
