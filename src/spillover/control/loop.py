"""The live loop: the engine, the writer and the gate.

Proposals that came meanwhile are decided in one step. Their events are applied at once and appended in order, one append in
flight: all that came during it goes into the next. An append that fails is never undone: the state is dropped, whoever waits is
told to retry, and the state is loaded again from what is durable.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import structlog

from spillover.control.checkpoints import Checkpoints
from spillover.control.clock import ClockBounds, OtherClocks, SteadyTime
from spillover.control.collecting import Spared
from spillover.control.gate import Gate
from spillover.control.loading import Progress, load
from spillover.control.set_aside import SetAside, trace_of
from spillover.control.slices import slices
from spillover.control.subscribers import Subscribers
from spillover.control.watching import SLOW_AFTER, PolicyWatch
from spillover.core.events import AnyEvent, ClockJumped
from spillover.core.jobs import Job
from spillover.core.proposals import Jump, Proposal, Reply
from spillover.core.state import State
from spillover.deciding.engine import Engine, Failure, Step
from spillover.deciding.protocols import Policies
from spillover.model.policy import PolicySet
from spillover.model.units import FOREVER, HOUR, SECOND, format_time
from spillover.ports.clock import Clock
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Batch, Fenced, Journal, Moved, StoreError
from spillover.wire.journal import decode_event, encode_event

log = structlog.get_logger()

T = TypeVar("T")

TRIES: Final = 5
"""How often something is proposed that rests on what changed meanwhile."""
RETRY: Final = 1.0
"""Seconds between two tries to write again."""
LONGEST_WAIT: Final = 1.0
"""Seconds after which the loop looks at the clock even if nothing was announced, so that a jump is seen."""
MOST_TOLD: Final = 10_000
"""Failures that are remembered, so that each is logged once."""

Listener = Callable[[int, Sequence[AnyEvent]], None]
"""Called with the revision of the last event, once the events are durable; must not block."""


class _Ask(NamedTuple):
    proposals: Sequence[Proposal]
    blobs: Mapping[bytes, bytes]
    reply: "asyncio.Future[list[Reply]]"


class Loop:
    """One engine, live."""

    def __init__(
        self,
        journal: Journal,
        policies: Callable[[PolicySet], Policies],
        clock: Clock,
        *,
        debug: bool = False,
        slow_after: int = SLOW_AFTER,
        bounds: ClockBounds | None = None,
    ) -> None:
        self._journal = journal
        self.watch = PolicyWatch(policies, slow_after)
        self._debug = debug
        self._clock = clock
        self._inbox: list[_Ask] = []
        self._wake = asyncio.Event()
        self._pending: list[AnyEvent] = []
        self._encoded: list[bytes] = []
        """The same events, as they are to be written."""
        self._told: set[tuple[str, str, str]] = set()
        """Failures that were logged."""
        self._pending_blobs: dict[bytes, bytes] = {}
        self._writing = asyncio.Event()
        self._listeners: list[Listener] = []
        self._readers: list[asyncio.Future[None]] = []
        """Those who wait for all that is applied to be durable."""
        self._shown = asyncio.Event()
        """Set when no reader waits."""
        self._stepped = asyncio.Event()
        """Set when a step is over."""
        self._bounds = bounds
        self.time = SteadyTime(clock, bounds=bounds)
        self.clocks = OtherClocks()
        self._held_back = False
        """Whether it was told that a jump of the wall clock is held back."""
        self._asked_clocks = 0
        """When other machines were last asked about it, on the monotonic clock."""
        self._accepted_by = ""
        """Who had the wall clock followed that has not been journaled yet."""
        self.aside = SetAside(clock.monotonic)
        """Work that controllers failed on."""
        self.engine = Engine(State(), self.watch.load, encode=encode_event)
        self.gate = Gate(0)
        self.subscribers = Subscribers()
        self.applied = 0
        """Revision of the state in memory."""
        self.epoch = 0
        self.loading: Progress | None = None
        """How far the state is loaded; None while it is not being loaded."""
        self.problem: str | None = "starting"
        """Why nothing is accepted now; None when all is well."""
        self.held: str | None = None
        """Why it is not known whether this process still leads; None as a rule."""
        self._leads_until = FOREVER
        """Until when this process surely leads, on the monotonic clock; FOREVER where nobody else could."""
        self.lost_lead = asyncio.Event()
        """Set when a newer epoch has begun: this process must not act any more."""
        self.checkpoints = Checkpoints(journal, self)
        self._spared = Spared()

    @property
    def state(self) -> State:
        """The book, which may be ahead of what is durable: use `read` to show it to anybody."""
        return self.engine.state

    def listen(self, listener: Listener) -> None:
        """Be told of events once they are durable, from now on."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Be told of nothing more."""
        self._listeners.remove(listener)

    async def load(self) -> int:
        """Bring the state to where the journal ends; returns the time of the last event."""
        self.loading = Progress()
        try:
            brought = await load(self._journal, self._build, self.loading)
        finally:
            self.loading = None
        before, self.engine = self.engine, brought.engine
        before.retire()
        self.applied = brought.revision
        self.gate.open(brought.revision)
        return brought.at

    def _build(self, state: State) -> Engine:
        """The engine of a state that was loaded, without the jobs on its index."""
        return Engine(state, self.watch.load, debug=self._debug, encode=encode_event, whole=False)

    def begin(self, epoch: int, last: int) -> None:
        """Lead from here on."""
        self.epoch = epoch
        self.keep_time(last)
        self.problem = self.held

    def keep_time(self, last: int) -> None:
        """Go on from the time of the last event."""
        self.time = SteadyTime(self._clock, last, self._bounds)
        if (behind := -self.time.lead()) > HOUR:
            log.warning(
                "the journal ends later than the clock of this machine: an earlier server followed a wrong clock, or this one is; "
                "time goes on from the end of the journal",
                journal=format_time(last),
                clock=format_time(self.time.wall()),
                ahead_s=behind // SECOND,
            )

    async def propose(self, *proposals: Proposal, blobs: Mapping[bytes, bytes] | None = None) -> list[Reply]:
        """Have proposals decided together; returns their replies once what they rest on is durable."""
        if self.problem is not None:
            raise self.unavailable()
        reply: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Ask(proposals, blobs or {}, reply))
        self._wake.set()
        return await reply

    async def read(self) -> Engine:
        """The engine, once all that it shows is durable; look at it before the next await.

        While somebody waits to look, no step is made, so under any load a reader waits for one append at the most.
        """
        if self.gate.durable < self.applied:
            if self.lost_lead.is_set():  # what is not durable never will be
                raise self.unavailable()
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            await reader
        return self.engine

    async def scan(self, look: Callable[[Sequence[Job]], Iterable[T]]) -> list[T]:
        """What a look at all jobs finds, some of them at a time, so that others get their turn in between.

        What changes meanwhile is seen as it was or as it is. Returns once all that was seen is durable.
        """
        while True:
            engine = await self.read()
            found: list[T] = []
            async for jobs in slices(list(engine.state.jobs.values())):
                found += look(jobs)
            if await self.read() is engine:
                return found
            # Some of it was given up in between, as it could not be written: look at what is there instead.

    async def ready(self) -> Engine:
        """The engine, as `read` shows it, once it can decide: after a change of policies it looks at all jobs anew, some at a time."""
        while not (engine := await self.read()).is_ready:
            if self.lost_lead.is_set():
                raise self.unavailable()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await self._stepped.wait()
        return engine

    def unavailable(self) -> CommandError:
        """What to tell those who want something changed now."""
        kind = ErrorKind.NOT_LEADER if self.lost_lead.is_set() else ErrorKind.UNAVAILABLE
        return CommandError(kind, f"not accepting changes: {self.problem}", (), RETRY)

    def now(self) -> int:
        """The time, as the engine would be told."""
        return max(self.engine.now, self.time.now())

    async def run(self) -> None:
        """Step and write until cancelled or the lead is lost."""
        async with asyncio.TaskGroup() as group:
            stepping = group.create_task(self._step_forever(), name="step")
            try:
                await self._write_forever()
            finally:
                stepping.cancel()

    # --- stepping

    async def _step_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            self._wake.clear()
            if self._readers:
                await self._shown.wait()
            if self.problem is None and self._step_surely():
                self._wake.set()
                await asyncio.sleep(0)  # nothing else lets others have their turn between two steps

    def _step_surely(self) -> bool:
        """One step; a state that one has left half way is not written any more, not even as the server ends."""
        try:
            return self._step()
        except Exception:
            self.problem = "a step failed"
            raise

    def _pause(self) -> float:
        """Seconds until the engine asked to be called; while nothing can be written, whoever recovers wakes us."""
        if self.problem is not None:
            return LONGEST_WAIT
        wait = (self.engine.next_time() - self.now()) / SECOND
        return min(LONGEST_WAIT, max(0.0, wait))

    def _step(self) -> bool:
        """One step with all that came in; whether there is more to do right away."""
        asks, self._inbox = self._inbox, []
        self._mind_the_clock()
        now = self.time.now()
        jumped = self.time.take_jump()
        disabled = self.watch.due(self.engine.policies)
        if jumped:
            log.warning("the clock jumped forward; waits are shifted", seconds=jumped / SECOND)
            # Before time moves on, or the jump itself would make things due.
            who, self._accepted_by = self._accepted_by, ""
            self._take(self.engine.step(self.engine.now, [*disabled, Jump(jumped, who)], short=True))
            disabled = []
        else:
            self._accepted_by = ""  # there was nothing to follow
        self.watch.begin()
        proposals = [*disabled, *(proposal for ask in asks for proposal in ask.proposals)]
        step = self.engine.step(now, proposals, short=True)
        if self.watch.end():
            self._wake.set()
        self._take(step)
        self._spared.look(len(self.state.jobs), made_anew=not self.engine.is_ready, goes_on=step.more)
        self._stepped.set()
        self._stepped = asyncio.Event()
        at = len(disabled)
        for ask in asks:
            self._pending_blobs.update(ask.blobs)
            self.gate.answer(self.applied, ask.reply, step.replies[at : at + len(ask.proposals)])
            at += len(ask.proposals)
        return step.more

    def _mind_the_clock(self) -> None:
        """Tell of a jump that is held back, and follow it once clocks of other machines agree with it."""
        held, monotonic = self.time.held(), self._clock.monotonic()
        if not held:
            if self._held_back:
                log.info("the clock on the wall is believed again")
            self._held_back = False
            return
        if not self._held_back:
            self._held_back = True
            log.warning(
                "the clock on the wall jumped too far to be believed, and is not followed; `spill clock` says more",
                ahead_s=held // SECOND,
                clock=format_time(self.time.wall()),
            )
        if monotonic - self._asked_clocks >= SECOND:
            self._asked_clocks = monotonic
            if self.clocks.votes(self.time.wall(), monotonic).carried:
                log.warning("clocks of other machines agree with that of this one, which is followed")
                self.time.accept()

    async def accept_clock(self, who: str) -> None:
        """Follow the wall clock however far ahead it is; returns once that is durable."""
        if self.problem is not None:
            raise self.unavailable()
        self.time.accept()
        self._accepted_by = who
        await self.propose(Jump(0))  # what is to be journaled comes before it

    def _take(self, step: Step) -> None:
        """Have the events of a step written."""
        for failure in step.failures:
            self._tell(failure)
        self._pending += step.events
        self._encoded += step.encoded
        self.applied += len(step.events)
        if step.events:
            self._writing.set()

    def _tell(self, failure: Failure) -> None:
        """Log what could not be decided: where it failed, and each kind of failure of a subject once."""
        kind = failure.what, failure.subject, type(failure.error).__name__
        if kind in self._told:
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(kind)
        log.error(
            "could not decide; nothing of it happened",
            what=failure.what,
            subject=failure.subject,
            exception=trace_of(failure.error),
        )

    # --- writing

    async def _write_forever(self) -> None:
        while True:
            await self._writing.wait()
            self._writing.clear()
            if self.lost_lead.is_set():
                return
            if self.problem is not None:  # it was held, perhaps only for a moment
                await self._recover(StoreError(self.problem))
                if self.lost_lead.is_set():
                    return
            if not self._pending:
                continue
            events, self._pending = self._pending, []
            encoded, self._encoded = self._encoded, []
            blobs, self._pending_blobs = self._pending_blobs, {}
            batch = Batch(self.engine.now, tuple(encoded), blobs)
            try:
                revision = await self._journal.append(self.gate.durable, batch, self.epoch)
            except Fenced:
                self.step_down("another server leads")
                return
            except StoreError as error:
                await self._recover(error)
                if self.lost_lead.is_set():
                    return
            else:
                self._publish(revision, events)

    def _publish(self, revision: int, events: Sequence[AnyEvent]) -> None:
        """Let out what has become durable."""
        self.gate.open(revision)
        self.subscribers.tell(revision - len(events), events, self.state.jobs)
        for listener in tuple(self._listeners):
            listener(revision, events)
        if revision >= self.applied:
            self._let_read()

    def _let_read(self, error: CommandError | None = None) -> None:
        """Let readers look, before the next step."""
        readers, self._readers = self._readers, []
        for reader in readers:
            if reader.done():
                continue
            if error is None:
                reader.set_result(None)
            else:
                reader.set_exception(error)
        self._shown.set()
        self._shown = asyncio.Event()

    # --- leading

    def leads(self) -> bool:
        """Whether this process surely leads at this very moment: asked right before anything is said or done elsewhere.

        Between two looks of whoever renews the lead, this process may have stood still for longer than its term.
        """
        if self.held is None and self._clock.monotonic() >= self._leads_until:
            self.hold("the lead was not renewed in time")
        return self.held is None and not self.lost_lead.is_set()

    def may_act(self) -> bool:
        """Whether this process surely leads, and can write what comes of its deeds."""
        return self.leads() and self.problem is None

    def led_until(self, until: int) -> None:
        """The lead was renewed: nobody else leads before this time on the monotonic clock."""
        self._leads_until, self.held = until, None

    def hold(self, why: str) -> None:
        """Do nothing while another may lead."""
        self.held = self.problem = why
        self._writing.set()  # the writer is the one that recovers

    def step_down(self, why: str) -> None:
        """Stop acting: what is not durable never happened."""
        self.problem = why
        self.lost_lead.set()
        self._drop(Gate.dropped(why))

    def _drop(self, error: CommandError) -> None:
        """Tell all who wait that the state they were decided on is given up."""
        asks, self._inbox = self._inbox, []
        self._pending, self._encoded, self._pending_blobs = [], [], {}
        for ask in asks:
            if not ask.reply.done():
                ask.reply.set_exception(error)
        self.gate.drop(error)
        self._let_read(error)

    async def _recover(self, error: StoreError) -> None:
        """Serve what is durable, read-only, until it can be written again."""
        log.error("cannot write; serving read-only", error=str(error))
        self.problem = str(error)
        published, since = self.gate.durable, self.engine.now
        self._drop(Gate.dropped(str(error)))
        ahead = True  # what is in memory may not be what is durable
        while True:
            try:
                if ahead:
                    since = max(since, await self._reload(published))
                    ahead, published = False, self.applied
                if self.held is None:
                    now = self.now()
                    if await self._write_again(now, since):
                        return
                    since, published = now, self.applied  # the time up to here is written
            except Fenced:
                self.step_down("another server leads")
                return
            except Moved:  # a try had succeeded, although nobody could tell
                ahead = True
            except StoreError as again:
                self.problem = self.held or str(again)
                if ahead:  # nobody knows when it can be read
                    self._let_read(Gate.dropped(str(again)))
            await asyncio.sleep(RETRY)

    async def _reload(self, published: int) -> int:
        """Go back to what is durable, and let out what became so unnoticed; returns the time of the last event."""
        last = await self.load()
        missed = [decode_event(each.event) async for each in self._journal.tail(published)]
        if missed:
            self._publish(self.applied, missed)
        self._let_read()
        return last

    async def _write_again(self, now: int, since: int) -> bool:
        """Write that nothing could be decided for a time, which is no waiting; whether changes are accepted from here on."""
        self.time.take_jump()  # which is part of the time away
        self._accepted_by = ""
        away = ClockJumped(max(0, now - since))
        batch = Batch(now, (encode_event(away),))
        revision = await self._journal.append(self.applied, batch, self.epoch)
        self.engine.apply(away)
        self.applied = revision
        self._publish(revision, [away])
        if self.held is not None:  # meanwhile
            return False
        self.problem = None
        self._wake.set()
        log.info("can write again")
        return True
