"""Specs of jobs, which the state does not keep: read from the store, the recent ones from memory."""

from collections.abc import Iterable
from typing import Final

import structlog

from spillover.model.job import JobSpec
from spillover.ports.journal import Journal
from spillover.wire.journal import decode_spec

log = structlog.get_logger()

KEPT = 32 << 20
"""Bytes of the specs that are kept in memory, as they are stored: one may be small, or a megabyte of arguments."""
EACH: Final = 2 << 10
"""Bytes that each counts more, for what it needs beside its content."""


class Specs:
    """The specs that were submitted, by digest."""

    def __init__(self, journal: Journal, most: int | None = None) -> None:
        self._journal = journal
        self._most = KEPT if most is None else most
        self._kept: dict[bytes, tuple[JobSpec, int]] = {}
        """With what each counts; those asked for or submitted last are at the end."""
        self.held = 0
        """Bytes that all of them count."""

    def keep(self, digest: bytes, spec: JobSpec, size: int) -> None:
        """Remember a spec that is about to be stored, in so many bytes."""
        self._drop(digest)
        self._kept[digest] = spec, size + EACH
        self.held += size + EACH
        while self.held > self._most:
            self._drop(next(iter(self._kept)))

    def size(self, digest: bytes) -> int:
        """Bytes of the files that a job needs, if its spec is at hand; else 0."""
        kept = self._kept.get(digest)
        return 0 if kept is None else sum([file.size for file in kept[0].inputs])

    async def get(self, digests: Iterable[bytes]) -> dict[bytes, JobSpec]:
        """The specs that are there and can be read."""
        wanted = dict.fromkeys(digests)
        found = {digest: self._kept[digest][0] for digest in wanted if digest in self._kept}
        missing = [digest for digest in wanted if digest not in found]
        for digest, body in (await self._journal.blobs(missing) if missing else {}).items():
            try:
                spec = decode_spec(body)
            except (ValueError, RecursionError) as error:  # as good as missing, and so costs its own jobs
                log.warning("a stored spec cannot be read", digest=digest.hex(), error=str(error))
                continue
            found[digest] = spec
            self.keep(digest, spec, len(body))
        return found

    def _drop(self, digest: bytes) -> None:
        if (kept := self._kept.pop(digest, None)) is not None:
            self.held -= kept[1]
