"""No waiting."""

from spillover.deciding.protocols import Case


class Zero:
    """Tried once on owned capacity, else rented at once."""

    def wait(self, case: Case) -> int:
        """Nothing."""
        del case
        return 0
