"""The agent's side of the conversation with the server: find it, register, listen, renew, report, and begin again.

The server is looked up anew for every connection, as a server that restarts may have another address, and always has another
epoch. Every call has a deadline, and a heartbeat is due every few seconds: a server that stands still is noticed by that. The
channel is kept alive all the same, so that the system lets go of what a vanished server never acknowledges.
"""

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NamedTuple, Protocol

import grpc

from spillover.agent import convert
from spillover.agent.calls import EOF, HUNG_UP, Beats, Calls, dial
from spillover.agent.finding import FIRST_DELAY, LONGEST_DELAY, NotFound, ServerFinder, Target
from spillover.agent.nursery.clock import boottime
from spillover.agent.output import Outputs
from spillover.agent.peers import Peers
from spillover.agent.state import AgentState
from spillover.agent.transfers import ServerTransfers
from spillover.agent.values import Instruction, Reconnect, Welcome
from spillover.wire import agents_pb2 as pb

SLOW_DELAY: Final = 5.0
"""Seconds before another try where a person has to mend something first."""
CALL_LIMIT: Final = 5.0
"""Seconds that a registration by a call may take, and a heartbeat at the most: less where terms are short."""
JOIN_LIMIT: Final = 10.0
"""Seconds that another registration may take at the most: a server has much to do when all its agents come back, and who gives up
too soon has it do that twice."""
REPORT_LIMIT: Final = 15.0
"""Seconds that a report may take: it is answered when it is durable."""
LINGER: Final = 0.01
"""Seconds between two reports at the least: a message costs more than its content."""
LONGEST_LINGER: Final = 0.05
"""Seconds between two reports while there is enough to do."""
LONGEST_SPREAD: Final = 60.0
"""Seconds that an agent waits before it looks for the server at the most, however many agents there are."""
TOLD_WHY: Final = 1.0
"""Seconds within which it is known why something could not be sent."""
STOPPED_LIMIT: Final = 5.0
"""Seconds to wait for fenced tasks to be gone before registering anew all the same."""
_FENCED: Final = grpc.StatusCode.ABORTED
"""What a registration is refused with while another agent has the name."""
_NEEDS_MENDING: Final = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}

log = logging.getLogger("spillover.agent")


class Over(Exception):
    """This connection has come to its end."""

    def __init__(self, why: str, *, fenced: bool = False, slow: bool = False, busy: bool = False) -> None:
        super().__init__(why)
        self.fenced = fenced
        self.slow = slow
        self.busy = busy
        """Whether the server is there, and has no time to let us in."""


class LinkOwner(Protocol):
    """What the conversation is about."""

    state: AgentState
    outputs: Outputs
    log_retention: int
    server_time: tuple[int, int]
    """What time it is by the server, nanoseconds UTC, and when that was on the monotonic clock."""

    def act(self, instructions: list[Instruction]) -> Reconnect | None:
        """Carry out instructions; the one about the connection is handed back."""
        ...

    def flush(self) -> None:
        """Put on disk what must be there before it is told."""
        ...

    async def wait_stopped(self) -> None:
        """Return when no task runs."""
        ...


def _load() -> int:
    """How many processes the machine runs or would run, in thousandths."""
    try:
        return int(os.getloadavg()[0] * 1000)
    except OSError:
        return 0


class LinkEnvironment(NamedTuple):
    """What a link needs of the machine that it is on: a network, a clock, dice, and how busy it is."""

    dial: Callable[[Target], grpc.aio.Channel] = dial
    monotonic: Callable[[], int] = boottime
    draw: Callable[[float, float], float] = random.uniform
    load: Callable[[], int] = _load
    wall: Callable[[], int] = time.time_ns


