"""Reads specs of jobs from the store, with a cache of recent ones, as the state does not hold them."""

from collections.abc import Iterable
from typing import Final

import structlog

from spillover.model.job import JobSpec
from spillover.ports.journal import Journal
from spillover.wire.journal import decode_spec

log = structlog.get_logger()

KEPT = 32 << 20
"""Most bytes of cached specs in their stored form; one may be small, or a megabyte of arguments."""
EACH: Final = 2 << 10
"""Bytes added to the size of each spec for its overhead."""


class Specs:
    """Specs by digest."""

    def __init__(self, journal: Journal, most: int | None = None) -> None:
        self._journal = journal
        self._most = KEPT if most is None else most
        self._kept: dict[bytes, tuple[JobSpec, int]] = {}
        """Specs with their sizes, the most recently used last."""
        self.held = 0
        """Bytes of all cached specs."""

    def keep(self, digest: bytes, spec: JobSpec, size: int) -> None:
        """Cache a spec that is stored in this many bytes."""
        self._drop(digest)
        self._kept[digest] = spec, size + EACH
        self.held += size + EACH
        while self.held > self._most:
            self._drop(next(iter(self._kept)))

    def size(self, digest: bytes) -> int:
        """Return the bytes of a job's input files if its spec is cached, else 0."""
        kept = self._kept.get(digest)
        return 0 if kept is None else sum([file.size for file in kept[0].files])

    async def get(self, digests: Iterable[bytes]) -> dict[bytes, JobSpec]:
        """Return the specs that exist and can be read."""
        wanted = dict.fromkeys(digests)
        found = {digest: self._kept[digest][0] for digest in wanted if digest in self._kept}
        missing = [digest for digest in wanted if digest not in found]
        for digest, body in (await self._journal.blobs(missing) if missing else {}).items():
            try:
                spec = decode_spec(body)
            except (ValueError, RecursionError) as error:  # treat it as missing, which affects only its jobs
                log.warning("a stored spec cannot be read", digest=digest.hex(), error=str(error))
                continue
            found[digest] = spec
            self.keep(digest, spec, len(body))
        return found

    def _drop(self, digest: bytes) -> None:
        if (kept := self._kept.pop(digest, None)) is not None:
            self.held -= kept[1]
