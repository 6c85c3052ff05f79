"""Stores blobs as files of a folder, or in memory.

A file is written under a temporary name, synced, and then renamed to its digest. So a file named by a digest is always
complete. A starting server deletes what a killed one was writing. The modification time of a file is the time until
which it is kept.

An empty file beside a blob, `DIGEST.PROJECT`, marks it as belonging to a project, and is deleted with it. A crash may
leave a mark without its blob. This is harmless, because the project had the content, and the next sweep deletes the
mark.

A name that is not a digest never becomes a path. Nothing exists under it, and nothing can be stored under it.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from spillover.model.files import DIGEST_RULE, is_digest
from spillover.model.units import FOREVER, format_memory
from spillover.ports.blobs import GRACE, BlobBounds, Differs, NoBlob, NoSpace, TooLarge

PIECE: Final = 1 << 20
"""Bytes to write or read at once. Switching to a thread costs as much as some 100 KiB."""
MOST_RESERVE: Final = 1 << 30
_DIGEST: Final = 64
"""Characters of a digest. A longer file name is a mark."""
MOST_UNMARKED: Final = 100_000
RESERVE: Final = 50
"""The disk keeps one in so many of its bytes free for the journal, up to `MOST_RESERVE`."""


class FileBlobs:
    """A folder of files, two levels deep."""

    def __init__(
        self, folder: Path, bounds: BlobBounds | None = None, now: Callable[[], int] = time.time_ns
    ) -> None:
        self._folder = folder
        self._new = folder / "new"
        self._bounds = bounds or BlobBounds()
        self._now = now
        self._lock = threading.Lock()
        """Held while a file is renamed, kept or deleted, so that a blob that was just requested is not deleted."""
        self._count: int | None = None
        """Number of blobs; None until they were counted."""
        self._used = 0
        self._coming = 0
        """Bytes of unfinished uploads."""
        self._unmarked: dict[tuple[str, str], None] = {}
        """Blobs given to projects while the disk was full. They are readable until this process ends."""

    async def put(self, digest: str, pieces: AsyncIterator[bytes], project: str | None = None) -> bool:
        """See Blobs."""
        _check(digest)
        if await asyncio.to_thread(self._there, digest, project):
            return False
        if project is not None and await asyncio.to_thread(self._there, digest, None):
            await self._compare(digest, pieces)
            await asyncio.to_thread(self._mark, [digest], project)
            return True
        incoming = _Incoming(self, digest, project)
        try:
            gathered = bytearray()
            async for piece in pieces:
                gathered += piece
                incoming.expect(len(piece))
                if len(gathered) >= PIECE:
                    await asyncio.to_thread(incoming.write, bytes(gathered))
                    gathered.clear()
            await asyncio.to_thread(incoming.finish, bytes(gathered))
        finally:
            await asyncio.shield(asyncio.to_thread(incoming.close))
        return True

    async def get(self, digest: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """See Blobs."""
        opening = asyncio.ensure_future(asyncio.to_thread(os.open, self.path(digest), os.O_RDONLY))
        try:
            file = await asyncio.shield(opening)
        except FileNotFoundError:
            raise NoBlob(digest) from None
        except asyncio.CancelledError:
            opening.add_done_callback(_close)
            raise
        try:
            size = os.fstat(file).st_size
            while offset < size and (piece := await asyncio.to_thread(os.pread, file, PIECE, offset)):
                offset += len(piece)
                yield piece
        finally:
            os.close(file)

    async def _compare(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        """Read a blob that exists already, and raise unless it is the same."""
        sha, size = hashlib.sha256(), 0
        async for piece in pieces:
            size += len(piece)
            self.check_size(size)
            sha.update(piece)
        check_digest(sha.hexdigest(), digest, size)

    async def sizes(self, digests: Sequence[str], project: str | None = None) -> dict[str, int]:
        """See Blobs."""
        return await asyncio.to_thread(self._sizes, digests, project)

    async def give(self, digests: Iterable[str], project: str) -> None:
        """See Blobs."""
        await asyncio.to_thread(self._give, digests, project)

    async def keep(self, digests: Iterable[str], until: int) -> None:
        """See Blobs."""
        await asyncio.to_thread(self._keep, digests, until)

    async def forget(self, but: Container[str], now: int) -> int:
        """See Blobs."""
        return await asyncio.to_thread(self._forget, but, now)

    async def used(self) -> tuple[int, int]:
        """See Blobs."""
        await asyncio.to_thread(self._prepare)
        return self._count or 0, self._used

    def path(self, digest: str) -> Path:
        """Return the path of a blob; raise NoBlob if the name is not a digest."""
        if not is_digest(digest):
            raise NoBlob(digest)
        return self._folder / digest[:2] / digest

    def mark(self, digest: str, project: str) -> Path:
        """Return the path of the file that marks a blob as belonging to a project."""
        return self.path(digest).with_name(f"{digest}.{project}")

    # --- methods that run in threads

    def _there(self, digest: str, project: str | None) -> bool:
        """Return whether a blob is stored already."""
        with _disk():
            self._prepare()
        return bool(self._sizes([digest], project))

    def _sizes(self, digests: Sequence[str], project: str | None) -> dict[str, int]:
        until = self._now() + GRACE
        named = [each for each in digests if is_digest(each)]
        own = [each for each in named if project is None or self._is_of(each, project)]
        found = ((digest, self._stay(digest, until)) for digest in own)
        return {digest: size for digest, size in found if size is not None}

    def _is_of(self, digest: str, project: str) -> bool:
        return self.mark(digest, project).exists() or (digest, project) in self._unmarked

    def _give(self, digests: Iterable[str], project: str) -> None:
        """Mark blobs, or remember them in memory, so that a full disk keeps nobody from reading existing blobs."""
        wanted = list(digests)
        try:
            self._mark(wanted, project)
        except NoSpace:
            if len(self._unmarked) > MOST_UNMARKED:
                raise
            self._unmarked.update(dict.fromkeys((digest, project) for digest in wanted))

    def _mark(self, digests: Iterable[str], project: str) -> None:
        folders: dict[Path, None] = {}
        with _disk():
            for digest in filter(is_digest, digests):
                mark = self.mark(digest, project)
                with self._lock:
                    if not mark.exists() and self.path(digest).exists():
                        mark.touch(0o600)
                        folders[mark.parent] = None
            for folder in folders:
                _sync(folder)

    def _keep(self, digests: Iterable[str], until: int) -> None:
        for digest in digests:
            self._stay(digest, until)

    def _stay(self, digest: str, until: int) -> int | None:
        """Return the size of a blob and keep it at least until a time; None if there is none."""
        if not is_digest(digest):
            return None
        path, until = self.path(digest), min(until, FOREVER)
        with self._lock:
            try:
                found = path.stat()
            except FileNotFoundError:
                return None
            if found.st_mtime_ns < until:
                with contextlib.suppress(OSError):  # a disk that cannot be written deletes nothing either
                    os.utime(path, ns=(until, until))
            return found.st_size

    def _forget(self, but: Container[str], now: int) -> int:
        self._prepare()
        dropped = 0
        for path in self._all():
            if path.name in but:
                continue
            with self._lock, contextlib.suppress(FileNotFoundError):
                found = path.stat()
                if found.st_mtime_ns < now:
                    path.unlink()
                    self._used -= found.st_size
                    self._count = (self._count or 0) - 1
                    dropped += 1
        for mark in self._all(marks=True):
            with self._lock:
                if not self.path(mark.name[:_DIGEST]).exists():
                    mark.unlink(missing_ok=True)
        return dropped

    def _all(self, *, marks: bool = False) -> Iterator[Path]:
        """Yield all complete blobs, or all marks."""
        for folder in sorted(self._folder.iterdir()):
            if len(folder.name) == 2 and folder.is_dir():
                for path in folder.iterdir():
                    digest, dot, _ = path.name.partition(".")
                    if is_digest(digest) and bool(dot) is marks:
                        yield path

    def _prepare(self) -> None:
        """Count the blobs, and delete unfinished files of an earlier process."""
        with self._lock:
            if self._count is not None:
                return
            if self._new.exists():
                shutil.rmtree(self._new)
            self._new.mkdir(parents=True, mode=0o700)
            found = [path.stat().st_size for path in self._all()]
            self._count, self._used = len(found), sum(found)

    def begin(self) -> Path:
        """Return a temporary path to write to."""
        return self._new / secrets.token_hex(8)

    def expect(self, size: int, already: int) -> None:
        """Raise TooLarge or NoSpace before bytes beyond a limit are written."""
        self.check_size(already + size)
        total = self._bounds.total
        if total is not None and self._used + self._coming + size > total:
            raise NoSpace(
                f"the blobs use {format_memory(self._used)} of at most {format_memory(total)}; raise "
                "blobs.max_total, or keep jobs for a shorter time (retention.jobs)"
            )
        self._coming += size

    def check_size(self, size: int) -> None:
        """Raise TooLarge if a blob exceeds the size limit."""
        if size > self._bounds.file:
            raise TooLarge(f"a blob is limited to {format_memory(self._bounds.file)}; raise blobs.max_file")

    def check_disk(self, size: int) -> None:
        """Raise NoSpace if a write would leave too little space for the journal, which usually shares the disk."""
        disk = shutil.disk_usage(self._folder)
        if disk.free - size < min(MOST_RESERVE, disk.total // RESERVE):
            raise NoSpace(
                "cannot store blobs now: the disk is almost full, and the rest is reserved for the journal"
            )

    def settle(self, size: int) -> None:
        """Release the expected bytes of an upload that ended."""
        self._coming -= size

    def name(self, written: Path, digest: str, size: int, project: str | None) -> None:
        """Rename a complete file to its digest, and mark it for a project, so that both survive a power failure."""
        path, until = self.path(digest), self._now() + GRACE
        with self._lock:
            made = not path.parent.exists()
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if path.exists():
                until = max(until, path.stat().st_mtime_ns)
            else:
                self._used += size
                self._count = (self._count or 0) + 1
            os.utime(written, ns=(until, until))
            written.replace(path)
            if project is not None:
                self.mark(digest, project).touch(0o600)
        for folder in (path.parent, self._folder) if made else (path.parent,):
            _sync(folder)


class _Incoming:
    """One blob that is being written. A writing thread may outlast the caller, for example after a cancellation."""

    def __init__(self, store: FileBlobs, digest: str, project: str | None) -> None:
        self._store = store
        self._digest = digest
        self._project = project
        self._sha = hashlib.sha256()
        self._size = 0
        self._path = store.begin()
        self._file = -1
        self._over = False
        self._lock = threading.Lock()

    def expect(self, size: int) -> None:
        """Account for bytes that arrived."""
        self._store.expect(size, self._size)
        self._size += size

    def write(self, data: bytes) -> None:
        """Write bytes to the temporary file."""
        with self._lock, _disk():
            if self._over:
                return
            self._store.check_disk(len(data))
            self._sha.update(data)
            if self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            while data:
                data = data[os.write(self._file, data) :]

    def finish(self, data: bytes) -> None:
        """Write the rest, check the digest and rename the file."""
        self.write(data)
        with self._lock, _disk():
            if self._over:
                return
            check_digest(self._sha.hexdigest(), self._digest, self._size)
            os.fsync(self._file)
            self._store.name(self._path, self._digest, self._size, self._project)

    def close(self) -> None:
        """Delete the temporary file, if it was not renamed."""
        with self._lock:
            self._over = True
            self._store.settle(self._size)
            if self._file >= 0:
                os.close(self._file)
                self._path.unlink(missing_ok=True)


def check_digest(found: str, digest: str, size: int) -> None:
    """Raise Differs unless the content matches the digest."""
    if found != digest:
        raise Differs(f"its {size} bytes have the SHA-256 {found}, not {digest}")


def _check(digest: str) -> None:
    """Raise Differs if the name is not a digest."""
    if not is_digest(digest):
        raise Differs(f"the name of a blob is {DIGEST_RULE}")


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """Turn errors of the system into NoSpace."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        reason = "the disk is full" if full else error.strerror or str(error)
        raise NoSpace(f"cannot store blobs now: {reason}") from error


