"""Rents a job at once if it would be rented in the end anyway, and otherwise waits only while that is worth it."""

from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from spillover.core.learned.tally import size_of
from spillover.deciding.forecast.booked import booked_latecomers
from spillover.deciding.forecast.starts import Late, Outlook, Waiter, first_end, latecomers
from spillover.deciding.protocols import Case
from spillover.model.job import Shape
from spillover.model.units import FOREVER

SUNK: Final = 3
"""One part in this many of the time already waited counts against the patience; the rest is lost either way."""
MOST: Final = 200
"""How many expected ends one look-ahead simulates."""
JOBS_AN_END: Final = 5
"""Jobs reviewed for each of those ends. Of more jobs, hardly any would start by the last end."""


class BreakEven:
    """Waits while the expected start on owned capacity is sooner than renting is worth.

    The patience of a job is a coefficient times its GPUs (or CPUs) times its runtime. When a new job stays queued, the
    policy simulates the expected ends of running jobs. It rents every waiting job that would not start within its
    patience. No job waits longer than three times its patience. A job with an unknown runtime waits no longer than the
    patience of a mean job.
    """

    def __init__(self, coefficient: float, most_ends: int = MOST) -> None:
        exact = Fraction(str(coefficient)) / 1000
        self._up, self._down = exact.numerator, exact.denominator
        self._most = most_ends
        self.most_jobs = JOBS_AN_END * most_ends

    def wait(self, case: Case) -> int:
        """Return the longest wait whatever is predicted: a bound for wrong predictions."""
        if not case.known and case.tally.jobs:
            mean = case.tally.expected // case.tally.jobs
            return self._worth(case.shape, mean)
        patience = self._worth(case.shape, case.likely)
        return SUNK * patience if case.known else patience

    def review(self, outlook: Outlook) -> list[Late]:
        """Return the jobs that would not start within the rest of their patience."""
        now, steady, left = outlook.now, outlook.steady, self._left
        limits = {each.job: now + left(each, steady) if each.rentable else FOREVER for each in outlook.queue}
        soonest = first_end(outlook)
        hopeless = [
            Late(each.job, each.many, limits[each.job])
            for each in outlook.queue
            if each.job in outlook.fresh and limits[each.job] <= soonest
        ]
        if len(hopeless) == len(outlook.fresh):
            return hopeless  # nothing has changed for jobs that waited before
        gone = {each.job: None for each in hopeless}
        others = [each for each in outlook.queue if each.job not in gone]
        forecast = booked_latecomers if outlook.reservations else latecomers
        return hopeless + forecast(replace(outlook, queue=others), limits, self._most)

    def _left(self, waiter: Waiter, now: int) -> int:
        """Return within how many nanoseconds a job must start for its wait to be worth it."""
        granted = waiter.latest - waiter.arrived
        patience = granted
        if waiter.known:  # a maximum wait shortens the bound first; a minimum wait lengthens both
            patience = max(granted // SUNK, min(granted, self._worth(waiter.shape, waiter.expected)))
        return min(waiter.latest - now, patience - (now - waiter.arrived) // SUNK)

    def _worth(self, shape: Shape, runtime: int) -> int:
        """Return the nanoseconds of waiting that renting such a job is worth."""
        return self._up * size_of(shape) * runtime // self._down
