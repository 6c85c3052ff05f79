"""Which leases an agent holds and what it does about them: decided from values, carried out elsewhere.

Every method takes the monotonic time and returns instructions. Nothing is started before what has run out is dropped, so an
agent that was stopped for an hour and wakes up in the middle of a message cannot run a lease that is no longer its own.
"""

import heapq
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import Final

from msgspec import Struct

from spillover.agent.chains import Chains
from spillover.agent.devices import Devices
from spillover.agent.values import (
    Answered,
    Exit,
    Fetch,
    Forget,
    Grant,
    Instruction,
    Phase,
    Prefetch,
    Recall,
    Reconnect,
    Renewal,
    Report,
    Result,
    Signal,
    Source,
    Start,
    Task,
    Welcome,
)
from spillover.agent.yielding import Yielding
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome
from spillover.model.ids import JobId
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, SECOND

REPORT_LIMIT: Final = 2_000
"""Entries of one kind in a report: far below the size that a message may have."""
FAREWELL_GRACE: Final = 3 * SECOND
"""The most that a task is given when the agent itself is told to stop."""


class _Due(Enum):
    """What a timer is for."""

    WALLTIME = "walltime"
    KILL = "kill"


class Running(Struct):
    """A lease with a process, or with one that is being made."""

    task: Task
    started: int | None = None
    """Monotonic time at which its process was made; None while it is being made."""
    acknowledged: bool = False
    """Whether the server has its start durably, so that it outlives the short term."""
    cause: Outcome | None = None
    """Why it is being stopped; None if it is not."""
    terminated: bool = False
    killed: bool = False
    why: str = ""
    """What the result will say; empty if it ends by itself."""
    moving: bool = False
    """Whether its files are being brought here or away, so that it has no process."""


