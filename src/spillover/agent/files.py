"""Files that tasks need, under their digest: fetched once, kept while there is room, and checked before they are believed.

The folder holds what was fetched (`XX/DIGEST`) and what is on its way (`half/DIGEST`); a download that broke off, also with the death
of the agent, goes on where it was. A file that an earlier run fetched is read once more before its first use: a machine that lost
power may have kept its name and lost its bytes.
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

from spillover.agent.transfers import Full, ServerAway, TransferRefused, Transfers
from spillover.model.files import is_digest
from spillover.ports.blobs import digest_of

PIECE: Final = 1 << 20
"""Bytes that are read or written at once."""
PAUSE: Final = 0.2
"""Seconds before the server is asked again that could not answer."""
CACHE: Final = 10 << 30
"""Bytes of files that are kept unless somebody says otherwise."""
PATIENCE: Final = 300.0
"""Seconds that a server without room is given to make some."""
CHANGED: Final = 3
"""How often a file may come with other bytes than it should before it is given up."""

_FROM_PEER: Final = "peer-"
"""How names of files begin that come from other agents."""


class Unfetched(Exception):
    """A file cannot be had; the message says why."""


class Files:
    """The files of one agent."""

    def __init__(self, folder: Path, transfers: Transfers, bound: int = CACHE) -> None:
        self._folder = folder
        self._transfers = transfers
        self._bound = bound
        self._sizes: dict[str, int] = {}
        """Bytes of each file, the one that was used longest ago first."""
        self._unchecked: set[str] = set()
        """Those of an earlier run that were not used since."""
        self._used = 0
        self._holders: dict[str, int] = {}
        """How many hold a file that must not be deleted meanwhile."""
        self._coming: dict[str, asyncio.Task[None]] = {}

    def open(self) -> None:
        """Look at what an earlier run left."""
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
        """A file of its own bytes, which stays until the block is left; it must not be written. Raises Unfetched."""
        if not is_digest(digest):
            raise Unfetched(f"{digest[:100]!r} is no SHA-256")  # and so no name for a file here
        self._holders[digest] = self._holders.get(digest, 0) + 1
        try:
            yield await self._fetch(digest)
        finally:
            self._holders[digest] -= 1
            if not self._holders[digest]:
                del self._holders[digest]
            self._make_room()

    async def read(self, digest: str) -> bytes:
        """The bytes of a file; raises Unfetched."""
        async with self.held(digest) as path:
            return await asyncio.to_thread(path.read_bytes)

    async def prefetch(self, digest: str) -> None:
        """Have a file here soon, if that can be."""
        with contextlib.suppress(Unfetched):
            async with self.held(digest):
                pass

    async def upload(self, source: Path | bytes, digest: str | None = None) -> str:
        """Have the server keep a file; returns its digest. Tries until it is done; raises Unfetched if it never will be."""
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
        """A file piece by piece if it is here, and checked; else nothing."""
        if digest not in self._sizes or digest in self._unchecked:
            return
        async with self.held(digest) as path:
            async for piece in _pieces(path):
                yield piece

    def scratch(self) -> Path:
        """An empty file to write what comes from elsewhere to, before it is adopted or deleted."""
        path = self._folder / "half" / f"{_FROM_PEER}{secrets.token_hex(8)}"
        path.touch(mode=0o600)
        return path

    async def adopt(self, digest: str, path: Path) -> bool:
        """Take a file that came from elsewhere, if it is what it is said to be; it is not where it was in any case."""
        try:
            same = await asyncio.to_thread(_is, path, digest)
            if not same or digest in self._sizes or digest in self._coming:
                return same
            kept = self._path(digest)
            kept.parent.mkdir(mode=0o700, exist_ok=True)
            size = path.stat().st_size  # noqa: ASYNC240 - one look
            path.replace(kept)  # noqa: ASYNC240 - likewise
        finally:
            _delete(path)
        self._sizes[digest] = size
        self._used += size
        self._make_room()
        return True

    def close(self) -> None:
        """Nothing more is fetched."""
        for coming in self._coming.values():
            coming.cancel()

    # --- how

    async def _fetch(self, digest: str) -> Path:
        """The file, fetched if it is not here; those who want it at once share one download."""
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
        """A download is over; why it failed was told to those who waited, if anybody did."""
        if self._coming.get(digest) is done:
            del self._coming[digest]
        if not done.cancelled():
            done.exception()

    async def _look(self, digest: str, path: Path) -> None:
        """Read a file of an earlier run before it is believed."""
        same = await asyncio.to_thread(_is, path, digest)
        if digest not in self._unchecked:
            return  # somebody else looked meanwhile
        self._unchecked.discard(digest)
        if not same:
            self._used -= self._sizes.pop(digest)
            _delete(path)

    async def _download(self, digest: str, path: Path) -> None:
        """Fetch a file to its end, whatever happens to the connection."""
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
                    raise Unfetched(f"the agent cannot keep it: {error.strerror}") from None
                self._sizes[digest] = size
                self._used += size
                return
            _delete(half)
            wrong += 1
            if wrong >= CHANGED:
                raise Unfetched(f"the server sends other bytes than those of {digest}")
        raise Unfetched("nobody wants it any more")

    async def _go_on(self, digest: str, half: Path) -> bool:
        """Fetch what is missing of a file; whether it is now what it should be."""
        sha = hashlib.sha256()
        try:
            file = await asyncio.to_thread(_open, half, sha.update)
        except OSError as error:
            raise Unfetched(f"the agent cannot keep it: {error.strerror}") from None
        try:
            offset = os.lseek(file, 0, os.SEEK_END)
            async for piece in self._transfers.get(digest, offset):
                await asyncio.to_thread(_write, file, piece)
                sha.update(piece)
        except OSError as error:
            _delete(half)  # room for what else is on its way
            raise Unfetched(f"the agent cannot keep it: {error.strerror}") from None
        finally:
            os.close(file)
        return sha.hexdigest() == digest

    async def _pause(self) -> None:
        """Wait until the server can be asked again."""
        await asyncio.sleep(PAUSE)
        await self._transfers.ready()

    def _make_room(self) -> None:
        """Delete what was used longest ago, as far as nobody holds it, while there is too much."""
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
    """Bytes, or those of a file, piece by piece."""
    if isinstance(source, bytes):
        for at in range(0, len(source), PIECE):
            yield source[at : at + PIECE]
        return
    with await asyncio.to_thread(source.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


def _delete(path: Path) -> None:
    """Be rid of a file."""
    path.unlink(missing_ok=True)


def _is(path: Path, digest: str) -> bool:
    """Whether a file is what its name says."""
    try:
        return digest_of(path) == digest
    except OSError:
        return False


def _touch(path: Path) -> None:
    """Remember, also for the next run, that a file was used."""
    now = time.time_ns()
    with contextlib.suppress(OSError):
        os.utime(path, ns=(now, now))


def _open(half: Path, seen: Callable[[bytes], None]) -> int:
    """A file to go on with, once what is there was seen."""
    file = os.open(half, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    offset = 0
    while piece := os.pread(file, PIECE, offset):
        seen(piece)
        offset += len(piece)
    return file


def _write(file: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(file, data) :]
