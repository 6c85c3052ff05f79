"""Serves registrations, heartbeats and reports of agents for the gRPC service. Every answer passes the gate."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spillover.clusters.agents.graphs import completed, node_of
from spillover.control.agents.gangs import GangStarts
from spillover.control.agents.lease_terms import lease_terms, spread
from spillover.control.agents.registrations import Registrations
from spillover.control.agents.tickets import Tickets
from spillover.control.live.loop import Loop
from spillover.core.deciders.agents import name_taken
from spillover.core.deciders.machines import admit
from spillover.core.deciders.results import holder
from spillover.core.events import Lease, Stop
from spillover.core.pool_proposals import AdmitMachine, SeeNotice
from spillover.core.proposals import (
    Done,
    Drain,
    HandBack,
    Interrupt,
    Prepared,
    Proposal,
    Refusal,
    RefusalKind,
    Register,
    Registered,
    Reply,
    Result,
    Started,
    Verdict,
    Yielded,
    unusable,
)
from spillover.core.records.jobs import Job, Placed, Running
from spillover.model.ids import ClusterName, NodeKey, NodeName, split_task
from spillover.model.inside import Inside
from spillover.model.pools import MachineId
from spillover.model.resources import Resources
from spillover.model.units import DAY, MINUTE
from spillover.ports.cluster import Agents, LeaseTerms, Offer
from spillover.ports.commands import CommandError, ErrorKind

log = structlog.get_logger()

PREPARE_WITHIN: Final = 10 * MINUTE
TOGETHER: Final = 1.0
"""Seconds of registrations that one log entry sums up."""
FEW: Final = 5
"""Registrations in that time that are still logged one by one."""
_HELD: Final = (Placed, Running)
_OVERDUE: Final = frozenset({Stop.WALLTIME, Stop.DEADLINE})
"""Stops that apply to the process of a task, but not to files that it already wrote."""


class Introduction(Struct, frozen=True):
    """The registration request of an agent."""

    cluster: ClusterName
    name: NodeName
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    held: tuple[Lease, ...]
    epoch: int
    """Highest epoch that the agent has seen."""
    token: str = ""
    """Id of the token that the agent used; empty for the server's own."""
    admin: bool = True
    """Whether that token has the admin role."""
    waiting: tuple[Lease, ...] = ()
    """Leases in `held` whose tasks have not started."""
    peer: str = ""
    """HOST:PORT where other agents fetch tasks of moved leases; empty if nowhere."""
    life: str = ""
    """Id of the agent process, random at each start."""
    number: int = 0
    """Number of this registration within the process; 0 if the agent does not number them."""
    boot: str = ""
    """Id of this boot of the machine; empty if unknown."""
    adapts: bool = False
    """Whether the agent accepts new lease terms later."""
    address: str = ""
    """Host where tasks on other machines reach tasks on this one; empty if unknown."""
    gangs: bool = False
    """Whether the agent prepares tasks of gangs before it starts them."""
    inside: Inside | None = None
    """Sockets, cores, GPUs and links of its machine; None if it reports none."""
    admits: bytes | None = None
    """SHA-256 of the secret of `token`, a new one that it gets for its join token; None if it has its token already."""
    abilities: tuple[str, ...] = ()
    """What the agent can do and those of earlier releases cannot."""
    version: str = ""
    """Release of the agent; empty if unknown."""


class AgentWelcome(Struct, frozen=True):
    """The answer to a registration."""

    epoch: int
    incarnation: int
    keep: tuple[Lease, ...]
    terms: LeaseTerms
    log_retention: int
    keep_output: bool = False
    now: int = 0
    """Nanoseconds UTC, on the server's clock."""
    spread: int = 0
    """Nanoseconds over which agents reconnect after an outage of the server, each at a random time."""


class Orders(Struct, frozen=True):
    """The answer to a heartbeat."""

    epoch: int
    fenced: bool
    stops: tuple[Lease, ...] = ()
    revoked: tuple[Lease, ...] = ()
    drain: bool = False
    yields: tuple[tuple[Lease, bytes], ...] = ()
    """Leases to hand over to another agent, each with the ticket for its task."""
    overdue: frozenset[Lease] = frozenset()
    """Leases in `stops` whose walltime or deadline has passed."""
    offer: Offer | None = None
    """New lease terms; None keeps the current ones."""
    walltimes: tuple[tuple[Lease, int], ...] = ()
    """Leases whose walltime was changed while they ran, in nanoseconds; 0 is no limit."""

    @property
    def is_plain(self) -> bool:
        """Whether this only renews leases, without other orders."""
        return not (
            self.fenced
            or self.stops
            or self.revoked
            or self.drain
            or self.yields
            or self.offer
            or self.walltimes
        )


