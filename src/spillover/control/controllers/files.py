"""Keeps files of jobs while jobs refer to them, and deletes the others."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from spillover.control.controllers.sources import Sources
from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.files import Unlisted, files_in
from spillover.core.records.jobs import Ended, Job
from spillover.model.units import DAY
from spillover.ports.blobs import BlobError, Blobs, NoBlob
from spillover.ports.commands import CommandError
from spillover.ports.journal import StoreError

log = structlog.get_logger()

SWEEP: Final = 3600.0
"""Seconds between two sweeps."""
FIRST: Final = 60.0
"""Seconds from the start of the server to the first sweep."""
WORK: Final = "files"
_SPECS: Final = 1_000
"""Most specs to read at once."""


class FileKeeping:
    """Decides which blobs stay in the store."""

    def __init__(
        self, loop: Loop, specs: Specs, blobs: Blobs, retention: int, sources: Sources | None = None
    ) -> None:
        self._loop = loop
        self._sources = sources
        """None if jobs cannot take files of others."""
        self._specs = specs
        self._blobs = blobs
        self._retention = retention
        """Nanoseconds that the archive keeps ended jobs."""

    async def keep(self, jobs: Sequence[Job]) -> None:
        """Keep the files of ended jobs, which are about to leave the state, as long as the archive keeps the jobs."""
        for job in jobs:
            if isinstance(job.phase, Ended) and _has_files(job):
                until = job.phase.at + self._retention + DAY
                try:
                    await self._blobs.keep(await self._digests([job]), until)
                except (BlobError, OSError) as error:  # files stay for a day, and the job is archived
                    log.warning("cannot save the files of a job", job=job.id, error=str(error))

    async def run(self) -> None:
        """Measure the used space, then sweep regularly, until cancelled."""
        with contextlib.suppress(OSError):  # the first sweep will report it
            await self._blobs.used()
        await asyncio.sleep(FIRST)
        while True:
            try:
                await self.sweep()
            except (StoreError, CommandError, BlobError, OSError) as error:
                log.warning("cannot clean up the files of jobs; will retry", error=str(error))
            await asyncio.sleep(SWEEP)

    async def sweep(self) -> int:
        """Delete expired blobs that no job in the state refers to, itself or by a job that it takes files of; return how many."""
        needing = await self._loop.scan(lambda jobs: [job for job in jobs if _has_files(job)])
        digests = await self._needed(needing)
        if self._sources is not None:
            digests |= await self._sources.digests()
        if not self._loop.leads():  # a successor may need other blobs, and blobs have no fencing
            raise self._loop.unavailable()
        dropped = await self._blobs.forget(digests, self._loop.now())
        if dropped:
            log.info("deleted files that no job needs", blobs=dropped)
        return dropped

    async def _needed(self, jobs: Sequence[Job]) -> set[str]:
        """Return the blobs that jobs refer to, without jobs that fail here: one bad job must not stop all deletion."""
        aside = self._loop.aside
        try:
            found = await self._digests(jobs)
        except (StoreError, CommandError):
            raise
        except Exception as error:  # noqa: BLE001 - the loop below finds the job at fault
            log.warning(
                "cannot list in one batch which files jobs need; checking one by one", error=str(error)
            )
        else:
            for each in aside.of(WORK):
                aside.done(WORK, each.subject)
            return found
        found = set()
        for job in jobs:
            try:
                found |= await self._digests([job])
            except (StoreError, CommandError):
                raise
            except Exception as error:  # noqa: BLE001 - no error may affect other jobs
                aside.put(WORK, job.id, error)
            else:
                aside.done(WORK, job.id)
        return found

    async def _digests(self, jobs: Iterable[Job]) -> set[str]:
        """Return the blobs that jobs refer to; the inputs of a member are those of its array."""
        found: set[str] = set()
        wanted: dict[bytes, None] = {}
        for job in jobs:
            if job.extra.blobs:
                wanted[job.spec] = None
            found |= await self._made(job)
        digests = list(wanted)
        for start in range(0, len(digests), _SPECS):
            for spec in (await self._specs.get(digests[start : start + _SPECS])).values():
                found.update(spec.digests)
        return found

    async def _made(self, job: Job) -> set[str]:
        """Return the blobs that tasks of a job made, except those whose list cannot be read."""
        found: set[str] = set()
        if isinstance(job.phase, Ended) and job.phase.value_digest:
            found.add(job.phase.value_digest)
        found.update(filter(None, job.extra.saved))
        for _, listed in job.extra.outputs:
            found.add(listed)
            try:
                found.update(file.digest for file in await files_in(self._blobs, listed))
            except (NoBlob, Unlisted) as error:
                log.warning("the outputs of a job cannot be read", job=job.id, error=str(error))
        return found


def _has_files(job: Job) -> bool:
    """Return whether a job refers to any blob."""
    return (
        job.extra.blobs
        or bool(job.extra.outputs)
        or bool(job.extra.saved)
        or (isinstance(job.phase, Ended) and bool(job.phase.value_digest))
    )
