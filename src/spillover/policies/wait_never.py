"""Owned capacity only."""

from spillover.deciding.protocols import Case
from spillover.model.units import FOREVER


class Never:
    """Never rented, however long it waits."""

    def wait(self, case: Case) -> int:
        """For ever."""
        del case
        return FOREVER