def _close(opening: asyncio.Future[int]) -> None:
    """Close a file that was opened after its caller was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result())


def _sync(folder: Path) -> None:
    """Make the entries of a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class MemoryBlobs:
    """Blobs in memory, for tests and for the memory store."""

    def __init__(self, bounds: BlobBounds | None = None, now: Callable[[], int] = time.time_ns) -> None:
        self._bounds = bounds or BlobBounds()
        self._now = now
        self._blobs: dict[str, tuple[bytes, int]] = {}
        """Content, and the time until which it is kept, in nanoseconds UTC."""
        self._projects: dict[str, set[str]] = {}
        """Projects of each blob."""

    async def put(self, digest: str, pieces: AsyncIterator[bytes], project: str | None = None) -> bool:
        """See Blobs."""
        _check(digest)
        if await self.sizes([digest], project):
            return False
        data = bytearray()
        async for piece in pieces:
            data += piece
            if len(data) > self._bounds.file:
                raise TooLarge(
                    f"a blob is limited to {format_memory(self._bounds.file)}; raise blobs.max_file"
                )
            total = self._bounds.total
            if total is not None and digest not in self._blobs and (await self.used())[1] + len(data) > total:
                raise NoSpace(
                    f"the blobs are limited to {format_memory(total)} in total; raise blobs.max_total"
                )
        check_digest(hashlib.sha256(data).hexdigest(), digest, len(data))
        self._blobs[digest] = bytes(data), self._now() + GRACE
        if project is not None:
            await self.give([digest], project)
        return True

    async def get(self, digest: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """See Blobs."""
        if digest not in self._blobs:
            raise NoBlob(digest)
        data = self._blobs[digest][0]
        for at in range(offset, len(data), PIECE):
            yield data[at : at + PIECE]

    async def sizes(self, digests: Sequence[str], project: str | None = None) -> dict[str, int]:
        """See Blobs."""
        own = [each for each in digests if project is None or project in self._projects.get(each, ())]
        await self.keep(own, self._now() + GRACE)
        return {digest: len(self._blobs[digest][0]) for digest in own if digest in self._blobs}

    async def give(self, digests: Iterable[str], project: str) -> None:
        """See Blobs."""
        for digest in digests:
            if digest in self._blobs:
                self._projects.setdefault(digest, set()).add(project)

    async def keep(self, digests: Iterable[str], until: int) -> None:
        """See Blobs."""
        for digest in digests:
            if digest in self._blobs:
                data, before = self._blobs[digest]
                self._blobs[digest] = data, max(before, until)

    async def forget(self, but: Container[str], now: int) -> int:
        """See Blobs."""
        old = [digest for digest, (_, until) in self._blobs.items() if digest not in but and until < now]
        for digest in old:
            del self._blobs[digest]
            self._projects.pop(digest, None)
        return len(old)

    async def used(self) -> tuple[int, int]:
        """See Blobs."""
        return len(self._blobs), sum(len(data) for data, _ in self._blobs.values())
