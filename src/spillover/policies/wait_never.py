"""Owned capacity only."""

from spillover.model.job import Shape
from spillover.model.units import FOREVER


class Never:
    """Never rented, however long it waits."""

    def wait(self, shape: Shape, expected: int) -> int:
        """For ever."""
        del shape, expected
        return FOREVER
