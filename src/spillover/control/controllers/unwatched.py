"""Jobs on clusters that others run and that are not configured any more: nobody says what becomes of them.

They wait for their cluster to be configured again, as what runs there goes on. Whoever does not want to wait cancels or requeues them,
which then takes effect at once: nobody else could confirm it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import structlog

from spillover.control.loop import RETRY, Loop
from spillover.core.deciders.endings import elapsed
from spillover.core.events import AnyEvent, JobStopping, Usage
from spillover.core.jobs import Job, Placed, Running
from spillover.core.proposals import DRIVER, Outcome, Result
from spillover.core.state import State
from spillover.ports.commands import CommandError

log = structlog.get_logger()


class Unwatched:
    """Ends what is to be stopped where nobody watches."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._news = asyncio.Event()
        self._news.set()
        loop.listen(self._see)

    async def run(self) -> None:
        """Look whenever a job is to be stopped, until cancelled."""
        state = (await self._loop.read()).state
        for cluster, count in Counter(phase.cluster for _, phase in _unwatched(state)).items():
            log.warning("jobs are on a cluster that is not configured any more", cluster=cluster, jobs=count)
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.look()
            except CommandError as error:
                log.warning("cannot give up jobs that nobody watches; will try again", error=error.message)
                await asyncio.sleep(RETRY)
                self._news.set()

    async def look(self) -> None:
        """Say of all that are to be stopped that they are."""
        state = (await self._loop.read()).state
        now = self._loop.now()
        results = [
            Result(DRIVER, job.lease, Outcome.STOPPED, None, None, Usage(elapsed(state, job, now)), 0)
            for job, phase in _unwatched(state)
            if phase.stopping is not None
        ]
        if results:
            await self._loop.propose(*results)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        if any(type(event) is JobStopping for event in events):
            self._news.set()


def _unwatched(state: State) -> list[tuple[Job, Placed | Running]]:
    """Jobs on clusters that were watched when they were placed there and are not configured now."""
    return [
        (job, phase)
        for job in state.jobs.values()
        if isinstance(phase := job.phase, Placed | Running)
        and phase.cluster not in state.clusters
        and (spec := state.cluster_of(job)) is not None
        and spec.watched
    ]
