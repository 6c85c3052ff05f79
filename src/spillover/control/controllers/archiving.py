"""Ended jobs move from the state to the archive: written there first, dropped here afterwards."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

import msgspec
import structlog

from spillover.control.loop import Loop
from spillover.control.tasks import kept
from spillover.core.events import AnyEvent, JobEnded
from spillover.core.jobs import Ended, Job
from spillover.core.proposals import Archived, Refusal
from spillover.model.bounds import MOST_EXIT_CODE, bounded
from spillover.model.files import is_digest
from spillover.model.ids import JobId
from spillover.ports.archive import Archive, Finished
from spillover.ports.commands import CommandError
from spillover.ports.journal import StoreError
from spillover.wire.journal import encode_reason

log = structlog.get_logger()

LINGER: Final = 0.5
"""Seconds in which ended jobs are gathered: one commit for many."""
MOST: Final = 2000
"""Jobs in one commit."""
RETRY: Final = 2.0
FEWER: Final = 8
"""By how much fewer jobs are tried in one commit after one that failed."""
WORK: Final = "archiving"


class Archiving:
    """Follows the endings."""

    def __init__(
        self,
        loop: Loop,
        archive: Archive,
        before: Callable[[Sequence[Job]], Awaitable[None]] | None = None,
    ) -> None:
        self._loop = loop
        self._before = before
        """Called with jobs that are about to leave the state."""
        self._archive = archive
        self._ended: dict[JobId, None] = {}
        self._most = MOST
        """Jobs in the next commit: fewer after one that the store refused."""
        self._left = False
        """Whether an earlier server may have left some, which are to be found."""
        self._news = asyncio.Event()
        loop.listen(self._see)

    def begin(self) -> None:
        """Take up what an earlier server left, once this runs."""
        self._left = True
        self._news.set()

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        ended = {event.job: None for event in events if type(event) is JobEnded}
        if ended:
            self._ended.update(ended)
            self._news.set()

    async def run(self) -> None:
        """Archive what ended, until cancelled."""
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
                log.warning("could not archive ended jobs; will try again", error=str(error))
                await asyncio.sleep(RETRY)
                self._news.set()

    async def find(self) -> None:
        """Find what an earlier server left."""
        ended = await self._loop.scan(lambda jobs: [job.id for job in jobs if type(job.phase) is Ended])
        self._ended.update(dict.fromkeys(ended))
        self._left = False

    async def some(self) -> bool:
        """Archive some of what ended, in one commit; False if nothing is left that may be tried now."""
        aside = self._loop.aside
        some = list(islice((each for each in self._ended if not aside.waits(WORK, each)), self._most))
        if not some:
            return False
        try:
            await self._put_surely(some)
        except StoreError as error:
            # If it takes one job and not another, what is wrong is the job.
            if len(some) == 1 and self._most == 1:
                aside.put(WORK, some[0], error)
            self._most = max(1, self._most // FEWER)
            raise
        self._most = MOST
        return True

    async def _put_surely(self, some: list[JobId]) -> None:
        """Archive jobs in one commit; if that fails, those of them with which it does not."""
        try:
            await self._put(some)
        except (StoreError, CommandError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs one job
            if len(some) == 1:
                self._loop.aside.put(WORK, some[0], error)
                return
            middle = len(some) // 2
            await self._put_surely(some[:middle])
            await self._put_surely(some[middle:])

    async def _put(self, some: Sequence[JobId]) -> None:
        """Archive jobs in one commit."""
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
    """What the archive keeps of a job; None if it has not ended."""
    phase = job.phase
    if not isinstance(phase, Ended):
        return None
    shape, members = job.kind.shape, job.extra.members
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
        # Journals of before reports were checked may hold what no column takes.
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
    )