class Link:
    """Connects, and connects again."""

    def __init__(
        self,
        worker: LinkOwner,
        introduction: pb.RegisterRequest,
        finder: ServerFinder,
        environment: LinkEnvironment = LinkEnvironment(),  # noqa: B008 - a value that never changes
        transfers: ServerTransfers | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._worker = worker
        self._state = worker.state
        self._introduction = introduction
        self._finder = finder
        self._transfers = transfers or ServerTransfers()
        self._dial, self._now, self._draw, self._load, self._wall = environment
        self._peers = peers
        self._heartbeat_now = asyncio.Event()
        self._ready = asyncio.Event()
        self._hungry = asyncio.Event()
        self._drained = asyncio.Event()
        self._chunks: asyncio.Queue[pb.OutputChunk] = asyncio.Queue(16)
        self.registrations = 0
        """Tried so far."""
        self.connected = False
        self._spread = 0.0
        """Seconds within which the server wants all its agents back."""

    def ready(self) -> None:
        """There may be something to report."""
        self._ready.set()
        if self._state.hungry():
            self._hungry.set()

    async def run(self) -> None:
        """Keep a connection for as long as the agent lives."""
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
                # All agents try at once after a power cut, and no server has told them yet how long to take.
                crowd = min(LONGEST_SPREAD, max(CALL_LIMIT, 2 * crowd)) if over.busy else 0.0
            if self.connected or why != last:
                again = f"; trying again every {SLOW_DELAY:g} s" if pause == SLOW_DELAY else ""
                log.warning("not connected: %s%s", why, again)
            last = why
            # Two agents of one name would else fence each other without a pause.
            lasted = self.connected and self._now() - begun > LONGEST_DELAY * 1e9
            delay = FIRST_DELAY if lasted else min(LONGEST_DELAY, delay * 2)
            self.connected = False
            # So that agents do not come back all at once.
            pause *= self._draw(0.5, 1)
            if crowd or self._spread:
                pause = max(pause, self._draw(0, 1) * min(max(crowd, self._spread), self._leisure()))
            await asyncio.sleep(pause)

    def _leisure(self) -> float:
        """Seconds that we can wait for our turn to come back: what we hold must not be over meanwhile."""
        state = self._state
        holds = state.running or state.waiting or state.fetching
        return min(LONGEST_SPREAD, state.patience / 1e9) if holds else LONGEST_SPREAD

    async def drained(self) -> None:
        """Return once everything was reported."""
        self._drained.clear()
        self._ready.set()
        self._hungry.set()
        await self._drained.wait()

    async def _connect(self) -> None:
        """One connection, from beginning to end; always ends in `Over`."""
        try:
            target = await self._finder.find()
        except NotFound as error:
            raise Over(str(error), slow=error.slow) from None
        async with self._dial(target) as channel:
            calls = Calls(channel, target.token)
            try:
                welcome, stream = await self._register(calls, target.address)
                incarnation = welcome.incarnation
                self._finder.found(target)
                self._transfers.connected(channel, calls.metadata, target)
                if stream is not None or welcome.stream:
                    attending = [self._attend(calls, stream or calls.session(), incarnation)]
                else:  # a server of before there was one stream for both
                    attending = [self._listen(calls, incarnation), self._beat(calls, incarnation)]
                await _until_one_ends(*attending, self._report(calls), self._send_output(calls, incarnation))
            except grpc.aio.AioRpcError as error:
                raise _over(error) from None
            except convert.Unspeakable as error:
                raise Over(str(error), slow=True) from None
            finally:
                self._transfers.disconnected()
                self._state.unreported()
                await self._worker.outputs.reset()

    async def _register(self, calls: Calls, address: str) -> tuple[Welcome, Any]:
        """Say who we are and what we hold; returns what we are told, and the stream if the same one goes on."""
        sent = self._now()
        held, instructions = self._state.register(sent)
        self._act(instructions)
        self.registrations += 1
        request = pb.RegisterRequest(
            epoch=self._state.epoch, held=convert.held_out(held), number=self.registrations
        )
        request.MergeFrom(self._introduction)
        try:
            reply, stream = await self._introduce(calls, request)
        except TimeoutError:
            raise Over("the server did not let us register in time", busy=calls.is_connected()) from None
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and calls.is_connected():
                raise Over("the server did not let us register in time", busy=True) from None
            if error.code() is not _FENCED:
                raise
            self._worker.act(self._state.fenced(self._now()))
            raise Over(str(error.details()), fenced=True, slow=True) from None
        calls.admitted(reply.session)
        welcome = convert.welcome_in(reply)
        self._act(self._state.registered(self._now(), sent, welcome))
        self._worker.log_retention = welcome.log_retention
        self._worker.server_time = (welcome.now, self._now())
        self.connected = True
        self._spread = min(LONGEST_SPREAD, welcome.spread / 1e9)
        self._ready.set()
        log.info("registered with %s: epoch %d, incarnation %d", address, welcome.epoch, welcome.incarnation)
        return welcome, stream

    async def _introduce(self, calls: Calls, request: pb.RegisterRequest) -> tuple[pb.RegisterReply, Any]:
        """Register, on the stream that goes on afterwards if the server has one: it is half the work with thousands of agents."""
        if request.stream:
            try:
                return await calls.join(request, min(JOIN_LIMIT, max(CALL_LIMIT, self._leisure() / 2)))
            except grpc.aio.AioRpcError as error:
                # A server may end the stream before we wrote: then gRPC does not tell why, and the plain call does.
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED and error.details() != HUNG_UP:
                    raise
        return await calls.unary("Register", request, pb.RegisterReply, CALL_LIMIT), None

    async def _attend(self, calls: Calls, stream: Any, incarnation: int) -> None:
        """Take what the server says, and renew all leases on the same stream."""
        beats = Beats()
        await _until_one_ends(
            self._hear(stream, incarnation, beats), self._renew(calls, stream, incarnation, beats)
        )

    async def _hear(self, stream: Any, incarnation: int, beats: Beats) -> None:
        """Take leases, requests for output, and answers to heartbeats."""
        while (message := await stream.read()) is not EOF:
            self._heard(message, incarnation)
            if not message.HasField("renewed"):
                continue
            sent = beats.answered()
            if sent is not None or message.renewed.fenced:  # that is told to one who has not asked as well
                now = self._now()
                self._act(self._state.renewed(now, sent or now, convert.renewal_in(message.renewed)))
        raise Over("the server ended the stream")

    async def _renew(self, calls: Calls, stream: Any, incarnation: int, beats: Beats) -> None:
        """Send heartbeats, each after the one before was answered.

        A registration renews as well, so the first one is due a while after it: at a time that is drawn, or those of all agents
        would come together for as long as the server lives.
        """
        await self._rest(self._now() - int(self._draw(0, 1) * self._state.heartbeat))
        while True:
            sent = self._now()
            beats.sends(sent)
            try:
                await stream.write(self._heartbeat(incarnation))
            except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
                await asyncio.sleep(TOLD_WHY)  # whoever reads is told, and ends this
                raise Over("the stream has ended") from None
            while not await beats.is_answered(min(CALL_LIMIT, self._state.patience / 2e9)):
                # Large tasks may be on their way down the stream, with the answer behind them: a call can pass them.
                sent = await self._call(calls, incarnation, self._patience() / 2)
                await self._rest(sent)
            await self._rest(sent)

    def _heard(self, message: pb.FromServer, incarnation: int) -> None:
        """Take leases and requests for output from one message."""
        grants = [convert.grant_in(grant) for grant in message.grants]
        now = self._now()
        self._act(self._state.granted(now, incarnation, message.epoch, grants))
        if self._peers is not None and self._state.waiting:
            self._peers.remember(zip(grants, message.grants, strict=True), self._state.waiting)
        for read in message.reads:
            self._worker.outputs.request(read, self._chunks.put)
        if message.heartbeat_now:
            self._heartbeat_now.set()

    async def _listen(self, calls: Calls, incarnation: int) -> None:
        """Take leases and requests for output."""
        async for message in calls.listen(pb.ListenRequest(incarnation=incarnation)):
            self._heard(message, incarnation)
        # It does so when another registration has taken the place of ours. A heartbeat is told that, and then all that runs
        # here has to end; to register at once would only be refused while it runs on.
        self._heartbeat_now.set()
        await asyncio.sleep(self._patience())
        raise Over("the server ended the stream")

    async def _beat(self, calls: Calls, incarnation: int) -> None:
        """Renew all leases, again and again."""
        while True:
            await self._rest(await self._call(calls, incarnation, self._patience()))

    async def _call(self, calls: Calls, incarnation: int, patience: float) -> int:
        """Renew all leases with a call of its own; returns when it was sent."""
        request = self._heartbeat(incarnation)
        sent = self._now()
        reply = await calls.unary("Heartbeat", request, pb.HeartbeatReply, patience)
        self._act(self._state.renewed(self._now(), sent, convert.renewal_in(reply)))
        return sent

    def _heartbeat(self, incarnation: int) -> pb.HeartbeatRequest:
        """A heartbeat as it would be sent now."""
        state = self._state
        return pb.HeartbeatRequest(
            incarnation=incarnation,
            held=len(state.waiting) + len(state.fetching) + len(state.running),
            running=len(state.running),
            load=self._load(),
            wall=self._wall(),
            terms=state.lives_by,
        )

    async def _rest(self, sent: int) -> None:
        """Wait until the next heartbeat is due, after one that was sent then, or the server asks for it."""
        pause = (self._state.heartbeat - (self._now() - sent)) / 1e9
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause)):
                await self._heartbeat_now.wait()
        self._heartbeat_now.clear()

    def _patience(self) -> float:
        """Seconds that a heartbeat may take, so that there is time for another connection before leases are over."""
        return min(CALL_LIMIT, self._state.patience / 1e9)

    async def _report(self, calls: Calls) -> None:
        """Tell what happened: everything that is ready in one message, one message at a time."""
        begun = 0
        while True:
            await self._ready.wait()
            self._ready.clear()
            await self._linger(begun)
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

    async def _linger(self, last: int) -> None:
        """Let what happens meanwhile go into one message, of which the last was begun then: for longer while there is enough to do."""
        since = (self._now() - last) / 1e9
        if since < LINGER:
            await asyncio.sleep(LINGER - since)
            since = LINGER
        self._hungry.clear()
        if not self._state.hungry():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(LINGER, LONGEST_LINGER - since)):
                    await self._hungry.wait()

    async def _send_output(self, calls: Calls, incarnation: int) -> None:
        """Send what readers asked for, in one stream for all of them."""
        self._chunks = asyncio.Queue(16)  # what was meant for an earlier connection is of no use to this one
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
        """Carry out instructions; one that ends the connection ends it."""
        if (end := self._worker.act(instructions)) is not None:
            raise Over(end.why, fenced=end.fenced)


def _over(error: grpc.aio.AioRpcError) -> Over:
    """A failed call as the end of a connection."""
    code = error.code()
    if code in _NEEDS_MENDING and error.details():  # words of the server, for a person
        return Over(str(error.details()), slow=True)
    return Over(f"{code.name}: {error.details()}", slow=code in _NEEDS_MENDING)


async def _until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Do all of these until one fails, as each does in the end; raises what ended them.

    No group of tasks: one that fails while its owner is being cancelled forgets the cancellation, and the owner lives on.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    raise _gravest([error for error in ended if error is not None])


def _gravest(errors: list[BaseException]) -> BaseException:
    """What ended a connection, where several tasks ended with it."""
    found: list[BaseException] = []
    for error in errors:
        match error:
            case grpc.aio.AioRpcError():
                found.append(_over(error))
            case convert.Unspeakable():
                found.append(Over(str(error), slow=True))
            case asyncio.CancelledError():
                pass
            case _:
                found.append(error)
    found.sort(key=lambda error: (isinstance(error, Over), not getattr(error, "fenced", False)))
    return found[0]
