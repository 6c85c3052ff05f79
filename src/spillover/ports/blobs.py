"""Where the files of jobs are kept: bytes under the SHA-256 of what they are.

The journal keeps blobs too: specs, a few hundred bytes each, in one commit with the events that refer to them. What is kept here may
be gigabytes, comes and goes as a stream, and is there before anything refers to it. So each has a time until which it stays: a day
from when it was put or asked for, and longer where somebody says so.

A blob may be of projects: of those that put it, and of those that it was given to. Whoever is let in for one project is to be
shown no others. Some are of no project, such as what was put before there were any, or by somebody who may see everything.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from spillover.model.bounds import plain
from spillover.model.units import DAY

GIB: Final = 2**30
PIECE: Final = 1 << 18
"""Bytes that are read at once."""
Source: TypeAlias = bytes | Path
"""What is to be put: bytes, or a file."""
GRACE: Final = DAY
"""Nanoseconds that a blob stays after it was put or asked for."""


class BlobBounds(Struct, frozen=True):
    """How much a store takes, in bytes."""

    file: int = 10 * GIB
    """Of one blob."""
    total: int | None = None
    """Of all; None is as much as there is room for."""


class BlobError(Exception):
    """Base of what a store of blobs can answer instead of doing it; the message is for people."""


class NoBlob(BlobError):
    """It is not there."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"there is no blob {plain(digest, 80)}")


class Differs(BlobError):
    """What came is not what its digest says. Nothing was kept."""


class TooLarge(BlobError):
    """It is larger than one blob may be. Nothing was kept."""


class NoSpace(BlobError):
    """It cannot be kept now: the disk is full, or all that may be kept is. Nothing was kept."""


class Blobs(Protocol):
    """The store. What is no digest is never there, and cannot be put."""

    async def put(self, digest: str, pieces: AsyncIterator[bytes], project: str | None = None) -> bool:
        """Keep what comes, if it is what its digest says; False, with nothing read, if it is there. Durable on return.

        For a project it is there if it is of the project. If it is not, all of it has to come, as whoever has it may see it.
        """
        ...

    def get(self, digest: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """The bytes from an offset on; raises NoBlob at the first of them."""
        ...

    async def sizes(self, digests: Sequence[str], project: str | None = None) -> dict[str, int]:
        """The bytes of those that are there, and of a project if one is given; they stay for a day at the least."""
        ...

    async def give(self, digests: Iterable[str], project: str) -> None:
        """Those that are there are of a project too from now on; at least until the store is closed, where it cannot be written."""
        ...

    async def keep(self, digests: Iterable[str], until: int) -> None:
        """Let those that are there stay until a time (nanoseconds UTC), if they would not stay for longer."""
        ...

    async def forget(self, but: Container[str], now: int) -> int:
        """Drop those whose time is over, but some; returns how many."""
        ...

    async def used(self) -> tuple[int, int]:
        """How many are there, and their bytes together."""
        ...


def digest_of(source: Source) -> str:
    """The SHA-256 of bytes, or of a file."""
    sha = hashlib.sha256()
    for piece in pieces_of(source):
        sha.update(piece)
    return sha.hexdigest()


def pieces_of(source: Source) -> Iterator[bytes]:
    """Bytes, or those of a file, piece by piece."""
    if isinstance(source, bytes):
        for at in range(0, len(source), PIECE):
            yield source[at : at + PIECE]
        return
    with source.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


async def one_piece(data: bytes) -> AsyncIterator[bytes]:
    """Bytes that are there already, as a stream."""
    yield data


async def whole(pieces: AsyncIterator[bytes], most: int) -> bytes:
    """A stream as bytes; raises TooLarge for one that has more of them."""
    data = bytearray()
    async for piece in pieces:
        data += piece
        if len(data) > most:
            raise TooLarge(f"there are more than {most} bytes")
    return bytes(data)
