"""What was seen of all jobs so far: sums that wait policies learn from. A fold over events, kept in the book."""

from msgspec import Struct

from spillover.model.job import Shape


class Tally(Struct, array_like=True):
    """Sums over all jobs since the first event. Size is GPUs, or CPUs of a job without GPUs, in thousandths."""

    jobs: int = 0
    """Submitted with a runtime that was expected."""
    expected: int = 0
    """Nanoseconds that they were expected to run."""
    size: int = 0
    work: int = 0
    """Size times expected nanoseconds."""
    ended: int = 0
    """Ended after they had run."""
    waited: int = 0
    """Nanoseconds that those waited before they ran."""
    ran: int = 0
    """Nanoseconds that those ran."""


def size_of(shape: Shape) -> int:
    """Thousandths of GPUs of all tasks together, or of CPUs for a job without GPUs."""
    total = shape.total
    return total.gpu * 1000 if total.gpu else total.cpu
