"""Ended jobs move from the state to the archive: written there first, dropped here afterwards."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog

from spillover.control.loop import Loop
from spillover.core.events import AnyEvent, JobEnded
from spillover.core.jobs import Ended, Job
from spillover.core.proposals import Archived
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
        """Archive some of what ended, in one commit; False if nothing is left."""
        if not self._ended:
            return False
        engine = await self._loop.read()
        some = list(itertools.islice(self._ended, MOST))
        jobs = [job for each in some if (job := engine.state.jobs.get(each)) is not None]
        finished = [row for job in jobs if (row := finished_of(job)) is not None]
        if finished:
            if self._before is not None:
                await self._before(jobs)
            await self._archive.put(finished, self._loop.epoch)
            await self._loop.propose(Archived(tuple(row.job for row in finished)))
        for each in some:
            self._ended.pop(each, None)
        return True


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
        exit_code=phase.exit_code,
        signal=phase.signal,
        cost=job.cost,
        spec=job.spec,
        shape=shape,
        terms=job.terms,
        why=None if phase.why is None else encode_reason(phase.why),
        placed_why=None if phase.placed is None else encode_reason(phase.placed),
        usage=(phase.usage.ran, phase.usage.cpu, phase.usage.peak_memory),
        key=job.extra.key,
        body=job.extra.body,
        deadline=job.extra.deadline,
        not_before=job.extra.not_before,
        array=None if members is None else msgspec.msgpack.encode(members.ended),
        predicted=job.predicted,
        paid=tuple((each.at, each.cluster, each.amount) for each in job.extra.paid),
        ready=phase.ready,
        value=phase.value,
        value_digest=phase.value_digest,
        outputs=job.extra.outputs,
    )
