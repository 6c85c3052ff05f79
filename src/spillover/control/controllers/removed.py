"""Handles jobs on external clusters that are no longer configured, or that failed while being removed.

No driver reports on these jobs. They wait until the cluster is configured again, as their tasks may still run there.
If a user cancels or requeues such a job, or removes the cluster that way, it takes effect at once, as no driver could
confirm it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import structlog

from spillover.control.live.loop import RETRY, Loop
from spillover.control.views.overview import placed_jobs
from spillover.core.deciders.endings import elapsed
from spillover.core.events import AnyEvent, ClusterChanged, JobStopping, Usage
from spillover.core.proposals import DRIVER, Outcome, Refusal, Result, unusable
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.model.cluster import ClusterHealth, Leave
from spillover.model.ids import ClusterName, JobId
from spillover.ports.commands import CommandError

log = structlog.get_logger()


class RemovedClusters:
    """Ends stopping jobs on clusters without a driver."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._stopping: dict[JobId, None] | None = None
        """Stopping jobs to check, on any cluster; None at the start means all jobs."""
        self._news = asyncio.Event()
        self._news.set()
        loop.listen(self._see)

    async def run(self) -> None:
        """Check whenever a job is stopping, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.look()
            except CommandError as error:
                log.warning(
                    "cannot give up jobs on clusters that are no longer configured; will retry",
                    error=error.message,
                )
                await asyncio.sleep(RETRY)
                self._news.set()

    async def look(self) -> None:
        """Propose the end of stopping jobs on removed clusters."""
        state = (await self._loop.read()).state
        now = self._loop.now()
        looking = _jobs_on_removed_clusters(state) if self._stopping is None else self._stopping
        self._stopping = {}  # `_see` adds what stops from here on
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
    """Return all jobs on removed clusters, and log their number once."""
    placed = sorted(placed_jobs(state), key=lambda job: job.number)
    found = {job.id: phase.cluster for job in placed if (phase := _on_removed_cluster(state, job))}
    for cluster, count in Counter(found.values()).items():
        log.warning("jobs run on a cluster that is no longer configured", cluster=cluster, jobs=count)
    return dict.fromkeys(found)


def _on_removed_cluster(state: State, job: Job) -> Placed | Running | None:
    """Return the phase of a job on an external cluster that has no driver now; None for other jobs."""
    phase = job.phase
    if not isinstance(phase, Placed | Running) or not _is_given_up(state, phase.cluster):
        return None
    spec = state.cluster_of(job)
    return phase if spec is not None and spec.external else None


def _is_given_up(state: State, cluster: ClusterName) -> bool:
    """Return whether a cluster is not configured, or failed while being removed without waiting for its answer."""
    known = state.lives.get(cluster)
    if known is None:
        return True
    return known.leaving in {Leave.MOVE, Leave.CANCEL} and state.health(cluster) is ClusterHealth.FAILED
