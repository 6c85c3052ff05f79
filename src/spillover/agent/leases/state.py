"""Decides which leases an agent holds and what it does with them. Other modules carry the decisions out.

Every method takes the monotonic time and returns instructions. Each drops expired leases before it starts anything. So
an agent that was suspended for an hour, and wakes up in the middle of a message, cannot run a lease that it no longer
holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from spillover.agent.leases.preparing import GangTasks
from spillover.agent.leases.reporting import PendingReports
from spillover.agent.leases.restarting import Restarts
from spillover.agent.leases.room import Room
from spillover.agent.leases.running import RunningTask, RunningTasks
from spillover.agent.leases.terms import TaskTerms
from spillover.agent.leases.unstarted import UnstartedTasks
from spillover.agent.leases.values import (
    Answered,
    Exit,
    Fetch,
    ForgetResult,
    GangStart,
    Grant,
    Instruction,
    Phase,
    Readiness,
    Recall,
    Reconnect,
    Renewal,
    Report,
    StartTask,
    Task,
    TaskResult,
    Welcome,
)
from spillover.agent.leases.yielding import Yielding
from spillover.core.events import Lease
from spillover.core.proposals import Outcome, Verdict
from spillover.model.bounds import plain
from spillover.model.resources import Resources
from spillover.model.units import SECOND

FAREWELL_GRACE: Final = 3 * SECOND
"""Longest grace of a task, in nanoseconds, when the agent itself stops."""

LAST_WORDS: Final = 5 * SECOND
"""Nanoseconds before the end of the machine at which its tasks are killed, so that their ends can be reported."""


class AgentState:
    """Leases, capacity and terms of one agent."""

    def __init__(
        self, capacity: Resources, unanswered: Iterable[TaskResult] = (), devices: tuple[str, ...] = ()
    ) -> None:
        self.room = Room(capacity, devices)
        self.epoch = 0
        """The highest epoch of any server so far."""
        self.incarnation: int | None = None
        """Of the current registration; None from sending a registration until its answer."""
        self.keep_output = False
        """Whether the server wants a copy of what tasks print."""
        self.draining = False
        self.leaving = False
        """Whether the agent itself was asked to stop."""
        self._yielding = Yielding()
        self.running = RunningTasks()
        self._reports = PendingReports(unanswered, self._yielding)
        self.gangs = GangTasks(self._reports.prepared)
        self.preparing = self.gangs.preparing
        """Tasks of gangs that have capacity and wait until the whole gang is prepared."""
        self._unstarted = UnstartedTasks(self.room, self.gangs, self._reports.released)
        self.waiting, self.fetching = self._unstarted.waiting, self._unstarted.fetching
        """Tasks that wait for room, in order of arrival, and leases whose task has not arrived yet."""
        self.restarts = Restarts()
        self.results = self._reports.results
        """Results without an answer, in order of arrival."""
        self._released = self._reports.released
        self._named: tuple[Lease, ...] = ()
        self._terms = TaskTerms()
        self._plenty = 0
        """Number of leases held when the last grants came."""
        self._vacant = False
        """Whether a task ended since the last report and left capacity unused."""
        self._now = 0
        """Monotonic time of the current call."""

    @property
    def heartbeat(self) -> int:
        """Nanoseconds between two heartbeats."""
        return self._terms.heartbeat

    @property
    def terms_number(self) -> int:
        """The number of the last terms that the server sent."""
        return self._terms.number

    @property
    def patience(self) -> int:
        """Nanoseconds that the answer to a heartbeat may take."""
        return self._terms.patience()

    # --- messages from the server

    def register(self, now: int) -> tuple[tuple[tuple[Lease, Phase], ...], list[Instruction]]:
        """Return the leases to list in a registration, and invalidate all earlier streams."""
        out = self._renewable(now)
        self.incarnation = None
        self._yielding.forget()  # a registration does not list these leases, which gives them up
        held = [(lease, Phase.WAITING) for lease in self._unstarted]
        held += [(lease, Phase.RUNNING) for lease in self.running]
        held += [(lease, Phase.ENDED) for lease in self.results]
        self._named = tuple(lease for lease, _ in held)
        return tuple(held), out

    def registered(self, now: int, sent: int, welcome: Welcome) -> list[Instruction]:
        """Process the answer to a registration that was sent at `sent`."""
        if welcome.epoch < self.epoch:
            return [*self._renewable(now), self._stale(welcome.epoch)]
        self.epoch = welcome.epoch
        self.incarnation = welcome.incarnation
        self._terms.take(0, welcome.heartbeat, welcome.short_term)
        self.keep_output = welcome.keep_output
        self.draining = False
        self._terms.renew(sent, self.running.values())
        out: list[Instruction] = []
        for lease in self._named:
            if lease in welcome.keep:
                continue
            # Another agent may run it by now, so it gets no grace. A result is still sent, and the server judges it.
            self._unstarted.drop(now, lease)
            self._let_go(lease)
            if lease in self.running:
                out += self.running.stop(
                    now, lease, Outcome.STOPPED, "the server gave up this lease", kill=True
                )
        self._named = ()
        self._reports.again()
        self.gangs.report_again()
        return out + self._renewable(now) + self._fill()

    def granted(self, now: int, incarnation: int, epoch: int, grants: Sequence[Grant]) -> list[Instruction]:
        """Process leases that arrived on the stream of a registration."""
        out, valid = self._heard_on_stream(now, incarnation, epoch)
        if not valid:
            return out
        void = not self._terms.begun or self._terms.over(now, self._terms.short)
        for grant in grants:
            lease = grant.lease
            if lease in self._unstarted or lease in self.running or lease in self.results:
                continue
            if void or self.draining or self.leaving or self._yielding.refuses(lease):
                self._released[lease] = None
                continue
            # A new lease for a task means that the old one is void.
            older = self.room.holder(lease)
            if older is not None and not self._unstarted.drop(now, older) and not self._let_go(older):
                out += self.running.stop(now, older, Outcome.LOST, "a newer lease replaced it", kill=True)
            self._released.pop(lease, None)
            self._terms.add_term(self._terms.short)
            if grant.task is not None:
                self._take(now, lease, grant.task)
            elif grant.source is not None:
                self.fetching[lease] = grant.source
                out.append(Fetch(lease, grant.source))
        self._plenty = len(self.waiting) + len(self.running)
        return out + self._fill() + self._unstarted.prefetched(grants)

    def _take(self, now: int, lease: Lease, task: Task) -> None:
        """Add a task to those waiting, or fail it if it can never fit here."""
        if task.need.fits(self.room.capacity):
            self.waiting[lease] = task
        else:
            message = f"needs {task.need}, but this agent has {self.room.capacity}"
            self.results[lease] = TaskResult(lease, Outcome.NOT_STARTED, now, message=message)

    def renewed(self, now: int, sent: int, renewal: Renewal) -> list[Instruction]:
        """Process the answer to a heartbeat that was sent at `sent`."""
        if renewal.epoch < self.epoch:
            return [*self._renewable(now), self._stale(renewal.epoch)]
        self.epoch = renewal.epoch
        if renewal.fenced:
            return self.fenced(now)
        if (terms := renewal.terms) is not None:
            self._terms.take(terms.number, terms.heartbeat, terms.short_term)
        self._terms.renew(sent, self.running.values())
        out = self._renewable(now)
        for lease, kill in renewal.stops:
            if self._unstarted.drop(now, lease):
                message = "stopped before it started"
                self.results[lease] = TaskResult(lease, Outcome.STOPPED, now, message=message)
            elif (run := self.running.get(lease)) is not None:
                overdue = lease in renewal.overdue
                if not (overdue and run.exited):
                    out += self.running.stop(
                        now, lease, Outcome.STOPPED, "stopped on request", kill=kill, overdue=overdue
                    )
        for lease, walltime in renewal.walltimes:
            self.running.limit(lease, self.restarts.limited(lease, walltime))
        self.draining = renewal.drain
        for lease, ticket in renewal.yields:
            started = lease in self.running or lease in self.results
            held = lease in self.waiting or lease in self.fetching or lease in self._released
            out += self._yielding.answer(lease, ticket, started=started, held=held)
            self._unstarted.drop(now, lease)
        self._unstarted.hand_back(now, renewal.revoked)
        if renewal.drain:
            self._unstarted.hand_back(now, self._unstarted)
        self._reports.again()
        return out + self._fill()

    def fenced(self, now: int) -> list[Instruction]:
        """Kill all tasks, because a newer registration replaced this one and they run without a lease."""
        self.incarnation = None
        self._unstarted.hand_back(now, self._unstarted)
        out: list[Instruction] = []
        for lease in tuple(self.restarts.waiting):
            self._let_go(lease)
        for lease in self.running:
            out += self.running.stop(now, lease, Outcome.LOST, "the agent was fenced", kill=True)
        return [*out, Reconnect("fenced by the server", fenced=True)]

    def _heard_on_stream(self, now: int, incarnation: int, epoch: int) -> tuple[list[Instruction], bool]:
        """Return the first instructions that follow a message, and whether the message counts."""
        out = self._renewable(now)
        if incarnation != self.incarnation:
            # A stream older than the last registration; the server counts what it sends there as not delivered.
            return out, False
        if epoch < self.epoch:
            return [*out, self._stale(epoch)], False
        self.epoch = epoch
        return out, True

    def _stale(self, epoch: int) -> Reconnect:
        """Reject an answer of a server that no longer leads."""
        return Reconnect(f"rejected a server of epoch {epoch}; epoch {self.epoch} has started")

    def start_gangs(
        self,
        now: int,
        incarnation: int,
        epoch: int,
        starts: Iterable[tuple[GangStart, Mapping[Lease, Mapping[str, str]]]],
    ) -> list[Instruction]:
        """Start the tasks of gangs that are prepared everywhere, each with variables that name its files."""
        out, valid = self._heard_on_stream(now, incarnation, epoch)
        for start, files in starts if valid else ():
            for lease, task, slot in self.gangs.start(start, files):
                self.restarts.begin(lease, task, slot, start)
                out.append(self._start(lease, task, slot))
        return out

    # --- messages from peers

    def fetched(self, now: int, lease: Lease, task: Task) -> list[Instruction]:
        """Add a task that arrived from a peer or from the server."""
        out = self._renewable(now)
        if self.fetching.pop(lease, None) is not None:
            self._take(now, lease, task)
        return out + self._fill()

    def unfetched(self, now: int, lease: Lease) -> list[Instruction]:
        """Give back a lease whose task cannot be fetched, so that another agent can run it."""
        out = self._renewable(now)
        if lease in self.fetching:
            self._unstarted.hand_back(now, (lease,))
        return out

    # --- events of processes

    def prepared(self, now: int, lease: Lease, ready: Readiness) -> list[Instruction]:
        """Record that a task of a gang can start at once."""
        out = self._renewable(now)
        self.gangs.prepared(lease, ready)
        return out

    def unprepared(self, now: int, lease: Lease, why: str) -> list[Instruction]:
        """Give back the capacity of a task that cannot be prepared. The server then gives back the whole gang."""
        out = self._renewable(now)
        if lease in self.preparing and self._unstarted.drop(now, lease):
            self.results[lease] = TaskResult(lease, Outcome.NOT_STARTED, now, message=plain(why))
        return out + self._fill()

    def started(self, now: int, lease: Lease, at: int) -> list[Instruction]:
        """Record that the process of a lease started at `at`."""
        out = self._renewable(now)
        if lease in self.running:
            self.running.started(lease, at)
            self.restarts.started(lease, at)
            self._reports.started(lease)
        return out

    def ended(self, now: int, lease: Lease, end: Exit) -> list[Instruction]:
        """Record the end of a task: its process and all children are gone, or no process could be created."""
        run = self.running.pop(lease, None)
        if run is None:
            return self._renewable(now)
        free = self.room.free
        self._reports.ended(lease)
        run.spare(end)
        number = self.restarts.run(lease)
        if not self.restarts.wait(lease, run, end):
            self.restarts.forget(lease)
            self.room.leave(lease, run.task, now)
            self.gangs.ended(lease)
        result = run.result(lease, end, number)
        if result.outcome is Outcome.LOST and not end.spawned and not number:
            # It never started, so another agent can run it. One that was to start again is part of a gang that runs.
            self._released[lease] = None
            return self._renewable(now) + self._fill()
        self.results[lease] = result
        if end.spawned and end.usage.ran:
            self.room.chains.learn(run.task, end.usage.ran)
        out = self._renewable(now) + self._fill()
        self._vacant = self._vacant or self.room.free != free
        return out

    def moving(self, lease: Lease, moving: bool) -> None:
        """Record whether files of a task are being fetched or uploaded."""
        if (run := self.running.get(lease)) is not None:
            run.moving = moving

    def exited(self, lease: Lease, end: Exit) -> None:
        """Record that the process of a lease ended. `ended` follows when its outputs are uploaded."""
        if (run := self.running.get(lease)) is not None:
            run.exited = True
            run.spare(end)

    def returned(self, now: int, leases: Iterable[Lease]) -> list[Instruction]:
        """Put recalled tasks, which did not begin in their slot, back in front of the others."""
        out = self._renewable(now)
        back: dict[Lease, Task] = {}
        for lease in leases:
            run = self.running.pop(lease, None)
            if run is None:
                continue
            self.room.leave(lease, run.task, now)
            if run.cause is not None:
                self.results[lease] = TaskResult(lease, run.cause, now, message=run.why)
            elif run.task.tasks:
                self.gangs.ended(lease)
                self._released[lease] = None  # its gang has started without it
            else:
                back[lease] = run.task
        self._unstarted.put_first(back)
        if self.leaving or self.draining:
            self._unstarted.hand_back(now, tuple(back))
        return out + self._fill()

    # --- reports to the server

    def news(self) -> bool:
        """Return whether there is something to report now."""
        return self._reports.news(self.incarnation, leaving=self.leaving)

    def must_report_now(self) -> bool:
        """Return whether to report at once: little work is left, capacity is free, or a peer waits."""
        few = 2 * (len(self.waiting) + len(self.running)) <= self._plenty or bool(self.restarts.waiting)
        return few or self._vacant or bool(self._yielding.answers) or bool(self._reports.prepared)

    def report(self, now: int) -> tuple[Report | None, list[Instruction]]:
        """Return what is ready to report, if no report is in flight."""
        out = self._renewable(now)
        self._vacant = False
        report = self._reports.report(self.incarnation, self.running, leaving=self.leaving)
        if report is not None and self.restarts.waiting:
            report = replace(report, waiting=frozenset(self.restarts.waiting))
        return report, out

    def reported(self, now: int, answer: Answered) -> list[Instruction]:
        """Process the answer to the report in flight."""
        report = self._reports.over()
        if report is None or answer.epoch < self.epoch:
            self._reports.again()
            return [*self._renewable(now), *([self._stale(answer.epoch)] if report else [])]
        self.epoch = answer.epoch
        out: list[Instruction] = []
        for lease, verdict in self._reports.heard(report, answer):
            out.append(ForgetResult(lease, verdict))
            if verdict is Verdict.RESTART:
                out += self._start_again(now, lease, report)
            else:
                self._let_go(lease)
        for lease in answer.started:
            if (run := self.running.get(lease)) is not None:
                run.acknowledged = True
        if answer.fenced and report.incarnation == self.incarnation:
            return out + self.fenced(now)
        return out + self._renewable(now) + self._fill()

    def _start_again(self, now: int, lease: Lease, report: Report) -> list[Instruction]:
        """Start a task again that failed; if it cannot start any more, its result says so."""
        again = None if self.leaving else self.restarts.again(lease, now)
        if again is None:
            run = next(result.run for result in report.results if result.lease == lease) + 1
            outcome = Outcome.STOPPED if self._let_go(lease) else Outcome.LOST
            message = "its agent could not start it again"
            self.results[lease] = TaskResult(lease, outcome, now, message=message, run=run)
            return []
        self._start(lease, again.task, again.slot)
        return [again]

    def _let_go(self, lease: Lease) -> bool:
        """Free the capacity of a task that failed and does not start again; return False if there is none."""
        task = self.restarts.forget(lease)
        if task is None:
            return False
        self.room.leave(lease, task, self._now)
        self.gangs.ended(lease)
        return True

    def unreported(self) -> None:
        """Make everything in the report in flight ready again, because no answer came."""
        self._reports.over()
        self._reports.again()

    # --- time

    def tick(self, now: int) -> list[Instruction]:
        """Act on everything that is due."""
        out = self._renewable(now)
        out += self.running.tick(now)
        out += [Recall(lease) for lease in self.room.chains.stuck(now) if lease in self.running]
        return out + self._fill()

    def wake(self) -> int | None:
        """Return when to call `tick` at the latest; None if nothing becomes due by itself."""
        times = [self.running.timers.soonest(), self.room.chains.wake()]
        if self._unstarted or self.running:
            times.append(self._terms.soonest(self.running.values(), unstarted=bool(self._unstarted)))
        return min((time for time in times if time is not None), default=None)

    def drain(self, now: int) -> list[Instruction]:
        """Start nothing more, and let running tasks end, because the agent will stop after them."""
        out = self._renewable(now)
        self.leaving = True
        self._unstarted.hand_back(now, self._unstarted)
        return out

    def leave(self, now: int) -> list[Instruction]:
        """Start nothing more, and terminate running tasks, because the agent stops."""
        return self.drain(now) + self.running.stop_all(now, "the agent was told to stop", most=FAREWELL_GRACE)

    def interrupt(self, now: int, until: int, left: int) -> list[Instruction]:
        """Start nothing more, and terminate running tasks, because the machine is taken back in `left` nanoseconds.

        `until` is that time in nanoseconds UTC.
        """
        out = self.drain(now)
        self._reports.taken_back(until)
        return out + self.running.stop_all(now, "its machine is taken back", most=max(0, left - LAST_WORDS))

    def _renewable(self, now: int) -> list[Instruction]:
        """Drop and kill what was not renewed in time. Every method does this first."""
        self._now = now
        terms = self._terms
        if not terms.due(now):
            return []
        out: list[Instruction] = []
        if terms.over(now, terms.short):
            self._unstarted.hand_back(now, self._unstarted)
        for lease, run in self.running.items():
            if terms.over(now, terms.of(run)):
                out += self.running.stop(
                    now, lease, Outcome.LOST, "its lease could not be renewed in time", kill=True
                )
        terms.swept(now, self.running.values())
        return out

    # --- helpers

    def _fill(self) -> list[Instruction]:
        """Start waiting tasks in order of arrival while there is room.

        A small task does not overtake a large one. The server decides the order, and tasks arrive in it.
        """
        out: list[Instruction] = []
        while self.waiting and not self.leaving:
            lease, task = next(iter(self.waiting.items()))
            if self.room.holder(lease) is not None:
                break
            if self._terms.over(self._now, self._terms.lasts(task)):
                # It would be killed as soon as it runs, which costs an attempt.
                self._unstarted.hand_back(self._now, (lease,))
                continue
            if (entered := self.room.enter(lease, task, self._now)) is None:
                break
            task, slot = entered
            del self.waiting[lease]
            if task.tasks:
                out.append(self.gangs.add(lease, task, slot))
            else:
                out.append(self._start(lease, task, slot))
        return out

    def _start(self, lease: Lease, task: Task, slot: int) -> StartTask:
        """Count a task as running from now on."""
        self.running[lease] = RunningTask(task)
        self._terms.add_term(min(self._terms.lasts(task), self._terms.short))
        return StartTask(lease, task, slot)
