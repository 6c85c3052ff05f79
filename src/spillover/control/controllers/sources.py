"""Finds archived jobs whose output files unfinished jobs still take, so that their retention waits for those.

Only jobs that were submitted longer ago than the retention lasts matter: all others are there anyway, with their files.
"""

from typing import Final

import structlog

from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.files import Unlisted, files_in
from spillover.core.records.jobs import Ended
from spillover.model.ids import JobId, split_member
from spillover.ports.archive import Archive, Query
from spillover.ports.blobs import Blobs, NoBlob

log = structlog.get_logger()

SOME: Final = 1_000
"""Most specs or archived jobs to read at once."""


class Sources:
    """Jobs that others take files from."""

    def __init__(self, loop: Loop, archive: Archive, specs: Specs, blobs: Blobs, retention: int) -> None:
        self._loop = loop
        self._archive = archive
        self._specs = specs
        self._blobs = blobs
        self._retention = retention
        """Nanoseconds that the archive keeps ended jobs."""

    async def numbers(self) -> set[int]:
        """Return the numbers of jobs and arrays past their retention from which unfinished jobs take files."""
        wanted = await self._loop.scan(
            lambda jobs: [job.spec for job in jobs if job.extra.blobs and type(job.phase) is not Ended]
        )
        taken: dict[JobId, None] = {}
        digests = list(dict.fromkeys(wanted))
        for start in range(0, len(digests), SOME):
            for spec in (await self._specs.get(digests[start : start + SOME])).values():
                for each in spec.taken:
                    member = split_member(JobId(each.job))
                    taken[JobId(each.job) if member is None else member[0]] = None
        before = self._loop.now() - self._retention
        jobs = self._loop.state.jobs
        found = {
            job.number for each in taken if (job := jobs.get(each)) is not None and job.submitted <= before
        }
        rest = [each for each in taken if each not in jobs]
        for start in range(0, len(rest), SOME):
            rows = await self._archive.some(rest[start : start + SOME])
            found |= {row.number for row in rows.values() if row.submitted <= before}
        return found

    async def digests(self) -> set[str]:
        """Return the blobs that these jobs made, and those that list them."""
        found: set[str] = set()
        for number in await self.numbers():
            before: tuple[int, str] | None = None
            while True:
                query = Query(number=number, members=True, before=before, limit=SOME)
                rows = await self._archive.list(query)
                for row in rows:
                    for _, listed in row.outputs:
                        found.add(listed)
                        try:
                            found.update(file.digest for file in await files_in(self._blobs, listed))
                        except (NoBlob, Unlisted) as error:
                            log.warning("the outputs of a job cannot be read", job=row.job, error=str(error))
                if len(rows) < SOME:
                    break
                before = rows[-1].number, rows[-1].job
        return found
