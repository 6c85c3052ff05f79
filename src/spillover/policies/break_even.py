"""Rents a job at once if it would be rented in the end anyway, and otherwise waits only while that is worth it."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from msgspec.structs import replace

from spillover.core.learned.tally import size_of
from spillover.deciding.forecast.booked import booked_latecomers
from spillover.deciding.forecast.starts import Late, Outlook, Renting, Waiter, first_end, latecomers
from spillover.deciding.forecast.whole import whole_latecomers
from spillover.deciding.protocols import Case, Rental
from spillover.model.ids import JobId
from spillover.model.job import Shape
from spillover.model.units import FOREVER

SUNK: Final = 3
"""One part in this many of the time already waited counts against the patience; the rest is lost either way."""
DEAR: Final = 2
"""How many times the usual patience a job has at most, however much more than usual renting it now costs."""
CHEAP: Final = 2
"""One part in this many of its usual patience a job has at least, however cheap renting it now is.

A slot that costs nothing beside tasks that run longer is still of use to jobs that will be late.
"""
MOST: Final = 200
"""How many expected ends one look-ahead simulates."""
JOBS_AN_END: Final = 5
"""Jobs reviewed for each of those ends. Of more jobs, hardly any would start by the last end."""


class BreakEven:
    """Waits while the expected start on owned capacity is sooner than renting is worth.

    The patience of a job is a coefficient times its GPUs (or CPUs) times its runtime. When a new job stays queued, the
    policy simulates the expected ends of running jobs. It rents every waiting job that would not start within its
    patience. Of a job with a walltime of which similar jobs ran much shorter, the runtime in the patience counts with the
    chance that it is as long as its walltime: rented for nothing, a few such jobs cost more than all others. No job waits longer than three times its patience. A job with an unknown runtime waits no longer than the
    patience of a mean job.

    With pools, the patience also grows and shrinks with what renting the job now would add to the bill, and a job for
    which a machine must boot is compared with its start on that machine.
    """

    compares = True
    """See Policies.compares."""

    def __init__(self, coefficient: float, most_ends: int = MOST) -> None:
        exact = Fraction(str(coefficient)) / 1000
        self._up, self._down = exact.numerator, exact.denominator
        self._most = most_ends
        self.most_jobs = JOBS_AN_END * most_ends

    def wait(self, case: Case) -> int:
        """Return the longest wait whatever is predicted: a bound for wrong predictions."""
        boot = 0 if case.rental is None else case.rental.boot
        if not case.known and case.tally.jobs:
            mean = case.tally.expected // case.tally.jobs
            return boot + self._worth(case.shape, mean)
        patience = self._worth(case.shape, case.reckoned or case.likely)
        return boot + (SUNK * patience if case.known else patience)

    def review(self, outlook: Outlook) -> list[Late]:
        """Return the jobs that would not start within the rest of their patience."""
        if outlook.rentals is not None:
            return self._review_rentals(outlook, outlook.rentals)
        now, steady, left = outlook.now, outlook.steady, self._left
        limits = {each.job: now + left(each, steady) if each.rentable else FOREVER for each in outlook.queue}
        return self._late(outlook, limits, outlook.fresh)

    def _review_rentals(self, outlook: Outlook, rentals: Renting) -> list[Late]:
        """Return the same, if machines of pools are rented.

        Those jobs are late that would be if others share each machine that must be ordered, and also if only late ones
        do.
        """
        found = rentals.in_order(outlook.queue)
        limits = self._limits(outlook, found)
        waiting = {each.job: each for each in outlook.queue}
        late = self._late(outlook, limits, waiting)
        dear = rentals.together([waiting[each.job] for each in late])
        alone = self._limits(outlook, dear) if dear else {}
        if any(alone[each] > limits[each] for each in dear):
            likely = {each.job: None for each in late}
            limits = {each: alone[each] if each in dear else limit for each, limit in limits.items()}
            late = [each for each in self._late(outlook, limits, waiting) if each.job in likely]
        slots = {each for each, rental in found.items() if not rental.price and not rental.boot}
        return [replace(each, paid=each.job in slots) for each in late]

    def _limits(self, outlook: Outlook, rentals: Mapping[JobId, Rental]) -> dict[JobId, int]:
        """Return by when each job must start for its wait to be worth it, nanoseconds UTC."""
        now, steady, left = outlook.now, outlook.steady, self._left
        return {
            each.job: now + left(each, steady, rentals.get(each.job)) if each.rentable else FOREVER
            for each in outlook.queue
        }

    def _late(self, outlook: Outlook, limits: dict[JobId, int], tried: Mapping[JobId, object]) -> list[Late]:
        """Return the jobs that would not start by their limits; first those `tried` ones for which nothing ends in time."""
        soonest = first_end(outlook)
        hopeless = [
            Late(each.job, each.many, limits[each.job])
            for each in outlook.queue
            if each.job in tried and limits[each.job] <= soonest
        ]
        rest, most = outlook, self._most
        if hopeless:
            gone = {each.job: None for each in hopeless}
            if gone.keys() >= outlook.fresh.keys():
                return hopeless  # nothing has changed for jobs that waited before
            rest = replace(outlook, queue=[each for each in outlook.queue if each.job not in gone])
        if outlook.reservations:
            return hopeless + booked_latecomers(rest, limits, most)
        found = whole_latecomers(rest, limits, most)
        return hopeless + (latecomers(rest, limits, most) if found is None else found)

    def _left(self, waiter: Waiter, now: int, rental: Rental | None = None) -> int:
        """Return within how many nanoseconds a job must start for its wait to be worth it."""
        latest, arrived = waiter.latest, waiter.arrived
        patience = granted = latest - arrived
        if rental is not None:  # its bound has the boot in it
            patience = granted = granted - min(rental.boot, granted)
        if waiter.known:  # a maximum wait shortens the bound first; a minimum wait lengthens both
            worth = self._up * size_of(waiter.shape) * waiter.expected // self._down
            if worth < granted:
                least = granted // SUNK
                # Calls of `max` and `min` would take longer than all the rest, for each waiting job at each look ahead.
                patience = worth if worth > least else least  # noqa: FURB136 - see above
        if rental is not None:
            if rental.usual:
                price = max(rental.usual // CHEAP, min(rental.price, DEAR * rental.usual))
                patience = 0 if rental.idle else patience * price // rental.usual
            patience += latest - arrived - granted
        left = patience - (now - arrived) // SUNK
        return left if left < latest - now else latest - now  # noqa: FURB136 - as above

    def _worth(self, shape: Shape, runtime: int) -> int:
        """Return the nanoseconds of waiting that renting such a job is worth."""
        return self._up * size_of(shape) * runtime // self._down
