"""Reads the output of tasks for those who ask, live or later, and deletes it when it is old."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from spillover.agent.connection.convert import checked_job
from spillover.agent.nursery.holes import left_out
from spillover.agent.tasks.process import stem_of
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.wire import agents_pb2 as pb

CHUNK: Final = 1 << 16
"""Bytes in one message."""
LAST_WORDS: Final = 2_000
"""Bytes at the end of a file in which to look for its last line."""
POLL: Final = 0.05
"""Seconds between two reads of a followed file."""

Key = tuple[JobId, int, int]
"""Job, attempt and task."""


class BoundedOutput:
    """Reads a file of output whose middle may be cut out, and says in one line how much is missing.

    Offsets count the readable bytes, including that line, so they are stable once the task has ended. While a task
    writes beyond its limit the hole grows, and an offset then points elsewhere. A position in the file stays valid.
    """

    def __init__(self, file: int, offset: int, position: int = 0) -> None:
        """Start at `position` in the file, or at the offset if `position` is 0."""
        self._file = file
        self._rest = b""
        """The unread part of a line that says how much is missing."""
        self.position = position or self._place(offset)
        """Where to continue in the file."""

    def _place(self, offset: int) -> int:
        """Convert an offset in the readable bytes to a position in the file."""
        at = 0
        while (hole := self._seek(at, os.SEEK_HOLE)) is not None and offset > hole - at:
            end = self._end_of(hole)
            if end is None:
                break
            offset -= hole - at
            line = left_out(end - hole)
            if offset < len(line):
                self._rest = line[offset:]
                return end
            offset, at = offset - len(line), end
        return at + offset

    def next(self) -> bytes:
        """Return the next bytes; empty if there are no more at present."""
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        while (hole := self._seek(self.position, os.SEEK_HOLE)) is not None:
            if hole == self.position:
                end = self._end_of(hole)
                if end is None:
                    return b""
                self.position = end
                return left_out(end - hole)
            data = os.pread(self._file, min(CHUNK, hole - self.position), self.position)
            after = self._seek(self.position, os.SEEK_HOLE)
            # Else the cut reached this part while it was read.
            if after is None or after >= self.position + len(data):
                self.position += len(data)
                return data
        return b""

    def _end_of(self, hole: int) -> int | None:
        """Return where a hole ends; None at the end of the file."""
        return self._seek(hole, os.SEEK_DATA)

    def _seek(self, at: int, what: int) -> int | None:
        """Return the position of the next hole or data; None past the end."""
        try:
            return os.lseek(self._file, at, what)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise


def flattened(path: Path) -> Path:
    """Return the path of a file without holes but with the same readable bytes: the file itself, or a copy."""
    file = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(file).st_size
        if size == 0 or os.lseek(file, 0, os.SEEK_HOLE) >= size:
            return path
        copy, reader = path.with_name(f"{path.name}.flat"), BoundedOutput(file, 0)
        with copy.open("wb") as out:
            while data := reader.next():
                out.write(data)
        return copy
    finally:
        os.close(file)


def last_line(path: Path) -> str:
    """Return the last line of a file, or its end if the line is long; empty if there is none. Reads only the end."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_WORDS))
            said = file.read(LAST_WORDS)
    except OSError:
        return ""
    return said.decode(errors="replace").strip().rpartition("\n")[2]


class Outputs:
    """Serves requests for output, each in its own asyncio task."""

    def __init__(
        self,
        folder: Path,
        held: Callable[[Key], Lease | None],
        name_output: Callable[[Lease], Awaitable[None]],
    ) -> None:
        self._folder = folder
        self._held = held
        """Returns the lease under which a task waits or runs here; None if it does neither."""
        self._name_output = name_output
        self._readers: dict[int, asyncio.Task[None]] = {}
        self._endings: dict[Key, asyncio.Event] = {}
        """Events for the next end of each followed task."""

    def request(self, read: pb.OutputRead, send: Callable[[pb.OutputChunk], Awaitable[None]]) -> None:
        """Start or stop serving a request."""
        if read.stop:
            if (reader := self._readers.get(read.id)) is not None:
                reader.cancel()
        elif read.id not in self._readers:
            reader = asyncio.create_task(self._serve(read, send))
            self._readers[read.id] = reader
            reader.add_done_callback(lambda _: self._readers.pop(read.id, None))

    def ended(self, lease: Lease) -> None:
        """Wake the readers of a task that ended, so that they read the rest."""
        if (
            self._endings
            and (ending := self._endings.pop((lease.job, lease.attempt, lease.task), None)) is not None
        ):
            ending.set()

    async def reset(self) -> None:
        """Cancel all requests, because their connection ended."""
        readers = list(self._readers.values())
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    async def _serve(self, read: pb.OutputRead, send: Callable[[pb.OutputChunk], Awaitable[None]]) -> None:
        """Serve one request."""
        try:
            await self._read(read, send)
            await send(pb.OutputChunk(id=read.id, end=True))
        except (OSError, ValueError) as error:
            await send(pb.OutputChunk(id=read.id, end=True, error=str(error)))

    async def _read(self, read: pb.OutputRead, send: Callable[[pb.OutputChunk], Awaitable[None]]) -> None:
        """Send a file from an offset on, and if it is followed, until its task has ended."""
        key = (checked_job(read.job), read.attempt, read.task)
        path = f"{stem_of(self._folder, *key)}.{'err' if read.stderr else 'out'}"
        file, named = -1, False
        reader: BoundedOutput | None = None
        try:
            while True:
                # Look up the lease before reading. Then the reader sees everything that the task wrote before its end.
                lease = self._held(key)
                # The last end may be that of an earlier lease. Each round waits for another one.
                ending = self._endings.setdefault(key, asyncio.Event())
                if lease is not None and not named:
                    await self._name_output(lease)
                if file < 0:
                    # A missing file is not an error, because a task that wrote nothing has none.
                    with contextlib.suppress(FileNotFoundError):
                        file = os.open(path, os.O_RDONLY)
                        named = True
                        reader = BoundedOutput(file, read.offset, read.position)
                while reader is not None and (data := reader.next()):
                    await send(pb.OutputChunk(id=read.id, data=data, position=reader.position))
                if lease is None or not read.follow:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL):
                        await ending.wait()
        finally:
            self._endings.pop(key, None)
            if file >= 0:
                os.close(file)

    def delete_old(self, before: int, held: frozenset[Key]) -> int:
        """Delete output older than a time, in nanoseconds UTC; return the number of files. Safe to run in a thread."""
        deleted = 0
        kept = {stem_of(self._folder, *key).name for key in held}
        for folder in self._folder.iterdir():
            if folder.name == "spool" or not folder.is_dir():
                continue
            for file in folder.iterdir():
                # The end of a task touches its files. So only files of running tasks can be old and still needed.
                if file.stem not in kept and file.lstat().st_mtime_ns < before:
                    file.unlink(missing_ok=True)
                    deleted += 1
        return deleted
