"""Waits in two steps: what is short is cheap to rent, what is long is worth waiting for."""

from spillover.deciding.protocols import Case
from spillover.model.units import parse_duration


class Stepped:
    """One wait for jobs that are expected to be short, another for all others."""

    def __init__(self, short: str = "10m", short_wait: str = "0s", long_wait: str = "1h") -> None:
        # Options come as they were written; what cannot be read is refused before anything is changed.
        self._short = _duration("short", short)
        self._short_wait = _duration("short_wait", short_wait)
        self._long_wait = _duration("long_wait", long_wait)

    def wait(self, case: Case) -> int:
        """Nanoseconds."""
        return self._short_wait if case.expected <= self._short else self._long_wait


def _duration(option: str, written: object) -> int:
    """Nanoseconds of an option; what is raised here is told to whoever wrote it."""
    if not isinstance(written, str):  # a number stays a number: 15 is no time
        raise ValueError(f"{option}: {written} has no unit; write 90s, 10m, 1h30m or 2d")  # noqa: TRY004 - a wrong value
    try:
        return parse_duration(written)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error
