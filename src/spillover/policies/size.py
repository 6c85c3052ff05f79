"""Size policies: how many tasks a gang of elastic size starts with."""

from spillover.deciding.protocols import SizeCase


class Largest:
    """Takes as many tasks as fit."""

    takes_all = True
    """See Policies.takes_all."""

    def most(self, case: SizeCase) -> int:
        """Return the largest size."""
        return case.shape.most


class Smallest:
    """Takes the least number of tasks, whatever fits."""

    def most(self, case: SizeCase) -> int:
        """Return the least size."""
        return case.shape.tasks


class Share:
    """Divides what is free evenly among the gang and the waiting jobs that would fit beside its least size.

    A job that asks for less than an even part gets what it asks for, and leaves the rest of its part to the others.
    """

    def most(self, case: SizeCase) -> int:
        """Return the part of the gang."""
        left, sharers = case.free, len(case.others) + 1
        for asked in sorted(case.others):
            if asked * sharers >= left:
                break
            left -= asked
            sharers -= 1
        return min(case.shape.most, max(case.shape.tasks, left // sharers))
