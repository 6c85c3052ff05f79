"""Moves ended jobs to the archive. A job leaves the state only after it is archived."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

import msgspec
import structlog

from spillover.control.live.loop import Loop
from spillover.control.views.tasks import kept
from spillover.core.events import AnyEvent, JobEnded
from spillover.core.proposals import Archived, Refusal
from spillover.core.records.jobs import Ended, Job
from spillover.model.bounds import MOST_EXIT_CODE, bounded
from spillover.model.files import is_digest
from spillover.model.ids import JobId
from spillover.ports.archive import Archive, Finished
from spillover.ports.commands import CommandError
from spillover.ports.journal import StoreError
from spillover.wire.journal import encode_reason

log = structlog.get_logger()

LINGER: Final = 0.5
"""Seconds to collect ended jobs, so that one commit archives many."""
MOST: Final = 2000
"""Most jobs in one commit."""
RETRY: Final = 2.0
FEWER: Final = 8
"""Divisor of the number of jobs in a commit after a failed one."""
WORK: Final = "archiving"


class Archiving:
    """Archives jobs as they end."""

    def __init__(
        self,
        loop: Loop,
        archive: Archive,
        before: Callable[[Sequence[Job]], Awaitable[None]] | None = None,
    ) -> None:
        self._loop = loop
        self._before = before
        """Called with jobs before they are archived."""
        self._archive = archive
        self._ended: dict[JobId, None] = {}
        self._most = MOST
        """Most jobs in the next commit; smaller after one that the store refused."""
        self._left = False
        """Whether to look for ended jobs that an earlier server did not archive."""
        self._news = asyncio.Event()
        loop.listen(self._see)

    def begin(self) -> None:
        """Also archive what an earlier server left, once `run` starts."""
        self._left = True
        self._news.set()

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        ended = {event.job: None for event in events if type(event) is JobEnded}
        if ended:
            self._ended.update(ended)
            self._news.set()

    async def run(self) -> None:
        """Archive jobs as they end, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._loop.aside.pause(WORK)):
                    await self._news.wait()
            await asyncio.sleep(LINGER)
            self._news.clear()
            try:
                if self._left:
                    await self.find()
                while await self.some():
                    pass
            except (StoreError, CommandError) as error:
                log.warning("cannot archive ended jobs; will retry", error=str(error))
                await asyncio.sleep(RETRY)
                self._news.set()

    async def find(self) -> None:
        """Find ended jobs that an earlier server did not archive."""
        ended = await self._loop.scan(lambda jobs: [job.id for job in jobs if type(job.phase) is Ended])
        self._ended.update(dict.fromkeys(ended))
        self._left = False

    async def some(self) -> bool:
        """Archive some ended jobs in one commit; return False if none can be tried now."""
        aside = self._loop.aside
        some = list(islice((each for each in self._ended if not aside.waits(WORK, each)), self._most))
        if not some:
            return False
        try:
            await self._put_surely(some)
        except StoreError as error:
            # A commit of one job failed too: set the job aside, as it may be what the store refuses.
            if len(some) == 1 and self._most == 1:
                aside.put(WORK, some[0], error)
            self._most = max(1, self._most // FEWER)
            raise
        self._most = MOST
        return True

    async def _put_surely(self, some: list[JobId]) -> None:
        """Archive jobs in one commit; if that fails, halve it until only the jobs at fault remain."""
        try:
            await self._put(some)
        except (StoreError, CommandError):
            raise
        except Exception as error:  # noqa: BLE001 - no error may affect other jobs
            if len(some) == 1:
                self._loop.aside.put(WORK, some[0], error)
                return
            middle = len(some) // 2
            await self._put_surely(some[:middle])
            await self._put_surely(some[middle:])

    async def _put(self, some: Sequence[JobId]) -> None:
        """Archive jobs in one commit, then propose their removal from the state."""
        engine = await self._loop.read()
        jobs = [job for each in some if (job := engine.state.jobs.get(each)) is not None]
        finished = [row for job in jobs if (row := finished_of(job)) is not None]
        if finished:
            if self._before is not None:
                await self._before(jobs)
            await self._archive.put(finished, self._loop.epoch)
            (reply,) = await self._loop.propose(Archived(tuple(row.job for row in finished)))
            if isinstance(reply, Refusal):
                raise RuntimeError(reply.message)
        for each in some:
            self._ended.pop(each, None)
            self._loop.aside.done(WORK, each)


def finished_of(job: Job) -> Finished | None:
    """Return the archive row of a job; None if it has not ended."""
    phase = job.phase
    if not isinstance(phase, Ended):
        return None
    shape, members = job.shape, job.extra.members
    return Finished(
        job=job.id,
        number=job.number,
        name=job.name,
        user=job.user,
        project=job.kind.project,
        queue=job.kind.queue,
        priority=job.priority,
        state=phase.state,
        submitted=job.submitted,
        started=phase.started,
        finished=phase.at,
        cluster=phase.cluster,
        node=phase.node,
        attempt=job.attempt,
        exit_code=None
        if phase.exit_code is None
        else bounded(phase.exit_code, MOST_EXIT_CODE, -MOST_EXIT_CODE),
        signal=phase.signal,
        cost=bounded(job.cost),
        spec=job.spec,
        shape=shape,
        terms=job.terms,
        why=None if phase.why is None else encode_reason(phase.why),
        placed_why=None if phase.placed is None else encode_reason(phase.placed),
        # Old journals hold reports from before they were checked, with values too large for a column.
        usage=(bounded(phase.usage.ran), bounded(phase.usage.cpu), bounded(phase.usage.peak_memory)),
        key=job.extra.key,
        body=job.extra.body,
        deadline=job.extra.deadline,
        not_before=job.extra.not_before,
        array=None if members is None else msgspec.msgpack.encode(members.ended),
        predicted=job.predicted,
        paid=tuple((each.at, each.cluster, bounded(each.amount)) for each in job.extra.paid),
        ready=phase.ready,
        value=phase.value,
        value_digest=phase.value_digest if is_digest(phase.value_digest) else "",
        outputs=job.extra.outputs,
        tasks=kept(job),
        tried=tuple((each.at, each.cluster, bounded(each.ran), each.tasks) for each in job.extra.tried),
        evidence=job.evidence,
        gpu=(bounded(phase.usage.gpu), bounded(phase.usage.gpu_measured), bounded(phase.usage.gpu_memory)),
    )
