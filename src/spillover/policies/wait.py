"""How long a job waits for owned capacity before it may be rented."""

from fractions import Fraction
from typing import Final

from spillover.core.tally import Tally, size_of
from spillover.deciding.protocols import Case
from spillover.model.units import FOREVER


class Zero:
    """Tried once on owned capacity, else rented at once."""

    def wait(self, case: Case) -> int:
        """Nothing."""
        del case
        return 0


class Never:
    """Never rented, however long it waits."""

    def wait(self, case: Case) -> int:
        """For ever."""
        del case
        return FOREVER


class Constant:
    """Every job waits as long."""

    def __init__(self, wait: int) -> None:
        self._wait = wait
        """Nanoseconds."""

    def wait(self, case: Case) -> int:
        """What was configured."""
        del case
        return self._wait


class Resource:
    """A coefficient for each GPU, or for each CPU of a job without GPUs."""

    def __init__(self, coefficient: int) -> None:
        self._each = coefficient
        """Nanoseconds of waiting for each GPU or CPU."""

    def wait(self, case: Case) -> int:
        """By all tasks of the job together, however long it runs."""
        return self._each * size_of(case.shape) // 1000


class Runtime:
    """A coefficient times the expected runtime."""

    def __init__(self, coefficient: float) -> None:
        exact = Fraction(str(coefficient))
        """Nanoseconds of waiting for each nanosecond of running; exact, so that plans do not depend on rounding."""
        self._up, self._down = exact.numerator, exact.denominator

    def wait(self, case: Case) -> int:
        """However large the job is."""
        return self._up * case.expected // self._down


class Compute:
    """A coefficient times GPUs times runtime, or times CPUs for a job without GPUs."""

    def __init__(self, coefficient: float) -> None:
        exact = Fraction(str(coefficient)) / 1000
        """Nanoseconds of waiting for each nanosecond of a thousandth of a GPU or CPU; exact, so that plans do not depend on rounding."""
        self._up, self._down = exact.numerator, exact.denominator

    def wait(self, case: Case) -> int:
        """By all tasks of the job together."""
        return self._up * size_of(case.shape) * case.expected // self._down


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


SLACK: Final = 200
"""Jobs of the mean runtime whose budget may be open before waits are twice as long."""
MOST: Final = 12
"""How often waits are doubled, or halved, at the most."""
STEPS: Final = 16
"""Steps between two doublings: waits change by 4 % at once."""
_FACTORS: Final = tuple(round(2 ** (step / STEPS) * 2**20) for step in range(STEPS))
"""2 to the power of each step, in 2**20-ths: whole numbers, so that plans do not depend on rounding."""


class Budget:
    """Steers the waiting of all jobs to `b` times their runtime, by the shape of another wait policy.

    The coefficient starts where every job would wait its share. As most jobs find room before their wait is over, it then
    grows with what is left of the budget, and shrinks with what was overdrawn.
    """

    def __init__(self, b: float, shape: str = "compute") -> None:
        if shape not in _SHARES:
            raise TypeError(f"shape is one of {', '.join(_SHARES)}")
        exact = Fraction(str(b))
        self._up, self._down = exact.numerator, exact.denominator
        self._share = _SHARES[shape]

    def wait(self, case: Case) -> int:
        """Its share of the mean wait, times what the budget allows."""
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
        """By how many steps waits are longer than they began: more, the more is left of the budget.

        Of what waiting jobs were granted, as much counts as spent as others needed of theirs.
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
"""What a job counts, and what all jobs together do."""
