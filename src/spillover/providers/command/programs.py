"""Runs the programs of an operator: a JSON document in, one out, a time limit, and a log of each run.

A program runs in a session of its own, so that a run that takes too long ends with all that it started. What it writes to
standard error goes to a file, which messages name.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover.model.bounds import plain
from spillover.model.units import format_duration

MOST_OUTPUT: Final = 16 << 20
"""Bytes of the answer of a program."""
MOST_WHY: Final = 300
"""Characters of a reason."""
GRACE: Final = 5.0
"""Seconds between TERM and KILL for a program that takes too long."""
KILLED: Final = 10.0
"""Seconds to wait for the end of a program that was killed."""
KEEP: Final = 7 * 86_400.0
"""Seconds for which logs are kept."""
_TAIL: Final = 4096


class Ended(Struct, frozen=True):
    """The end of a program."""

    code: int | None
    """Its exit code, below 0 for a signal; None if it took too long."""
    answer: bytes
    """What it wrote to standard output."""
    why: str
    """Its last line on standard error, or else how it ended; with the name of its log."""


class NotStarted(Exception):
    """A program could not be started; the message says why in one line."""


class Programs:
    """Runs programs."""

    def __init__(self, logs: Path, environ: Mapping[str, str], timeout: int) -> None:
        self._logs = logs
        self._environ = environ
        self._timeout = timeout
        """Nanoseconds."""

    async def run(self, words: Sequence[str], given: object, log: str) -> Ended:
        """Run a program to its end; raise NotStarted."""
        path = self._logs / f"{log}.log"
        # Files rather than pipes: what a program leaves running in the background may keep its output open.
        with tempfile.TemporaryFile() as question, tempfile.TemporaryFile() as answer:
            question.write(msgspec.json.encode(given))
            question.seek(0)
            try:
                self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
                errors = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            except OSError as error:
                raise NotStarted(f"{path} cannot be written: {_line(str(error))}") from None
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=question,
                    stdout=answer,
                    stderr=errors,
                    env=dict(self._environ),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise NotStarted(f"{words[0]} cannot be started: {_line(str(error))}") from None
            finally:
                os.close(errors)
            code = await self._end(process)
            if code is None:
                return Ended(
                    None, b"", f"{words[0]} took longer than {format_duration(self._timeout)}; see {path}"
                )
            answer.seek(0)
            said = answer.read(MOST_OUTPUT + 1)
            return Ended(code, said, f"{_last(path) or _how(words[0], code)}; see {path}")

    async def _end(self, process: asyncio.subprocess.Process) -> int | None:
        """Return the exit code of a program; None if it took too long, and was ended."""
        try:
            async with asyncio.timeout(self._timeout / 10**9):
                return await process.wait()
        except TimeoutError:
            await _stop(process)
            return None
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(_stop(process)))
            raise

    def clean(self) -> None:
        """Remove old logs."""
        with contextlib.suppress(FileNotFoundError):
            for each in os.scandir(self._logs):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - each.stat().st_mtime > KEEP:
                        Path(each.path).unlink()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a program and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()
    # The program itself may end at TERM, while what it started does not.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILLED):  # longer only if the system itself hangs
            await process.wait()


def _last(path: Path) -> str:
    """Return the last line of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return _line(lines[-1]) if lines else ""


def _line(text: str) -> str:
    """Return a text as one short line."""
    return plain(text, MOST_WHY).strip()


def _how(program: str, code: int) -> str:
    """Return how a program ended."""
    return f"{program} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
