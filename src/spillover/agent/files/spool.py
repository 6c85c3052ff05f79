"""Records what an agent must know after `kill -9`: the processes it started, and the results without an answer.

The file consists of JSON lines and grows only at its end. The agent writes it once for each turn of its event loop and
does not sync it. Written data survives a crash of the agent. A machine that loses power loses the tasks as well, so
their records would be useless.
"""

import os
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from spillover.agent.leases.values import TaskResult
from spillover.core.events import Lease

SMALL: Final = 1 << 16
"""Bytes up to which an empty spool is not truncated."""
LARGE: Final = 1 << 22
"""Bytes from which the spool is rewritten with the live records only."""


class _Started(Struct, frozen=True, tag="s", array_like=True):
    """A process was started."""

    lease: Lease
    pid: int
    birth: int
    wall: int
    """Nanoseconds UTC."""


class _Kept(Struct, frozen=True, tag="r", array_like=True):
    """A task ended. The result carries wall-clock time, because the monotonic clock starts again with the machine."""

    result: TaskResult


class _Answered(Struct, frozen=True, tag="a", array_like=True):
    """The server accepted the result, or does not want it."""

    lease: Lease


_Record: TypeAlias = _Started | _Kept | _Answered
_encode = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(_Record)


class Left(Struct, frozen=True):
    """A process of an earlier run whose end was not recorded."""

    lease: Lease
    pid: int
    birth: int
    wall: int
    """When it started, nanoseconds UTC."""


class Spool:
    """The file, and the records in it that still count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._live: dict[Lease, _Record] = {}
        self._unsaid: dict[Lease, _Record] = {}
        """Records not written yet. A result replaces the start of its task, and an answer replaces the result."""
        self._written: set[Lease] = set()
        """Leases that have a live record in the file."""
        self._broken = False
        """Whether the last write failed, so that the file must be rewritten."""
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        for line in path.read_bytes().split(b"\n"):
            try:
                record = _decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # a line cut by a kill during a write, or the empty last one
            if isinstance(record, _Answered):
                self._live.pop(record.lease, None)
            else:
                self._live[_lease_of(record)] = record
        self._written = set(self._live)

    def left(self) -> list[Left]:
        """Return the processes whose end is not in the file."""
        return [
            Left(record.lease, record.pid, record.birth, record.wall)
            for record in self._live.values()
            if isinstance(record, _Started)
        ]

    def unanswered(self, now: int, wall: int) -> list[TaskResult]:
        """Return the results without an answer, their times converted to the monotonic clock."""
        return [
            msgspec.structs.replace(record.result, ended=now - max(0, wall - record.result.ended))
            for record in self._live.values()
            if isinstance(record, _Kept)
        ]

    def started(self, lease: Lease, pid: int, birth: int, wall: int) -> None:
        """Record a process."""
        self._live[lease] = self._unsaid[lease] = _Started(lease, pid, birth, wall)

    def keep(self, result: TaskResult, now: int, wall: int) -> None:
        """Record a result."""
        record = _Kept(msgspec.structs.replace(result, ended=wall - (now - result.ended)))
        self._live[result.lease] = self._unsaid[result.lease] = record

    def forget(self, lease: Lease) -> None:
        """Drop the result of a lease, because the server answered it."""
        self._live.pop(lease, None)
        if lease in self._written:
            self._unsaid[lease] = _Answered(lease)
        else:
            self._unsaid.pop(lease, None)

    def flush(self) -> None:
        """Write new records; raise OSError if the disk refuses them, and repair the file in the next call."""
        if not self._unsaid:
            return
        if not self._live and self._size > SMALL:
            os.ftruncate(self._file, 0)
            self._size = 0
            self._settle()
        elif self._broken or self._size > LARGE:
            self._rewrite()
        else:
            data = b"".join(_encode(record) + b"\n" for record in self._unsaid.values())
            self._broken = True
            if os.write(self._file, data) < len(data):
                raise OSError(f"{self._path}: the disk is full")
            self._broken = False
            self._size += len(data)
            self._settle()

    def close(self) -> None:
        """Write the rest and close the file."""
        try:
            self.flush()
        finally:
            os.close(self._file)

    def _settle(self) -> None:
        """Record that all new records are in the file."""
        for lease, record in self._unsaid.items():
            if isinstance(record, _Answered):
                self._written.discard(lease)
            else:
                self._written.add(lease)
        self._unsaid.clear()

    def _rewrite(self) -> None:
        """Replace the file with one that has the live records only."""
        data = b"".join(_encode(record) + b"\n" for record in self._live.values())
        new = self._path.with_suffix(".new")
        new.write_bytes(data)
        file = os.open(new, os.O_RDWR | os.O_APPEND)
        new.replace(self._path)
        os.close(self._file)
        self._file, self._size, self._broken = file, len(data), False
        self._settle()


def _lease_of(record: _Started | _Kept) -> Lease:
    """Return the lease of a record."""
    return record.lease if isinstance(record, _Started) else record.result.lease
