"""Adds what earlier calls returned to the calls that need it, when their tasks are sent."""

from typing import Final

from msgspec.structs import replace

from spillover.control.live.loop import Loop
from spillover.core.records.jobs import Ended
from spillover.model.ids import JobId
from spillover.model.job import EarlierValue, JobSpec, PythonCall
from spillover.ports.archive import Archive
from spillover.ports.blobs import BlobError, Blobs, digest_of, one_piece

INLINE: Final = 64 << 10
"""Most bytes of values inside a task. If there are more, each becomes a blob, as tasks are messages."""


class Missing(Exception):
    """A value cannot be had; the message says why."""


class EarlierValues:
    """Reads values of calls that have ended."""

    def __init__(self, loop: Loop, archive: Archive, blobs: Blobs) -> None:
        self._loop = loop
        self._archive = archive
        self._blobs = blobs

    async def filled(self, spec: JobSpec) -> JobSpec:
        """Return a spec with the values that its call refers to; raise Missing."""
        work = spec.work
        if type(work) is not PythonCall or not work.values:
            return spec
        state = (await self._loop.read()).state
        ends: dict[str, tuple[bytes, str]] = {}
        for each in work.values:
            job = state.jobs.get(JobId(each.job))
            if job is not None and type(job.phase) is Ended:
                ends[each.job] = job.phase.value, job.phase.value_digest
        rest = [JobId(each.job) for each in work.values if each.job not in ends]
        for name, found in (await self._archive.some(rest) if rest else {}).items():
            ends[name] = found.value, found.value_digest
        values = [EarlierValue(each.job, *ends.get(each.job, (b"", ""))) for each in work.values]
        for each in values:
            if not each.value and not each.digest:
                raise Missing(
                    f"the value of {each.job} is not on the server: it returned none, or was deleted"
                )
        if sum(len(each.value) for each in values) > INLINE:
            values = [await self._as_blob(each) for each in values]
        return replace(spec, work=replace(work, values=tuple(values)))

    async def _as_blob(self, each: EarlierValue) -> EarlierValue:
        """Store a value as a blob, which stays for a day without a reference, and longer than any lease waits."""
        if not each.value:
            return each
        digest = digest_of(each.value)
        try:
            await self._blobs.put(digest, one_piece(each.value))
        except BlobError as error:
            raise Missing(f"the value of {each.job} cannot be stored: {error}") from None
        return EarlierValue(each.job, b"", digest)