class Answers(Struct, frozen=True):
    """The answer to a report."""

    epoch: int
    fenced: bool
    verdicts: list[Verdict]
    started: list[Lease]
    yielded: Sequence[Lease] = ()
    """Leases whose answer to a steal request is durable."""


class _Arrivals:
    """Logs registrations: the first at once, then many in one entry, as thousands may follow a restart."""

    def __init__(self) -> None:
        self._untold: dict[str, int] | None = None
        """Agents since the last log entry, with the number of leases each kept; None if none registered recently."""

    def add(self, agent: str, kept: int) -> None:
        """Log a registration, now or within a second."""
        if self._untold is not None:
            self._untold[agent] = kept
            return
        log.info("agent registered", agent=agent, kept=kept)
        self._untold = {}
        asyncio.get_running_loop().call_later(TOGETHER, self._tell)

    def _tell(self) -> None:
        untold, self._untold = self._untold or {}, None
        if len(untold) > FEW:
            log.info("agents registered", count=len(untold), kept=sum(untold.values()))
            return
        for agent, kept in untold.items():
            log.info("agent registered", agent=agent, kept=kept)


def _no_graph(_: ClusterName) -> str | None:
    return None


def _completed(intro: Introduction, graph: str) -> Introduction:
    """Return an introduction with what the graph of its cluster says of the node. Reads a file."""
    node = node_of(graph, intro.name)
    if node is None:
        return intro
    labels, inside = completed(node, intro.labels, intro.inside, intro.capacity)
    return replace(intro, labels=labels, inside=inside)


def _admission(intro: Introduction) -> tuple[AdmitMachine, ...]:
    """Return the exchange of a join token that comes with a registration; empty if there is none."""
    if intro.admits is None:
        return ()
    machine = MachineId(intro.name)
    return (AdmitMachine(intro.cluster, machine, intro.life, intro.token, intro.admits),)


