"""Keeps the agent connected to its server: finds it, registers, takes leases, renews them, reports, and reconnects.

The agent looks up the server for every connection, because a restarted server may have another address and always has
another epoch. Every call has a deadline, and a heartbeat is due every few seconds. This detects a server that hangs.
The channel uses keepalive as well, so that the kernel drops data that a vanished server never acknowledges.
"""

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol

import grpc
from msgspec import structs

from spillover.agent.connection import convert
from spillover.agent.connection.calls import EOF, HUNG_UP, Beats, Calls, dial
from spillover.agent.connection.finding import FIRST_DELAY, LONGEST_DELAY, NotFound, ServerFinder, Target
from spillover.agent.connection.peers import Peers
from spillover.agent.connection.transfers import ServerTransfers
from spillover.agent.files.output import Outputs
from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import GangStart, Instruction, Reconnect, Welcome
from spillover.agent.nursery.clock import boottime
from spillover.agent.sessions.serving import Sessions
from spillover.agent.tasks.gangs import address_towards
from spillover.wire import agents_pb2 as pb

SLOW_DELAY: Final = 5.0
"""Seconds before the next try when a person must fix something first."""
CALL_LIMIT: Final = 5.0
"""Longest time in seconds for a registration by a plain call, and for a heartbeat. Short terms shorten the latter."""
JOIN_LIMIT: Final = 10.0
"""Longest time in seconds for a registration on a stream. A server is busy when all its agents return, and an agent
that gives up too soon doubles that work.
"""
REPORT_LIMIT: Final = 15.0
"""Seconds that a report may take. The server answers only when the report is durable."""
LINGER: Final = 0.01
"""Least seconds between two reports, because a message costs more than its content."""
LONGEST_LINGER: Final = 0.05
"""Seconds between two reports while the agent has enough work."""
LONGEST_SPREAD: Final = 60.0
"""Most seconds that an agent waits before it looks for the server, however many agents there are."""
TOLD_WHY: Final = 1.0
"""Seconds to wait for the reader of a stream to learn why a write failed."""
STOPPED_LIMIT: Final = 5.0
"""Seconds to wait for fenced tasks to end before the agent registers again."""
_FENCED: Final = grpc.StatusCode.ABORTED
"""The status with which the server refuses a registration while another agent uses the name."""
_NEEDS_MENDING: Final = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}

log = logging.getLogger("spillover.agent")


class Over(Exception):
    """This connection has ended."""

    def __init__(self, why: str, *, fenced: bool = False, slow: bool = False, busy: bool = False) -> None:
        super().__init__(why)
        self.fenced = fenced
        self.slow = slow
        self.busy = busy
        """Whether the server is reachable, but too busy to accept the registration."""


class LinkOwner(Protocol):
    """The agent, as its link needs it."""

    state: AgentState
    outputs: Outputs
    sessions: Sessions
    log_retention: int
    server_time: tuple[int, int]
    """The server's time in nanoseconds UTC, and the monotonic time at which it was received."""

    def act(self, instructions: list[Instruction]) -> Reconnect | None:
        """Carry out instructions, and return the one that ends the connection, if any."""
        ...

    def start_gangs(self, incarnation: int, epoch: int, starts: Sequence[GangStart]) -> Reconnect | None:
        """Start tasks of gangs; return the instruction that ends the connection, if any."""
        ...

    def flush(self) -> None:
        """Write to disk what must be there before it is reported."""
        ...

    async def wait_stopped(self) -> None:
        """Wait until no task runs."""
        ...


def _load() -> int:
    """Return the load average of the machine, in thousandths."""
    try:
        return int(os.getloadavg()[0] * 1000)
    except OSError:
        return 0


class LinkEnvironment(NamedTuple):
    """What a link needs of its machine: a network, clocks, random numbers and the load."""

    dial: Callable[[Target], grpc.aio.Channel] = dial
    monotonic: Callable[[], int] = boottime
    draw: Callable[[float, float], float] = random.uniform
    load: Callable[[], int] = _load
    wall: Callable[[], int] = time.time_ns
    address: Callable[[str], str] = address_towards
    """Returns the address of this machine as seen from a server."""


