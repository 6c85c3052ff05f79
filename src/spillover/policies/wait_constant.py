"""The same wait for every job."""

from spillover.deciding.protocols import Case


class Constant:
    """Every job waits as long."""

    def __init__(self, wait: int) -> None:
        self._wait = wait
        """Nanoseconds."""

    def wait(self, case: Case) -> int:
        """What was configured."""
        del case
        return self._wait