class AgentRequests:
    """Handles registrations, heartbeats and reports of agents."""

    def __init__(
        self,
        loop: Loop,
        agents: Agents,
        log_retention: int,
        heartbeat: int | None = None,
        tickets: Tickets | None = None,
        *,
        keep_output: bool = False,
        prepare_within: int = PREPARE_WITHIN,
        graph_of: Callable[[ClusterName], str | None] = _no_graph,
    ) -> None:
        self._loop = loop
        self._graph_of = graph_of
        """Returns the file with the resource graph of a cluster; None if it has none."""
        self._keep_output = keep_output
        self._tickets = tickets or Tickets()
        self._agents = agents
        self._log_retention = log_retention
        self._heartbeat = heartbeat
        self._incarnation = 0
        self._later = 0
        """The epoch of a later server that was logged; 0 if none."""
        self._registrations = Registrations()
        self._arrivals = _Arrivals()
        self.gangs = GangStarts(loop, agents, prepare_within)

    def terms(self, *, adapts: bool = True) -> LeaseTerms:
        """Return the lease terms for the current number of agents, without lost ones."""
        return lease_terms(self._present_agents(), self._heartbeat, adapts=adapts)

    def _present_agents(self) -> int:
        """Count agents that are not lost; includes those that have not registered since the server started."""
        return len(self._loop.state.agents) - self._loop.state.lost

    def _tell_of_later(self, intro: Introduction) -> None:
        """Log, once for each epoch, that agents have seen a later server."""
        if intro.epoch != self._later:
            self._later = intro.epoch
            log.warning(
                "agents worked for a server of a later epoch, and refuse this one; stop the other server, or, "
                "if the data of this one are a backup, start it with `spill up --restored`",
                agent=f"{intro.cluster}/{intro.name}",
                later=intro.epoch,
                epoch=self._loop.epoch,
            )

    def longest_terms(self) -> LeaseTerms:
        """Return the longest terms that an earlier server may have given to agents in the state."""
        return lease_terms(len(self._loop.state.agents), self._heartbeat)

    async def register(self, intro: Introduction) -> AgentWelcome:
        """Register an agent; raise CommandError if it is refused."""
        self.check_lead()
        if intro.epoch > self._loop.epoch:
            self._tell_of_later(intro)
            raise CommandError(
                ErrorKind.NOT_LEADER,
                f"epoch {intro.epoch} has started; this server is in epoch {self._loop.epoch}; "
                "if its data are a backup, start it with `spill up --restored`",
            )
        if (graph := self._graph_of(intro.cluster)) is not None:
            intro = await asyncio.to_thread(_completed, intro, graph)
            self.check_lead()
        key = f"{intro.cluster}/{intro.name}"
        # Check first: an agent with a foreign token must not be recorded as a later process of the name's owner.
        now = self._loop.now()
        admission = _admission(intro)
        if admission:
            _, reply = admit(self._loop.state, admission[0], now)
            taken = reply.message if isinstance(reply, Refusal) else None
        else:
            taken = name_taken(self._loop.state, NodeKey(key), intro.token, now, admin=intro.admin)
        if taken is not None:
            raise CommandError(ErrorKind.INVALID, taken)
        self._registrations.check(key, intro.life, intro.number, present=self._present(key))
        self._incarnation = max(self._incarnation, self._loop.state.facts.incarnations) + 1
        incarnation = self._incarnation
        terms = self.terms(adapts=intro.adapts)
        moment = self._loop.time.monotonic()
        self._agents.open(
            key,
            incarnation,
            moment,
            intro.peer,
            intro.life,
            terms,
            intro.address,
            intro.abilities,
            intro.version,
        )
        proposal = Register(
            intro.cluster,
            intro.name,
            incarnation,
            intro.capacity,
            intro.offers,
            intro.labels,
            intro.queue,
            intro.held,
            intro.token,
            intro.admin,
            intro.waiting,
            intro.inside,
            intro.gangs,
        )
        try:
            # Together, so that of two registrations the later one also decides which token is valid.
            *_, reply = await self._loop.propose(*admission, proposal)
        except asyncio.CancelledError:
            raise  # the agent hung up, but the proposal is still decided
        except BaseException:
            self._agents.forget(incarnation)
            raise
        match reply:
            case Registered(keep):
                self._arrivals.add(key, len(keep))
                self._loop.clocks.introduce(key, intro.boot)
                # The first heartbeat of such an agent is not due yet, but there may be orders for leases that it
                # kept.
                if keep and intro.adapts:
                    self._agents.wake(key)
                return AgentWelcome(
                    self._loop.epoch,
                    incarnation,
                    keep,
                    terms,
                    self._log_retention,
                    self._keep_output,
                    self._loop.now(),
                    spread(self._present_agents()),
                )
            case Refusal():
                self._agents.forget(incarnation)
                failed = reply.kind is RefusalKind.INTERNAL
                raise CommandError(ErrorKind.INTERNAL if failed else ErrorKind.INVALID, reply.message)
            case _:
                raise TypeError(reply)

    def _present(self, key: str) -> str | None:
        """Return the process with the last durable registration of a name; None if it seems disconnected."""
        contact = self._agents.contact(key)
        if contact is None:
            return None
        silent = self._loop.time.monotonic() - contact.heard
        return contact.life if contact.connected or silent < 2 * contact.terms.heartbeat else None

    async def heartbeat(
        self, incarnation: int, load: int = 0, wall: int = 0, terms_number: int | None = None
    ) -> Orders:
        """Renew all leases of a registration; works while the store cannot be written, as it changes no state.

        `terms_number` is the number of the terms that the agent uses; None if it cannot change them.
        """
        engine = await self._loop.read()
        self.check_lead()
        node_key = self._current(incarnation)
        if node_key is None:
            return Orders(self._loop.epoch, fenced=True)
        monotonic = self._loop.time.monotonic()
        self._agents.heard(node_key, incarnation, monotonic, load)
        self._loop.clocks.hear(node_key, wall, monotonic)
        node = engine.state.agents[node_key]
        stops, revoked, yields, walltimes = [], [], [], []
        overdue: set[Lease] = set()
        for each in node.held:
            job_id, _, rank = split_task(each)
            job = engine.state.jobs[job_id]
            phase = job.phase
            if isinstance(phase, _HELD) and phase.stopping is not None:
                lease = job.lease_of(rank)
                stops.append(lease)
                if phase.stopping in _OVERDUE:
                    overdue.add(lease)
            elif job.is_limited:
                walltimes.append((job.lease_of(rank), job.walltime or 0))
            elif type(phase) is not Placed:
                continue
            elif phase.thief is not None:
                yields.append((job.lease, self._tickets.ticket(job.lease)))
            elif phase.revoked and each in node.ahead:
                revoked.append(job.lease)
        return Orders(
            self._loop.epoch,
            fenced=False,
            stops=tuple(stops),
            revoked=tuple(revoked),
            drain=node.status == "draining",
            yields=tuple(yields),
            overdue=frozenset(overdue),
            offer=None if terms_number is None else self._agents.agree(node_key, terms_number, self.terms()),
            walltimes=tuple(walltimes),
        )

    async def report(
        self,
        incarnation: int,
        started: list[Started],
        results: list[Result],
        released: list[Lease],
        *,
        yielded: Sequence[Yielded] = (),
        prepared: Sequence[Prepared] = (),
        leaving: bool = False,
        taken_back: int = 0,
    ) -> Answers:
        """Accept what happened to tasks; an agent with an old registration repeats the report under its new one.

        `taken_back` is when the provider takes the agent's machine back, in nanoseconds UTC; 0 if it does not.
        """
        self.check_lead()
        node_key = self._current(incarnation)
        if node_key is None:
            return Answers(self._loop.epoch, fenced=True, verdicts=[], started=[])
        cluster, _, node = node_key.partition("/")
        # Drain first, or a cycle would place the released leases on this agent again.
        before: list[Proposal] = []
        if taken_back:
            before.append(self._taken_back(ClusterName(cluster), NodeName(node), taken_back))
        elif leaving:
            before.append(Drain(ClusterName(cluster), NodeName(node)))
        after: list[Proposal] = [*yielded]
        if released:
            after.append(HandBack(NodeKey(node_key), tuple(released)))
        replies = (await self._loop.propose(*before, *started, *results, *after))[len(before) :]
        # One bad lease refuses them all; release them one by one.
        if len(released) > 1 and isinstance(replies[-1], Refusal):
            await self._loop.propose(*[HandBack(NodeKey(node_key), (lease,)) for lease in released])
        acknowledged = [
            each.lease for each, reply in zip(started, replies, strict=False) if isinstance(reply, Done)
        ]
        verdicts = await self._verdicts(results, replies[len(started) : len(started) + len(results)])
        if prepared:
            self.check_lead()
            self.gangs.prepared(NodeKey(node_key), prepared)
        answered = [each.lease for each in yielded]
        return Answers(
            self._loop.epoch, fenced=False, verdicts=verdicts, started=acknowledged, yielded=answered
        )

    def _taken_back(self, cluster: ClusterName, node: NodeName, told: int) -> SeeNotice | Interrupt:
        """Return what follows from a notice that the machine of an agent is taken back."""
        now = self._loop.now()
        until = min(max(told, now), now + DAY)  # by the clock of its cloud
        machine = self._loop.state.machines.get(MachineId(node))
        if machine is not None and machine.cluster == cluster:
            return SeeNotice(cluster, machine.id, until)
        return Interrupt(cluster, node, until)

    async def _verdicts(self, results: list[Result], replies: Sequence[Reply]) -> list[Verdict]:
        """Return the verdicts on results; a result that cannot be decided still ends its job, with that reason.

        Otherwise the agent would report it forever, and the job would keep its capacity.
        """
        instead = [
            unusable(result, reply.message)
            for result, reply in zip(results, replies, strict=True)
            if isinstance(reply, Refusal)
        ]
        ended = iter(await self._loop.propose(*instead) if instead else ())
        final = [next(ended) if isinstance(reply, Refusal) else reply for reply in replies]
        return [reply if isinstance(reply, Verdict) else Verdict.FENCED for reply in final]

    async def leased(self, node: str, leases: list[Lease]) -> list[Job]:
        """Return the unstarted jobs that an agent holds under these leases, once that is durable."""
        engine = await self._loop.read()
        self.check_lead()
        held = [holder(engine.state, lease, NodeKey(node)) for lease in leases]
        return [job for job in held if job is not None and type(job.phase) is Placed]

    def _current(self, incarnation: int) -> str | None:
        """Return the node of a registration; None if a newer one replaced it.

        Raise CommandError if this server does not know the agent, or considers it lost. The agent then registers
        again and learns which of its leases are still valid, so it need not stop tasks.
        """
        node_key = self._agents.current(incarnation)
        nodes = self._loop.state.agents
        node = nodes.get(node_key) if node_key is not None else None
        if node is not None and node.status in {"ready", "draining"}:
            return node_key
        if incarnation in self._loop.state.registered:
            raise CommandError(ErrorKind.UNAVAILABLE, "register again")
        return None

    def check_lead(self) -> None:
        """Raise CommandError unless this server leads right now; called just before every answer to an agent."""
        if self._loop.lost_lead.is_set() or not self._loop.epoch:
            raise CommandError(ErrorKind.NOT_LEADER, "this server is not the leader")
        if not self._loop.leads():
            raise self._loop.unavailable()
