"""Waits in two steps: what is short is cheap to rent, what is long is worth waiting for."""

from spillover.deciding.protocols import Case
from spillover.model.units import parse_duration


class Stepped:
    """One wait for jobs that are expected to be short, another for all others."""

    def __init__(self, short: str = "10m", short_wait: str = "0s", long_wait: str = "1h") -> None:
        # Options come as they were written; what cannot be read is refused before anything is changed.
        self._short = parse_duration(short)
        self._short_wait = parse_duration(short_wait)
        self._long_wait = parse_duration(long_wait)

    def wait(self, case: Case) -> int:
        """Nanoseconds."""
        return self._short_wait if case.expected <= self._short else self._long_wait
