"""Checks the six invariants of agents and their server, each by its name.

Compares them with the truth that no part of the system sees as a whole: the durable events, and which processes really
ran where and when.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from spillover.core.events import (
    AgentRegistered,
    AnyEvent,
    Back,
    GangPlaced,
    JobEnded,
    JobPlaced,
    JobRequeued,
    JobStarted,
    JobState,
    JobStopping,
    Lease,
    LeaseMoved,
    MemberPlaced,
    StealAsked,
    StealRefused,
    TaskRestarted,
    TasksEnded,
    TasksStarted,
    Unmoved,
)
from spillover.core.proposals import Outcome, Result, Verdict
from spillover.model.ids import JobId, NodeName, member_id
from spillover.model.units import SECOND
from tests.support.faults.hosts import MILLISECOND, Universe
from tests.support.faults.names import Names
from tests.support.faults.situations import Situation, Tally
from tests.support.faults.tasks import Execution, Machine

AWAKE: Final = 500 * MILLISECOND
"""Time within which an agent that wakes up ends tasks that are no longer its own."""


class Owned(Struct, frozen=True):
    """A lease according to the journal."""

    lease: Lease
    node: NodeName


class Checks:
    """Observes a story, and records breaches."""

    def __init__(self, universe: Universe, absent: Callable[[str], bool], names: Names, met: Tally) -> None:
        self._universe = universe
        self.names = names
        self._absent = absent
        """Whether the agent of a machine is paused, dead, just awake, or unaware that another has its name."""
        self.met = met
        """The situations that the story met."""
        self.breaches: list[str] = []
        self.owned: dict[tuple[JobId, int], Owned] = {}
        """The owner of each leased task, by job and rank, according to the journal."""
        self.sizes: dict[JobId, int] = {}
        """Number of tasks of gangs that were ever placed."""
        self.prepared: set[Lease] = set()
        """Tasks of gangs that an agent has prepared."""
        self.ended: dict[JobId, JobEnded] = {}
        self.executions: dict[Lease, Execution] = {}
        """Everything that ever ran."""
        self._closed: dict[Lease, Back | JobState] = {}
        """How the journal took leases back."""
        self._accepted: set[Lease] = set()
        self._alive: dict[tuple[JobId, int], list[Execution]] = {}
        self._differ: dict[tuple[str, Lease], int] = {}
        self._asked: set[Lease] = set()
        """Leases that another agent wants, and whose agent has not answered."""
        self._ran_out: set[Lease] = set()
        """Leases that a server is about to reclaim."""
        self._overlapping: set[frozenset[Lease]] = set()
        """Tasks that ran at the same time because an agent was paused or dead, which is allowed."""

    def breach(self, invariant: str, what: str) -> None:
        """Record a breach of an invariant."""
        self._universe.tell(f"BREACH of {invariant}: {what}")
        self.breaches.append(f"{invariant}: {what}")

    # --- durable events

    def wrote(self, events: Sequence[AnyEvent]) -> None:
        """Follow events that are in the journal."""
        for event in events:
            match event:
                case AgentRegistered():
                    self.names.registered(event)
                case JobPlaced():
                    self._grant(Lease(event.job, event.attempt, event.seq), event.node)
                case GangPlaced():
                    self.sizes[event.job] = len(event.nodes)
                    for rank, node in enumerate(event.nodes):
                        self._grant(Lease(event.job, event.attempt, event.seq, rank), node)
                case TasksStarted():
                    self._must_live(event.job, "TasksStarted")
                case TaskRestarted():
                    self._must_live(event.job, "TaskRestarted")
                    self.met[Situation.RESTARTED] += 1
                    lease = Lease(event.job, event.attempt, event.seq, event.end.rank)
                    run = self.executions.get(lease)
                    if run is None or run.code in {None, 0} or run.run != event.run - 1:
                        self.breach("one accepted result", f"{lease} starts again, but {_truth(run)}")
                case TasksEnded():
                    self._must_live(event.job, "TasksEnded")
                    for end in event.ends:
                        how = Back.RELEASED if end.outcome is Outcome.RELEASED else end.state
                        self._take_task(event.job, end.rank, how)
                case MemberPlaced():
                    self._grant(Lease(member_id(event.array, event.index), 1, event.seq), event.node)
                case JobStarted() | JobStopping():
                    self._must_live(event.job, type(event).__name__)
                case JobRequeued():
                    self._must_live(event.job, "JobRequeued")
                    self._universe.tell(f"server: {event.job} back to the queue, {event.why}")
                    self.met[Situation.UNPREPARED] += event.why is Back.UNPREPARED
                    self._count_split(event.job, event.attempt - 1)
                    self._take(event.job, event.why)
                case StealAsked():
                    self.met[Situation.ASKED] += 1
                    self._asked.add(Lease(event.job, event.attempt, event.seq))
                case StealRefused():
                    self.met[Situation.REFUSED] += 1
                    self._answered(event.job, really=event.why is not Unmoved.VOID)
                case LeaseMoved():
                    self._move(event)
                case JobEnded():
                    self._end(event)
                case _:
                    pass

    def _grant(self, lease: Lease, node: NodeName) -> None:
        self._must_live(lease.job, "a lease")
        self._universe.tell(f"server: {lease.job} attempt {lease.attempt} seq {lease.seq} to {node}")
        task = lease.job, lease.task
        if task in self.owned:
            self.breach("sum of leases", f"{lease.job} is leased anew while {self.owned[task]} holds")
        if lease in self._closed:
            self.breach("no two at once", f"{lease} is granted twice")
        self.owned[task] = Owned(lease, node)

    def _take(self, job: JobId, how: Back | JobState) -> None:
        """Close the leases of all tasks of a job."""
        for rank in range(self.sizes.get(job, 1)):
            self._take_task(job, rank, how)

    def _take_task(self, job: JobId, rank: int, how: Back | JobState) -> None:
        if (owned := self.owned.pop((job, rank), None)) is not None:
            lease = owned.lease
            self._closed[lease] = how
            self.met[Situation.RECLAIMED] += lease in self._ran_out
            self.met[Situation.UNANSWERED] += lease in self._asked and lease in self._ran_out
            self._asked.discard(lease)

    def _answered(self, job: JobId, *, really: bool) -> None:
        """Record that a steal failed: refused, or void because the asked agent registered again."""
        if (owned := self.owned.get((job, 0))) is not None and owned.lease in self._asked:
            self._asked.discard(owned.lease)
            self.met[Situation.UNANSWERED] += not really

    def _move(self, event: LeaseMoved) -> None:
        self.met[Situation.MOVED] += 1
        self._must_live(event.job, "LeaseMoved")
        owned = self.owned.get((event.job, 0))
        if (
            owned is None
            or (owned.node, owned.lease.seq) != (event.node, event.before)
            or event.seq <= event.before
        ):
            self.breach(
                "steals lose and double nothing", f"{event.job} moved from {event.node}, but {owned} holds"
            )
            return
        run = self.executions.get(owned.lease)
        if run is not None and run.began is not None:
            self.breach(
                "steals lose and double nothing", f"{event.job} moved from {event.node}, where it was started"
            )
        self._take(event.job, Back.RELEASED)
        self._grant(Lease(event.job, event.attempt, event.seq), event.thief)

    def _must_live(self, job: JobId, what: str) -> None:
        if job in self.ended:
            self.breach("terminal states stay", f"{what} for {job}, which ended {self.ended[job].state}")

    def _end(self, event: JobEnded) -> None:
        self._universe.tell(f"server: {event.job} ends {event.state}")
        if event.job in self.ended:
            self.breach(
                "one accepted result", f"{event.job} ends {event.state} after {self.ended[event.job].state}"
            )
            return
        self.ended[event.job] = event
        was_leased = (event.job, 0) in self.owned or event.job in self.sizes
        self._take(event.job, event.state)
        if event.state is JobState.SUCCEEDED and event.job in self.sizes:
            self._ran_whole(event)
        if was_leased and event.exit_code is not None:
            run = self.executions.get(Lease(event.job, event.attempt, event.seq, event.rank))
            if run is None or run.over is None or run.code != event.exit_code:
                told = f"{event.job} ends by exit code {event.exit_code} of attempt {event.attempt} seq {event.seq}"
                self.breach("one accepted result", f"{told}, but {_truth(run)}")

    def _ran_whole(self, event: JobEnded) -> None:
        """Check that every task of a gang that succeeded ran to its end in the same attempt."""
        self.met[Situation.GANG] += 1
        for rank in range(self.sizes[event.job]):
            run = self.executions.get(Lease(event.job, event.attempt, event.seq, rank))
            if run is None or run.over is None or run.code != 0:
                told = f"{event.job} succeeds in attempt {event.attempt}, but of task {rank} {_truth(run)}"
                self.breach("a gang runs whole or not at all", told)

    # --- what servers report

    def judged(self, results: Sequence[Result], verdicts: Sequence[Verdict]) -> None:
        """Follow the verdicts that an agent receives."""
        for result, verdict in zip(results, verdicts, strict=False):
            match verdict:
                case Verdict.ACCEPTED:
                    self.met[Situation.TOLD_LOST] += result.outcome is Outcome.LOST
                    self._accept(result.lease)
                case Verdict.DUPLICATE:
                    self.met[Situation.DUPLICATE] += 1
                case Verdict.FENCED:
                    self.met[Situation.STALE] += 1
                case Verdict.RESTART:
                    if result.lease in self._closed:
                        self.breach("one accepted result", f"{result.lease} is over, but starts again")

    def ran_out(self, leases: Sequence[Lease]) -> None:
        """Record leases that a server is about to reclaim."""
        self._ran_out.update(leases)

    def _accept(self, lease: Lease) -> None:
        how = self._closed.get(lease)
        if lease in self._accepted:
            self.breach("one accepted result", f"a result of {lease} was accepted twice")
        if how is None or how is Back.RELEASED:
            self.breach("one accepted result", f"a result of {lease} was accepted, but the journal has {how}")
        self._accepted.add(lease)

    # --- what really ran

    def made(self, run: Execution) -> None:
        """Record that a process was created."""
        self.executions[run.lease] = run
        self._starts_together(run.lease)
        self._alive.setdefault((run.lease.job, run.lease.task), []).append(run)
        self.look()

    def _count_split(self, job: JobId, attempt: int) -> None:
        """Count a gang that returns to the queue and of which only some tasks ever began."""
        size = self.sizes.get(job, 0)
        began = [
            run.lease.task
            for run in self.executions.values()
            if (run.lease.job, run.lease.attempt) == (job, attempt) and run.began is not None
        ]
        self.met[Situation.SPLIT] += 0 < len(began) < size

    def _starts_together(self, lease: Lease) -> None:
        """Check that no task of a gang starts before all are prepared."""
        for rank in range(self.sizes.get(lease.job, 0)):
            other = Lease(lease.job, lease.attempt, lease.seq, rank)
            if other not in self.prepared:
                told = f"task {lease.task} of {lease.job} starts, and task {rank} is not prepared"
                self.breach("a gang runs whole or not at all", told)

    def gone(self, run: Execution) -> None:
        """Record that a process is gone, or was never created."""
        self.executions[run.lease] = run
        at = (run.lease.job, run.lease.task)
        if run in self._alive.get(at, ()):
            self._alive[at].remove(run)
            if not self._alive[at]:
                del self._alive[at]

    def look(self) -> None:
        """Check that no two attempts of a job run at once, unless the agents of all but one are paused or dead."""
        for (job, _), runs in self._alive.items():
            if len(runs) < 2:
                continue
            here = [run for run in runs if not self._absent(run.agent)]
            if len(here) > 1:
                who = ", ".join(f"{run.agent} seq {run.lease.seq} since {_when(run.began)}" for run in runs)
                self.breach("no two at once", f"{job} runs on {who}")
            elif (pair := frozenset(run.lease for run in runs)) not in self._overlapping:
                self._overlapping.add(pair)
                self.met[Situation.OVERLAP] += 1

    def woke(self, machine: str) -> None:
        """Record that an agent woke up; its tasks may have another owner."""
        for runs in self._alive.values():
            for run in runs:
                owned = self.owned.get((run.lease.job, run.lease.task))
                given_away = owned is None or owned.lease != run.lease
                self.met[Situation.WOKE_WITHOUT] += run.agent == machine and given_away

    def ended_all(self, machine: Machine, had: Iterable[Execution]) -> None:
        """Check that an agent that knows it was replaced has ended all its tasks."""
        if left := [run.lease.job for run in had if machine.executions.get(run.lease) is run]:
            told = f"{machine.name} was replaced, is awake, and still runs {', '.join(left)}"
            self.breach("the fenced stop", told)

    # --- after the last fault

    def agree(self, held: dict[str, set[Lease]], patience: int) -> bool:
        """Tell whether journal and agents have the same leases; a difference may not last."""
        told: dict[str, set[Lease]] = {name: set() for name in held}
        for owned in self.owned.values():
            told.setdefault(owned.node, set()).add(owned.lease)
        differ = {
            (name, lease): None
            for name in told
            for lease in sorted(told[name] ^ held.get(name, set()), key=lambda lease: (lease.job, lease.seq))
        }
        self._differ = {each: self._differ.get(each, self._universe.now) for each in differ}
        for (name, lease), since in self._differ.items():
            if self._universe.now - since > patience:
                side = "the server" if lease in told[name] else name
                self.breach("sum of leases", f"only {side} has {lease} of {name}, since {_when(since)}")
        return not differ

    def all_ended(self, jobs: Sequence[JobId], bound: int) -> None:
        """Check that every job ended within a bound."""
        for job in jobs:
            if job not in self.ended:
                at = next((owned for (each, _), owned in self.owned.items() if each == job), None)
                where = f"is leased to {at.node} under {at.lease}" if at else "has no lease"
                self.breach("every job ends", f"{job} {where}, {bound // SECOND} s after the last fault")


def _truth(run: Execution | None) -> str:
    if run is None or run.began is None:
        return "no such process ever ran"
    if run.over is None:
        return "its process still runs"
    return f"its process ended with code {run.code} and signal {run.signal}"


def _when(at: int | None) -> str:
    return "never" if at is None else f"{at / SECOND:.3f} s"
