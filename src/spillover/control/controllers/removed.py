"""Jobs on external clusters that are not configured any more, or have failed and are being removed: nobody says what becomes of them.

They wait for their cluster to be configured again, as what runs there goes on. Whoever does not want to wait cancels or requeues them, or has the cluster
removed so: that then takes effect at once, as nobody else could confirm it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import structlog

from spillover.control.loop import RETRY, Loop
from spillover.control.overview import placed_jobs
from spillover.core.deciders.endings import elapsed
from spillover.core.events import AnyEvent, ClusterChanged, JobStopping, Usage
from spillover.core.jobs import Job, Placed, Running
from spillover.core.proposals import DRIVER, Outcome, Refusal, Result, unusable
from spillover.core.state import State
from spillover.model.cluster import ClusterHealth, Leave
from spillover.model.ids import ClusterName, JobId
from spillover.ports.commands import CommandError

log = structlog.get_logger()


class RemovedClusters:
    """Ends what is to be stopped where nobody watches."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._stopping: dict[JobId, None] | None = None
        """Jobs to look at, wherever they are; None is all, as when this begins."""
        self._news = asyncio.Event()
        self._news.set()
        loop.listen(self._see)

    async def run(self) -> None:
        """Look whenever a job is to be stopped, until cancelled."""
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
        looking = _jobs_on_removed_clusters(state) if self._stopping is None else self._stopping
        self._stopping = {}  # what is seen from here on is looked at again
        results = [
            Result(DRIVER, job.lease, Outcome.STOPPED, None, None, Usage(elapsed(state, job, now)), 0)
            for each in looking
            if (job := state.jobs.get(each)) is not None
            and (phase := _on_removed_cluster(state, job)) is not None
            and phase.stopping is not None
        ]
        try:
            if results:
                replies = await self._loop.propose(*results)
                refused = [
                    unusable(result, reply.message)
                    for result, reply in zip(results, replies, strict=True)
                    if isinstance(reply, Refusal)
                ]
                if refused:
                    await self._loop.propose(*refused)
        except BaseException:
            self._stopping = {**looking, **self._stopping}
            raise

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        stopping = [event.job for event in events if type(event) is JobStopping]
        for event in events:
            if type(event) is ClusterChanged and event.health is ClusterHealth.FAILED:
                stopping += self._loop.state.jobs_on(event.cluster)
        if stopping and self._stopping is not None:
            self._stopping.update(dict.fromkeys(stopping))
            self._news.set()


def _jobs_on_removed_clusters(state: State) -> dict[JobId, None]:
    """All jobs that nobody watches, which is said once."""
    placed = sorted(placed_jobs(state), key=lambda job: job.number)
    found = {job.id: phase.cluster for job in placed if (phase := _on_removed_cluster(state, job))}
    for cluster, count in Counter(found.values()).items():
        log.warning("jobs are on a cluster that is not configured any more", cluster=cluster, jobs=count)
    return dict.fromkeys(found)


def _on_removed_cluster(state: State, job: Job) -> Placed | Running | None:
    """The place of a job on a cluster that was watched when it was placed there and is not configured now."""
    phase = job.phase
    if not isinstance(phase, Placed | Running) or not _is_given_up(state, phase.cluster):
        return None
    spec = state.cluster_of(job)
    return phase if spec is not None and spec.external else None


def _is_given_up(state: State, cluster: ClusterName) -> bool:
    """Whether a cluster is not configured, or somebody removes it who does not wait for it to answer again."""
    known = state.lives.get(cluster)
    if known is None:
        return True
    return known.leaving in {Leave.MOVE, Leave.CANCEL} and state.health(cluster) is ClusterHealth.FAILED
