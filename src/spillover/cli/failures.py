"""Turns exceptions into messages: one line for each problem, with what to do."""

import os

from spillover.cli.command import UsageError
from spillover.cli.printing.output import clean


def lines_of(error: Exception) -> list[str]:
    """Return the lines that a user sees instead of a traceback."""
    return [clean(line) for line in _problems(error) if line.strip()]


def _problems(error: Exception) -> list[str]:
    """Describe an error according to its type."""
    if isinstance(error, UsageError):
        return list(error.problems)
    from spillover.client import SpillError  # noqa: PLC0415 - heavy, and only for errors of these kinds
    from spillover.forms.problems import BadForm  # noqa: PLC0415 - likewise

    match error:
        case BadForm() | SpillError():
            return str(error).splitlines()
        case OSError():
            return [_system(error)]
    told = " ".join(str(error).split())
    return [
        f"internal error: {type(error).__name__}{': ' if told else ''}{told}; set SPILL_DEBUG=1 to see where"
    ]


def _system(error: OSError) -> str:
    """Describe a system error without its number."""
    said = os.strerror(error.errno) if error.errno else str(error)
    return f"{os.fsdecode(error.filename)}: {said}" if isinstance(error.filename, str | bytes) else said