class AgentState:
    """Leases, capacity and terms of one agent."""

    def __init__(
        self, capacity: Resources, unanswered: Iterable[Result] = (), devices: tuple[str, ...] = ()
    ) -> None:
        self.capacity = capacity
        self.free = capacity
        self.epoch = 0
        """The highest that any server showed."""
        self.incarnation: int | None = None
        """Of the current registration; None from sending Register until its answer."""
        self.heartbeat = 2 * SECOND
        self.short_term = 30 * SECOND
        self.keep_output = False
        """Whether the server wants a copy of what tasks wrote."""
        self.draining = False
        self.leaving = False
        """Whether the agent itself was told to stop."""
        self._left: int | None = None
        """The registration under which the server knows of that; None while it does not."""
        self.waiting: dict[Lease, Task] = {}
        """In order of arrival."""
        self.fetching: dict[Lease, Source] = {}
        """Leases that were taken over and whose task is still to come."""
        self._yielding = Yielding()
        self.running: dict[Lease, Running] = {}
        self.results: dict[Lease, Result] = {result.lease: result for result in unanswered}
        """Not answered yet, in the order they came."""
        self._released: dict[Lease, None] = {}
        self._starts: dict[Lease, None] = {}
        """Starts to be told; a result that comes first takes the place of its start."""
        self._unacknowledged: dict[Lease, None] = {}
        """Starts that were told and not acknowledged; told again after the next heartbeat."""
        self._named: tuple[Lease, ...] = ()
        self._reporting: Report | None = None
        self._renewed: int | None = None
        """When the last acknowledged heartbeat or registration was sent; None before the first."""
        self._shortest = FOREVER
        """No lease of ours has a shorter term than this."""
        self._timers: list[tuple[int, int, Lease, _Due]] = []
        self._timer_count = 0
        self._by_task: dict[tuple[JobId, int], Lease] = {}
        """The lease under which a task runs here, whatever its attempt."""
        self._chains = Chains()
        self._devices = Devices(devices)
        self._plenty = 0
        """How many leases were in hand when the last ones came."""
        self._now = 0
        """Monotonic time of what is being done."""

    # --- the server speaks

    def register(self, now: int) -> tuple[tuple[tuple[Lease, Phase], ...], list[Instruction]]:
        """What to name in a registration that is sent now; earlier streams count for nothing from here on."""
        out = self._renewable(now)
        self.incarnation = None
        self._yielding.forget()  # what was given up is not named, and so given away
        held = [(lease, Phase.WAITING) for lease in self._unstarted()]
        held += [(lease, Phase.RUNNING) for lease in self.running]
        held += [(lease, Phase.ENDED) for lease in self.results]
        self._named = tuple(lease for lease, _ in held)
        return tuple(held), out

    def registered(self, now: int, sent: int, welcome: Welcome) -> list[Instruction]:
        """The server answered the registration that was sent at `sent`."""
        if welcome.epoch < self.epoch:
            return [*self._renewable(now), self._stale(welcome.epoch)]
        self.epoch = welcome.epoch
        self.incarnation = welcome.incarnation
        self.heartbeat, self.short_term = welcome.heartbeat, welcome.short_term
        self.keep_output = welcome.keep_output
        self.draining = False
        self._renew(sent)
        out: list[Instruction] = []
        for lease in self._named:
            if lease in welcome.keep:
                continue
            # Somebody else may run it by now, so it gets no grace. A result is sent all the same: the server judges it.
            self.waiting.pop(lease, None)
            self.fetching.pop(lease, None)
            if lease in self.running:
                out += self._stop(now, lease, Outcome.STOPPED, "the server gave this lease up", kill=True)
        self._named = ()
        self._tell_again()
        return out + self._renewable(now) + self._fill()

    def granted(self, now: int, incarnation: int, epoch: int, grants: Sequence[Grant]) -> list[Instruction]:
        """Leases came on the stream of a registration."""
        out = self._renewable(now)
        if incarnation != self.incarnation:
            return out  # a stream from before the last Register: the server counts these as never delivered
        if epoch < self.epoch:
            return [*out, self._stale(epoch)]
        self.epoch = epoch
        void = self._renewed is None or now - self._renewed + self.heartbeat >= self.short_term
        for grant in grants:
            lease = grant.lease
            if (
                lease in self.waiting
                or lease in self.running
                or lease in self.results
                or lease in self.fetching
            ):
                continue
            if void or self.draining or self.leaving or self._yielding.refuses(lease):
                self._released[lease] = None
                continue
            # A new lease of a task means that the old one is void.
            older = self._by_task.get((lease.job, lease.task))
            if older is not None:
                out += self._stop(now, older, Outcome.LOST, "a newer lease took its place", kill=True)
            self._released.pop(lease, None)
            self._shortest = min(self._shortest, self.short_term)
            if grant.task is not None:
                self._take(now, lease, grant.task)
            elif grant.source is not None:
                self.fetching[lease] = grant.source
                out.append(Fetch(lease, grant.source))
        self._plenty = len(self.waiting) + len(self.running)
        return out + self._fill() + self._ahead(grants)

    def _ahead(self, grants: Sequence[Grant]) -> list[Instruction]:
        """Have the inputs of what has to wait here when its turn comes."""
        return [
            Prefetch(grant.task)
            for grant in grants
            if grant.task is not None and grant.task.inputs and grant.lease in self.waiting
        ]

    def _take(self, now: int, lease: Lease, task: Task) -> None:
        """Have a task wait for its turn, if it can ever run here."""
        if task.need.fits(self.capacity):
            self.waiting[lease] = task
        else:
            message = f"needs {task.need}, but this agent has {self.capacity}"
            self.results[lease] = Result(lease, Outcome.NOT_STARTED, now, message=message)

    def renewed(self, now: int, sent: int, renewal: Renewal) -> list[Instruction]:
        """The server answered the heartbeat that was sent at `sent`."""
        if renewal.epoch < self.epoch:
            return [*self._renewable(now), self._stale(renewal.epoch)]
        self.epoch = renewal.epoch
        if renewal.fenced:
            return self._fenced(now)
        self._renew(sent)
        out = self._renewable(now)
        for lease, kill in renewal.stops:
            if self._drop(lease):
                message = "stopped before it started"
                self.results[lease] = Result(lease, Outcome.STOPPED, now, message=message)
            elif lease in self.running:
                out += self._stop(now, lease, Outcome.STOPPED, "stopped on request", kill=kill)
        self.draining = renewal.drain
        for lease, ticket in renewal.yields:
            started = lease in self.running or lease in self.results
            held = lease in self.waiting or lease in self.fetching or lease in self._released
            out += self._yielding.answer(lease, ticket, started=started, held=held)
            self._drop(lease)
        self._hand_back(renewal.revoked)
        if renewal.drain:
            self._hand_back(self._unstarted())
        self._tell_again()
        return out + self._fill()

    def _fenced(self, now: int) -> list[Instruction]:
        """A newer registration holds: all that runs here runs without a lease."""
        self.incarnation = None
        self._hand_back(self._unstarted())
        out: list[Instruction] = []
        for lease in self.running:
            out += self._stop(now, lease, Outcome.LOST, "the agent was fenced", kill=True)
        return [*out, Reconnect("fenced by the server", fenced=True)]

    def _stale(self, epoch: int) -> Reconnect:
        """Somebody who no longer leads has answered."""
        return Reconnect(f"refused a server of epoch {epoch}: a later one, {self.epoch}, has taken over")

    # --- peers speak

    def fetched(self, now: int, lease: Lease, task: Task) -> list[Instruction]:
        """The task of a lease that was taken over is there."""
        out = self._renewable(now)
        if self.fetching.pop(lease, None) is not None:
            self._take(now, lease, task)
        return out + self._fill()

    def unfetched(self, now: int, lease: Lease) -> list[Instruction]:
        """The task of a lease that was taken over cannot be had: somebody else may run it."""
        out = self._renewable(now)
        if lease in self.fetching:
            self._hand_back((lease,))
        return out

    # --- processes speak

    def started(self, now: int, lease: Lease, at: int) -> list[Instruction]:
        """The process of a lease was made at `at`."""
        out = self._renewable(now)
        run = self.running.get(lease)
        if run is None:
            return out
        run.started = at
        self._starts[lease] = None
        if run.task.walltime:
            self._set(at + run.task.walltime, lease, _Due.WALLTIME)
        return out

    def ended(self, now: int, lease: Lease, end: Exit) -> list[Instruction]:
        """The process of a lease is gone, with all its children; or none could be made."""
        run = self.running.pop(lease, None)
        if run is None:
            return self._renewable(now)
        self._devices.release(lease)
        self.free += self._chains.leave(lease, run.task, now)
        self._by_task.pop((lease.job, lease.task), None)
        self._starts.pop(lease, None)
        self._unacknowledged.pop(lease, None)
        outcome = run.cause or _outcome_of(end)
        message = end.message or run.why
        if outcome is Outcome.LOST and not end.spawned:
            self._released[lease] = None  # it never began, so that no harm was done
            return self._renewable(now) + self._fill()
        self.results[lease] = Result(
            lease,
            outcome,
            end.ended,
            end.code,
            end.signal,
            end.usage,
            message,
            end.value,
            end.value_digest,
            end.outputs,
        )
        if end.spawned and end.usage.ran:
            self._chains.learn(run.task, end.usage.ran)
        return self._renewable(now) + self._fill()

    def moving(self, lease: Lease, moving: bool) -> None:
        """Files of a task begin to be brought here or away, or are all here."""
        if (run := self.running.get(lease)) is not None:
            run.moving = moving

    def returned(self, now: int, leases: Iterable[Lease]) -> list[Instruction]:
        """Tasks that were started behind others have not begun, and never will there."""
        out = self._renewable(now)
        self._take_back(now, leases)
        return out + self._fill()

    def _take_back(self, now: int, leases: Iterable[Lease]) -> None:
        """Have tasks wait again that have not begun."""
        back: dict[Lease, Task] = {}
        for lease in leases:
            run = self.running.pop(lease, None)
            if run is None:
                continue
            self._devices.release(lease)
            self.free += self._chains.leave(lease, run.task, now)
            self._by_task.pop((lease.job, lease.task), None)
            if run.cause is not None:
                self.results[lease] = Result(lease, run.cause, now, message=run.why)
            else:
                back[lease] = run.task
        self.waiting = back | self.waiting
        if self.leaving or self.draining:
            self._hand_back(tuple(back))

    def lost_all(self, now: int, why: str, unbegun: Iterable[Lease] = ()) -> list[Instruction]:
        """Everything that ran is gone, and nobody saw how; some of it had not begun."""
        out: list[Instruction] = []
        self._take_back(now, unbegun)
        for lease, run in list(self.running.items()):
            if run.moving:
                continue
            run.cause = run.cause or Outcome.LOST
            ran = now - run.started if run.started is not None else 0
            out += self.ended(now, lease, Exit(now, usage=Usage(ran=ran), message=why))
        return out

    # --- telling the server

    def news(self) -> bool:
        """Whether there is something that can be told now."""
        if self._reporting is not None or self.incarnation is None:
            return False  # it is looked at again when the report is answered, and after the next registration
        told = self._starts or self._released or self._yielding.answers
        return bool(self.results or told or self._unsaid())

    def hungry(self) -> bool:
        """Whether most of what was given to do is done, so that telling it should not wait for more to tell."""
        return 2 * (len(self.waiting) + len(self.running)) <= self._plenty

    def _unsaid(self) -> bool:
        """Whether the server would still give us work, although we were told to stop."""
        return self.leaving and self._left != self.incarnation

    def report(self, now: int) -> tuple[Report | None, list[Instruction]]:
        """What is ready to be told, if no report is under way."""
        out = self._renewable(now)
        if self._reporting is not None or self.incarnation is None:
            return None, out
        starts = [
            (lease, run.started)
            for lease in islice(self._starts, REPORT_LIMIT)
            if (run := self.running[lease]).started is not None
        ]
        results = tuple(islice(self.results.values(), REPORT_LIMIT))
        released = tuple(islice(self._released, REPORT_LIMIT))
        yielded = tuple(islice(self._yielding.answers.items(), REPORT_LIMIT))
        if not (starts or results or released or yielded or self._unsaid()):
            return None, out
        self._reporting = Report(self.incarnation, tuple(starts), results, released, self.leaving, yielded)
        for lease, _ in starts:
            del self._starts[lease]
            self._unacknowledged[lease] = None
        return self._reporting, out

    def reported(self, now: int, answer: Answered) -> list[Instruction]:
        """The report under way was answered."""
        report, self._reporting = self._reporting, None
        if report is None or answer.epoch < self.epoch:
            self._tell_again()
            return [*self._renewable(now), *([self._stale(answer.epoch)] if report else [])]
        self.epoch = answer.epoch
        out: list[Instruction] = []
        for lease, verdict in answer.verdicts:
            if self.results.pop(lease, None) is not None:
                out.append(Forget(lease, verdict))
        for lease in answer.started:
            self._unacknowledged.pop(lease, None)
            if (run := self.running.get(lease)) is not None:
                run.acknowledged = True
        for lease in report.released:
            self._released.pop(lease, None)
        self._yielding.acknowledged(answer.yielded)
        if report.leaving:
            self._left = report.incarnation
        if answer.fenced and report.incarnation == self.incarnation:
            return out + self._fenced(now)
        return out + self._renewable(now)

    def unreported(self) -> None:
        """The report under way was not answered: all of it is ready again."""
        self._reporting = None
        self._tell_again()

    def _tell_again(self) -> None:
        """Starts that nobody acknowledged are ready again."""
        if self._reporting is None:
            self._starts |= self._unacknowledged
            self._unacknowledged.clear()

    # --- time

    def tick(self, now: int) -> list[Instruction]:
        """Time went by."""
        out = self._renewable(now)
        while self._timers and self._timers[0][0] <= now:
            _, _, lease, due = heapq.heappop(self._timers)
            if (run := self.running.get(lease)) is None:
                continue
            if due is _Due.KILL:
                out += self._stop(now, lease, Outcome.STOPPED, "", kill=True)
            elif run.cause is None and not run.moving:
                out += self._stop(now, lease, Outcome.WALLTIME, "reached its walltime", kill=False)
        out += [Recall(lease) for lease in self._chains.stuck(now) if lease in self.running]
        return out + self._fill()

    def wake(self) -> int | None:
        """When to call `tick` at the latest; None if nothing can happen by itself."""
        times = [self._timers[0][0]] if self._timers else []
        if (self.waiting or self.running or self.fetching) and self._renewed is not None:
            times.append(self._soonest(self._renewed))
        if (stuck := self._chains.wake()) is not None:
            times.append(stuck)
        return min(times, default=None)

    def drain(self, now: int) -> list[Instruction]:
        """The agent was told to stop once what runs has ended: nothing more starts."""
        out = self._renewable(now)
        self.leaving = True
        self._hand_back(self._unstarted())
        return out

    def leave(self, now: int) -> list[Instruction]:
        """The agent was told to stop: nothing more starts, and what runs is terminated."""
        out = self.drain(now)
        for lease in self.running:
            out += self._stop(now, lease, Outcome.STOPPED, "the agent was told to stop", kill=False)
            self._set(now + FAREWELL_GRACE, lease, _Due.KILL)
        return out

    def _renew(self, sent: int) -> None:
        """All terms count from the time at which an acknowledged heartbeat was sent."""
        self._renewed = max(sent, self._renewed or sent)
        self._shortest = min((self._term(run) for run in self.running.values()), default=self.short_term)
        self._shortest = min(self._shortest, self.short_term)

    def _term(self, run: Running) -> int:
        """How long a running lease lasts without renewal."""
        return run.task.lost_after if run.acknowledged else min(self.short_term, run.task.lost_after)

    def _soonest(self, renewed: int) -> int:
        """Before this time no lease of ours has run out."""
        terms = [self._term(run) for run in self.running.values() if not run.killed]
        if self.waiting or self.fetching:
            terms.append(self.short_term)
        return renewed + min(terms, default=FOREVER) - self.heartbeat

    def _renewable(self, now: int) -> list[Instruction]:
        """Drop and kill what could not be renewed in time: first of all, whatever is said or seen."""
        self._now = now
        if self._renewed is None or now < self._renewed + self._shortest - self.heartbeat:
            return []
        age = now - self._renewed + self.heartbeat
        out: list[Instruction] = []
        if age >= self.short_term:
            self._hand_back(self._unstarted())
        for lease, run in self.running.items():
            if age >= self._term(run):
                out += self._stop(
                    now, lease, Outcome.LOST, "its lease could not be renewed in time", kill=True
                )
        # What is left has a longer term; until the next renewal nothing shorter can come in.
        left = [self._term(run) for run in self.running.values() if not run.killed]
        self._shortest = min([*left, self.short_term] if age < self.short_term else left, default=FOREVER)
        return out

    # --- small steps

    def _fill(self) -> list[Instruction]:
        """Start what waits, in order of arrival, while there is room.

        A small one does not pass a large one: the server decides who goes first, and its order is that of arrival.
        """
        out: list[Instruction] = []
        while self.waiting and not self.leaving:
            lease, task = next(iter(self.waiting.items()))
            if (lease.job, lease.task) in self._by_task:
                break
            if self._renewed is not None and self._now - self._renewed + self.heartbeat >= task.lost_after:
                self._hand_back((lease,))  # it would be killed as soon as it runs, which costs an attempt
                continue
            if task.need.fits(self.free):
                slot = self._chains.begin(lease, task, self._now)
                self.free -= task.need
            elif (behind := self._chains.join(lease, task)) is not None:
                slot = behind
            else:
                break
            del self.waiting[lease]
            task = self._devices.assign(lease, task, slot)
            self.running[lease] = Running(task)
            self._by_task[lease.job, lease.task] = lease
            self._shortest = min(self._shortest, task.lost_after, self.short_term)
            out.append(Start(lease, task, slot))
        return out

    def _hand_back(self, leases: Iterable[Lease]) -> None:
        """Give up those that have not started."""
        for lease in leases:
            if self._drop(lease):
                self._released[lease] = None

    def _unstarted(self) -> tuple[Lease, ...]:
        """Leases that nothing was done about, or that are still to be had."""
        return (*self.waiting, *self.fetching)

    def _drop(self, lease: Lease) -> bool:
        """Take away a lease that has not started; False if there is none."""
        waited = self.waiting.pop(lease, None) is not None
        return self.fetching.pop(lease, None) is not None or waited

    def _stop(self, now: int, lease: Lease, cause: Outcome, why: str, *, kill: bool) -> list[Instruction]:
        """Terminate a running task, or kill it; the first cause is the one that its result names."""
        run = self.running[lease]
        if run.cause is None:
            run.cause, run.why = cause, why
        if run.killed or (run.terminated and not kill):
            return []
        if kill or not run.task.grace:
            run.killed = True
            return [Signal(lease, kill=True)]
        run.terminated = True
        self._set(now + run.task.grace, lease, _Due.KILL)
        return [Signal(lease, kill=False)]

    def _set(self, at: int, lease: Lease, due: _Due) -> None:
        """Remember to look at a lease again."""
        if len(self._timers) > 1_000 + 4 * len(self.running):
            # Tasks mostly end long before their walltime: without this their timers would pile up.
            self._timers = [timer for timer in self._timers if timer[2] in self.running]
            heapq.heapify(self._timers)
        self._timer_count += 1
        heapq.heappush(self._timers, (at, self._timer_count, lease, due))


def _outcome_of(end: Exit) -> Outcome:
    """How a task ended that nobody stopped."""
    if end.lost:
        return Outcome.LOST
    if end.out_of_memory:
        return Outcome.OUT_OF_MEMORY
    if end.unkept:
        return Outcome.UNKEPT
    return Outcome.EXITED if end.spawned else Outcome.NOT_STARTED
