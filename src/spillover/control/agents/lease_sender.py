"""Sends leases and wake-ups to agents, once the events behind them are durable.

The sender records at once, in the order of events, under which registration it granted a lease. The message follows
after it has read the spec. If the agent has registered again by then, the lease is void.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from spillover.control.agents.earlier import EarlierValues, Missing
from spillover.control.agents.taken import TakenFiles
from spillover.control.agents.tickets import Tickets
from spillover.control.live.loop import RETRY, Loop
from spillover.control.live.specs import Specs
from spillover.control.telemetry.spans import Tracer
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentRegistered,
    AgentResumed,
    AnyEvent,
    ClusterRemoved,
    CostHeld,
    GangPlaced,
    JobChanged,
    JobPlaced,
    JobStopping,
    Lease,
    LeaseMoved,
    LeasesRevoked,
    MemberPlaced,
    StealAsked,
    TokenRevoked,
    Usage,
)
from spillover.core.proposals import DRIVER, Outcome, Refusal, Result, unusable
from spillover.core.records.jobs import Job, Placed, Running
from spillover.deciding.capacity.inside import structure_of
from spillover.model.hosts import is_loopback
from spillover.model.ids import ClusterName, JobId, NodeKey, member_id, node_key
from spillover.model.inside import Granted
from spillover.model.job import JobSpec, PythonCall
from spillover.model.topology import Level, vertex_of
from spillover.model.tracing import VARIABLE
from spillover.model.where import NodeTerm
from spillover.ports.cluster import Agents, Peer, Start, Unsendable
from spillover.ports.commands import CommandError
from spillover.ports.journal import StoreError

log = structlog.get_logger()

WORK: Final = "runner"


class _Grant(NamedTuple):
    """A lease that is not sent yet."""

    node: str
    incarnation: int
    lease: Lease
    spec: bytes
    cluster: ClusterName
    limit: int | None = None
    """Nanoseconds that the job may run, as its cap pays for no more; None keeps its own walltime."""
    tasks: int = 0
    """The number of tasks that a gang of elastic size got; 0 if its size is fixed."""
    source: tuple[str, Lease] | None = None
    """The agent that held the lease before, and its lease; None if the lease was not moved."""
    granted: Granted | None = None
    """The cores and GPUs that the task has for itself; None if it gets none by name."""
    binds: bool = False
    """Whether its memory must be of the NUMA node of its cores."""
    saved: str = ""
    """The blob with what earlier attempts left in the folder of the task."""


class LeaseSender:
    """Turns durable events into messages, in their order."""

    def __init__(
        self,
        loop: Loop,
        agents: Agents,
        specs: Specs,
        tickets: Tickets | None = None,
        earlier: EarlierValues | None = None,
        taken: TakenFiles | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._loop = loop
        self._tickets = tickets or Tickets()
        self._agents = agents
        self._specs = specs
        self._earlier = earlier
        """None if calls cannot refer to earlier ones."""
        self._taken = taken
        """None if jobs cannot take files of others."""
        self._tracer = tracer or Tracer()
        self._incarnations: dict[str, int] = {}
        self._grants: list[_Grant] = []
        self._failed: list[Result] = []
        """Results that end jobs whose leases cannot be sent."""
        self._later: dict[Lease, _Grant] = {}
        """Leases that are set aside after an unexpected error."""
        self._news = asyncio.Event()
        loop.listen(self._see)

    async def run(self) -> None:
        """Send granted leases, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._loop.aside.pause(WORK)):
                    await self._news.wait()
            self._news.clear()
            grants, self._grants = self._grants + self._due(), []
            try:
                await self._hand_out(grants)
            except (StoreError, CommandError) as error:  # the leases are granted already, and can wait
                log.warning("cannot hand out leases; will retry", error=str(error))
                await asyncio.sleep(RETRY)
                self._grants = grants + self._grants
                self._news.set()
            except BaseException:
                self._grants = grants + self._grants
                self._news.set()
                raise
            if self._failed:
                await self._end()

    def _due(self) -> list[_Grant]:
        """Take the leases to try again now out of those set aside, and drop void ones."""
        due: list[_Grant] = []
        for lease, grant in list(self._later.items()):
            each = lease.job
            job = self._loop.state.jobs.get(each)
            if job is None or job.lease_of(grant.lease.task) != grant.lease or type(job.phase) is not Placed:
                self._loop.aside.done(WORK, each)
            elif self._loop.aside.waits(WORK, each):
                continue
            else:
                due.append(grant)
            del self._later[lease]
        return due

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:  # noqa: C901, PLR0912 - one case for each event
        """Record which agents to send leases to, and wake those that have other orders."""
        for event in events:
            match event:
                case JobPlaced():
                    lease = Lease(event.job, event.attempt, event.seq)
                    node = f"{event.cluster}/{event.node}"
                    self._grant(node, event.cluster, lease, event.job, event.granted)
                case GangPlaced():
                    self._grant_gang(event)
                case MemberPlaced():
                    lease = Lease(member_id(event.array, event.index), 1, event.seq)
                    node = f"{event.cluster}/{event.node}"
                    self._grant(node, event.cluster, lease, event.array, event.granted)
                case LeaseMoved():
                    self._move(event)
                case StealAsked():
                    self._agents.wake(f"{event.cluster}/{event.node}")
                case CostHeld():
                    self._limit(event)
                case AgentRegistered():
                    node = f"{event.cluster}/{event.node}"
                    self._incarnations[node] = event.incarnation
                    self._agents.activate(node, event.incarnation)
                case AgentDraining() | AgentResumed():
                    self._agents.wake(f"{event.cluster}/{event.node}")
                case AgentForgotten():
                    self._incarnations.pop(f"{event.cluster}/{event.node}", None)
                    self._agents.close(f"{event.cluster}/{event.node}")
                case ClusterRemoved():
                    for node in [each for each in self._incarnations if each.startswith(f"{event.cluster}/")]:
                        del self._incarnations[node]
                        self._agents.close(node)
                case TokenRevoked():
                    self._agents.end(event.token)
                case JobStopping() | JobChanged():
                    self._wake(event.job)
                case LeasesRevoked():
                    for each in event.jobs:
                        self._wake(each)
                case _:
                    pass
        if self._grants:
            self._news.set()

    def _grant(
        self,
        node: str,
        cluster: ClusterName,
        lease: Lease,
        spec_of: JobId,
        granted: Granted | None = None,
        tasks: int = 0,
    ) -> None:
        job = self._loop.state.jobs.get(spec_of)
        if job is not None and node in self._incarnations:
            incarnation = self._incarnations[node]
            saved = job.saved(lease.task) if lease.job == spec_of else ""  # a pending member has no attempts
            grant = _Grant(
                node, incarnation, lease, job.spec, cluster, tasks=tasks, granted=granted, saved=saved
            )
            if granted is not None and granted.cpus:
                grant = grant._replace(binds=self._binds(job, lease.task, node, granted))
            self._grants.append(grant)

    def _binds(self, job: Job, rank: int, node: str, granted: Granted) -> bool:
        """Return whether the memory of a task must be of the NUMA node of its cores."""
        found = self._loop.state.nodes.get(node)
        if found is None or found.inside is None:
            return False
        return structure_of(found.inside).binds(job.kind.shape.topology_of(rank), granted)

    def _grant_gang(self, event: GangPlaced) -> None:
        """Grant the leases of all tasks of a gang. No task starts before all are prepared, see `GangStarts`."""
        for rank, node in enumerate(event.nodes):
            lease = Lease(event.job, event.attempt, event.seq, rank)
            granted, tasks = event.granted[rank] if event.granted else None, len(event.nodes)
            self._grant(f"{event.cluster}/{node}", event.cluster, lease, event.job, granted, tasks)

    def _move(self, event: LeaseMoved) -> None:
        """Grant a lease to the agent that it moved to."""
        job = self._loop.state.jobs.get(event.job)
        node = f"{event.cluster}/{event.thief}"
        if job is None or node not in self._incarnations:
            return
        lease = Lease(event.job, event.attempt, event.seq)
        hold = job.extra.hold
        source = f"{event.cluster}/{event.node}", Lease(event.job, event.attempt, event.old)
        incarnation, limit = self._incarnations[node], None if hold is None else hold.limit
        moved = _Grant(node, incarnation, lease, job.spec, event.cluster, limit, source=source)
        self._grants.append(moved._replace(saved=job.saved(lease.task)))

    def _limit(self, event: CostHeld) -> None:
        """Limit the leases just granted to a job to the runtime that its cap pays for."""
        at = len(self._grants) - 1
        while event.limit is not None and at >= 0 and self._grants[at].lease.job == event.job:
            self._grants[at] = self._grants[at]._replace(limit=event.limit)
            at -= 1

    def _wake(self, job_id: JobId) -> None:
        """Make the agents of a job send a heartbeat now, to fetch their orders."""
        job = self._loop.state.jobs.get(job_id)
        if job is not None and isinstance(job.phase, Placed | Running):
            for node in dict.fromkeys(task.node for task in job.tasks if task.lives):
                self._agents.wake(f"{job.phase.cluster}/{node}")

    async def _hand_out(self, grants: list[_Grant]) -> None:
        """Send leases with their specs to their agents."""
        specs = await self._specs.get([grant.spec for grant in grants])
        missing = await self._fill(specs)
        taking = await self._take({grant.lease.job: grant.spec for grant in grants}, specs)
        if not self._loop.leads():
            raise self._loop.unavailable()
        starts: dict[tuple[str, int], list[Start]] = {}
        for grant in grants:
            if grant.spec not in specs:
                why = missing.get(grant.spec, "its spec is missing from the store")
                self._fail(grant.node, Unsendable(grant.lease, why))
                self._loop.aside.done(WORK, grant.lease.job)
                continue
            full = taking.get(grant.lease.job, specs[grant.spec])
            if isinstance(full, Missing):
                self._fail(grant.node, Unsendable(grant.lease, str(full)))
                self._loop.aside.done(WORK, grant.lease.job)
                continue
            try:
                spec = self._traced(_granted(full, grant.limit, grant.tasks), grant.lease)
                peer = self._peer(grant)
            except Exception as error:  # noqa: BLE001 - no error may affect other jobs
                self._loop.aside.put(WORK, grant.lease.job, error)
                self._later[grant.lease] = grant
                continue
            if self._loop.aside:
                self._loop.aside.done(WORK, grant.lease.job)
            start = Start(
                grant.lease,
                spec,
                grant.cluster,
                peer,
                granted=grant.granted,
                binds=grant.binds,
                saved=grant.saved,
            )
            starts.setdefault((grant.node, grant.incarnation), []).append(start)
        for (node, incarnation), each in starts.items():
            for unsendable in self._agents.start(node, incarnation, each):
                self._fail(node, unsendable)

    async def _fill(self, specs: dict[bytes, JobSpec]) -> dict[bytes, str]:
        """Add values of earlier calls to specs, and remove specs without theirs; return the reasons."""
        missing: dict[bytes, str] = {}
        if self._earlier is not None:
            for digest, spec in list(specs.items()):
                if type(spec.work) is PythonCall and spec.work.values:
                    try:
                        specs[digest] = await self._earlier.filled(spec)
                    except Missing as error:
                        missing[digest] = str(error)
                        del specs[digest]
        return missing

    async def _take(
        self, jobs: Mapping[JobId, bytes], specs: Mapping[bytes, JobSpec]
    ) -> dict[JobId, JobSpec | Missing]:
        """Return those of these jobs that take files of others, with the files, or with the reason why not."""
        wanted = {
            job: specs[digest] for job, digest in jobs.items() if digest in specs and specs[digest].taken
        }
        if not wanted:
            return {}
        if self._taken is None:
            return dict.fromkeys(wanted, Missing("this server does not store files"))
        return await self._taken.filled(wanted)

    def _peer(self, grant: _Grant) -> Peer | None:
        """Return the agent from which to fetch the task of a moved lease; None if the server must send it."""
        if grant.source is None:
            return None
        node, lease = grant.source
        contact = self._agents.contact(node)
        if contact is None or not contact.connected or not contact.peer:
            return None
        thief = self._agents.contact(grant.node)
        if is_loopback(contact.peer) and not (thief is not None and is_loopback(thief.peer)):
            return None  # the two may be on different machines
        return Peer(contact.peer, self._tickets.ticket(lease), lease)

    async def starts(self, jobs: Sequence[Job]) -> list[Start]:
        """Return what placed jobs run, for their agent or driver."""
        specs = await self._specs.get([job.spec for job in jobs])
        await self._fill(specs)
        taking = await self._take({job.id: job.spec for job in jobs}, specs)
        found: list[Start] = []
        for job in jobs:
            if job.spec not in specs or not isinstance(job.phase, Placed):
                continue
            full = taking.get(job.id, specs[job.spec])
            if isinstance(full, Missing):
                self._fail(DRIVER, Unsendable(job.lease, str(full)))
                self._news.set()
                continue
            limit = None if job.extra.hold is None else job.extra.hold.limit
            spec = self._traced(_granted(full, limit, len(job.tasks)), job.lease)
            levels = self._levels(job, job.phase.cluster)
            vertex = self._vertex(job, job.phase.cluster, levels)
            found.append(
                Start(job.lease, spec, job.phase.cluster, levels=levels, saved=job.saved(0), vertex=vertex)
            )
        return found

    def _traced(self, spec: JobSpec, lease: Lease) -> JobSpec:
        """Return a spec whose tasks know the trace to continue, unless they have no trace or a variable of their own."""
        context = self._tracer.traceparent(self._loop.state, lease.job, lease.attempt)
        return replace(spec, env={VARIABLE: context, **spec.env}) if context else spec

    def _levels(self, job: Job, cluster: ClusterName) -> tuple[Level, ...]:
        """Return the levels of a cluster, for a job that names some."""
        spec = self._loop.state.clusters.get(cluster) if job.kind.shape.topology is not None else None
        return () if spec is None else spec.levels

    def _vertex(self, job: Job, cluster: ClusterName, levels: Sequence[Level]) -> NodeTerm | None:
        """Return the vertex that the plan chose for a gang that must or wishes to be within one."""
        topology = job.kind.shape.topology
        if topology is None or not topology.within or job.extra.gang is None:
            return None
        nodes = {task.node: self._loop.state.nodes.get(node_key(cluster, task.node)) for task in job.tasks}
        known: dict[str, Mapping[str, str]] = {
            name: node.labels for name, node in nodes.items() if node is not None
        }
        return vertex_of(topology.within, levels, known) if len(known) == len(nodes) else None

    def _fail(self, node: str, unsendable: Unsendable) -> None:
        """End a job whose lease can never be sent; otherwise cycles would place it again, forever."""
        lease, why = unsendable.lease, unsendable.why[:500]
        log.error("cannot hand out a job", job=lease.job, agent=node, error=why)
        self._failed.append(Result(NodeKey(node), lease, Outcome.NOT_STARTED, None, None, Usage(), 0, why))

    async def _end(self) -> None:
        """Report that jobs could not start; the engine ignores void leases."""
        try:
            replies = await self._loop.propose(*self._failed)
        except CommandError as error:  # the store cannot be written now
            log.warning("cannot end jobs that cannot be handed out; will retry", error=error.message)
            await asyncio.sleep(RETRY)
            self._news.set()
            return
        failed, self._failed = self._failed, []
        refused = [
            unusable(result, reply.message)
            for result, reply in zip(failed, replies, strict=True)
            if isinstance(reply, Refusal) and result.outcome is not Outcome.UNUSABLE
        ]
        if refused:
            self._failed = refused
            self._news.set()


def _granted(spec: JobSpec, limit: int | None, tasks: int) -> JobSpec:
    """Return a spec with what its placement decided: the limit that its caps pay for, and the size of an elastic gang."""
    if spec.shape.most and tasks:
        spec = replace(spec, shape=spec.shape.sized(tasks))
    return spec if limit is None else replace(spec, terms=replace(spec.terms, walltime=limit))
