"""Files stay while a job needs them and for as long as it is kept; what nobody refers to goes."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from spillover.control.files import Unlisted, files_in
from spillover.control.loop import Loop
from spillover.control.specs import Specs
from spillover.core.jobs import Ended, Job
from spillover.model.units import DAY
from spillover.ports.blobs import BlobError, Blobs, NoBlob
from spillover.ports.commands import CommandError
from spillover.ports.journal import StoreError

log = structlog.get_logger()

SWEEP: Final = 3600.0
"""Seconds between two looks for what may go."""
FIRST: Final = 60.0
"""Seconds from the start of a server to its first look."""
WORK: Final = "files"
_SPECS: Final = 1_000
"""Specs that are read at once."""


class FileKeeping:
    """Decides what stays in the store of blobs."""

    def __init__(self, loop: Loop, specs: Specs, blobs: Blobs, retention: int) -> None:
        self._loop = loop
        self._specs = specs
        self._blobs = blobs
        self._retention = retention
        """Nanoseconds that ended jobs are kept."""

    async def keep(self, jobs: Sequence[Job]) -> None:
        """Jobs that have ended are about to leave the state: their files stay for as long as they are in the archive."""
        for job in jobs:
            if isinstance(job.phase, Ended) and _has_files(job):
                until = job.phase.at + self._retention + DAY
                try:
                    await self._blobs.keep(await self._digests([job]), until)
                except (BlobError, OSError) as error:  # they stay for a day, and the job is kept all the same
                    log.warning("cannot keep the files of a job", job=job.id, error=str(error))

    async def run(self) -> None:
        """Count what is there, then drop what may go, again and again, until cancelled."""
        with contextlib.suppress(OSError):  # as the first look will say
            await self._blobs.used()
        await asyncio.sleep(FIRST)
        while True:
            try:
                await self.sweep()
            except (StoreError, CommandError, BlobError, OSError) as error:
                log.warning("could not tidy the files of jobs; will try again", error=str(error))
            await asyncio.sleep(SWEEP)

    async def sweep(self) -> int:
        """Drop blobs whose time is over and that no job in the state refers to; returns how many."""
        needing = await self._loop.scan(lambda jobs: [job for job in jobs if _has_files(job)])
        digests = await self._needed(needing)
        if not self._loop.leads():  # what a successor needs is not known here, and no store refuses this
            raise self._loop.unavailable()
        dropped = await self._blobs.forget(digests, self._loop.now())
        if dropped:
            log.info("dropped files that no job needs", blobs=dropped)
        return dropped

    async def _needed(self, jobs: Sequence[Job]) -> set[str]:
        """All blobs that jobs refer to, but those of jobs of which that cannot be told: one of them must not fill the disk for all."""
        aside = self._loop.aside
        try:
            found = await self._digests(jobs)
        except (StoreError, CommandError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told of the job that it is about
            log.warning("cannot tell at once which files jobs need; asking one by one", error=str(error))
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
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs this job alone
                aside.put(WORK, job.id, error)
            else:
                aside.done(WORK, job.id)
        return found

    async def _digests(self, jobs: Iterable[Job]) -> set[str]:
        """All blobs that jobs refer to; inputs of members are their array's."""
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
        """All blobs that a job's tasks made, as far as they can be told."""
        found: set[str] = set()
        if isinstance(job.phase, Ended) and job.phase.value_digest:
            found.add(job.phase.value_digest)
        for _, listed in job.extra.outputs:
            found.add(listed)
            try:
                found.update(file.digest for file in await files_in(self._blobs, listed))
            except (NoBlob, Unlisted) as error:
                log.warning("the outputs of a job cannot be read", job=job.id, error=str(error))
        return found


def _has_files(job: Job) -> bool:
    """Whether a job refers to any blob."""
    return (
        job.extra.blobs
        or bool(job.extra.outputs)
        or (isinstance(job.phase, Ended) and bool(job.phase.value_digest))
    )
