"""Connects people with running tasks: checks what they ask for, finds the task, and lets only its opener use a session.

Sessions are live only: they are not journaled, and end with the server. The log says who opened and ended which.
"""

import asyncio
from collections.abc import AsyncIterator
from secrets import token_hex
from typing import Final

import structlog

from spillover.control.driving.drivers import Drivers
from spillover.control.requests.lookup import PendingMember, is_array
from spillover.control.views.output import place_of
from spillover.core.events import Lease
from spillover.core.records.jobs import Job, Running
from spillover.model.ids import ClusterName
from spillover.ports.archive import Finished
from spillover.ports.callers import Caller
from spillover.ports.cluster import Agents, Attach, Exec, Forward, Relay, RelayAsked, RelayGone
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem, SessionRequest, SessionView
from spillover.wire.relay import Frame, FrameKind

log = structlog.get_logger()

UNUSED: Final = 30.0
"""Seconds after which a session ends if nobody reads it."""
KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which the server sends something, so that both sides notice when the other is gone."""
_ALIVE: Final = Frame(FrameKind.ALIVE).encoded()


class OpenSession:
    """One session."""

    def __init__(self, relay: Relay, caller: Caller, user: str) -> None:
        self.relay = relay
        self.opener = caller, user
        self.reading = False
        self.received = 0
        """Bytes of input that were passed on."""
        self.turn = asyncio.Lock()


class Sessions:
    """All live sessions of people."""

    def __init__(self, agents: Agents, drivers: Drivers) -> None:
        self._agents = agents
        self._drivers = drivers
        self._open: dict[str, OpenSession] = {}
        self._unused: dict[str, asyncio.Task[None]] = {}

    async def open(
        self, found: Job | PendingMember | Finished, request: SessionRequest, caller: Caller, user: str
    ) -> SessionView:
        """Connect to a task of a job; raise CommandError."""
        what = _what(request)
        job, cluster, node = self._task(found, request.task)
        asked = RelayAsked(Lease(job.id, job.attempt, 0, request.task), what)
        try:
            relay = await self._agents.relay(f"{cluster}/{node}", asked)
        except RelayGone as error:
            raise CommandError(ErrorKind.UNAVAILABLE, str(error)) from None
        number = token_hex(16)
        self._open[number] = OpenSession(relay, caller, user)
        self._unused[number] = asyncio.create_task(self._end_unused(number))
        log.info("session opened", session=number[:8], kind=request.kind, job=job.id, node=node, user=user)
        return SessionView(number, job.id, job.attempt, request.task, str(cluster), node)

    def _task(self, found: Job | PendingMember | Finished, task: int) -> tuple[Job, ClusterName, str]:
        """Return a job that runs, and where its task is; raise CommandError."""
        name = found.job if isinstance(found, Finished) else found.id
        if is_array(found):
            told = f"{name} is an array; name one of its members, such as {name}.1"
            raise CommandError(ErrorKind.INVALID, told)
        if not isinstance(found, Job) or not isinstance(found.phase, Running):
            state = found.state
            raise CommandError(ErrorKind.CONFLICT, f"{name} does not run: it is {state}")
        cluster = found.phase.cluster
        if cluster in self._drivers:
            told = (
                f"{found.id} runs on cluster {cluster}, which has no agents: sessions are not available there"
            )
            raise CommandError(ErrorKind.CONFLICT, told)
        if task >= (tasks := found.shape.tasks):
            known = "one task, number 0" if tasks == 1 else f"{tasks} tasks, 0 to {tasks - 1}"
            raise CommandError(ErrorKind.UNKNOWN, f"{found.id} has {known}")
        place = place_of(found, found.attempt, task) or f"{cluster}/{found.phase.node}"
        return found, cluster, place.partition("/")[2]

    async def _end_unused(self, number: str) -> None:
        """End a session that nobody reads in time."""
        await asyncio.sleep(UNUSED)
        await self._end(number)

    async def _end(self, number: str) -> None:
        """End a session."""
        if (session := self._open.pop(number, None)) is not None:
            await session.relay.close()
            log.info("session ended", session=number[:8], user=session.opener[1])
        if (unused := self._unused.pop(number, None)) is not None and unused is not asyncio.current_task():
            unused.cancel()

    def _of(self, number: str, caller: Caller, user: str) -> OpenSession:
        """Return a session of its opener; raise CommandError for everybody else, as if there were none."""
        session = self._open.get(number)
        if session is None or session.opener != (caller, user):
            raise CommandError(ErrorKind.UNKNOWN, "there is no such session, or it has ended")
        return session

    async def output(self, number: str, caller: Caller, user: str) -> AsyncIterator[bytes]:
        """Stream what comes from the task; the session ends with the stream."""
        session = self._of(number, caller, user)
        if session.reading:
            raise CommandError(ErrorKind.CONFLICT, "somebody reads this session already")
        return self._read(number, session)

    async def _read(self, number: str, session: OpenSession) -> AsyncIterator[bytes]:
        """Yield what comes from the task, and signs of life."""
        if session.reading:
            return
        session.reading = True
        if (unused := self._unused.pop(number, None)) is not None:
            unused.cancel()
        receiving = asyncio.create_task(session.relay.receive())
        try:
            while True:
                done, _ = await asyncio.wait({receiving}, timeout=KEEP_ALIVE)
                if not done:
                    yield _ALIVE
                elif (piece := receiving.result()) is None:
                    return
                else:
                    receiving = asyncio.create_task(session.relay.receive())
                    yield piece
        finally:
            receiving.cancel()
            await self._end(number)

    async def give(self, number: str, after: int, data: bytes, caller: Caller, user: str) -> int:
        """Pass input on that comes behind so many bytes; return how many there are now. It may be sent again."""
        session = self._of(number, caller, user)
        async with session.turn:
            known = session.received - after
            if known < 0:
                told = f"{-known} bytes of input are missing; continue after {session.received}"
                raise CommandError(ErrorKind.CONFLICT, told)
            if rest := data[known:]:
                if not await session.relay.send(rest):
                    raise CommandError(ErrorKind.UNKNOWN, "there is no such session, or it has ended")
                session.received += len(rest)
            return session.received


def _what(request: SessionRequest) -> Exec | Attach | Forward:
    """Return what a request asks for; raise CommandError if a part is missing."""
    match request.kind:
        case "exec":
            if not request.command or not request.command[0]:
                _missing("command", "is empty; name a program, with its arguments")
            if any("\0" in word for word in (*request.command, request.term)):
                _missing("command", "contains a NUL character")
            return Exec(tuple(request.command), request.terminal, request.rows, request.columns, request.term)
        case "attach":
            return Attach()
        case "forward":
            if request.port is None:
                _missing("port", "is missing; name a TCP port of the task's machine")
            return Forward(request.port or 0)


def _missing(field: str, told: str) -> None:
    raise CommandError(ErrorKind.INVALID, f"{field} {told}", [FieldProblem(field, told)])
