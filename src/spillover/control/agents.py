"""What agents ask of the server, as the gRPC service calls it. Every answer passes the gate."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from msgspec import Struct

from spillover.control.lives import Lives
from spillover.control.loop import Loop
from spillover.control.terms import lease_terms, spread
from spillover.control.tickets import Tickets
from spillover.core.deciders.agents import name_taken
from spillover.core.deciders.results import holder
from spillover.core.events import Lease, Stop
from spillover.core.jobs import Job, Placed, Running
from spillover.core.proposals import (
    Done,
    Drain,
    HandBack,
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
from spillover.model.ids import ClusterName, NodeKey, NodeName, split_task
from spillover.model.resources import Resources
from spillover.ports.cluster import Agents, LeaseTerms, Offer
from spillover.ports.commands import CommandError, ErrorKind

log = structlog.get_logger()

TOGETHER: Final = 1.0
"""Seconds within which agents that register are told of together."""
FEW: Final = 5
"""Of whom each is told of by name."""
_HELD: Final = (Placed, Running)
_OVERDUE: Final = frozenset({Stop.WALLTIME, Stop.DEADLINE})
"""Stops that are meant for the process of a task, and not for files that it made before."""


class Introduction(Struct, frozen=True):
    """How an agent registers."""

    cluster: ClusterName
    name: NodeName
    capacity: Resources
    offers: tuple[str, ...]
    labels: dict[str, str]
    queue: int
    held: tuple[Lease, ...]
    epoch: int
    """The highest that it has seen."""
    token: str = ""
    """Id of the token that it showed; empty for the server's own."""
    admin: bool = True
    """Whether that token may do everything."""
    waiting: tuple[Lease, ...] = ()
    """Of the leases that it has, those not started."""
    peer: str = ""
    """Where other agents may ask it for what they took over, HOST:PORT; empty if nowhere."""
    life: str = ""
    """Drawn anew at each start of the agent."""
    number: int = 0
    """Counts the registrations of a life; 0 is that of an agent that does not."""
    boot: str = ""
    """What this start of its machine is known by; empty if it does not say."""
    adapts: bool = False
    """Whether it lives by other terms if it is told so later."""


class AgentWelcome(Struct, frozen=True):
    """What a registered agent is told."""

    epoch: int
    incarnation: int
    keep: tuple[Lease, ...]
    terms: LeaseTerms
    log_retention: int
    keep_output: bool = False
    now: int = 0
    """Nanoseconds UTC, as this server counts them."""
    spread: int = 0
    """Nanoseconds within which agents are to come back, each at a time that it draws, after the server was away."""


class Orders(Struct, frozen=True):
    """What an agent is told on the reply to its heartbeat."""

    epoch: int
    fenced: bool
    stops: tuple[Lease, ...] = ()
    revoked: tuple[Lease, ...] = ()
    drain: bool = False
    yields: tuple[tuple[Lease, bytes], ...] = ()
    """Leases that another agent wants, each with the ticket for its task."""
    overdue: frozenset[Lease] = frozenset()
    """Of those to stop, the ones whose walltime or deadline has passed."""
    offer: Offer | None = None
    """Terms that it is to live by instead of its own."""

    @property
    def is_plain(self) -> bool:
        """Whether it is told nothing but that its leases are renewed."""
        return not (self.fenced or self.stops or self.revoked or self.drain or self.yields or self.offer)


class Answers(Struct, frozen=True):
    """What became of a report."""

    epoch: int
    fenced: bool
    verdicts: list[Verdict]
    started: list[Lease]
    yielded: Sequence[Lease] = ()
    """Leases for which an answer is durable."""


class _Arrivals:
    """Tells of agents that registered: of one at once, of many together, as thousands may come back after a restart."""

    def __init__(self) -> None:
        self._untold: dict[str, int] | None = None
        """Those of the last moment with how many leases each kept; None if nobody came."""

    def add(self, agent: str, kept: int) -> None:
        """One more has registered."""
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


