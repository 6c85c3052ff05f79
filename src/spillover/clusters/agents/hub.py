"""Agents that are connected: what is to be said to each, and when each was last heard from."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final

import structlog

from spillover.ports.cluster import Contact, OutputAsked, OutputGone, Start
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import grant_out

log = structlog.get_logger()

CHUNKS: Final = 64
"""Chunks of output that may wait for their reader; more wait at the agent."""
GRANTS: Final = 256
"""Leases in one message."""
LOOK: Final = 1.0
"""Seconds after which a reader of output looks whether the agent is still connected."""
SILENT: Final = 30.0
"""Seconds without any answer after which a reader of output is told that there is none."""


class Session:
    """One registration of one agent."""

    def __init__(self, node: str, incarnation: int, monotonic: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.heard = monotonic
        self.connected = False
        self.fenced = False
        self._starts: list[Start] = []
        self._reads: list[pb.OutputRead] = []
        self._nudge = False
        self._news = asyncio.Event()

    def start(self, starts: Sequence[Start]) -> None:
        """Hand out leases."""
        self._starts += starts
        self._news.set()

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

    async def messages(self, epoch: int) -> AsyncIterator[pb.FromServer]:
        """What to say, as it comes, until the session is fenced."""
        self.connected = True
        try:
            while not self.fenced:
                await self._news.wait()
                self._news.clear()
                while self._starts or self._reads or self._nudge:
                    starts, self._starts = self._starts[:GRANTS], self._starts[GRANTS:]
                    reads, self._reads = self._reads, []
                    nudge, self._nudge = self._nudge, False
                    yield pb.FromServer(
                        epoch=epoch,
                        grants=[grant_out(start.lease, start.spec, start.cluster) for start in starts],
                        reads=reads,
                        heartbeat_now=nudge,
                    )
        finally:
            self.connected = False


class Hub:
    """All agents of all clusters of agents."""

    def __init__(self) -> None:
        self._opening: dict[int, Session] = {}
        self._sessions: dict[str, Session] = {}
        self._readers: dict[int, asyncio.Queue[pb.OutputChunk]] = {}
        self._asked = 0

    def open(self, node: str, incarnation: int, monotonic: int) -> None:
        """An agent is about to register."""
        self._opening[incarnation] = Session(node, incarnation, monotonic)

    def activate(self, node: str, incarnation: int) -> None:
        """Its registration is durable."""
        session = self._opening.pop(incarnation, None)
        if session is None:
            return
        self.close(node)
        self._sessions[node] = session

    def forget(self, incarnation: int) -> None:
        """It did not register after all."""
        self._opening.pop(incarnation, None)

    def close(self, node: str) -> None:
        """Whatever this node was given is void."""
        old = self._sessions.pop(node, None)
        if old is not None:
            old.fence()

    def heard(self, node: str, incarnation: int, monotonic: int) -> bool:
        """A heartbeat came."""
        session = self._sessions.get(node)
        if session is None or session.incarnation != incarnation:
            return False
        session.heard = monotonic
        return True

    def contact(self, node: str) -> Contact | None:
        """When it was last heard from."""
        session = self._sessions.get(node)
        if session is None:
            return None
        return Contact(session.incarnation, session.connected, session.heard)

    def start(self, node: str, incarnation: int, starts: Sequence[Start]) -> None:
        """Hand out leases."""
        session = self._sessions.get(node)
        if session is not None and session.incarnation == incarnation:
            session.start(starts)

    def wake(self, node: str) -> None:
        """Have it send a heartbeat now."""
        session = self._sessions.get(node)
        if session is not None:
            session.nudge()

    def session(self, incarnation: int) -> Session | None:
        """The session of a registration, if it is current."""
        for session in self._sessions.values():
            if session.incarnation == incarnation:
                return session
        return None

    def current(self, incarnation: int) -> str | None:
        """The node that registered so, if that is its current registration."""
        session = self.session(incarnation)
        return session.node if session is not None else None

    async def output(self, node: str, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Output of a task, from its agent."""
        session = self._sessions.get(node)
        if session is None or not session.connected:
            raise OutputGone(f"the output is on agent {node}, which is not connected")
        self._asked += 1
        read = self._asked
        chunks = self._readers[read] = asyncio.Queue(CHUNKS)
        session.read(
            pb.OutputRead(
                id=read,
                job=asked.lease.job,
                attempt=asked.lease.attempt,
                task=asked.lease.task,
                stderr=asked.stderr,
                offset=asked.offset,
                follow=asked.follow,
            )
        )
        ended, silent = False, 0.0
        try:
            while not ended:
                try:
                    chunk = await asyncio.wait_for(chunks.get(), LOOK)
                except TimeoutError:
                    silent += LOOK
                    if not session.connected:
                        raise OutputGone(f"the connection of agent {node} is gone") from None
                    if silent >= SILENT and not asked.follow:
                        raise OutputGone(f"agent {node} did not answer") from None
                    continue
                ended, silent = chunk.end, 0.0
                if chunk.error:
                    raise OutputGone(chunk.error)
                if chunk.data:
                    yield chunk.data
        finally:
            del self._readers[read]
            if not ended:
                session.read(pb.OutputRead(id=read, stop=True))

    async def chunk(self, chunk: pb.OutputChunk) -> None:
        """An agent sent output; waits while its reader is slow."""
        while (reader := self._readers.get(chunk.id)) is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.put(chunk), 1.0)
                return
