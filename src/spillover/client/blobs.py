"""Uploads and downloads blobs from bytes or files, with progress. Downloads resume where they broke off."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, TypeAlias

from spillover.client.asks import MOST_DIGESTS, Ask, ask
from spillover.client.errors import Unavailable
from spillover.ports.blobs import Source, pieces_of
from spillover.wire import endpoints
from spillover.wire.api import JobView
from spillover.wire.parameters import BlobQuery

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes that were just sent or read."""
Moving: TypeAlias = Callable[[int, int], None]
"""Called with the bytes sent or read so far, and the total."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A request body that is read while it is sent."""

    source: Source
    progress: Progress | None = None

    def size(self) -> int:
        """Return its size in bytes."""
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    def pieces(self) -> Iterator[bytes]:
        """Yield its content in pieces, and report progress."""
        for piece in pieces_of(self.source):
            yield piece
            if self.progress is not None:
                self.progress(len(piece))


class Blob:
    """The download of a blob. Resumes at its last byte, and checks the digest at the end."""

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._seen = 0
        self._sha = hashlib.sha256()
        self.over = False

    def look(self) -> None:
        """Return None: nothing to ask first."""

    def looked(self, view: JobView) -> None:
        """Do nothing."""

    def ask(self) -> Ask[bytes]:
        """Ask for the missing bytes."""
        return ask(endpoints.GET_BLOB, BlobQuery(self._digest, self._seen))

    def take(self, chunk: bytes) -> Sequence[bytes]:
        """Return the bytes unchanged."""
        self._seen += len(chunk)
        self._sha.update(chunk)
        return (chunk,) if chunk else ()

    def broke(self) -> None:
        """Do nothing: bytes need no cleanup."""

    def ended(self) -> None:
        """Check the digest after the last byte."""
        if self._sha.hexdigest() != self._digest:
            raise Unavailable(
                f"the bytes that the server sent do not match the digest {self._digest}", kind="internal"
            )
        self.over = True


class Landing:
    """A file that appears under its name only when it is complete."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self._path = path
        self._half = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
        self._progress = progress

    def __enter__(self) -> Self:
        with self._told():
            self._file: BinaryIO = self._half.open("xb")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._told():
                self._file.close()
                if kind is None:
                    self._half.replace(self._path)
        finally:
            self._half.unlink(missing_ok=True)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Name the final file in errors, instead of the temporary one."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def write(self, piece: bytes) -> None:
        """Write a piece."""
        with self._told():
            self._file.write(piece)
        if self._progress is not None:
            self._progress(len(piece))


def moving(total: int, told: Moving | None) -> Progress | None:
    """Return a progress callback that sums over many blobs."""
    if told is None:
        return None
    done = 0
    told(0, total)

    def more(count: int) -> None:
        nonlocal done
        done += count
        told(done, total)

    return more


def batches(digests: Iterable[str]) -> Iterator[list[str]]:
    """Yield distinct digests in batches that fit into one request."""
    each = list(dict.fromkeys(digests))
    for at in range(0, len(each), MOST_DIGESTS):
        yield each[at : at + MOST_DIGESTS]
