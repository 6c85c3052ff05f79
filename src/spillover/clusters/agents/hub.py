"""Agents that are connected: what is to be said to each, and when each was last heard from."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from spillover.model.backoff import reason_of
from spillover.model.ids import ClusterName
from spillover.model.job import JobSpec
from spillover.ports.cluster import (
    FIRST_TERMS,
    Contact,
    LeaseTerms,
    Offer,
    OutputAsked,
    OutputGone,
    Start,
    Unsendable,
)
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import lease_out, task_digest, task_out

log = structlog.get_logger()

CHUNKS: Final = 64
"""Chunks of output that may wait for their reader; more stay at the agent."""
GRANTS: Final = 256
"""Leases in one message."""
MOST_BYTES: Final = 4 << 20
"""Of the tasks in one message, unless it is a single one."""
MOST_GRANT: Final = 32 << 20
"""Bytes of a task: well below what a message may have, so that none ever ends the stream."""
SIMILAR: Final = 8
"""A heartbeat that differs by less than one part of so many is not worth telling."""
LOOK: Final = 1.0
"""Seconds after which a reader of output looks whether the agent is still connected."""
SILENT: Final = 30.0
"""Seconds without any answer after which a reader of output is told that there is none."""


class _Parcel(NamedTuple):
    """A lease that is ready to be sent."""

    lease: pb.Lease
    task: pb.Task | None
    """Shared by all members of an array; None if it is to be had from a peer."""
    size: int
    """Bytes."""
    peer: pb.Peer | None = None


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
    ) -> None:
        self.node = node
        self._lives_by = terms
        self._offer = Offer(0, terms)
        """What it was last told to live by."""
        self.life = life
        self.incarnation = incarnation
        self.heard = monotonic
        self.peer = peer
        self.load = 0
        self.connected = False
        self.left = False
        """Whether its stream was open and is not any more."""
        self.fenced = False
        self.secret = b""
        """What calls of this registration carry; empty until the agent is told, so that nobody has it before."""
        self.token = ""
        """Id of the token that it registered with."""
        self._starts: deque[_Parcel] = deque()
        self._reads: list[pb.OutputRead] = []
        self._nudge = False
        self._news = asyncio.Event()

    @property
    def terms(self) -> LeaseTerms:
        """The longest that it may live by: it may not have heard yet of others that it was told."""
        now, then = self._lives_by, self._offer.terms
        if now is then:
            return now
        return LeaseTerms(max(now.heartbeat, then.heartbeat), max(now.short, then.short))

    def agree(self, number: int, wanted: LeaseTerms) -> Offer | None:
        """Take note of the terms that it lives by; what to tell it instead, unless it makes little difference."""
        if number == self._offer.number:
            self._lives_by = self._offer.terms
            now = self._lives_by.heartbeat
            if abs(wanted.heartbeat - now) * SIMILAR < now:
                return None
            self._offer = Offer(number + 1, wanted)
        return self._offer

    def start(self, starts: Sequence[Start], outputs_limit: int = 0) -> list[Unsendable]:
        """Hand out leases; returns those that cannot be sent.

        They are encoded here, as a failure within the stream would end it, and with it all other leases.
        """
        tasks: dict[tuple[int, ClusterName], pb.Task | str] = {}
        refused: list[Unsendable] = []
        for start in starts:
            same = (id(start.spec), start.cluster)
            if same not in tasks:
                tasks[same] = _encoded(start.spec, start.cluster, outputs_limit)
            task = tasks[same]
            if isinstance(task, str):
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
                self._starts.append(_Parcel(lease_out(start.lease), task, task.ByteSize()))
        self._news.set()
        return refused

    def read(self, read: pb.OutputRead) -> None:
        """Ask for output, or for no more of it."""
        self._reads.append(read)
        self._news.set()

    def nudge(self) -> None:
        """Have a heartbeat sent."""
        self._nudge = True
        self._news.set()

    def fence(self) -> None:
        """End the stream: a newer registration counts."""
        self.fenced = True
        self._news.set()

    def look_again(self, _: object = None) -> None:
        """Have `messages` see whether it is over."""
        self._news.set()

    async def messages(
        self, epoch: int, is_over: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[pb.FromServer]:
        """What to say, as it comes, until the session is fenced or its stream is over."""
        self.connected, self.left = True, False
        try:
            while not self.fenced and not is_over():
                if not self._has_news():
                    self._news.clear()
                    await self._news.wait()
                    continue
                grants = self._next_grants()
                reads, self._reads = self._reads, []
                nudge, self._nudge = self._nudge, False
                yield pb.FromServer(epoch=epoch, grants=grants, reads=reads, heartbeat_now=nudge)
        finally:
            self.connected, self.left = False, True

    def _has_news(self) -> bool:
        """Whether there is something to say; to one that is fenced there is nothing."""
        return not self.fenced and bool(self._starts or self._reads or self._nudge)

    def _next_grants(self) -> list[pb.Grant]:
        """As many leases as fit into one message; at least one, if there is any."""
        grants: list[pb.Grant] = []
        size = 0
        while self._starts and len(grants) < GRANTS:
            size += self._starts[0].size
            if grants and size > MOST_BYTES:
                break
            parcel = self._starts.popleft()
            grants.append(pb.Grant(lease=parcel.lease, task=parcel.task, peer=parcel.peer))
        return grants


class _Reader:
    """Where the answer to one request for output goes."""

    def __init__(self, number: int, session: Session) -> None:
        self.number = number
        self.session = session
        self.chunks: asyncio.Queue[pb.OutputChunk] = asyncio.Queue(CHUNKS)
        self.news = asyncio.Event()
        """Set when there is room, nobody reads any more, or another reader came."""


def _encoded(spec: JobSpec, cluster: ClusterName, outputs_limit: int) -> pb.Task | str:
    """A task for the wire, or why there is none."""
    try:
        task = task_out(spec, cluster, outputs_limit)
    except (TypeError, ValueError) as error:  # also of protobuf: a number or a text that it cannot write
        return str(error)
    except Exception as error:  # noqa: BLE001 - what nobody foresaw of this job must not cost the others
        return reason_of(error)
    if task.ByteSize() > MOST_GRANT:
        return f"it is {task.ByteSize() >> 20} MiB large, more than an agent can be sent"
    return task


class Hub:
    """All agents of all clusters of agents."""

    def __init__(self, outputs_limit: int = 0) -> None:
        self._outputs_limit = outputs_limit
        """Bytes that outputs of a task may have together; 0 lets agents choose."""
        self._opening: dict[int, Session] = {}
        """Those that are about to register, by incarnation, in their order."""
        self._sessions: dict[str, Session] = {}
        self._current: dict[int, Session] = {}
        """The same by incarnation."""
        self._readers: dict[int, _Reader] = {}
        """By the number of the request; those who were left behind are not among them."""
        self._asked = 0

    def open(
        self,
        node: str,
        incarnation: int,
        monotonic: int,
        peer: str = "",
        life: str = "",
        terms: LeaseTerms = FIRST_TERMS,
    ) -> None:
        """An agent is about to register."""
        self._opening[incarnation] = Session(node, incarnation, monotonic, peer, life, terms)

    def activate(self, node: str, incarnation: int) -> None:
        """Its registration is durable. One that began earlier and is not will not be: its agent hung up before it was refused."""
        for earlier in list(itertools.takewhile(incarnation.__gt__, self._opening)):
            del self._opening[earlier]
        session = self._opening.pop(incarnation, None)
        if session is None:
            return
        self.close(node)
        self._sessions[node] = self._current[incarnation] = session

    def forget(self, incarnation: int) -> None:
        """It did not register after all."""
        self._opening.pop(incarnation, None)

    def close(self, node: str) -> None:
        """Whatever this node was given is void."""
        old = self._sessions.pop(node, None)
        if old is not None:
            del self._current[old.incarnation]
            old.fence()

    def heard(self, node: str, incarnation: int, monotonic: int, load: int = 0) -> bool:
        """A heartbeat came."""
        session = self._sessions.get(node)
        if session is None or session.incarnation != incarnation:
            return False
        session.heard, session.load = monotonic, load
        return True

    def agree(self, node: str, number: int, wanted: LeaseTerms) -> Offer | None:
        """It lives by the terms of this number: what to tell it instead, if anything."""
        session = self._sessions.get(node)
        return session.agree(number, wanted) if session is not None else None

    def contact(self, node: str) -> Contact | None:
        """When it was last heard from."""
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
        )

    def is_silent(self, node: str, monotonic: int) -> bool:
        """Whether it was not heard from for longer than one of its heartbeats, or has not registered."""
        session = self._sessions.get(node)
        return session is None or monotonic - session.heard > session.terms.heartbeat

    def start(self, node: str, incarnation: int, starts: Sequence[Start]) -> list[Unsendable]:
        """Hand out leases; returns those that cannot be sent."""
        session = self._sessions.get(node)
        if session is None or session.incarnation != incarnation:
            return []
        return session.start(starts, self._outputs_limit)

    def grants(self, starts: Sequence[Start]) -> list[pb.Grant]:
        """Leases with their tasks, for one who asks for them; those that cannot be sent are left out."""
        tasks = [(each.lease, _encoded(each.spec, each.cluster, self._outputs_limit)) for each in starts]
        return [
            pb.Grant(lease=lease_out(lease), task=task) for lease, task in tasks if not isinstance(task, str)
        ]

    def wake(self, node: str) -> None:
        """Have it send a heartbeat now."""
        session = self._sessions.get(node)
        if session is not None:
            session.nudge()

    def session(self, incarnation: int) -> Session | None:
        """The session of a registration, if it is current."""
        return self._current.get(incarnation)

    def end(self, token: str) -> None:
        """Say nothing more to agents that registered with a token; what they hold runs out in its own time."""
        for session in self._sessions.values():
            if session.token == token:
                session.fence()

    def current(self, incarnation: int) -> str | None:
        """The node that registered so, if that is its current registration."""
        session = self.session(incarnation)
        return session.node if session is not None else None

    async def output(self, node: str, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Output of a task, from its agent; asked for anew where it was if others could not wait for whoever reads it."""
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
                            raise OutputGone(f"the connection of agent {node} is gone") from None
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

    def _ask(self, node: str, asked: OutputAsked, position: int) -> _Reader:
        """Have an agent send output; from a position that it told, if there is one."""
        session = self._sessions.get(node)
        if session is None or not session.connected:
            raise OutputGone(f"the output is on agent {node}, which is not connected")
        for other in self._readers.values():
            if other.session is session:
                other.news.set()  # it is not alone any more
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
        """Take no more for a reader, if that is not so already, and have its agent stop."""
        if self._readers.pop(reader.number, None) is not None:
            reader.news.set()
            if stop:
                reader.session.read(pb.OutputRead(id=reader.number, stop=True))

    async def chunk(self, chunk: pb.OutputChunk) -> None:
        """An agent sent output that it was asked for.

        All output of an agent comes in one stream. So a slow reader is waited for only while it is the only one there; else it
        is left with what it has, and asks again when it has read that.
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
