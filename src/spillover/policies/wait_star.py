"""Wait without knowing runtimes: try every job on rented capacity first, and let the long ones come back and wait."""

from fractions import Fraction

from spillover.core.tally import size_of
from spillover.deciding.protocols import Case


class Star:
    """No wait at first; a job that still runs after `h` on rented capacity comes back and waits in proportion to its size.

    It has to run from its beginning again. When that wait is over too it is rented for good.
    """

    def __init__(self, coefficient: int, h: int, k: float) -> None:
        self._coefficient = coefficient
        """Nanoseconds of waiting for each GPU, or CPU of a job without GPUs."""
        self.back_after = h
        """Nanoseconds on rented capacity after which a job is brought back."""
        factor = Fraction(str(k)) / 1000
        self._up, self._down = factor.numerator, factor.denominator

    def wait(self, case: Case) -> int:
        """Nothing at first; what its size is worth beyond the time already paid for, once it came back."""
        if not case.returned:
            return 0
        beyond = max(0, self._coefficient * size_of(case.shape) - 1000 * self.back_after)
        return self._up * beyond // self._down
