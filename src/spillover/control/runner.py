"""Carries plans out: what has become durable is said to the agents that it concerns.

Which registration of an agent a lease was granted under is noted in the order of events, at once. The message itself follows
when the spec was read; by then the agent may have registered anew, and a lease of before is void.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from spillover.control.loop import RETRY, Loop
from spillover.control.specs import Specs
from spillover.core.events import (
    AgentRegistered,
    AnyEvent,
    CostHeld,
    JobPlaced,
    JobStopping,
    Lease,
    MemberPlaced,
    Usage,
    WaitsExpired,
)
from spillover.core.proposals import Outcome, Result
from spillover.core.state import Placed, Running
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.job import JobSpec
from spillover.ports.cluster import Agents, Start, Unsendable
from spillover.ports.commands import CommandError
from spillover.ports.journal import StoreError

log = structlog.get_logger()


class _Grant(NamedTuple):
    """A lease on its way to an agent."""

    node: str
    incarnation: int
    lease: Lease
    spec: bytes
    cluster: ClusterName
    limit: int | None = None
    """Nanoseconds that it may run because its cap pays for no more; None leaves it with its own walltime."""


class Runner:
    """Turns durable events into messages, in their order."""

    def __init__(self, loop: Loop, agents: Agents, specs: Specs) -> None:
        self._loop = loop
        self._agents = agents
        self._specs = specs
        self._incarnations: dict[str, int] = {}
        self._grants: list[_Grant] = []
        self._failed: list[Result] = []
        """Of leases that cannot be handed out; their jobs are to end."""
        self._news = asyncio.Event()
        loop.listen(self._see)

    async def run(self) -> None:
        """Hand out what was granted, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            grants, self._grants = self._grants, []
            try:
                await self._hand_out(grants)
            except StoreError as error:  # they are leased already, and wait until their specs can be read
                log.warning("cannot hand out leases; will try again", error=str(error))
                await asyncio.sleep(RETRY)
                self._grants = grants + self._grants
                self._news.set()
            if self._failed:
                await self._end()

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Note what is to be said to whom."""
        for event in events:
            match event:
                case JobPlaced():
                    lease = Lease(event.job, event.attempt, event.seq)
                    self._grant(f"{event.cluster}/{event.node}", event.cluster, lease, event.job)
                case MemberPlaced():
                    lease = Lease(member_id(event.array, event.index), 1, event.seq)
                    self._grant(f"{event.cluster}/{event.node}", event.cluster, lease, event.array)
                case CostHeld():
                    self._limit(event)
                case AgentRegistered():
                    node = f"{event.cluster}/{event.node}"
                    self._incarnations[node] = event.incarnation
                    self._agents.activate(node, event.incarnation)
                case JobStopping():
                    self._wake(event.job)
                case WaitsExpired():
                    for each in event.jobs:
                        self._wake(each)
                case _:
                    pass
        if self._grants:
            self._news.set()

    def _grant(self, node: str, cluster: ClusterName, lease: Lease, spec_of: JobId) -> None:
        job = self._loop.state.jobs.get(spec_of)
        if job is not None and node in self._incarnations:
            self._grants.append(_Grant(node, self._incarnations[node], lease, job.spec, cluster))

    def _limit(self, event: CostHeld) -> None:
        """Give the leases that were just granted for a job the time that its cap pays for."""
        at = len(self._grants) - 1
        while event.limit is not None and at >= 0 and self._grants[at].lease.job == event.job:
            self._grants[at] = self._grants[at]._replace(limit=event.limit)
            at -= 1

    def _wake(self, job_id: JobId) -> None:
        """Have the agent of a job ask for its orders now."""
        job = self._loop.state.jobs.get(job_id)
        if job is not None and isinstance(job.phase, Placed | Running):
            self._agents.wake(f"{job.phase.cluster}/{job.phase.node}")

    async def _hand_out(self, grants: list[_Grant]) -> None:
        """Send leases with their specs."""
        specs = await self._specs.get([grant.spec for grant in grants])
        starts: dict[tuple[str, int], list[Start]] = {}
        for grant in grants:
            if grant.spec in specs:
                start = Start(grant.lease, _limited(specs[grant.spec], grant.limit), grant.cluster)
                starts.setdefault((grant.node, grant.incarnation), []).append(start)
            else:
                self._fail(grant.node, Unsendable(grant.lease, "what it runs is missing from the store"))
        for (node, incarnation), each in starts.items():
            for unsendable in self._agents.start(node, incarnation, each):
                self._fail(node, unsendable)

    def _fail(self, node: str, unsendable: Unsendable) -> None:
        """Have a job end that its agent will never hear of; it would else be placed again, for ever."""
        lease, why = unsendable.lease, unsendable.why[:500]
        log.error("cannot hand out a job", job=lease.job, agent=node, error=why)
        name = NodeName(node.partition("/")[2])
        self._failed.append(Result(name, lease, Outcome.NOT_STARTED, None, None, Usage(), 0, why))

    async def _end(self) -> None:
        """Say that jobs could not be started; a lease that is void by now changes nothing."""
        try:
            await self._loop.propose(*self._failed)
        except CommandError as error:  # nothing can be written now
            log.warning("cannot end jobs that cannot be handed out; will try again", error=error.message)
            await asyncio.sleep(RETRY)
            self._news.set()
        else:
            self._failed = []


def _limited(spec: JobSpec, limit: int | None) -> JobSpec:
    """A spec with the walltime that its cap pays for, if it is given one."""
    return spec if limit is None else replace(spec, terms=replace(spec.terms, walltime=limit))
