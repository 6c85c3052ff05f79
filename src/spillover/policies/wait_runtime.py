"""Wait in proportion to the runtime: every job is delayed by the same factor at the most."""

from fractions import Fraction

from spillover.deciding.protocols import Case


class Runtime:
    """A coefficient times the expected runtime."""

    def __init__(self, coefficient: float) -> None:
        exact = Fraction(str(coefficient))
        """Nanoseconds of waiting for each nanosecond of running; exact, so that plans do not depend on rounding."""
        self._up, self._down = exact.numerator, exact.denominator

    def wait(self, case: Case) -> int:
        """However large the job is."""
        return self._up * case.expected // self._down
