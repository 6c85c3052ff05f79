"""Wait as long in all as a share of all runtime: the price of waiting is set, not how long one job waits."""

from fractions import Fraction
from typing import Final

from spillover.core.tally import Tally, size_of
from spillover.deciding.protocols import Case

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
