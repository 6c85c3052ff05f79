"""Rent a job at once if it would be rented in the end anyway, and wait only as long as that is worth its price."""

from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from spillover.core.tally import size_of
from spillover.deciding.forecast.starts import Late, Outlook, Waiter, first_end, latecomers
from spillover.deciding.protocols import Case
from spillover.model.job import Shape
from spillover.model.units import FOREVER

SUNK: Final = 3
"""Of the time that a job has waited, one part in so many counts against its patience: the rest is gone either way."""
MOST: Final = 200
"""Expected ends that one look ahead replays."""
JOBS_AN_END: Final = 5
"""Jobs that it looks at for each of those: of more, hardly one would start by the last end."""


class BreakEven:
    """Waits while the expected start on owned capacity is nearer than what renting is worth, and no longer.

    The patience of a job is a coefficient times its GPUs (or CPUs) times its runtime. When a job comes and stays queued, the
    expected ends of what runs are replayed: every waiting job that would not start within its patience is rented now. Nobody
    waits more than three times its patience, and a job of whose runtime nothing is known not more than that of a mean job.
    """

    def __init__(self, coefficient: float, most_ends: int = MOST) -> None:
        exact = Fraction(str(coefficient)) / 1000
        self._up, self._down = exact.numerator, exact.denominator
        self._most = most_ends
        self.most_jobs = JOBS_AN_END * most_ends

    def wait(self, case: Case) -> int:
        """The longest that it may wait, whatever is predicted: a bound for when predictions are wrong."""
        if not case.known and case.tally.jobs:
            mean = case.tally.expected // case.tally.jobs
            return self._worth(case.shape, mean)
        patience = self._worth(case.shape, case.likely)
        return SUNK * patience if case.known else patience

    def review(self, outlook: Outlook) -> list[Late]:
        """Jobs that would not start within what is left of their patience."""
        now = outlook.now
        limits = {
            each.job: now + self._left(each, outlook.steady) if each.rentable else FOREVER
            for each in outlook.queue
        }
        soonest = first_end(outlook)
        hopeless = [
            Late(each.job, each.many, limits[each.job])
            for each in outlook.queue
            if each.job in outlook.fresh and limits[each.job] <= soonest
        ]
        if len(hopeless) == len(outlook.fresh):
            return hopeless  # nothing has changed for those that waited before
        gone = {each.job: None for each in hopeless}
        others = [each for each in outlook.queue if each.job not in gone]
        return hopeless + latecomers(replace(outlook, queue=others), limits, self._most)

    def _left(self, waiter: Waiter, now: int) -> int:
        """Within how many nanoseconds a job has to start for its wait to be worth it."""
        granted = waiter.latest - waiter.arrived
        patience = granted
        if waiter.known:  # a cap on waits shortens the bound first; a floor lengthens both
            patience = max(granted // SUNK, min(granted, self._worth(waiter.shape, waiter.expected)))
        return min(waiter.latest - now, patience - (now - waiter.arrived) // SUNK)

    def _worth(self, shape: Shape, runtime: int) -> int:
        """Nanoseconds of waiting that renting such a job is worth."""
        return self._up * size_of(shape) * runtime // self._down
