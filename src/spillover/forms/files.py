"""Reads files that users name, and refuses large ones before they fill the memory."""

import sys
from pathlib import Path
from typing import BinaryIO

from spillover.forms.documents import MOST_BYTES
from spillover.forms.problems import BadForm, FormProblem


def read_file(name: str, stdin: BinaryIO | None = None) -> bytes:
    """Return the bytes of a file, or of standard input for `-`; raise BadForm if it is unreadable or too large."""
    try:
        if name == "-":
            data = (stdin or sys.stdin.buffer).read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else None
        message = reason or f"cannot be read: {error}"
        raise BadForm([FormProblem(name, None, "", message)]) from None
    if len(data) > MOST_BYTES:
        message = f"is larger than {MOST_BYTES // 2**20} MiB; split it into several files, or use an array"
        raise BadForm([FormProblem(name, None, "", message)])
    return data
