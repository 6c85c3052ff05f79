"""Wait in proportion to the work: what costs more to rent may wait longer."""

from fractions import Fraction

from spillover.core.tally import size_of
from spillover.deciding.protocols import Case


class Compute:
    """A coefficient times GPUs times runtime, or times CPUs for a job without GPUs."""

    def __init__(self, coefficient: float) -> None:
        exact = Fraction(str(coefficient)) / 1000
        """Nanoseconds of waiting for each nanosecond of a thousandth of a GPU or CPU; exact, so that plans do not depend on rounding."""
        self._up, self._down = exact.numerator, exact.denominator

    def wait(self, case: Case) -> int:
        """By all tasks of the job together."""
        return self._up * size_of(case.shape) * case.expected // self._down
