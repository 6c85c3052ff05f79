"""Keeps the sessions of connected agents: the messages that wait for each, and its last heartbeat."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from spillover.clusters.agents.relays import AgentRelay, Relays
from spillover.model.admission import SECRETS, SESSIONS, SIGNALS, SRUN, STATE, STDIN
from spillover.model.backoff import reason_of
from spillover.model.ids import ClusterName
from spillover.model.inside import Granted
from spillover.model.job import JobSpec
from spillover.ports.cluster import (
    FIRST_TERMS,
    Attach,
    Contact,
    Exec,
    Forward,
    GangStart,
    LeaseTerms,
    Offer,
    OutputAsked,
    OutputGone,
    RelayAsked,
    RelayGone,
    Start,
    Unsendable,
)
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import lease_out, task_digest, task_out

log = structlog.get_logger()

CHUNKS: Final = 64
"""Output chunks that may wait for a reader; the agent keeps the rest."""
GRANTS: Final = 256
"""Most leases in one message."""
MOST_BYTES: Final = 4 << 20
"""Most bytes of tasks in one message, unless it has a single task."""
MOST_GRANT: Final = 32 << 20
"""Most bytes of a task. Well below the gRPC message limit, because a larger message would end the stream."""
SIMILAR: Final = 8
"""The server offers no new terms while the heartbeat would change by less than one part in this many."""
LOOK: Final = 1.0
"""Seconds after which a reader of output checks whether the agent is still connected."""
SILENT: Final = 30.0
"""Seconds without an answer after which a reader of output gives up."""


class FileLimits(NamedTuple):
    """Most bytes of files of a task; 0 lets agents choose."""

    outputs: int = 0
    """Of all outputs together."""
    state: int = 0
    """Of the folder that outlives attempts."""


class _Parcel(NamedTuple):
    """A lease that is ready to send."""

    lease: pb.Lease
    task: pb.Task | None
    """Shared by all members of an array; None if the agent fetches it from a peer."""
    size: int
    """Bytes."""
    peer: pb.Peer | None = None
    granted: Granted | None = None
    """The cores and GPUs that the task has for itself; None if it gets none by name."""
    binds: bool = False
    """Whether its memory must be of the NUMA node of its cores."""


class Session:
    """One registration of one agent."""

    def __init__(
        self,
        node: str,
        incarnation: int,
        monotonic: int,
        peer: str,
        life: str = "",
        terms: LeaseTerms = FIRST_TERMS,
        address: str = "",
        abilities: Sequence[str] = (),
        version: str = "",
    ) -> None:
        self.node = node
        self.address = address
        """Host where tasks on other machines reach tasks on this one; empty if unknown."""
        self.abilities = frozenset(abilities)
        """What it can do that agents of earlier releases cannot."""
        self.version = version
        """Its release; empty if unknown."""
        self._lives_by = terms
        self._offer = Offer(0, terms)
        """The terms that the server last offered to the agent."""
        self.life = life
        self.incarnation = incarnation
        self.heard = monotonic
        self.peer = peer
        self.load = 0
        self.connected = False
        self.left = False
        """True once its stream has been open and has closed."""
        self.signed_off = False
        """Whether the agent said that it stops."""
        self.fenced = False
        self.secret = b""
        """Secret that calls of this registration carry; empty until the agent has received it."""
        self.token = ""
        """Id of the token that the agent registered with."""
        self._starts: deque[_Parcel] = deque()
        self._gangs: list[pb.GangStart] = []
        self._reads: list[pb.OutputRead] = []
        self._relays: list[pb.RelayAsk] = []
        self._left: list[str] = []
        self._nudge = False
        self._news = asyncio.Event()

    @property
    def terms(self) -> LeaseTerms:
        """The longer of the confirmed and the offered terms, as the agent may not have received the offer yet."""
        now, then = self._lives_by, self._offer.terms
        if now is then:
            return now
        return LeaseTerms(max(now.heartbeat, then.heartbeat), max(now.short, then.short))

    def agree(self, number: int, wanted: LeaseTerms) -> Offer | None:
        """Record the terms that the agent confirmed; return other terms to offer, or None if they are similar."""
        if number == self._offer.number:
            self._lives_by = self._offer.terms
            now = self._lives_by.heartbeat
            if abs(wanted.heartbeat - now) * SIMILAR < now:
                return None
            self._offer = Offer(number + 1, wanted)
        return self._offer

    def start(self, starts: Sequence[Start], limits: FileLimits) -> list[Unsendable]:
        """Queue leases for the agent; return those that cannot be sent.

        Encodes them here, because a failure inside the stream would end the stream for all other leases too.
        """
        tasks: dict[tuple[int, ClusterName, int, str], pb.Task | str] = {}
        refused: list[Unsendable] = []
        for start in starts:
            rank = start.lease.task if start.spec.groups else 0  # otherwise all tasks are alike
            same = (id(start.spec), start.cluster, rank, start.saved)
            if same not in tasks:
                tasks[same] = _encoded(start, limits, rank)
            task = tasks[same]
            if (unable := self._unable(start.spec)) is not None:
                refused.append(Unsendable(start.lease, unable))
            elif isinstance(task, str):
                refused.append(Unsendable(start.lease, task))
            elif start.peer is not None:
                peer = pb.Peer(
                    address=start.peer.address,
                    ticket=start.peer.ticket,
                    source=lease_out(start.peer.source),
                    digest=task_digest(task),
                )
                self._starts.append(_Parcel(lease_out(start.lease), None, peer.ByteSize(), peer))
            else:
                parcel = _Parcel(lease_out(start.lease), task, task.ByteSize(), granted=start.granted)
                self._starts.append(parcel._replace(binds=start.binds))
        self._news.set()
        return refused

    def _unable(self, spec: JobSpec) -> str | None:
        """Return why the agent is too old for a job; None if it is not. It would ignore what it does not know."""
        for ability, asked, what in (
            (STDIN, spec.stdin is not None, "give it its standard input"),
            (SESSIONS, spec.terminal, "give it a terminal"),
            (SIGNALS, spec.signal, "send it a signal before its walltime"),
            (STATE, spec.keep_state, "keep its state for later attempts"),
            (SECRETS, spec.secrets, "give it its secrets"),
            (SRUN, SRUN in spec.shape.runs, "give it `srun`"),
        ):
            if asked and ability not in self.abilities:
                name = self.node.partition("/")[2]
                return f"agent {name} is of an earlier release and cannot {what}; upgrade the agent"
        return None

    def start_gang(self, start: GangStart) -> None:
        """Let the agent start its tasks of a gang."""
        lease = start.lease
        self._gangs.append(
            pb.GangStart(
                job=lease.job,
                attempt=lease.attempt,
                seq=lease.seq,
                nodes=start.nodes,
                hosts=start.hosts,
                port=start.port,
                ports=start.shells,
                token=start.token,
            )
        )
        self._news.set()

    def read(self, read: pb.OutputRead) -> None:
        """Ask the agent to send output, or to stop sending it."""
        self._reads.append(read)
        self._news.set()

    def relay(self, asked: pb.RelayAsk) -> None:
        """Ask the agent for a live connection to a task."""
        self._relays.append(asked)
        self._news.set()

    def left_by(self, relay: str) -> None:
        """Tell the agent that the client of a live connection is gone."""
        self._left.append(relay)
        self._news.set()

    def nudge(self) -> None:
        """Ask the agent for a heartbeat."""
        self._nudge = True
        self._news.set()

    def fence(self) -> None:
        """End the stream, because a newer registration has replaced this one."""
        self.fenced = True
        self._news.set()

    def look_again(self, _: object = None) -> None:
        """Wake `messages`, so that it calls `is_over` again."""
        self._news.set()

    async def messages(
        self, epoch: int, is_over: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[pb.FromServer]:
        """Yield messages as they arise, until the session is fenced or `is_over` returns True."""
        self.connected, self.left = True, False
        try:
            while not self.fenced and not is_over():
                if not self._has_news():
                    self._news.clear()
                    await self._news.wait()
                    continue
                grants = self._next_grants()
                gangs, self._gangs = self._gangs, []
                reads, self._reads = self._reads, []
                relays, self._relays = self._relays, []
                left, self._left = self._left, []
                nudge, self._nudge = self._nudge, False
                yield pb.FromServer(
                    epoch=epoch,
                    grants=grants,
                    gangs=gangs,
                    reads=reads,
                    heartbeat_now=nudge,
                    relays=relays,
                    left=left,
                )
        finally:
            self.connected, self.left = False, True

    def _has_news(self) -> bool:
        """Return whether a message is due; none is once the session is fenced."""
        return not self.fenced and bool(
            self._starts or self._gangs or self._reads or self._relays or self._left or self._nudge
        )

    def _next_grants(self) -> list[pb.Grant]:
        """Take the leases that fit into one message; at least one, if any waits."""
        grants: list[pb.Grant] = []
        size = 0
        while self._starts and len(grants) < GRANTS:
            size += self._starts[0].size
            if grants and size > MOST_BYTES:
                break
            parcel = self._starts.popleft()
            grant = pb.Grant(lease=parcel.lease, task=parcel.task, peer=parcel.peer)
            if (own := parcel.granted) is not None:
                grant.cpus = own.cpus
                grant.gpus.extend(own.gpus)
                grant.binds_memory = parcel.binds
            grants.append(grant)
        return grants


def _relay_out(number: str, asked: RelayAsked) -> pb.RelayAsk:
    """Encode a request for a live connection to a task."""
    lease = asked.lease
    ask = pb.RelayAsk(id=number, job=lease.job, attempt=lease.attempt, task=lease.task)
    match asked.what:
        case Exec() as what:
            ask.exec.CopyFrom(
                pb.Exec(
                    words=what.command,
                    terminal=what.terminal,
                    rows=what.rows,
                    columns=what.columns,
                    term=what.term,
                )
            )
        case Attach():
            ask.attach = True
        case Forward(port):
            ask.forward = port
    return ask


class _Reader:
    """The receiver of the answer to one request for output."""

    def __init__(self, number: int, session: Session) -> None:
        self.number = number
        self.session = session
        self.chunks: asyncio.Queue[pb.OutputChunk] = asyncio.Queue(CHUNKS)
        self.news = asyncio.Event()
        """Set when a chunk was read, the reader has left, or the agent has got another reader."""


def _encoded(start: Start, limits: FileLimits, rank: int = 0) -> pb.Task | str:
    """Encode a task; return the reason as a string if it cannot be sent."""
    try:
        task = task_out(start.spec, start.cluster, limits.outputs, rank, limits.state, start.saved)
    except (TypeError, ValueError) as error:  # also protobuf, for what it cannot encode
        return str(error)
    except Exception as error:  # noqa: BLE001 - an unforeseen failure of this job must not affect the others
        return reason_of(error)
    if task.ByteSize() > MOST_GRANT:
        return f"it has {task.ByteSize() >> 20} MiB, more than the server can send to an agent"
    return task


class Hub:
    """The sessions of all agents of all clusters."""

    def __init__(self, outputs_limit: int = 0, state_limit: int = 0) -> None:
        self._limits = FileLimits(outputs_limit, state_limit)
        self._opening: dict[int, Session] = {}
        """Registrations that are not durable yet, by incarnation, in ascending order."""
        self._sessions: dict[str, Session] = {}
        self._current: dict[int, Session] = {}
        """The sessions of `_sessions` by incarnation."""
        self._readers: dict[int, _Reader] = {}
        """By the number of the request; without readers that were cut off."""
        self._asked = 0
        self.relays = Relays()
        """Live connections to tasks."""

    def open(
        self,
        node: str,
        incarnation: int,
        monotonic: int,
        peer: str = "",
        life: str = "",
        terms: LeaseTerms = FIRST_TERMS,
        address: str = "",
        abilities: Sequence[str] = (),
        version: str = "",
    ) -> None:
        """Create a session for an agent that is about to register."""
        self._opening[incarnation] = Session(
            node, incarnation, monotonic, peer, life, terms, address, abilities, version
        )

    def activate(self, node: str, incarnation: int) -> None:
        """Make a durable registration the current one of its node."""
        # An earlier registration that is not durable by now never will be: its agent hung up before the refusal.
        for earlier in list(itertools.takewhile(incarnation.__gt__, self._opening)):
            del self._opening[earlier]
        session = self._opening.pop(incarnation, None)
        if session is None:
            return
        self.close(node)
        self._sessions[node] = self._current[incarnation] = session

    def forget(self, incarnation: int) -> None:
        """Drop a registration that failed."""
        self._opening.pop(incarnation, None)

    def close(self, node: str) -> None:
        """End the session of a node, and with it the leases that it did not send yet."""
        old = self._sessions.pop(node, None)
        if old is not None:
            del self._current[old.incarnation]
            old.fence()

    def heard(self, node: str, incarnation: int, monotonic: int, load: int = 0) -> bool:
        """Record a heartbeat; return False if it is of an old registration."""
        session = self._sessions.get(node)
        if session is None or session.incarnation != incarnation:
            return False
        session.heard, session.load = monotonic, load
        return True

    def agree(self, node: str, number: int, wanted: LeaseTerms) -> Offer | None:
        """Record the terms that an agent confirmed; return others to offer, or None."""
        session = self._sessions.get(node)
        return session.agree(number, wanted) if session is not None else None

    def contact(self, node: str) -> Contact | None:
        """Return when an agent was last heard from; None if it has no session."""
        session = self._sessions.get(node)
        if session is None:
            return None
        return Contact(
            session.incarnation,
            session.connected,
            session.heard,
            session.peer,
            session.load,
            session.life,
            session.terms,
            session.left,
            session.signed_off,
            session.address,
            session.version,
            session.abilities,
        )

    def is_silent(self, node: str, monotonic: int) -> bool:
        """Return whether an agent missed a heartbeat or has no session."""
        session = self._sessions.get(node)
        return session is None or monotonic - session.heard > session.terms.heartbeat

    def start(self, node: str, incarnation: int, starts: Sequence[Start]) -> list[Unsendable]:
        """Send leases to an agent; return those that cannot be sent."""
        session = self._sessions.get(node)
        if session is None or session.incarnation != incarnation:
            return []
        return session.start(starts, self._limits)

    def grants(self, starts: Sequence[Start]) -> list[pb.Grant]:
        """Return leases with their tasks, for an agent that asks for them; leave out those that cannot be sent."""
        tasks = [(each.lease, _encoded(each, self._limits)) for each in starts]
        return [
            pb.Grant(lease=lease_out(lease), task=task) for lease, task in tasks if not isinstance(task, str)
        ]

    def start_gang(self, node: str, start: GangStart) -> None:
        """Let an agent start its tasks of a gang."""
        session = self._sessions.get(node)
        if session is not None:
            session.start_gang(start)

    def wake(self, node: str) -> None:
        """Ask an agent for a heartbeat now."""
        session = self._sessions.get(node)
        if session is not None:
            session.nudge()

    def session(self, incarnation: int) -> Session | None:
        """Return the session of a registration; None if it is not the current one."""
        return self._current.get(incarnation)

    def end(self, token: str) -> None:
        """End the streams of agents that registered with a token; their leases expire at their terms."""
        for session in self._sessions.values():
            if session.token == token:
                session.fence()

    def current(self, incarnation: int) -> str | None:
        """Return the node of a registration; None if it is not the current one."""
        session = self.session(incarnation)
        return session.node if session is not None else None

    async def output(self, node: str, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Yield output of a task from its agent. A slow reader that was cut off asks again from where it was."""
        ended, position = False, 0
        while not ended:
            reader = self._ask(node, asked, position)
            session, silent = reader.session, 0.0
            try:
                while not ended and (reader.number in self._readers or not reader.chunks.empty()):
                    try:
                        async with asyncio.timeout(LOOK):
                            chunk = await reader.chunks.get()
                    except TimeoutError:
                        silent += LOOK
                        if not session.connected:
                            raise OutputGone(f"the connection of agent {node} was lost") from None
                        if silent >= SILENT and not asked.follow:
                            raise OutputGone(f"agent {node} did not answer") from None
                        continue
                    reader.news.set()
                    ended, silent = chunk.end, 0.0
                    if chunk.error:
                        raise OutputGone(chunk.error)
                    if chunk.data:
                        asked = replace(asked, offset=asked.offset + len(chunk.data))
                        position = chunk.position
                        yield chunk.data
            finally:
                self._leave(reader, stop=not ended)

    async def relay(self, node: str, asked: RelayAsked) -> AgentRelay:
        """Connect to a task on an agent; raise RelayGone if that fails."""
        session, name = self._sessions.get(node), node.partition("/")[2]
        if session is None or not session.connected:
            raise RelayGone(f"the task is on agent {name}, which is not connected")
        if SESSIONS not in session.abilities:
            raise RelayGone(f"agent {name} is of an earlier release and has no sessions; upgrade the agent")
        relay = self.relays.open(
            node, lambda number: session.relay(_relay_out(number, asked)), session.left_by
        )
        try:
            await relay.joined()
        except BaseException:
            await relay.close()
            raise
        return relay

    def _ask(self, node: str, asked: OutputAsked, position: int) -> _Reader:
        """Ask an agent for output, from a position in its file if an earlier chunk carried one."""
        session = self._sessions.get(node)
        if session is None or not session.connected:
            raise OutputGone(f"the output is on agent {node}, which is not connected")
        for other in self._readers.values():
            if other.session is session:
                other.news.set()  # it now shares the stream, so `chunk` must not wait for it
        self._asked += 1
        reader = self._readers[self._asked] = _Reader(self._asked, session)
        session.read(
            pb.OutputRead(
                id=reader.number,
                job=asked.lease.job,
                attempt=asked.lease.attempt,
                task=asked.lease.task,
                stderr=asked.stderr,
                offset=asked.offset,
                follow=asked.follow,
                position=position,
            )
        )
        return reader

    def _leave(self, reader: _Reader, *, stop: bool) -> None:
        """Remove a reader, if it is still there, and tell its agent to stop."""
        if self._readers.pop(reader.number, None) is not None:
            reader.news.set()
            if stop:
                reader.session.read(pb.OutputRead(id=reader.number, stop=True))

    async def chunk(self, chunk: pb.OutputChunk) -> None:
        """Pass on a chunk that an agent sent.

        All output of an agent arrives on one stream. So this waits for a slow reader only while it is the only one.
        Otherwise it cuts the reader off, which asks again when it has read what it has.
        """
        while (reader := self._readers.get(chunk.id)) is not None:
            session = reader.session
            if session.incarnation != chunk.incarnation:
                return
            if not reader.chunks.full():
                reader.chunks.put_nowait(chunk)
                return
            if any(other.session is session for other in self._readers.values() if other is not reader):
                self._leave(reader, stop=True)
                return
            reader.news.clear()
            await reader.news.wait()
