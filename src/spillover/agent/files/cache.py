"""Caches the files that tasks need under their digest, up to a size, and verifies them before use.

The folder holds complete files (`XX/DIGEST`) and unfinished downloads (`half/DIGEST`). An interrupted download resumes
where it stopped, even after a restart of the agent. A file of an earlier run is verified again before its first use,
because a power failure may have kept its name and lost its content.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from spillover.agent.connection.transfers import Full, ServerAway, TransferRefused, Transfers
from spillover.model.files import is_digest
from spillover.ports.blobs import digest_of

PIECE: Final = 1 << 20
"""Bytes to read or write at once."""
PAUSE: Final = 0.2
"""Seconds before the next try when the server could not answer."""
CACHE: Final = 10 << 30
"""Default size of the cache in bytes."""
PATIENCE: Final = 300.0
"""Seconds to retry an upload while the server has no space."""
CHANGED: Final = 3
"""Number of downloads with wrong content after which a file counts as unavailable."""

_FROM_PEER: Final = "peer-"
"""Prefix of the names of files that come from other agents."""


class Unfetched(Exception):
    """A file is unavailable or cannot be uploaded; the message says why."""


class Files:
    """The cache of one agent."""

    def __init__(self, folder: Path, transfers: Transfers, bound: int = CACHE) -> None:
        self._folder = folder
        self._transfers = transfers
        self._bound = bound
        self._sizes: dict[str, int] = {}
        """Bytes of each file, the least recently used first."""
        self._unchecked: set[str] = set()
        """Files of an earlier run that have not been verified yet."""
        self._used = 0
        self._holders: dict[str, int] = {}
        """Number of users of each file that is in use and must not be deleted."""
        self._coming: dict[str, asyncio.Task[None]] = {}

    def open(self) -> None:
        """Index the files that an earlier run left."""
        half = self._folder / "half"
        half.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in half.glob(f"{_FROM_PEER}*"):
            _delete(path)
        found = []
        for path in self._folder.glob("??/*"):
            seen = path.stat()
            found.append((seen.st_mtime_ns, path.name, seen.st_size))
        for _, digest, size in sorted(found):
            self._sizes[digest] = size
            self._unchecked.add(digest)
        self._used = sum(self._sizes.values())

    @asynccontextmanager
    async def held(self, digest: str) -> AsyncIterator[Path]:
        """Yield the path of a file, which is read-only and stays for the block; raise Unfetched if unavailable."""
        if not is_digest(digest):
            raise Unfetched(f"{digest[:100]!r} is not a SHA-256")  # and so not safe as a file name
        self._holders[digest] = self._holders.get(digest, 0) + 1
        try:
            yield await self._fetch(digest)
        finally:
            self._holders[digest] -= 1
            if not self._holders[digest]:
                del self._holders[digest]
            self._make_room()

    async def read(self, digest: str) -> bytes:
        """Return the content of a file; raise Unfetched if unavailable."""
        async with self.held(digest) as path:
            return await asyncio.to_thread(path.read_bytes)

    async def prefetch(self, digest: str) -> None:
        """Fetch a file for later use; ignore a failure."""
        with contextlib.suppress(Unfetched):
            async with self.held(digest):
                pass

    async def upload(self, source: Path | bytes, digest: str | None = None) -> str:
        """Store a file on the server and return its digest; retry, or raise Unfetched if that is useless."""
        try:
            name: str = await asyncio.to_thread(digest_of, source) if digest is None else digest
        except OSError as error:
            raise Unfetched(f"it cannot be read: {error.strerror}") from None
        until = None
        while True:
            try:
                await self._transfers.put(name, _pieces(source))
            except Full as error:
                now = time.monotonic()
                until = until or now + PATIENCE
                if now > until:
                    raise Unfetched(str(error)) from None
                await asyncio.sleep(1)
            except ServerAway:
                await self._pause()
            except TransferRefused as error:
                raise Unfetched(str(error)) from None
            else:
                return name

    async def pieces(self, digest: str) -> AsyncIterator[bytes]:
        """Yield a file piece by piece if it is here and verified, else nothing."""
        if digest not in self._sizes or digest in self._unchecked:
            return
        async with self.held(digest) as path:
            async for piece in _pieces(path):
                yield piece

    def scratch(self) -> Path:
        """Create an empty file for content from another agent, to be adopted or deleted."""
        path = self._folder / "half" / f"{_FROM_PEER}{secrets.token_hex(8)}"
        path.touch(mode=0o600)
        return path

    async def adopt(self, digest: str, path: Path) -> bool:
        """Move a file into the cache if it matches the digest, else delete it; return whether it matched."""
        try:
            same = await asyncio.to_thread(_is, path, digest)
            if not same or digest in self._sizes or digest in self._coming:
                return same
            kept = self._path(digest)
            kept.parent.mkdir(mode=0o700, exist_ok=True)
            size = path.stat().st_size  # noqa: ASYNC240 - one quick call
            path.replace(kept)  # noqa: ASYNC240 - likewise
        finally:
            _delete(path)
        self._sizes[digest] = size
        self._used += size
        self._make_room()
        return True

    def close(self) -> None:
        """Cancel all downloads."""
        for coming in self._coming.values():
            coming.cancel()

    # --- downloads and eviction

    async def _fetch(self, digest: str) -> Path:
        """Return the path of a file after fetching it if needed; concurrent callers share one download."""
        path = self._path(digest)
        if digest in self._unchecked:
            await self._look(digest, path)
        if digest in self._sizes:
            self._sizes[digest] = self._sizes.pop(digest)
            await asyncio.to_thread(_touch, path)
            return path
        coming = self._coming.get(digest)
        if coming is None or coming.done():
            coming = self._coming[digest] = asyncio.create_task(self._download(digest, path))
            coming.add_done_callback(lambda done: self._arrived(digest, done))
        await asyncio.shield(coming)
        return path

    def _arrived(self, digest: str, done: "asyncio.Task[None]") -> None:
        """Forget a finished download."""
        if self._coming.get(digest) is done:
            del self._coming[digest]
        if not done.cancelled():
            # Waiting callers got the error. Without them, asyncio would log that nobody read it.
            done.exception()

    async def _look(self, digest: str, path: Path) -> None:
        """Verify a file of an earlier run, and delete it if it is damaged."""
        same = await asyncio.to_thread(_is, path, digest)
        if digest not in self._unchecked:
            return  # another caller verified it meanwhile
        self._unchecked.discard(digest)
        if not same:
            self._used -= self._sizes.pop(digest)
            _delete(path)

    async def _download(self, digest: str, path: Path) -> None:
        """Download a file completely, across reconnects."""
        half = self._folder / "half" / digest
        wrong = 0
        while digest in self._holders:
            try:
                same = await self._go_on(digest, half)
            except ServerAway:
                await self._pause()
                continue
            except TransferRefused as error:
                _delete(half)
                raise Unfetched(str(error)) from None
            if same:
                try:
                    path.parent.mkdir(mode=0o700, exist_ok=True)
                    size = half.stat().st_size
                    half.replace(path)
                except OSError as error:
                    _delete(half)
                    raise Unfetched(f"the agent cannot store it: {error.strerror}") from None
                self._sizes[digest] = size
                self._used += size
                return
            _delete(half)
            wrong += 1
            if wrong >= CHANGED:
                raise Unfetched(f"the server's bytes do not match the digest {digest}")
        raise Unfetched("it is no longer needed")

    async def _go_on(self, digest: str, half: Path) -> bool:
        """Download the missing part of a file; return whether its content now matches the digest."""
        sha = hashlib.sha256()
        try:
            file = await asyncio.to_thread(_open, half, sha.update)
        except OSError as error:
            raise Unfetched(f"the agent cannot store it: {error.strerror}") from None
        try:
            offset = os.lseek(file, 0, os.SEEK_END)
            async for piece in self._transfers.get(digest, offset):
                await asyncio.to_thread(_write, file, piece)
                sha.update(piece)
        except OSError as error:
            _delete(half)  # frees space for other downloads
            raise Unfetched(f"the agent cannot store it: {error.strerror}") from None
        finally:
            os.close(file)
        return sha.hexdigest() == digest

    async def _pause(self) -> None:
        """Wait until the server can be asked again."""
        await asyncio.sleep(PAUSE)
        await self._transfers.ready()

    def _make_room(self) -> None:
        """Evict the least recently used files that are not in use, until the cache fits its bound."""
        for digest in list(self._sizes) if self._used > self._bound else ():
            if self._used <= self._bound:
                break
            if digest not in self._holders:
                self._path(digest).unlink(missing_ok=True)
                self._used -= self._sizes.pop(digest)
                self._unchecked.discard(digest)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest


async def _pieces(source: Path | bytes) -> AsyncIterator[bytes]:
    """Yield bytes, or the content of a file, piece by piece."""
    if isinstance(source, bytes):
        for at in range(0, len(source), PIECE):
            yield source[at : at + PIECE]
        return
    with await asyncio.to_thread(source.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


def _delete(path: Path) -> None:
    """Delete a file if it exists."""
    path.unlink(missing_ok=True)


def _is(path: Path, digest: str) -> bool:
    """Return whether the content of a file matches the digest."""
    try:
        return digest_of(path) == digest
    except OSError:
        return False


def _touch(path: Path) -> None:
    """Record the use of a file in its modification time, which the next run reads."""
    now = time.time_ns()
    with contextlib.suppress(OSError):
        os.utime(path, ns=(now, now))


def _open(half: Path, seen: Callable[[bytes], None]) -> int:
    """Open an unfinished download to append, and pass its present content to `seen`."""
    file = os.open(half, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    offset = 0
    while piece := os.pread(file, PIECE, offset):
        seen(piece)
        offset += len(piece)
    return file


def _write(file: int, data: bytes) -> None:
    """Write all of the data."""
    while data:
        data = data[os.write(file, data) :]
