"""Wait in proportion to the size: for jobs whose runtime nobody knows."""

from spillover.core.tally import size_of
from spillover.deciding.protocols import Case


class Resource:
    """A coefficient for each GPU, or for each CPU of a job without GPUs."""

    def __init__(self, coefficient: int) -> None:
        self._each = coefficient
        """Nanoseconds of waiting for each GPU or CPU."""

    def wait(self, case: Case) -> int:
        """By all tasks of the job together, however long it runs."""
        return self._each * size_of(case.shape) // 1000
