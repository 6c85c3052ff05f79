"""Files that people name, read with bounds: a file of 100 MB is refused before it is in memory."""

import sys
from pathlib import Path
from typing import BinaryIO

from spillover.forms.documents import MOST_BYTES
from spillover.forms.problems import BadForm, FormProblem


def read_file(name: str, stdin: BinaryIO | None = None) -> bytes:
    """The bytes of a file, or of standard input for `-`; raises BadForm if there is none or it is too large."""
    try:
        if name == "-":
            data = (stdin or sys.stdin.buffer).read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else None
        message = f"cannot be read: {(reason or str(error)).lower()}"
        raise BadForm([FormProblem(name, None, "", message)]) from None
    if len(data) > MOST_BYTES:
        message = f"is larger than {MOST_BYTES // 2**20} MiB; write fewer jobs in a file, or an array"
        raise BadForm([FormProblem(name, None, "", message)])
    return data
