"""Finds out whether standard input is meant for a job, and uploads it, so that every attempt can read all of it."""

import fcntl
import os
import select
import stat
import sys
import tempfile
import termios
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spillover.cli.command import UsageError
from spillover.cli.printing.output import Output

if TYPE_CHECKING:
    from spillover.client import Client

OURS: Final = "-"
"""The path that means our own standard input."""
_PIECE: Final = 1 << 18
PATIENCE: Final = 3.0
"""Seconds without a byte after which we say what we wait for."""
_WRAPPERS: Final = frozenset({"timeout", "time", "sudo", "doas", "strace", "flock", "chronic", "setsid"})
"""Programs that run another one and leave their standard input to it."""
_REOPENED: Final = Path("/proc/self/fd/0")
"""Opens the file of standard input again, at its beginning."""


def send_input(out: Output, client: "Client", spec: dict[str, Any]) -> bool:
    """Upload what is piped to us, and name it in the spec of a job; return whether there was anything to send."""
    asked = spec.get("stdin")
    if asked == OURS:
        del spec["stdin"]
    elif asked is not None:
        if has_input():
            out.note(f"standard input is not sent to the job, which reads {asked}")
        return True
    if asked is None and not has_input():
        return False
    with _file(out, client.server().max_inputs) as path:
        size = path.stat().st_size
        spec["stdin"] = {"path": "stdin", "digest": client.put_blob(path), "size": size}
    return True


def has_input() -> bool:
    """Return whether a pipe or file is connected to standard input that is meant for the job."""
    try:
        at = sys.stdin.fileno()
        kind = os.fstat(at)
        with suppress(OSError):
            # What a shell reads its commands from, or a loop its lines, is not meant for the job.
            theirs = Path(f"/proc/{_caller()}/fd/0").stat()
            if (theirs.st_dev, theirs.st_ino) == (kind.st_dev, kind.st_ino):
                return False
        if stat.S_ISREG(kind.st_mode):
            return os.lseek(at, 0, os.SEEK_CUR) < kind.st_size
    except (OSError, ValueError, AttributeError):  # closed, or none
        return False
    return stat.S_ISFIFO(kind.st_mode) or stat.S_ISSOCK(kind.st_mode)


def has_data() -> bool:
    """Return whether something was already written to standard input that is meant for the job.

    Remote shells and programs of people connect pipes to us that stay empty.
    """
    if not has_input():
        return False
    try:
        at = sys.stdin.fileno()
        ready, _, _ = select.select([at], [], [], 0)
        count = array("i", [0])
        if ready and not stat.S_ISREG(os.fstat(at).st_mode):
            fcntl.ioctl(at, termios.FIONREAD, count)
            return count[0] > 0
        return bool(ready)
    except (OSError, ValueError):
        return False


def _caller() -> int:
    """Return the process that started us, past programs that only pass on what they get."""
    pid = os.getppid()
    with suppress(OSError, IndexError, ValueError):
        while Path(f"/proc/{pid}/comm").read_text().strip() in _WRAPPERS:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


@contextmanager
def _file(out: Output, most: int) -> Iterator[Path]:
    """Yield a file with the rest of standard input, of at most so many bytes."""
    at = sys.stdin.fileno()
    if stat.S_ISREG(os.fstat(at).st_mode) and os.lseek(at, 0, os.SEEK_CUR) == 0 and _is_again(at):
        yield _REOPENED
        return
    with tempfile.NamedTemporaryFile(prefix="spill-stdin-") as file:
        _copy(out, at, file.fileno(), most)
        yield Path(file.name)


def _is_again(at: int) -> bool:
    """Return whether the file can be opened again by a path, which saves a copy."""
    try:
        again, now = _REOPENED.stat(), os.fstat(at)
    except OSError:
        return False
    return (again.st_dev, again.st_ino) == (now.st_dev, now.st_ino) and os.access(_REOPENED, os.R_OK)


def _copy(out: Output, source: int, to: int, most: int) -> None:
    """Copy a stream to its end; raise UsageError if it is too large."""
    from spillover.model.units import format_memory  # noqa: PLC0415 - only with standard input

    told = "reading standard input to its end, to send it to the job; `< /dev/null` sends nothing"
    waits = threading.Timer(PATIENCE, out.note, (told,))
    waits.daemon = True
    waits.start()
    size = 0
    try:
        while piece := os.read(source, _PIECE):
            waits.cancel()
            size += len(piece)
            if size > most:
                raise UsageError(
                    f"standard input has more than {format_memory(most)}, the maximum (files.max_inputs of the server); "
                    "put it where the job can read it"
                )
            while piece:
                piece = piece[os.write(to, piece) :]
    finally:
        waits.cancel()
