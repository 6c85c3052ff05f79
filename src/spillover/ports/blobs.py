"""The store for files of jobs, by SHA-256.

The journal also stores blobs: specs of a few hundred bytes, in one commit with the events that refer to them. Blobs
here may have gigabytes, are streamed, and exist before anything refers to them. So each has an expiry time: a day
after it was stored or asked for, or later on request.

A blob may belong to projects: those that stored it and those that it was given to. Callers who are limited to one
project see no others. A blob that an unlimited caller stored belongs to no project.
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
"""Bytes to read at once."""
Source: TypeAlias = bytes | Path
"""What to store: bytes, or a file."""
GRACE: Final = DAY
"""Nanoseconds that a blob stays after it was stored or asked for."""


class BlobBounds(Struct, frozen=True):
    """Limits of a store, in bytes."""

    file: int = 10 * GIB
    """Most bytes of one blob."""
    total: int | None = None
    """Most bytes of all blobs; None means what the disk can hold."""


class BlobError(Exception):
    """Base class of errors of a blob store; the message is for users."""


class NoBlob(BlobError):
    """The blob does not exist."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"there is no blob {plain(digest, 80)}")


class Differs(BlobError):
    """The content does not match its digest. Nothing was stored."""


class TooLarge(BlobError):
    """The blob exceeds the maximum size. Nothing was stored."""


class NoSpace(BlobError):
    """The disk or the store's quota is full. Nothing was stored."""


class Blobs(Protocol):
    """A blob store. An invalid digest never exists and cannot be stored."""

    async def put(self, digest: str, pieces: AsyncIterator[bytes], project: str | None = None) -> bool:
        """Store a stream that matches its digest, durably; return False without reading it if the blob exists.

        For a project, only its own blobs exist. It must send any other in full, to prove that it has the content.
        """
        ...

    def get(self, digest: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """Stream the bytes from an offset; raise NoBlob on the first read if the blob does not exist."""
        ...

    async def sizes(self, digests: Sequence[str], project: str | None = None) -> dict[str, int]:
        """Return the sizes of existing blobs, of one project if given; they then stay for at least a day."""
        ...

    async def give(self, digests: Iterable[str], project: str) -> None:
        """Add existing blobs to a project; only until the store closes, if it cannot be written."""
        ...

    async def keep(self, digests: Iterable[str], until: int) -> None:
        """Keep existing blobs at least until a time, in nanoseconds UTC."""
        ...

    async def forget(self, but: Container[str], now: int) -> int:
        """Delete expired blobs that are not in `but`; return how many."""
        ...

    async def used(self) -> tuple[int, int]:
        """Return the number of blobs and their total bytes."""
        ...


def digest_of(source: Source) -> str:
    """Return the SHA-256 of bytes or of a file."""
    sha = hashlib.sha256()
    for piece in pieces_of(source):
        sha.update(piece)
    return sha.hexdigest()


def pieces_of(source: Source) -> Iterator[bytes]:
    """Yield the bytes of a source in pieces."""
    if isinstance(source, bytes):
        for at in range(0, len(source), PIECE):
            yield source[at : at + PIECE]
        return
    with source.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


async def one_piece(data: bytes) -> AsyncIterator[bytes]:
    """Yield bytes as a stream of one piece."""
    yield data


async def whole(pieces: AsyncIterator[bytes], most: int) -> bytes:
    """Read a stream into memory; raise TooLarge if it has more than `most` bytes."""
    data = bytearray()
    async for piece in pieces:
        data += piece
        if len(data) > most:
            raise TooLarge(f"there are more than {most} bytes")
    return bytes(data)
