"""Waits in two steps: short jobs are cheap to rent, long jobs are worth a wait."""

from spillover.deciding.protocols import Case
from spillover.model.units import parse_duration


class Stepped:
    """One wait for jobs that are expected to be short, and another for all others."""

    def __init__(self, short: str = "10m", short_wait: str = "0s", long_wait: str = "1h") -> None:
        # Options arrive as the user wrote them. An error here refuses the policy before anything changes.
        self._short = _duration("short", short)
        self._short_wait = _duration("short_wait", short_wait)
        self._long_wait = _duration("long_wait", long_wait)

    def wait(self, case: Case) -> int:
        """Return the wait in nanoseconds."""
        return self._short_wait if case.expected <= self._short else self._long_wait


def _duration(option: str, written: object) -> int:
    """Return an option in nanoseconds. The user sees the message of the error."""
    if not isinstance(written, str):  # a number has no unit
        raise ValueError(f"{option}: {written} has no unit; write 90s, 10m, 1h30m or 2d")  # noqa: TRY004 - a wrong value
    try:
        return parse_duration(written)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error
