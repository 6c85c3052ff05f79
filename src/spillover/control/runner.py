"""Carries plans out: what has become durable is said to the agents that it concerns."""

import asyncio
from collections.abc import Sequence

import structlog

from spillover.control.loop import Loop
from spillover.control.specs import Specs
from spillover.core.events import (
    AgentLost,
    AgentRegistered,
    AnyEvent,
    JobPlaced,
    JobStopping,
    Lease,
    MemberPlaced,
    WaitsExpired,
)
from spillover.core.state import Job, Placed, Running
from spillover.model.ids import ClusterName, NodeName, member_id
from spillover.ports.cluster import Agents, Start

log = structlog.get_logger()


class Runner:
    """Turns durable events into messages, in their order."""

    def __init__(self, loop: Loop, agents: Agents, specs: Specs) -> None:
        self._loop = loop
        self._agents = agents
        self._specs = specs
        self._todo: asyncio.Queue[Sequence[AnyEvent]] = asyncio.Queue()
        loop.listen(lambda _, events: self._todo.put_nowait(events))

    async def run(self) -> None:
        """Carry out what becomes durable, until cancelled."""
        while True:
            events = list(await self._todo.get())
            while not self._todo.empty():
                events += self._todo.get_nowait()
            await self._carry_out(events)

    async def _carry_out(self, events: Sequence[AnyEvent]) -> None:
        starts: dict[str, list[tuple[Lease, bytes, ClusterName]]] = {}
        wake: dict[str, None] = {}
        jobs = self._loop.state.jobs
        for event in events:
            match event:
                case JobPlaced() if (job := jobs.get(event.job)) is not None:
                    lease = Lease(event.job, event.attempt, event.seq)
                    starts.setdefault(_key(event.cluster, event.node), []).append(
                        (lease, job.spec, event.cluster)
                    )
                case MemberPlaced() if (job := jobs.get(event.array)) is not None:
                    lease = Lease(member_id(event.array, event.index), 1, event.seq)
                    starts.setdefault(_key(event.cluster, event.node), []).append(
                        (lease, job.spec, event.cluster)
                    )
                case AgentRegistered():
                    await self._hand_out(starts)
                    starts.clear()
                    self._agents.activate(_key(event.cluster, event.node), event.incarnation)
                case AgentLost():
                    starts.pop(_key(event.cluster, event.node), None)
                case JobStopping():
                    self._wake(jobs.get(event.job), wake)
                case WaitsExpired():
                    for each in event.jobs:
                        self._wake(jobs.get(each), wake)
                case _:
                    pass
        await self._hand_out(starts)
        for node in wake:
            self._agents.wake(node)

    @staticmethod
    def _wake(job: Job | None, wake: dict[str, None]) -> None:
        if job is not None and isinstance(job.phase, Placed | Running):
            wake[_key(job.phase.cluster, job.phase.node)] = None

    async def _hand_out(self, starts: dict[str, list[tuple[Lease, bytes, ClusterName]]]) -> None:
        """Send leases with their specs."""
        if not starts:
            return
        digests = [digest for leases in starts.values() for _, digest, _ in leases]
        specs = await self._specs.get(digests)
        for node, leases in starts.items():
            ready = []
            for lease, digest, cluster in leases:
                if digest in specs:
                    ready.append(Start(lease, specs[digest], cluster))
                else:
                    log.error("the spec of a job is missing", job=lease.job)
            self._agents.start(node, ready)


def _key(cluster: ClusterName, node: NodeName) -> str:
    return f"{cluster}/{node}"
