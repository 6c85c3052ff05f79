"""Blobs as files of a folder, and in memory.

A file is written under a name that nobody looks for, brought to the disk, and then named by its digest: under a digest there is always
the whole of it. What a killed server was writing is deleted by the next one. The time of a file is that until which it stays.

That a blob is of a project is said by an empty file beside it, `DIGEST.PROJECT`, which goes with it. One that is left alone by a crash
harms nobody, as its project had those very bytes; the next sweep deletes it.

A name that is no digest never becomes a path: nothing is there under it, and nothing can be put there.
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
"""Bytes that are written or read at once: a hop to a thread costs as much as some 100 KiB."""
MOST_RESERVE: Final = 1 << 30
_DIGEST: Final = 64
"""Characters of a digest; what has more is a mark."""
MOST_UNMARKED: Final = 100_000
RESERVE: Final = 50
"""One in so many bytes of the disk, up to a GiB, is left to the journal, without which nothing goes on."""


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
        """Held where a file is named, kept or dropped, so that what was just asked for is not dropped."""
        self._count: int | None = None
        """None until somebody has counted."""
        self._used = 0
        self._coming = 0
        """Bytes of what is being written."""
        self._unmarked: dict[tuple[str, str], None] = {}
        """What was given to projects while the disk took nothing: it can be read until this process ends."""

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
        """Take all of a blob that is there, and raise unless it is the same."""
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
        """Where a blob is, or would be; raises NoBlob for what is no digest."""
        if not is_digest(digest):
            raise NoBlob(digest)
        return self._folder / digest[:2] / digest

    def mark(self, digest: str, project: str) -> Path:
        """What is there if a blob is of a project."""
        return self.path(digest).with_name(f"{digest}.{project}")

    # --- in threads

    def _there(self, digest: str, project: str | None) -> bool:
        """Whether something need not be put."""
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
        """Mark blobs, or at least remember them: a disk that is full keeps nobody from reading what is there."""
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
        """The size of a blob, which stays until a time at the least; None if it is not there."""
        if not is_digest(digest):
            return None
        path, until = self.path(digest), min(until, FOREVER)
        with self._lock:
            try:
                found = path.stat()
            except FileNotFoundError:
                return None
            if found.st_mtime_ns < until:
                with contextlib.suppress(OSError):  # a disk that cannot be written drops nothing either
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
        """All blobs, or all marks; none that is being written."""
        for folder in sorted(self._folder.iterdir()):
            if len(folder.name) == 2 and folder.is_dir():
                for path in folder.iterdir():
                    digest, dot, _ = path.name.partition(".")
                    if is_digest(digest) and bool(dot) is marks:
                        yield path

    def _prepare(self) -> None:
        """Count what is there, and delete what another process left half."""
        with self._lock:
            if self._count is not None:
                return
            if self._new.exists():
                shutil.rmtree(self._new)
            self._new.mkdir(parents=True, mode=0o700)
            found = [path.stat().st_size for path in self._all()]
            self._count, self._used = len(found), sum(found)

    def begin(self) -> Path:
        """A name to write under."""
        return self._new / secrets.token_hex(8)

    def expect(self, size: int, already: int) -> None:
        """Refuse what would be too much, before it is written."""
        self.check_size(already + size)
        total = self._bounds.total
        if total is not None and self._used + self._coming + size > total:
            raise NoSpace(
                f"all blobs together may have {format_memory(total)}, and {format_memory(self._used)} are there; "
                "raise blobs.max_total, or keep jobs for a shorter time (retention.jobs)"
            )
        self._coming += size

    def check_size(self, size: int) -> None:
        """Refuse a blob that is larger than one may be."""
        if size > self._bounds.file:
            raise TooLarge(f"a blob may have {format_memory(self._bounds.file)}; raise blobs.max_file")

    def check_disk(self, size: int) -> None:
        """Refuse what would leave the journal, which is on the same disk as a rule, no room."""
        disk = shutil.disk_usage(self._folder)
        if disk.free - size < min(MOST_RESERVE, disk.total // RESERVE):
            raise NoSpace(
                "blobs cannot be kept now: the disk is almost full, and the rest is for the journal"
            )

    def settle(self, size: int) -> None:
        """What was coming is there, or will not come."""
        self._coming -= size

    def name(self, written: Path, digest: str, size: int, project: str | None) -> None:
        """Give a whole file its name, and a project if it has one, so that it stays after a loss of power."""
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
    """One blob that is being written; a thread that writes may outlive the one who asked for it."""

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
        """So much more came."""
        self._store.expect(size, self._size)
        self._size += size

    def write(self, data: bytes) -> None:
        """Write what came."""
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
        """Write the rest and give it its name, if it is what it was said to be."""
        self.write(data)
        with self._lock, _disk():
            if self._over:
                return
            check_digest(self._sha.hexdigest(), self._digest, self._size)
            os.fsync(self._file)
            self._store.name(self._path, self._digest, self._size, self._project)

    def close(self) -> None:
        """Leave nothing behind but what has its name."""
        with self._lock:
            self._over = True
            self._store.settle(self._size)
            if self._file >= 0:
                os.close(self._file)
                self._path.unlink(missing_ok=True)


def check_digest(found: str, digest: str, size: int) -> None:
    """Raise unless what came is what its digest says."""
    if found != digest:
        raise Differs(f"its {size} bytes have the SHA-256 {found}, not {digest}")


def _check(digest: str) -> None:
    """Refuse to keep anything under what is no digest."""
    if not is_digest(digest):
        raise Differs(f"a blob is named by {DIGEST_RULE}")


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """What the system refuses, in our words."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        reason = "the disk is full" if full else error.strerror or str(error)
        raise NoSpace(f"blobs cannot be kept now: {reason}") from error


def _close(opening: asyncio.Future[int]) -> None:
    """Close what was opened after the one who asked for it had gone."""
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
    """Blobs for tests, and for a store that keeps nothing."""

    def __init__(self, bounds: BlobBounds | None = None, now: Callable[[], int] = time.time_ns) -> None:
        self._bounds = bounds or BlobBounds()
        self._now = now
        self._blobs: dict[str, tuple[bytes, int]] = {}
        """With the time until which each stays."""
        self._projects: dict[str, set[str]] = {}
        """Of each blob."""

    async def put(self, digest: str, pieces: AsyncIterator[bytes], project: str | None = None) -> bool:
        """See Blobs."""
        _check(digest)
        if await self.sizes([digest], project):
            return False
        data = bytearray()
        async for piece in pieces:
            data += piece
            if len(data) > self._bounds.file:
                raise TooLarge(f"a blob may have {format_memory(self._bounds.file)}; raise blobs.max_file")
            total = self._bounds.total
            if total is not None and digest not in self._blobs and (await self.used())[1] + len(data) > total:
                raise NoSpace(f"all blobs together may have {format_memory(total)}; raise blobs.max_total")
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
