"""Blobs as a client sends and reads them: from bytes or a file, with progress, taken up again where it breaks off."""

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
"""Called with how many bytes more were sent or read."""
Moving: TypeAlias = Callable[[int, int], None]
"""Called with how many bytes were sent or read so far, and of how many."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The body of a request that is read while it is sent."""

    source: Source
    progress: Progress | None = None

    def size(self) -> int:
        """How many bytes it has."""
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    def pieces(self) -> Iterator[bytes]:
        """All of it, told to whoever wants to know."""
        for piece in pieces_of(self.source):
            yield piece
            if self.progress is not None:
                self.progress(len(piece))


class Blob:
    """A blob, taken up at its byte, and checked at its end."""

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._seen = 0
        self._sha = hashlib.sha256()
        self.over = False

    def look(self) -> None:
        """Nothing has to be known."""

    def looked(self, view: JobView) -> None:
        """Nothing was asked."""

    def ask(self) -> Ask[bytes]:
        """For the bytes that are still missing."""
        return ask(endpoints.GET_BLOB, BlobQuery(self._digest, self._seen))

    def take(self, chunk: bytes) -> Sequence[bytes]:
        """The bytes as they are."""
        self._seen += len(chunk)
        self._sha.update(chunk)
        return (chunk,) if chunk else ()

    def broke(self) -> None:
        """Bytes are never half."""

    def ended(self) -> None:
        """All was read."""
        if self._sha.hexdigest() != self._digest:
            raise Unavailable(f"the server sent other bytes than those of {self._digest}", kind="internal")
        self.over = True


class Landing:
    """A file that appears under its name when all of it is there."""

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
        """Name the file that was meant in what the system says."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def write(self, piece: bytes) -> None:
        """Add a piece."""
        with self._told():
            self._file.write(piece)
        if self._progress is not None:
            self._progress(len(piece))


def moving(total: int, told: Moving | None) -> Progress | None:
    """Progress over many blobs."""
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
    """Digests in as many as one request may ask for, each once."""
    each = list(dict.fromkeys(digests))
    for at in range(0, len(each), MOST_DIGESTS):
        yield each[at : at + MOST_DIGESTS]
