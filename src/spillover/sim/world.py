"""Simulates clusters: every task starts where it was placed and runs as long as its trace says.

Agents report only ends, with the runtime. If they reported starts, the engine would stop tasks at their walltime, but
the trace decides how long a job runs.
"""

import heapq
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.events import (
    AnyEvent,
    GangPlaced,
    JobEnded,
    JobPlaced,
    JobRequeued,
    JobStopping,
    Lease,
    Usage,
)
from spillover.core.proposals import Outcome as Ending
from spillover.core.proposals import Proposal, Result
from spillover.model.ids import ClusterName, JobId, NodeName, node_key
from spillover.model.reasons import Reason, code_of
from spillover.model.units import FOREVER
from spillover.sim.outcome import JobOutcome
from spillover.sim.setting import Site
from spillover.sim.trace import TraceJob

EXITED = Ending.EXITED
_JOB = attrgetter("job")


class SimulatedTask(Struct, gc=False):
    """A job at its latest placement."""

    result: Result
    """The report of its agent when it has run for the runtime of the trace."""
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    start: int
    """When it starts, possibly in the future."""
    why: Reason


class SimulatedWorld:
    """What the clusters do, and the outcome of each job."""

    def __init__(self, jobs: Sequence[TraceJob], site: Site) -> None:
        self._jobs = jobs
        self._rented = site.rented
        self._endless = site.endless
        self._startup = {spec.name: spec.startup for spec in site.clusters if spec.startup}
        """Nanoseconds; only clusters whose machines take time to start."""
        self._tasks: dict[int, SimulatedTask] = {}
        """Placed jobs by index."""
        self._ends: list[tuple[int, int, int]] = []
        """Heap of end time, job, and seq of the lease."""
        self._stopped: list[int] = []
        """Jobs that were asked to stop, and did."""
        self._abandoned: dict[int, int] = {}
        self._outcomes: list[JobOutcome] = []
        self.ended: list[JobId] = []
        """Ended jobs that are not archived yet."""
        self._now = 0
        """Time of the latest stop."""

    def next_time(self) -> int:
        """Return the time of the next observation; FOREVER if there is none."""
        if self._ends and not self._stopped:
            return self._ends[0][0]
        return self._now if self._stopped else FOREVER

    def observe(self, now: int) -> list[Proposal]:
        """Return what agents report now."""
        seen: list[Proposal] = []
        if self._stopped:
            for job in self._stopped:
                task = self._tasks.get(job)
                if task is not None:  # else it ended at the same moment
                    ran = Usage(max(0, now - task.start))
                    node, lease = node_key(task.cluster, task.nodes[0]), task.result.lease
                    stopped = Result(node, lease, Ending.STOPPED, None, None, ran, 0)
                    seen += [stopped, *_of_others(task, stopped)]
            self._stopped.clear()
        heap = self._ends
        while heap and heap[0][0] <= now:
            _, job, seq = heapq.heappop(heap)
            running = self._tasks.get(job)
            if running is not None and running.result.lease.seq == seq:  # else it was stopped before
                seen.append(running.result)
                if len(running.nodes) > 1:
                    seen += _of_others(running, running.result)
        return seen

    def carry_out(self, events: Sequence[AnyEvent]) -> None:
        """Carry out events."""
        handler_of = _HANDLERS.get
        for event in events:
            handler = handler_of(type(event))
            if handler is not None:
                handler(self, event)

    def outcomes(self) -> list[JobOutcome]:
        """Return the outcomes of all ended jobs, in their order."""
        return sorted(self._outcomes, key=_JOB)

    def _placed(self, event: JobPlaced | GangPlaced) -> None:
        job = int(event.job)
        nodes = event.nodes if isinstance(event, GangPlaced) else (event.node,)
        start = event.at
        if self._startup:
            start += self._startup.get(event.cluster, 0)
        runtime = self._jobs[job].runtime
        lease = Lease(event.job, event.attempt, event.seq)
        result = Result(node_key(event.cluster, nodes[0]), lease, EXITED, 0, None, Usage(runtime), 0)
        self._tasks[job] = SimulatedTask(result, event.cluster, nodes, start, event.why)
        heapq.heappush(self._ends, (start + runtime, job, event.seq))

    def _stopping(self, event: JobStopping) -> None:
        self._now = event.at
        self._stopped.append(int(event.job))

    def _requeued(self, event: JobRequeued) -> None:
        job = int(event.job)
        task = self._tasks.pop(job)
        if task.cluster in self._rented:
            self._abandoned[job] = self._abandoned.get(job, 0) + max(0, event.at - task.start)

    def _ended(self, event: JobEnded) -> None:
        job = int(event.job)
        self.ended.append(event.job)
        task = self._tasks.pop(job, None)
        if task is None:
            return  # it never ran
        self._outcomes.append(
            JobOutcome(
                job,
                self._jobs[job].submit,
                task.start,
                event.at,
                task.cluster,
                "" if task.cluster in self._endless else "+".join(task.nodes),
                event.cost,
                code_of(task.why),
                self._abandoned.pop(job, 0) if self._abandoned else 0,
            )
        )


def _of_others(task: SimulatedTask, first: Result) -> list[Proposal]:
    """Return the reports for the other tasks of a gang, each from its own node, like that for the first."""
    return [
        replace(first, node=node_key(task.cluster, node), lease=replace(first.lease, task=rank))
        for rank, node in enumerate(task.nodes)
        if rank
    ]


_HANDLERS: dict[type, Callable[[SimulatedWorld, Any], None]] = {
    JobPlaced: SimulatedWorld._placed,  # noqa: SLF001 - in the same module
    GangPlaced: SimulatedWorld._placed,  # noqa: SLF001
    JobStopping: SimulatedWorld._stopping,  # noqa: SLF001
    JobRequeued: SimulatedWorld._requeued,  # noqa: SLF001
    JobEnded: SimulatedWorld._ended,  # noqa: SLF001
}