class Desk:
    """Where agents register, renew and report."""

    def __init__(
        self,
        loop: Loop,
        agents: Agents,
        log_retention: int,
        heartbeat: int | None = None,
        tickets: Tickets | None = None,
        *,
        keep_output: bool = False,
    ) -> None:
        self._loop = loop
        self._keep_output = keep_output
        self._tickets = tickets or Tickets()
        self._agents = agents
        self._log_retention = log_retention
        self._heartbeat = heartbeat
        self._incarnation = 0
        self._lives = Lives()
        self._arrivals = _Arrivals()

    def terms(self, *, adapts: bool = True) -> LeaseTerms:
        """The terms of leases, by how many agents there are; one that is lost does not count."""
        return lease_terms(self._present_agents(), self._heartbeat, adapts=adapts)

    def _present_agents(self) -> int:
        """How many agents there are, those that a server that has just started still waits for among them."""
        return len(self._loop.state.agents) - self._loop.state.lost

    def longest_terms(self) -> LeaseTerms:
        """The longest that an earlier server may have told agents that are in the book."""
        return lease_terms(len(self._loop.state.agents), self._heartbeat)

    async def register(self, intro: Introduction) -> AgentWelcome:
        """Let an agent work."""
        self.check_lead()
        if intro.epoch > self._loop.epoch:
            raise CommandError(
                ErrorKind.NOT_LEADER, f"epoch {intro.epoch} has begun; this server is of {self._loop.epoch}"
            )
        key = f"{intro.cluster}/{intro.name}"
        # Before anything is noted of it: a stranger must not pass for a later life of the agent whose name this is.
        now = self._loop.now()
        taken = name_taken(self._loop.state, NodeKey(key), intro.token, now, admin=intro.admin)
        if taken is not None:
            raise CommandError(ErrorKind.INVALID, taken)
        self._lives.check(key, intro.life, intro.number, present=self._present(key))
        self._incarnation = max(self._incarnation, self._loop.state.facts.incarnations) + 1
        incarnation = self._incarnation
        terms = self.terms(adapts=intro.adapts)
        self._agents.open(key, incarnation, self._loop.time.monotonic(), intro.peer, intro.life, terms)
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
        )
        try:
            (reply,) = await self._loop.propose(proposal)
        except asyncio.CancelledError:
            raise  # the agent hung up; it is registered all the same, as what was proposed is decided
        except BaseException:
            self._agents.forget(incarnation)
            raise
        match reply:
            case Registered(keep):
                self._arrivals.add(key, len(keep))
                self._loop.clocks.introduce(key, intro.boot)
                # The first heartbeat of such an agent is not due yet, and something may be decided about what it kept.
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
        """The life that registered last under a name, for good, if it is there as far as can be told."""
        contact = self._agents.contact(key)
        if contact is None:
            return None
        silent = self._loop.time.monotonic() - contact.heard
        return contact.life if contact.connected or silent < 2 * contact.terms.heartbeat else None

    async def heartbeat(
        self, incarnation: int, load: int = 0, wall: int = 0, lives_by: int | None = None
    ) -> Orders:
        """Renew all leases of a registration; also while nothing can be written, as nothing is changed by it.

        `lives_by` is the number of the terms that the agent lives by; None if it cannot be told others.
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
        stops, revoked, yields = [], [], []
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
            offer=None if lives_by is None else self._agents.agree(node_key, lives_by, self.terms()),
        )

    async def report(
        self,
        incarnation: int,
        started: list[Started],
        results: list[Result],
        released: list[Lease],
        *,
        yielded: Sequence[Yielded] = (),
        leaving: bool = False,
    ) -> Answers:
        """Take in what happened to tasks. Under an old registration nothing is answered: it is told again under the new."""
        self.check_lead()
        node_key = self._current(incarnation)
        if node_key is None:
            return Answers(self._loop.epoch, fenced=True, verdicts=[], started=[])
        cluster, _, node = node_key.partition("/")
        # First of all, or what it gives back would be given to it again.
        before: list[Proposal] = [Drain(ClusterName(cluster), NodeName(node))] if leaving else []
        after: list[Proposal] = [*yielded]
        if released:
            after.append(HandBack(NodeKey(node_key), tuple(released)))
        replies = (await self._loop.propose(*before, *started, *results, *after))[len(before) :]
        if len(released) > 1 and isinstance(
            replies[-1], Refusal
        ):  # of one of them, which costs the others nothing
            await self._loop.propose(*[HandBack(NodeKey(node_key), (lease,)) for lease in released])
        acknowledged = [
            each.lease for each, reply in zip(started, replies, strict=False) if isinstance(reply, Done)
        ]
        verdicts = await self._verdicts(results, replies[len(started) : len(started) + len(results)])
        answered = [each.lease for each in yielded]
        return Answers(
            self._loop.epoch, fenced=False, verdicts=verdicts, started=acknowledged, yielded=answered
        )

    async def _verdicts(self, results: list[Result], replies: Sequence[Reply]) -> list[Verdict]:
        """What became of results. One that could not be decided ends its job all the same, with that as the reason.

        Else its agent would tell it again and again, and the job would keep its place for as long as the agent lives.
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
        """Jobs that an agent holds under these leases and has not started, once that is durable."""
        engine = await self._loop.read()
        self.check_lead()
        held = [holder(engine.state, lease, NodeKey(node)) for lease in leases]
        return [job for job in held if job is not None and type(job.phase) is Placed]

    def _current(self, incarnation: int) -> str | None:
        """The node that speaks; None if a newer registration of it counts.

        An agent that this server does not know, or gave up, has to register anew: that tells which of its leases are still
        valid, so none of its tasks has to be stopped for it.
        """
        node_key = self._agents.current(incarnation)
        nodes = self._loop.state.agents
        node = nodes.get(node_key) if node_key is not None else None
        if node is not None and node.status in {"ready", "draining"}:
            return node_key
        if incarnation in self._loop.state.registered:
            raise CommandError(ErrorKind.UNAVAILABLE, "register anew")
        return None

    def check_lead(self) -> None:
        """Raise unless this server surely leads at this moment; asked right before an agent is told anything."""
        if self._loop.lost_lead.is_set() or not self._loop.epoch:
            raise CommandError(ErrorKind.NOT_LEADER, "this server does not lead")
        if not self._loop.leads():
            raise self._loop.unavailable()
