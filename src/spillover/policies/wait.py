"""Wait policies: how long a job waits for owned capacity before it may be rented."""

from fractions import Fraction
from typing import Final

from spillover.core.learned.tally import Tally, size_of
from spillover.deciding.protocols import Case
from spillover.model.units import FOREVER


class Zero:
    """Rents a job at once if it does not fit on owned capacity."""

    def wait(self, case: Case) -> int:
        """Return 0."""
        del case
        return 0


class NeverRent:
    """Never rents."""

    def wait(self, case: Case) -> int:
        """Return FOREVER."""
        del case
        return FOREVER


class Constant:
    """Gives every job the same wait."""

    def __init__(self, wait: int) -> None:
        self._wait = wait
        """Nanoseconds."""

    def wait(self, case: Case) -> int:
        """Return the configured wait."""
        del case
        return self._wait


class Resource:
    """Waits a fixed time for each GPU, or for each CPU of a job without GPUs."""

    def __init__(self, coefficient: int) -> None:
        self._each = coefficient
        """Nanoseconds of waiting for each GPU or CPU."""

    def wait(self, case: Case) -> int:
        """Return the wait by the size of all tasks together, whatever the runtime."""
        return self._each * size_of(case.shape) // 1000


class Runtime:
    """Waits a coefficient times the expected runtime."""

    def __init__(self, coefficient: float) -> None:
        exact = Fraction(str(coefficient))
        """Nanoseconds of waiting for each nanosecond of runtime; exact, so that plans do not depend on rounding."""
        self._up, self._down = exact.numerator, exact.denominator

    def wait(self, case: Case) -> int:
        """Return the wait by runtime, whatever the size."""
        return self._up * case.expected // self._down


class Compute:
    """Waits a coefficient times GPUs times runtime, or CPUs times runtime for a job without GPUs."""

    def __init__(self, coefficient: float) -> None:
        exact = Fraction(str(coefficient)) / 1000
        """Nanoseconds of waiting per nanosecond of a thousandth of a GPU or CPU; exact, to avoid rounding in plans."""
        self._up, self._down = exact.numerator, exact.denominator

    def wait(self, case: Case) -> int:
        """Return the wait by the size of all tasks together and the runtime."""
        return self._up * size_of(case.shape) * case.expected // self._down


class Star:
    """Rents at once. A job that still runs after `h` on rented capacity returns and waits in proportion to its size.

    The job then runs from its beginning. When that wait is over too, it is rented until it ends.
    """

    def __init__(self, coefficient: int, h: int, k: float) -> None:
        self._coefficient = coefficient
        """Nanoseconds of waiting for each GPU, or each CPU of a job without GPUs."""
        self.back_after = h
        """Nanoseconds on rented capacity after which a job returns to the queue."""
        factor = Fraction(str(k)) / 1000
        self._up, self._down = factor.numerator, factor.denominator

    def wait(self, case: Case) -> int:
        """Return 0 at first; after the return, the worth of its size minus the time already paid for."""
        if not case.returned:
            return 0
        beyond = max(0, self._coefficient * size_of(case.shape) - 1000 * self.back_after)
        return self._up * beyond // self._down


SLACK: Final = 200
"""Unused budget, in jobs of the mean runtime, at which waits are doubled."""
MOST: Final = 12
"""The most doublings or halvings of waits."""
STEPS: Final = 16
"""Steps between two doublings: waits change by 4% at a time."""
_FACTORS: Final = tuple(round(2 ** (step / STEPS) * 2**20) for step in range(STEPS))
"""2 to the power of each step, as integers in units of 2**-20, so that plans do not depend on rounding."""


class BudgetWait:
    """Adjusts waits so that all jobs together wait `b` times their runtime; another wait policy gives the shape.

    The coefficient starts where every job would wait its share. Because most jobs start before their wait is over, it
    then grows with the unused budget and shrinks when the budget is overdrawn.
    """

    def __init__(self, b: float, shape: str = "compute") -> None:
        if shape not in _SHARES:
            raise TypeError(f"shape must be one of {', '.join(_SHARES)}")
        exact = Fraction(str(b))
        self._up, self._down = exact.numerator, exact.denominator
        self._share = _SHARES[shape]

    def wait(self, case: Case) -> int:
        """Return the job's share of the mean wait, scaled by what the budget allows."""
        tally = case.tally
        if not tally.jobs or not self._up:
            return 0
        own, all_of_it = self._share(case, tally)
        if not all_of_it:
            return 0
        wait = self._up * tally.expected * own // (self._down * all_of_it)
        steps = self._steps(tally)
        return wait * _FACTORS[steps % STEPS] >> (20 - steps // STEPS)

    def _steps(self, tally: Tally) -> int:
        """Return by how many steps waits are longer than at the start: more steps for more unused budget.

        Waits of queued jobs count as spent in the proportion in which earlier jobs used theirs.
        """
        granted = tally.granted * tally.waited // tally.settled if tally.settled else tally.granted
        left = self._up * tally.ran - self._down * (tally.waited + granted)
        full = self._up * tally.expected * SLACK // tally.jobs
        steps = STEPS * left // full if full else 0
        return max(-MOST * STEPS, min(MOST * STEPS, steps))


def _constant(case: Case, tally: Tally) -> tuple[int, int]:
    del case
    return 1, tally.jobs


def _runtime(case: Case, tally: Tally) -> tuple[int, int]:
    return case.expected, tally.expected


def _resource(case: Case, tally: Tally) -> tuple[int, int]:
    return size_of(case.shape), tally.size


def _compute(case: Case, tally: Tally) -> tuple[int, int]:
    return size_of(case.shape) * case.expected, tally.work


_SHARES: Final = {"constant": _constant, "runtime": _runtime, "resource": _resource, "compute": _compute}
"""For each shape, the weight of a job and the sum over all jobs."""
