"""What is there of our attempts on one cluster, and what is to be done about the difference to the book. Pure.

The book says which attempts are to run there; a driver says which do. Everything follows from the two, so a server that starts, or
that lost sight of the cluster, looks at both and goes on: what runs under a lease of the book is adopted, what runs under any other
is deleted, and what should run and does not is started, under a name that can be there only once.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from spillover.control.driving.attempts import LASTS, Attempt, Known, Withdrawal, result_of
from spillover.control.driving.nodes import Nodes
from spillover.core.events import (
    AnyEvent,
    GangPlaced,
    JobEnded,
    JobPlaced,
    JobRequeued,
    JobState,
    JobStopping,
    Lease,
    MemberPlaced,
    Usage,
)
from spillover.core.jobs import Job, Placed, Running
from spillover.core.proposals import DRIVER, HandBack, Outcome, Proposal, SeeBound, Started
from spillover.core.state import State
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.units import SECOND
from spillover.ports.driver import Answer, Changes, Ending, Hindrance, Made, Patience, Pending, Seen

LATE: Final = 5 * SECOND
"""Nanoseconds after which what was made, and is not seen, is not there any more."""
TRY_AGAIN: Final = SECOND
"""Nanoseconds after which it is asked again that something be deleted when that was not answered, or refused."""
ASK_AGAIN: Final = 5 * SECOND
"""Nanoseconds, beyond its grace, after which it is asked again that something be deleted that is still there."""


class DriverOrders(Struct):
    """What is to be said to the core, and what to be asked of the cluster."""

    proposals: list[Proposal]
    jobs: list[JobId]
    """Whom the proposals are about."""
    starts: list[Lease]
    stops: list[tuple[Lease, int]]
    """With the nanoseconds that each has to end."""
    keeps: list[Lease]
    """Attempts that ended, whose output is to be kept before that is said."""
    failed: list[tuple[JobId, Exception]] = []
    """Jobs of which it could not be told what to do, for a reason that nobody foresaw."""

    @classmethod
    def none(cls) -> "DriverOrders":
        """Nothing to do."""
        return cls([], [], [], [], [])


class Ledger:
    """The attempts on one cluster."""

    def __init__(self, cluster: ClusterName, patience: Patience, *, keep_output: bool = False) -> None:
        self.cluster = cluster
        self.nodes = Nodes(cluster, self.is_wanted)
        self._patience = patience
        self._keep_output = keep_output
        self._jobs: dict[JobId, dict[Lease, Attempt]] = {}
        self._stirred: dict[JobId, None] = {}
        """Jobs to look at."""
        self._timers: list[tuple[int, JobId]] = []
        """When to look at jobs again, on the monotonic clock; some are of no account any more."""
        self._due: dict[JobId, int] = {}
        """Which of them counts for each job: the next."""

    # --- what is new

    def adopt(self, state: State) -> None:
        """Take over what an earlier server left in the book; whether it asked for it is not known."""
        held = {job for node in state.nodes.values() if node.cluster == self.cluster for job in node.jobs}
        for job in sorted([state.jobs[each] for each in held], key=lambda job: job.number):
            if _is_on(job, self.cluster):
                self._expect(job.lease, Known.UNSURE)

    def note(self, events: Sequence[AnyEvent]) -> bool:
        """Take in events that have become durable; whether there is something to look at by them."""
        before = len(self._stirred)
        for event in events:
            match event:
                case JobPlaced() | GangPlaced() if event.cluster == self.cluster:
                    self._expect(Lease(event.job, event.attempt, event.seq), Known.UNASKED)
                case MemberPlaced() if event.cluster == self.cluster:
                    self._expect(Lease(member_id(event.array, event.index), 1, event.seq), Known.UNASKED)
                case JobEnded() | JobRequeued():
                    self._let_go(event.job)
                case JobStopping() if event.job in self._jobs:
                    self._stirred[event.job] = None
                case _:
                    pass
        return len(self._stirred) > before

    def take(self, changes: Changes, monotonic: int) -> None:
        """Take in what a driver sees."""
        self.nodes.take(changes)
        if changes.whole:
            there = {each.lease for each in changes.attempts}
            for attempt in list(self._attempts()):
                if attempt.known is Known.MADE:
                    attempt.since = monotonic  # the list may be older than that answer
                elif attempt.known is Known.SEEN and attempt.lease not in there:
                    self._vanish(attempt)
            self._stirred = dict.fromkeys(self._jobs)
        for each in changes.attempts:
            attempt = self._attempt(each.lease)
            attempt.known, attempt.seen = Known.SEEN, each
            if not each.going:
                attempt.going = None
            elif attempt.going is None:
                attempt.going = monotonic
            self.nodes.use(each)
            self._stirred[each.lease.job] = None
        for lease in changes.gone:
            if (found := self._find(lease)) is not None:
                self._vanish(found)

    def asking(self, lease: Lease) -> None:
        """The cluster is being asked for an attempt."""
        self._attempt(lease).asking = True

    def answered(self, lease: Lease, answer: Answer, now: int, monotonic: int) -> None:
        """The cluster answered."""
        attempt = self._attempt(lease)
        attempt.asking, attempt.message = False, answer.message
        self._stirred[lease.job] = None
        if attempt.known in {Known.SEEN, Known.GONE}:
            return
        match answer.made:
            case Made.MADE:
                attempt.known, attempt.since, attempt.refused = Known.MADE, monotonic, None
                self._look_at(lease.job, monotonic + LATE)
            case Made.REFUSED:
                attempt.withdrawal = Withdrawal(Outcome.NOT_STARTED, answer.message)
            case Made.NOT_NOW:
                attempt.refused = now if attempt.refused is None else attempt.refused
                self._look_at(lease.job, attempt.retry(monotonic))
            case Made.UNSENT:
                self._look_at(lease.job, attempt.retry(monotonic))
            case Made.UNKNOWN:
                attempt.known = Known.UNSURE
                self._look_at(lease.job, attempt.retry(monotonic))

    def not_stopped(self, lease: Lease, monotonic: int) -> None:
        """The cluster could not be asked to delete an attempt."""
        if (attempt := self._find(lease)) is not None:
            attempt.stop_after = monotonic + TRY_AGAIN
            self._look_at(lease.job, attempt.stop_after)

    def not_asked(self, lease: Lease) -> None:
        """Nobody has asked the cluster to delete an attempt after all."""
        if (attempt := self._find(lease)) is not None:
            attempt.stop_after = 0
        self._stirred[lease.job] = None

    def kept(self, lease: Lease, outputs: str) -> None:
        """The output of an attempt was kept, or could not be; the blob that lists it, or nothing."""
        attempt = self._attempt(lease)
        attempt.keeping, attempt.outputs = False, outputs
        self._stirred[lease.job] = None

    def not_kept(self, lease: Lease) -> None:
        """Nobody was asked to keep the output of an attempt after all."""
        if (attempt := self._find(lease)) is not None:
            attempt.keeping = False
        self._stirred[lease.job] = None

    def resume(self) -> None:
        """Whoever asked the cluster for anything was stopped in the midst of it: what became of that is not known."""
        for attempt in self._attempts():
            if attempt.asking and attempt.known is Known.UNASKED:
                attempt.known = Known.UNSURE
            attempt.asking, attempt.keeping, attempt.stop_after = False, False, 0
        self._stirred = dict.fromkeys(self._jobs)

    def look_at(self, job: JobId, monotonic: int) -> None:
        """Look at a job again then, at the latest."""
        self._look_at(job, monotonic)

    def stir(self, jobs: Iterable[JobId]) -> None:
        """Look at jobs again: what was to be said of them could not be."""
        self._stirred.update(dict.fromkeys(jobs))

    # --- what to do

    def orders(self, state: State, now: int, monotonic: int) -> DriverOrders:
        """What to say and what to ask for, when what a driver sees is what is there."""
        orders = DriverOrders.none()
        while self._timers and self._timers[0][0] <= monotonic:
            due, waited_for = heapq.heappop(self._timers)
            if self._due.get(waited_for) == due:
                del self._due[waited_for]
                self._stirred[waited_for] = None
        stirred, self._stirred = self._stirred, {}
        bound: dict[Lease, tuple[NodeName, ...]] = {}
        for job_id in stirred:
            try:
                for attempt in list(self._jobs.get(job_id, {}).values()):
                    job = state.jobs.get(job_id) if attempt.wanted else None
                    if job is not None and _is_on(job, self.cluster) and job.lease == attempt.lease:
                        self._look(_Case(job, attempt, now, monotonic), orders, bound)
                    else:
                        self._clear(attempt, orders, now, monotonic)
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs this job alone
                orders.failed.append((job_id, error))
        if bound:
            orders.proposals.append(SeeBound(self.cluster, tuple(bound), tuple(bound.values())))
        return orders

    def leftovers(self, monotonic: int) -> int:
        """How many attempts are there, and may run, that the book has not."""
        return sum(attempt.is_left_over(monotonic) for attempt in self._attempts())

    def leases(self) -> tuple[Lease, ...]:
        """Of all attempts that are there, or may be."""
        return tuple([attempt.lease for attempt in self._attempts()])

    def unsent(self) -> tuple[Lease, ...]:
        """Leases that the cluster surely knows nothing of."""
        return tuple(attempt.lease for attempt in self._attempts() if attempt.is_unsent)

    def pending(self, lease: Lease) -> Pending | None:
        """Why an attempt does not start, as far as the cluster tells."""
        attempt = self._find(lease)
        if attempt is None:
            return None
        if attempt.seen is not None:
            return attempt.seen.pending
        if attempt.refused is None:
            return None
        return Pending(Hindrance.REFUSED, attempt.message, attempt.refused)

    def held(self, lease: Lease) -> str:
        """What keeps an attempt there that is being deleted; empty if that is not known."""
        attempt = self._find(lease)
        return attempt.seen.held if attempt is not None and attempt.seen is not None else ""

    def lease_of(self, job: JobId, attempt: int) -> Lease | None:
        """The lease under which an attempt of a job is there; None if it is not."""
        there = [lease for lease, each in self._jobs.get(job, {}).items() if each.known is Known.SEEN]
        return max(
            (lease for lease in there if lease.attempt == attempt), key=lambda lease: lease.seq, default=None
        )

    def is_wanted(self, lease: Lease) -> bool:
        """Whether the book has an attempt there."""
        attempt = self._find(lease)
        return attempt is not None and attempt.wanted

    def next_look(self) -> int | None:
        """When to ask for orders if nothing happens until then, on the monotonic clock."""
        return self._timers[0][0] if self._timers else None

    # --- attempts that the book has

    def _look(self, case: "_Case", orders: DriverOrders, bound: dict[Lease, tuple[NodeName, ...]]) -> None:
        """An attempt that is to be there."""
        attempt = case.attempt
        match attempt.known:
            case Known.SEEN:
                self._follow(case, orders, bound)
            case Known.GONE:
                self._conclude(case, orders)
            case Known.MADE:
                if case.monotonic - attempt.since < LATE:
                    self._look_at(case.job.id, attempt.since + LATE)
                else:
                    attempt.known = Known.GONE
                    self._conclude(case, orders)
            case Known.UNASKED | Known.UNSURE:
                self._ask(case, orders)

    def _follow(self, case: "_Case", orders: DriverOrders, bound: dict[Lease, tuple[NodeName, ...]]) -> None:
        """One that is there."""
        job, attempt, seen = case.job, case.attempt, case.attempt.seen
        assert seen is not None  # noqa: S101 - it was seen
        if seen.ending is not None:
            if self._keep_output and seen.started is not None and attempt.outputs is None:
                if not attempt.keeping:
                    attempt.keeping = True
                    orders.keeps.append(attempt.lease)
                return
            case.say(orders, result_of(job, seen.ending, case.now, attempt.outputs or ""))
            return
        if seen.vacant and attempt.going is not None:
            # Somebody else's finalizer may keep its objects for ever, but not its room: nothing of it runs.
            if case.monotonic - attempt.going >= LASTS:
                self._conclude(case, orders)
                return
            self._look_at(job.id, attempt.going + LASTS)
        if seen.started is not None and type(job.phase) is Placed:
            case.say(orders, Started(DRIVER, attempt.lease, max(0, case.now - seen.started), seen.began))
        elif case.more_run(seen):
            case.say(orders, Started(DRIVER, attempt.lease, 0, seen.began))
        if len(seen.nodes) == job.kind.shape.tasks and seen.nodes != case.nodes:
            bound[attempt.lease] = seen.nodes
        if case.stopping or attempt.withdrawal is not None:
            self._stop(attempt, job.terms.grace, orders, case.monotonic)
        elif seen.pending is not None and type(job.phase) is Placed and not attempt.ran and not seen.going:
            self._be_patient(case, seen.pending, orders)

    def _be_patient(self, case: "_Case", pending: Pending, orders: DriverOrders) -> None:
        """One that does not start: leave it, or take it away."""
        passing = pending.why in {Hindrance.UNSCHEDULABLE, Hindrance.REFUSED}
        left = pending.since + (self._patience.bind if passing else self._patience.start) - case.now
        if left > 0:
            self._look_at(case.job.id, case.monotonic + left)
            return
        case.attempt.withdrawal = Withdrawal(None if passing else Outcome.NOT_STARTED, pending.message)
        self._stop(case.attempt, 0, orders, case.monotonic)

    def _conclude(self, case: "_Case", orders: DriverOrders) -> None:
        """One that is gone."""
        attempt = case.attempt
        if attempt.seen is not None and attempt.seen.ending is not None:
            case.say(orders, result_of(case.job, attempt.seen.ending, case.now))
        elif attempt.withdrawal is not None and not attempt.ran:
            case.say(orders, self._withdrawn(case, attempt.withdrawal))
        elif case.stopping:
            case.say(orders, result_of(case.job, Ending(Outcome.STOPPED, usage=case.usage()), case.now))
        else:
            why = f"its Job on {self.cluster} was deleted by somebody else"
            if attempt.withdrawal is not None:
                why = f"it began while it was being taken away: {attempt.withdrawal.message}"
            case.say(
                orders, result_of(case.job, Ending(Outcome.LOST, usage=case.usage(), message=why), case.now)
            )

    def _ask(self, case: "_Case", orders: DriverOrders) -> None:
        """One that is not there, and may never have been asked for."""
        job, attempt = case.job, case.attempt
        if attempt.asking:
            return
        waited = 0 if attempt.refused is None else case.now - attempt.refused
        if attempt.withdrawal is not None:
            case.say(orders, self._withdrawn(case, attempt.withdrawal))
        elif case.stopping:
            case.say(orders, result_of(job, Ending(Outcome.STOPPED), case.now))
        elif type(job.phase) is Running:
            self._conclude(case, orders)
        elif waited > self._patience.bind and attempt.known is Known.UNASKED:
            case.say(orders, self._withdrawn(case, Withdrawal(None, attempt.message)))
        elif case.monotonic < attempt.after:
            self._look_at(job.id, attempt.after)
        else:
            orders.starts.append(attempt.lease)

    def _withdrawn(self, case: "_Case", withdrawal: Withdrawal) -> Proposal:
        """What becomes of a job whose attempt was taken away before it began."""
        if withdrawal.outcome is not None:
            return result_of(case.job, Ending(withdrawal.outcome, message=withdrawal.message), case.now)
        return HandBack(DRIVER, (case.attempt.lease,), withdrawal.message, self._patience.backoff)

    # --- attempts that it has not

    def _clear(self, attempt: Attempt, orders: DriverOrders, now: int, monotonic: int) -> None:
        """Delete what is left over: at once if it may run, in its time if it has ended."""
        if attempt.known is not Known.SEEN:
            if not attempt.asking:
                self._drop(attempt)
            return
        ending = attempt.seen.ending if attempt.seen is not None else None
        if ending is not None:
            left = (ending.finished if ending.finished is not None else now) + self._patience.keep - now
            if left > 0:
                self._look_at(attempt.lease.job, monotonic + left)
                return
        self._stop(attempt, 0, orders, monotonic)

    def _stop(self, attempt: Attempt, grace: int, orders: DriverOrders, monotonic: int) -> None:
        """Ask for something to be deleted, unless that was done a moment ago."""
        if monotonic >= attempt.stop_after:
            attempt.stop_after = monotonic + ASK_AGAIN + grace
            orders.stops.append((attempt.lease, grace))
        self._look_at(attempt.lease.job, attempt.stop_after)

    # --- records

    def _attempts(self) -> Iterator[Attempt]:
        return (attempt for attempts in self._jobs.values() for attempt in attempts.values())

    def _find(self, lease: Lease) -> Attempt | None:
        return self._jobs.get(lease.job, {}).get(lease)

    def _attempt(self, lease: Lease) -> Attempt:
        """The record of a lease; a new one is of something that the book has not."""
        attempts = self._jobs.setdefault(lease.job, {})
        if lease not in attempts:
            attempts[lease] = Attempt(lease, Known.UNSURE, wanted=False)
        return attempts[lease]

    def _expect(self, lease: Lease, known: Known) -> None:
        """The book has an attempt there from now on."""
        attempt = self._attempt(lease)
        attempt.wanted = True
        if attempt.seen is None:
            attempt.known = known
        self.nodes.look_at(lease)
        self._stirred[lease.job] = None

    def _let_go(self, job: JobId) -> None:
        """The book has no attempt of a job there any more."""
        for attempt in self._jobs.get(job, {}).values():
            if attempt.wanted:
                attempt.wanted = False
                self.nodes.look_at(attempt.lease)
                self._stirred[job] = None

    def _vanish(self, attempt: Attempt) -> None:
        """Something that was seen is not there any more."""
        attempt.known, attempt.stop_after = Known.GONE, 0
        self.nodes.forget(attempt.lease)
        self._stirred[attempt.lease.job] = None

    def _drop(self, attempt: Attempt) -> None:
        attempts = self._jobs[attempt.lease.job]
        del attempts[attempt.lease]
        if not attempts:
            del self._jobs[attempt.lease.job]
            self._due.pop(attempt.lease.job, None)

    def _look_at(self, job: JobId, monotonic: int) -> None:
        """Look at a job then, unless that is done before: each look says when the next is to be."""
        if (due := self._due.get(job)) is None or monotonic < due:
            self._due[job] = monotonic
            heapq.heappush(self._timers, (monotonic, job))


class _Case(Struct, frozen=True):
    """A job of the book with its attempt, at one moment."""

    job: Job
    attempt: Attempt
    now: int
    monotonic: int

    @property
    def _phase(self) -> Placed | Running:
        phase = self.job.phase
        assert isinstance(phase, Placed | Running)  # noqa: S101 - no other is looked at
        return phase

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """Where the book has its tasks, by rank."""
        return tuple([task.node for task in self.job.tasks])

    def more_run(self, seen: Seen) -> bool:
        """Whether tasks of a gang are seen to run of which the book does not know it."""
        tasks = self.job.tasks if seen.began and self.job.extra.gang is not None else ()
        return any(tasks[rank].state is JobState.PLACED for rank in seen.began if rank < len(tasks))

    @property
    def stopping(self) -> bool:
        """Whether it is to be stopped."""
        return self._phase.stopping is not None

    def usage(self) -> Usage:
        """What it used, as far as is known of one that is gone."""
        started = self.attempt.seen.started if self.attempt.seen is not None else None
        return Usage() if started is None else Usage(max(0, self.now - started))

    def say(self, orders: DriverOrders, proposal: Proposal) -> None:
        """Have something proposed of it."""
        orders.proposals.append(proposal)
        orders.jobs.append(self.job.id)


def _is_on(job: Job, cluster: ClusterName) -> bool:
    """Whether the book has a job on a cluster."""
    return isinstance(job.phase, Placed | Running) and job.phase.cluster == cluster
