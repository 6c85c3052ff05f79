"""The live loop: runs the engine, writes its events and opens the gate.

One step decides all proposals that have arrived. The loop applies their events at once and appends them in order,
with one append in flight. Events that arrive during an append go into the next one. The loop never undoes a failed
append. It drops the state, tells waiting callers to retry, and loads the durable state again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

import structlog

from spillover.control.live.checkpoints import Checkpoints
from spillover.control.live.clock import ClockBounds, OtherClocks, SteadyTime
from spillover.control.live.garbage import FrozenState
from spillover.control.live.gate import Gate
from spillover.control.live.loading import Progress, load
from spillover.control.live.policy_watch import SLOW_AFTER, PolicyWatch
from spillover.control.live.set_aside import SetAside, trace_of
from spillover.control.live.slices import slices
from spillover.control.live.subscribers import Subscribers
from spillover.core.events import AnyEvent, ClockJumped
from spillover.core.proposals import Jump, Proposal, Reply
from spillover.core.records.jobs import Job
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
"""Tries of a proposal that depends on state that may change meanwhile."""
RETRY: Final = 1.0
"""Seconds between two tries to write."""
LONGEST_WAIT: Final = 1.0
"""Most seconds between two looks at the clock, to notice jumps."""
MOST_TOLD: Final = 10_000
"""Failures to remember, so that each is logged once."""

Listener = Callable[[int, Sequence[AnyEvent]], None]
"""Called with durable events and the revision of the last one; must not block."""


class _Ask(NamedTuple):
    proposals: Sequence[Proposal]
    blobs: Mapping[bytes, bytes]
    reply: "asyncio.Future[list[Reply]]"


class Loop:
    """Runs one engine live."""

    def __init__(  # noqa: PLR0915 - the loop has this many parts
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
        """Encodings of the pending events."""
        self._told: set[tuple[str, str, str]] = set()
        """Failures that were logged."""
        self._pending_blobs: dict[bytes, bytes] = {}
        self._writing = asyncio.Event()
        self._listeners: list[Listener] = []
        self._readers: list[asyncio.Future[None]] = []
        """Callers that wait until all applied events are durable."""
        self._shown = asyncio.Event()
        """Set when no reader waits."""
        self._stepped = asyncio.Event()
        """Set when a step is over."""
        self._bounds = bounds
        self.time = SteadyTime(clock, bounds=bounds)
        self.clocks = OtherClocks()
        self._held_back = False
        """Whether the ignored jump of the wall clock was logged."""
        self._asked_clocks = 0
        """Monotonic time when the clocks of other machines were last compared."""
        self._accepted_by = ""
        """Who accepted the wall clock; empty once that is journaled."""
        self.aside = SetAside(clock.monotonic)
        """Work that controllers failed on."""
        self.engine = Engine(State(), self.watch.load, encode=encode_event)
        self.gate = Gate(0)
        self.subscribers = Subscribers()
        self.applied = 0
        """Revision of the state in memory."""
        self.published_at = 0
        """Time of the events that listeners are told of, as the journal has it."""
        self.epoch = 0
        self.loading: Progress | None = None
        """Progress of loading; None while nothing is loaded."""
        self.problem: str | None = "starting"
        """Why the server accepts no changes now; None if it does."""
        self.held: str | None = None
        """Why this process may not lead any more; None if it leads."""
        self._leads_until = FOREVER
        """Monotonic time until which this process certainly leads; FOREVER if there is no election."""
        self.lost_lead = asyncio.Event()
        """Set when a newer epoch has begun; this process must not act any more."""
        self.checkpoints = Checkpoints(journal, self)
        self._frozen = FrozenState()

    @property
    def state(self) -> State:
        """The state, which may be ahead of what is durable; use `read` to show it to anyone."""
        return self.engine.state

    def listen(self, listener: Listener) -> None:
        """Call a listener with all events that become durable from now on."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Stop calling a listener."""
        self._listeners.remove(listener)

    async def load(self) -> int:
        """Load the state at the end of the journal; return the time of the last event."""
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
        """Return the engine of a loaded state, without jobs in its index."""
        return Engine(state, self.watch.load, debug=self._debug, encode=encode_event, whole=False)

    def begin(self, epoch: int, last: int) -> None:
        """Start to lead in this epoch."""
        self.epoch = epoch
        self.keep_time(last)
        self.problem = self.held

    def keep_time(self, last: int) -> None:
        """Continue from the time of the last event."""
        self.time = SteadyTime(self._clock, last, self._bounds)
        if (behind := -self.time.lead()) > HOUR:
            log.warning(
                "the journal ends after this machine's clock: this clock is wrong, or an earlier server's "
                "was; time continues from the end of the journal",
                journal=format_time(last),
                clock=format_time(self.time.wall()),
                ahead_s=behind // SECOND,
            )

    async def propose(self, *proposals: Proposal, blobs: Mapping[bytes, bytes] | None = None) -> list[Reply]:
        """Decide proposals together; return their replies once the events behind them are durable."""
        if self.problem is not None:
            raise self.unavailable()
        reply: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Ask(proposals, blobs or {}, reply))
        self._wake.set()
        return await reply

    def monotonic(self) -> int:
        """Return nanoseconds since an arbitrary time, for waits that a wrong clock must not change."""
        return self._clock.monotonic()

    async def read(self) -> Engine:
        """Return the engine once its whole state is durable; use it before the next await.

        No step runs while a reader waits. So a reader waits for one append at most, under any load.
        """
        if self.gate.durable < self.applied:
            if self.lost_lead.is_set():  # the rest never becomes durable
                raise self.unavailable()
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            await reader
        return self.engine

    async def scan(self, look: Callable[[Sequence[Job]], Iterable[T]]) -> list[T]:
        """Return what `look` finds in all jobs, in slices, so that other work runs in between.

        A job that changes meanwhile is seen before or after its change. Returns once everything that was seen is
        durable.
        """
        while True:
            engine = await self.read()
            found: list[T] = []
            async for jobs in slices(list(engine.state.jobs.values())):
                found += look(jobs)
            if await self.read() is engine:
                return found
            # The state was dropped meanwhile, as it could not be written. Scan the new one.

    async def ready(self) -> Engine:
        """Return the engine as `read` does, once its index is complete; a change of policies rebuilds it in steps."""
        while not (engine := await self.read()).is_ready:
            if self.lost_lead.is_set():
                raise self.unavailable()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await self._stepped.wait()
        return engine

    def unavailable(self) -> CommandError:
        """Return the error for callers that want to change something now."""
        kind = ErrorKind.NOT_LEADER if self.lost_lead.is_set() else ErrorKind.UNAVAILABLE
        return CommandError(kind, f"not accepting changes: {self.problem}", (), RETRY, untouched=True)

    def now(self) -> int:
        """Return the time as the engine would get it."""
        return max(self.engine.now, self.time.now())

    async def run(self) -> None:
        """Step and write until cancelled or until the lead is lost."""
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
                await asyncio.sleep(0)  # let other work run between two steps

    def _step_surely(self) -> bool:
        """Run a step; if it fails, mark the state so that it is never written, not even at shutdown."""
        try:
            return self._step()
        except Exception:
            self.problem = "a step failed"
            raise

    def _pause(self) -> float:
        """Return the seconds until the next step; after a failure, recovery wakes the loop."""
        if self.problem is not None:
            return LONGEST_WAIT
        wait = (self.engine.next_time() - self.now()) / SECOND
        return min(LONGEST_WAIT, max(0.0, wait))

    def _step(self) -> bool:
        """Run one step with all proposals that arrived; return whether to step again at once."""
        asks, self._inbox = self._inbox, []
        self._check_clock()
        now = self.time.now()
        jumped = self.time.take_jump()
        disabled = self.watch.due(self.engine.policies)
        if jumped:
            log.warning("the clock jumped forward; shifting waits", seconds=jumped / SECOND)
            # Before time moves on; otherwise the jump itself would make work due.
            who, self._accepted_by = self._accepted_by, ""
            self._take(self.engine.step(self.engine.now, [*disabled, Jump(jumped, who)], short=True))
            disabled = []
        else:
            self._accepted_by = ""  # there was no jump to follow
        self.watch.begin()
        proposals = [*disabled, *(proposal for ask in asks for proposal in ask.proposals)]
        step = self.engine.step(now, proposals, short=True)
        if self.watch.end():
            self._wake.set()
        self._take(step)
        self._frozen.look(len(self.state.jobs), rebuilt=not self.engine.is_ready, goes_on=step.more)
        self._stepped.set()
        self._stepped = asyncio.Event()
        at = len(disabled)
        for ask in asks:
            self._pending_blobs.update(ask.blobs)
            self.gate.answer(self.applied, ask.reply, step.replies[at : at + len(ask.proposals)])
            at += len(ask.proposals)
        return step.more

    def _check_clock(self) -> None:
        """Log a jump that is ignored, and follow it once the clocks of other machines agree."""
        held, monotonic = self.time.held(), self._clock.monotonic()
        if not held:
            if self._held_back:
                log.info("following the machine's clock again")
            self._held_back = False
            return
        if not self._held_back:
            self._held_back = True
            log.warning(
                "the machine's clock jumped too far and is ignored; see `spill clock`",
                ahead_s=held // SECOND,
                clock=format_time(self.time.wall()),
            )
        if monotonic - self._asked_clocks >= SECOND:
            self._asked_clocks = monotonic
            if self.clocks.votes(self.time.wall(), monotonic).carried:
                log.warning("the clocks of other machines agree with this one; following it")
                self.time.accept()

    async def accept_clock(self, who: str) -> None:
        """Follow the wall clock, however far ahead it is; return once that is durable."""
        if self.problem is not None:
            raise self.unavailable()
        self.time.accept()
        self._accepted_by = who
        await self.propose(Jump(0))  # the accepted jump is journaled before this one

    def _take(self, step: Step) -> None:
        """Queue the events of a step for writing, and log its failures."""
        for failure in step.failures:
            self._tell(failure)
        self._pending += step.events
        self._encoded += step.encoded
        self.applied += len(step.events)
        if step.events:
            self._writing.set()

    def _tell(self, failure: Failure) -> None:
        """Log a failed decision with its traceback, once for each kind of failure and subject."""
        kind = failure.what, failure.subject, type(failure.error).__name__
        if kind in self._told:
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(kind)
        log.error(
            "a decision failed and was discarded",
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
            if self.problem is not None:  # set by `hold`, perhaps only for a moment
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
                self._publish(revision, events, batch.at)

    def _publish(self, revision: int, events: Sequence[AnyEvent], at: int) -> None:
        """Open the gate, and pass durable events of one batch to subscribers and listeners."""
        self.published_at = at
        self.gate.open(revision)
        self.subscribers.tell(revision - len(events), events, self.state.jobs)
        for listener in tuple(self._listeners):
            listener(revision, events)
        if revision >= self.applied:
            self._let_read()

    def _let_read(self, error: CommandError | None = None) -> None:
        """Let waiting readers continue before the next step, or fail them with an error."""
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
        """Return whether this process certainly leads right now; ask just before any effect outside of it.

        The process may have been suspended for longer than its term since the last renewal.
        """
        if self.held is None and self._clock.monotonic() >= self._leads_until:
            self.hold("leadership was not renewed in time")
        return self.held is None and not self.lost_lead.is_set()

    def may_act(self) -> bool:
        """Return whether this process certainly leads and can write the results of what it does."""
        return self.leads() and self.problem is None

    def led_until(self, until: int) -> None:
        """Record a renewal: no other server leads before this time on the monotonic clock."""
        self._leads_until, self.held = until, None

    def hold(self, why: str) -> None:
        """Do nothing while another server may lead."""
        self.held = self.problem = why
        self._writing.set()  # the writer runs the recovery

    def step_down(self, why: str) -> None:
        """Stop acting for good; events that are not durable never happened."""
        self.problem = why
        self.lost_lead.set()
        self._drop(Gate.dropped(why))

    def _drop(self, error: CommandError) -> None:
        """Drop all events that are not durable, and tell all waiting callers."""
        asks, self._inbox = self._inbox, []
        self._pending, self._encoded, self._pending_blobs = [], [], {}
        for ask in asks:
            if not ask.reply.done():
                ask.reply.set_exception(error)
        self.gate.drop(error)
        self._let_read(error)

    async def _recover(self, error: StoreError) -> None:
        """Serve the durable state read-only until the store can be written again."""
        log.error("cannot write; serving read-only", error=str(error))
        self.problem = str(error)
        published, since = self.gate.durable, self.engine.now
        self._drop(Gate.dropped(str(error)))
        ahead = True  # the state in memory may differ from the durable one
        while True:
            try:
                if ahead:
                    since = max(since, await self._reload(published))
                    ahead, published = False, self.applied
                if self.held is None:
                    now = self.now()
                    if await self._write_again(now, since):
                        return
                    since, published = now, self.applied  # time up to here is journaled
            except Fenced:
                self.step_down("another server leads")
                return
            except Moved:  # an earlier append succeeded without an answer
                ahead = True
            except StoreError as again:
                self.problem = self.held or str(again)
                if ahead:  # the store cannot be read either
                    self._let_read(Gate.dropped(str(again)))
            await asyncio.sleep(RETRY)

    async def _reload(self, published: int) -> int:
        """Load the durable state, publish events that became durable unnoticed, and return the last event's time."""
        last = await self.load()
        missed = [(each.at, decode_event(each.event)) async for each in self._journal.tail(published)]
        for at, batch in groupby(missed, lambda each: each[0]):
            events = [event for _, event in batch]
            published += len(events)
            self._publish(published, events, at)
        self._let_read()
        return last

    async def _write_again(self, now: int, since: int) -> bool:
        """Journal the outage, which does not count as waiting; return whether changes are accepted again."""
        self.time.take_jump()  # the outage includes this jump
        self._accepted_by = ""
        away = ClockJumped(max(0, now - since))
        batch = Batch(now, (encode_event(away),))
        revision = await self._journal.append(self.applied, batch, self.epoch)
        self.engine.apply(away)
        self.applied = revision
        self._publish(revision, [away], now)
        if self.held is not None:  # leadership became uncertain meanwhile
            return False
        self.problem = None
        self._wake.set()
        log.info("can write again")
        return True