class Link:
    """Connects to the server, and reconnects whenever a connection ends."""

    def __init__(
        self,
        worker: LinkOwner,
        introduction: pb.RegisterRequest,
        finder: ServerFinder,
        environment: LinkEnvironment = LinkEnvironment(),  # noqa: B008 - a value that never changes
        transfers: ServerTransfers | None = None,
        peers: Peers | None = None,
        joined: Callable[[], None] | None = None,
    ) -> None:
        self._worker = worker
        self._state = worker.state
        self._introduction = introduction
        self._finder = finder
        self._transfers = transfers or ServerTransfers()
        self._dial, self._now, self._draw, self._load, self._wall, self._address = environment
        self._peers = peers
        self._joined = joined
        """Called after each registration."""
        self._heartbeat_now = asyncio.Event()
        self._ready = asyncio.Event()
        self._report_now = asyncio.Event()
        self._drained = asyncio.Event()
        self._chunks: asyncio.Queue[pb.OutputChunk] = asyncio.Queue(16)
        self.registrations = 0
        """Number of registrations tried so far."""
        self._registered: tuple[Calls, int] | None = None
        """The calls and the incarnation of the registration that is current."""
        self.connected = False
        self._spread = 0.0
        """Seconds over which the server asks its agents to spread their reconnects."""

    def ready(self) -> None:
        """Wake the reporter, because there may be something to report."""
        self._ready.set()
        if self._state.must_report_now():
            self._report_now.set()

    async def run(self) -> None:
        """Keep a connection for as long as the agent runs."""
        delay, last, crowd = FIRST_DELAY, "", 0.0
        while True:
            pause, begun = delay, self._now()
            try:
                await self._connect()
            except Over as over:
                why = str(over)
                if over.fenced:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(STOPPED_LIMIT):
                            await self._worker.wait_stopped()
                if over.slow:
                    pause = SLOW_DELAY
                # After a power cut, all agents connect at once, and no server has given them a spread yet.
                crowd = min(LONGEST_SPREAD, max(CALL_LIMIT, 2 * crowd)) if over.busy else 0.0
            if self.connected or why != last:
                again = f"; retrying every {SLOW_DELAY:g} s" if pause == SLOW_DELAY else ""
                log.warning("not connected: %s%s", why, again)
            last = why
            # Otherwise two agents of one name would fence each other without a pause.
            lasted = self.connected and self._now() - begun > LONGEST_DELAY * 1e9
            delay = FIRST_DELAY if lasted else min(LONGEST_DELAY, delay * 2)
            self.connected = False
            # Jitter, so that agents do not reconnect all at once.
            pause *= self._draw(0.5, 1)
            if crowd or self._spread:
                pause = max(pause, self._draw(0, 1) * min(max(crowd, self._spread), self._longest_wait()))
            await asyncio.sleep(pause)

    def _longest_wait(self) -> float:
        """Return the most seconds that a reconnect may wait without risking leases, or results that somebody needs."""
        state = self._state
        holds = state.running or state.waiting or state.fetching or state.preparing or state.results
        return min(LONGEST_SPREAD, state.patience / 1e9) if holds else LONGEST_SPREAD

    async def drained(self) -> None:
        """Wait until everything is reported."""
        self._drained.clear()
        self._ready.set()
        self._report_now.set()
        await self._drained.wait()

    async def sign_off(self) -> None:
        """Tell the server that this agent stops, so that nobody looks after it."""
        if self._registered is not None:
            calls, incarnation = self._registered
            request = self._heartbeat(incarnation)
            request.leaving = True
            with contextlib.suppress(grpc.aio.AioRpcError):  # then the server takes it for lost
                await calls.unary("Heartbeat", request, pb.HeartbeatReply, CALL_LIMIT)

    async def _connect(self) -> None:
        """Run one connection from start to end; always raise `Over`."""
        try:
            target = await self._finder.find()
        except NotFound as error:
            raise Over(str(error), slow=error.slow) from None
        async with self._dial(target) as channel:
            calls = Calls(channel, target.token)
            try:
                welcome, stream = await self._register(calls, target.address)
                incarnation = welcome.incarnation
                self._registered = calls, incarnation
                self._finder.found(structs.replace(target, token=calls.token))
                self._transfers.connected(channel, calls.metadata, target)
                if stream is not None or welcome.stream:
                    attending = [self._follow_stream(calls, stream or calls.session(), incarnation)]
                else:  # a server of a release without the two-way stream
                    attending = [self._listen(calls, incarnation), self._beat(calls, incarnation)]
                await _until_one_ends(*attending, self._report(calls), self._send_output(calls, incarnation))
            except grpc.aio.AioRpcError as error:
                raise _over(error) from None
            except convert.InvalidMessage as error:
                raise Over(str(error), slow=True) from None
            finally:
                self._registered = None
                self._transfers.disconnected()
                self._state.unreported()
                await self._worker.outputs.reset()
                await self._worker.sessions.reset()

    async def _register(self, calls: Calls, address: str) -> tuple[Welcome, Any]:
        """Register with the leases held here; return the welcome, and the stream if the registration opened one."""
        sent = self._now()
        held, instructions = self._state.register(sent)
        self._act(instructions)
        self.registrations += 1
        request = pb.RegisterRequest(
            epoch=self._state.epoch, held=convert.held_out(held), number=self.registrations
        )
        request.MergeFrom(self._introduction)
        if not request.address:
            request.address = await asyncio.to_thread(self._address, address)
        try:
            reply, stream = await self._introduce(calls, request)
        except TimeoutError:
            raise Over("the registration timed out", busy=calls.is_connected()) from None
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and calls.is_connected():
                raise Over("the registration timed out", busy=True) from None
            if error.code() is not _FENCED:
                raise
            self._worker.act(self._state.fenced(self._now()))
            raise Over(str(error.details()), fenced=True, slow=True) from None
        calls.admitted(reply.session, reply.token)
        if reply.token:
            self._finder.exchanged(reply.token, reply.authority)
        welcome = convert.welcome_in(reply)
        self._act(self._state.registered(self._now(), sent, welcome))
        self._worker.log_retention = welcome.log_retention
        self._worker.server_time = (welcome.now, self._now())
        self.connected = True
        self._spread = min(LONGEST_SPREAD, welcome.spread / 1e9)
        self._ready.set()
        log.info("registered with %s: epoch %d, incarnation %d", address, welcome.epoch, welcome.incarnation)
        if self._joined is not None:
            self._joined()
        return welcome, stream

    async def _introduce(self, calls: Calls, request: pb.RegisterRequest) -> tuple[pb.RegisterReply, Any]:
        """Register on a stream that stays open, if the server has one, which halves its work."""
        if request.stream:
            try:
                return await calls.join(request, min(JOIN_LIMIT, max(CALL_LIMIT, self._longest_wait() / 2)))
            except grpc.aio.AioRpcError as error:
                # A server may end the stream before the agent writes. gRPC then hides the reason, and the plain call
                # reports it.
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED and error.details() != HUNG_UP:
                    raise
        return await calls.unary("Register", request, pb.RegisterReply, CALL_LIMIT), None

    async def _follow_stream(self, calls: Calls, stream: Any, incarnation: int) -> None:
        """Receive messages and renew all leases on one two-way stream."""
        beats = Beats()
        await _until_one_ends(
            self._hear(calls, stream, incarnation, beats), self._renew(calls, stream, incarnation, beats)
        )

    async def _hear(self, calls: Calls, stream: Any, incarnation: int, beats: Beats) -> None:
        """Receive leases, requests for output, and answers to heartbeats."""
        while (message := await stream.read()) is not EOF:
            self._heard(calls, message, incarnation)
            if not message.HasField("renewed"):
                continue
            sent = beats.answered()
            if sent is not None or message.renewed.fenced:  # the server reports fencing without being asked
                now = self._now()
                self._act(self._state.renewed(now, sent or now, convert.renewal_in(message.renewed)))
        raise Over("the server ended the stream")

    async def _renew(self, calls: Calls, stream: Any, incarnation: int, beats: Beats) -> None:
        """Send heartbeats, each after the answer to the one before.

        A registration renews the leases too, so the first heartbeat can wait. Its time is random. Otherwise the
        heartbeats of all agents would arrive together for as long as the server runs.
        """
        await self._rest(self._now() - int(self._draw(0, 1) * self._state.heartbeat))
        while True:
            sent = self._now()
            beats.sends(sent)
            try:
                await stream.write(self._heartbeat(incarnation))
            except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
                # The reader of the stream learns the reason, and ends this task.
                await asyncio.sleep(TOLD_WHY)
                raise Over("the stream has ended") from None
            while not await beats.is_answered(min(CALL_LIMIT, self._state.patience / 2e9)):
                # Large tasks may be on their way down the stream, with the answer behind them. A separate call
                # overtakes them.
                sent = await self._call(calls, incarnation, self._patience() / 2)
                await self._rest(sent)
            await self._rest(sent)

    def _heard(self, calls: Calls, message: pb.FromServer, incarnation: int) -> None:
        """Take the leases and requests for output from one message."""
        grants = [convert.grant_in(grant) for grant in message.grants]
        now = self._now()
        self._act(self._state.granted(now, incarnation, message.epoch, grants))
        if self._peers is not None and self._state.waiting:
            self._peers.remember(zip(grants, message.grants, strict=True), self._state.waiting)
        if message.gangs:
            starts = [convert.gang_start_in(start) for start in message.gangs]
            self._obey(self._worker.start_gangs(incarnation, message.epoch, starts))
        for read in message.reads:
            self._worker.outputs.request(read, self._chunks.put)
        for asked in message.relays:
            self._worker.sessions.request(asked, calls.relay)
        self._worker.sessions.left(message.left)
        if message.heartbeat_now:
            self._heartbeat_now.set()

    async def _listen(self, calls: Calls, incarnation: int) -> None:
        """Receive leases and requests for output on a one-way stream."""
        async for message in calls.listen(pb.ListenRequest(incarnation=incarnation)):
            self._heard(calls, message, incarnation)
        # The server ends the stream when another registration replaced ours. The next heartbeat learns that, and then
        # all tasks here must end. The server would refuse a registration until they have.
        self._heartbeat_now.set()
        await asyncio.sleep(self._patience())
        raise Over("the server ended the stream")

    async def _beat(self, calls: Calls, incarnation: int) -> None:
        """Renew all leases with calls, again and again."""
        while True:
            await self._rest(await self._call(calls, incarnation, self._patience()))

    async def _call(self, calls: Calls, incarnation: int, patience: float) -> int:
        """Renew all leases with a separate call; return when it was sent."""
        request = self._heartbeat(incarnation)
        sent = self._now()
        reply = await calls.unary("Heartbeat", request, pb.HeartbeatReply, patience)
        self._act(self._state.renewed(self._now(), sent, convert.renewal_in(reply)))
        return sent

    def _heartbeat(self, incarnation: int) -> pb.HeartbeatRequest:
        """Build a heartbeat for this moment."""
        state = self._state
        return pb.HeartbeatRequest(
            incarnation=incarnation,
            held=len(state.waiting) + len(state.fetching) + len(state.running),
            running=len(state.running),
            load=self._load(),
            wall=self._wall(),
            terms=state.terms_number,
        )

    async def _rest(self, sent: int) -> None:
        """Wait until the next heartbeat is due, given when the last was sent, or the server asks for one."""
        pause = (self._state.heartbeat - (self._now() - sent)) / 1e9
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause)):
                await self._heartbeat_now.wait()
        self._heartbeat_now.clear()

    def _patience(self) -> float:
        """Return the seconds that a heartbeat may take, which leave time to reconnect before leases expire."""
        return min(CALL_LIMIT, self._state.patience / 1e9)

    async def _report(self, calls: Calls) -> None:
        """Report what happened, all that is ready in one message, and one message at a time."""
        begun = 0
        while True:
            await self._ready.wait()
            self._ready.clear()
            await self._wait_for_more(begun)
            now = self._now()
            report, instructions = self._state.report(now)
            self._act(instructions)
            if report is None:
                self._drained.set()
                continue
            begun = now
            self._worker.flush()
            request = convert.report_out(report, begun)
            reply = await calls.unary("Report", request, pb.ReportReply, REPORT_LIMIT)
            self._act(self._state.reported(self._now(), convert.answered_in(reply)))
            self._ready.set()

    async def _wait_for_more(self, last: int) -> None:
        """Wait so that one message carries more, and longer while the agent has enough work."""
        since = (self._now() - last) / 1e9
        if since < LINGER:
            await asyncio.sleep(LINGER - since)
            since = LINGER
        self._report_now.clear()
        if not self._state.must_report_now():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(LINGER, LONGEST_LINGER - since)):
                    await self._report_now.wait()

    async def _send_output(self, calls: Calls, incarnation: int) -> None:
        """Send the output that readers asked for, all in one stream."""
        self._chunks = asyncio.Queue(16)  # chunks for an earlier connection are useless on this one
        chunks = self._chunks
        first = await chunks.get()

        async def stream() -> AsyncIterator[pb.OutputChunk]:
            chunk = first
            while True:
                chunk.incarnation = incarnation
                yield chunk
                chunk = await chunks.get()

        await calls.output(stream())
        raise Over("the server ended the stream of output")

    def _act(self, instructions: list[Instruction]) -> None:
        """Carry out instructions; raise `Over` if one of them ends the connection."""
        self._obey(self._worker.act(instructions))

    @staticmethod
    def _obey(end: Reconnect | None) -> None:
        """Raise `Over` if the connection must end."""
        if end is not None:
            raise Over(end.why, fenced=end.fenced)


def _over(error: grpc.aio.AioRpcError) -> Over:
    """Turn a failed call into the end of a connection."""
    code = error.code()
    if code in _NEEDS_MENDING and error.details():  # the details are a message of the server for a person
        return Over(str(error.details()), slow=True)
    return Over(f"{code.name}: {error.details()}", slow=code in _NEEDS_MENDING)


async def _until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Run all of these until the first one ends; raise the error that ended it.

    A TaskGroup does not work here. If one of its tasks fails while the owner is being cancelled, the cancellation is
    lost and the owner keeps running.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    raise _most_severe([error for error in ended if error is not None])


def _most_severe(errors: list[BaseException]) -> BaseException:
    """Return the error to report when several tasks failed together: bugs first, then fencing."""
    found: list[BaseException] = []
    for error in errors:
        match error:
            case grpc.aio.AioRpcError():
                found.append(_over(error))
            case convert.InvalidMessage():
                found.append(Over(str(error), slow=True))
            case asyncio.CancelledError():
                pass
            case _:
                found.append(error)
    found.sort(key=lambda error: (isinstance(error, Over), not getattr(error, "fenced", False)))
    return found[0]
