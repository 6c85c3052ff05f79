"""The same wait for every job."""

from spillover.model.job import Shape


class Constant:
    """Every job waits as long."""

    def __init__(self, wait: int) -> None:
        self._wait = wait
        """Nanoseconds."""

    def wait(self, shape: Shape, expected: int) -> int:
        """What was configured."""
        del shape, expected
        return self._wait
