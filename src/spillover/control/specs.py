"""Specs of jobs, which the state does not keep: read from the store, the recent ones from memory."""

from collections.abc import Iterable
from typing import Final

import structlog

from spillover.model.job import JobSpec
from spillover.ports.journal import Journal
from spillover.wire.journal import decode_spec

log = structlog.get_logger()

KEPT: Final = 4096
"""How many are kept in memory."""


class Specs:
    """The specs that were submitted, by digest."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept: dict[bytes, JobSpec] = {}

    def keep(self, digest: bytes, spec: JobSpec) -> None:
        """Remember a spec that is about to be stored."""
        self._kept.pop(digest, None)
        self._kept[digest] = spec
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    def size(self, digest: bytes) -> int:
        """Bytes of the files that a job needs, if its spec is at hand; else 0."""
        spec = self._kept.get(digest)
        return 0 if spec is None else sum([file.size for file in spec.inputs])

    async def get(self, digests: Iterable[bytes]) -> dict[bytes, JobSpec]:
        """The specs that are there and can be read."""
        wanted = dict.fromkeys(digests)
        found = {digest: self._kept[digest] for digest in wanted if digest in self._kept}
        missing = [digest for digest in wanted if digest not in found]
        for digest, body in (await self._journal.blobs(missing) if missing else {}).items():
            try:
                spec = decode_spec(body)
            except (
                ValueError,
                RecursionError,
            ) as error:  # it is as good as missing, and so costs its own jobs
                log.warning("a stored spec cannot be read", digest=digest.hex(), error=str(error))
                continue
            found[digest] = spec
            self.keep(digest, spec)
        return found
