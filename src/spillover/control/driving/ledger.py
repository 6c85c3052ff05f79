"""Compares the attempts on one cluster with the state, and orders the difference. Pure.

The state says which attempts should run there. The driver reports which do run. Both together decide everything, so a
server that restarts, or loses the connection for a while, compares them again. It adopts what runs under a lease of
the state, deletes what runs under any other lease, and starts what is missing. A name that is unique on the cluster
prevents double starts.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from spillover.control.driving.attempts import LASTS, Attempt, Known, Withdrawal
from spillover.control.driving.cases import Case, DriverOrders, is_on
from spillover.control.driving.gaps import PASSING, Limit, limit_of, words_of
from spillover.control.driving.nodes import Nodes
from spillover.core.events import (
    AnyEvent,
    GangPlaced,
    JobEnded,
    JobPlaced,
    JobRequeued,
    JobStopping,
    Lease,
    MemberPlaced,
)
from spillover.core.proposals import DRIVER, GangOverdue, HandBack, Outcome, Proposal, SeeBound, Started
from spillover.core.records.jobs import Placed, Running
from spillover.core.state import State
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.units import SECOND
from spillover.ports.driver import Answer, Changes, Ending, Hindrance, Made, Patience, Pending, Seen

LATE: Final = 5 * SECOND
"""Nanoseconds after which an attempt that was made and never seen counts as gone."""
TRY_AGAIN: Final = SECOND
"""Nanoseconds until a deletion is sent again that failed or was not answered."""
ASK_AGAIN: Final = 5 * SECOND
"""Nanoseconds beyond the grace until a deletion is sent again if the objects still exist."""


class Ledger:
    """Tracks the attempts on one cluster."""

    def __init__(self, cluster: ClusterName, patience: Patience, *, keep_output: bool = False) -> None:
        self.cluster = cluster
        self.nodes = Nodes(cluster, self.is_wanted)
        self._patience = patience
        self._keep_output = keep_output
        self._jobs: dict[JobId, dict[Lease, Attempt]] = {}
        self._rechecks: dict[JobId, None] = {}
        """Jobs to check in the next pass."""
        self._timers: list[tuple[int, JobId]] = []
        """When to check jobs again, on the monotonic clock; a heap that also holds outdated entries."""
        self._due: dict[JobId, int] = {}
        """The valid timer of each job: the earliest."""

    # --- input

    def adopt(self, state: State) -> None:
        """Take over attempts that an earlier server left in the state; it may or may not have sent their starts."""
        held = {job for node in state.nodes.values() if node.cluster == self.cluster for job in node.jobs}
        for job in sorted([state.jobs[each] for each in held], key=lambda job: job.number):
            if is_on(job, self.cluster):
                self._expect(job.lease, Known.UNSURE)

    def note(self, events: Sequence[AnyEvent]) -> bool:
        """Take in durable events; return whether they add jobs to check."""
        before = len(self._rechecks)
        for event in events:
            match event:
                case JobPlaced() | GangPlaced() if event.cluster == self.cluster:
                    self._expect(Lease(event.job, event.attempt, event.seq), Known.UNASKED)
                case MemberPlaced() if event.cluster == self.cluster:
                    self._expect(Lease(member_id(event.array, event.index), 1, event.seq), Known.UNASKED)
                case JobEnded() | JobRequeued():
                    self._mark_unwanted(event.job)
                case JobStopping() if event.job in self._jobs:
                    self._rechecks[event.job] = None
                case _:
                    pass
        return len(self._rechecks) > before

    def take(self, changes: Changes, monotonic: int) -> None:
        """Take in what the driver saw."""
        self.nodes.take(changes)
        if changes.whole:
            there = {each.lease for each in changes.attempts}
            for attempt in list(self._attempts()):
                if attempt.known is Known.MADE:
                    attempt.since = monotonic  # the list may be older than the cluster's answer
                elif attempt.known is Known.SEEN and attempt.lease not in there:
                    self._mark_gone(attempt)
            self._rechecks = dict.fromkeys(self._jobs)
        for each in changes.attempts:
            attempt = self._attempt(each.lease)
            attempt.known, attempt.seen = Known.SEEN, each
            if not each.going:
                attempt.going = None
            elif attempt.going is None:
                attempt.going = monotonic
            self.nodes.use(each)
            self._rechecks[each.lease.job] = None
        for lease in changes.gone:
            if (found := self._find(lease)) is not None:
                self._mark_gone(found)

    def asking(self, lease: Lease) -> None:
        """Record that a start is being sent."""
        self._attempt(lease).asking = True

    def answered(self, lease: Lease, answer: Answer, now: int, monotonic: int) -> None:
        """Record the cluster's answer to a start."""
        attempt = self._attempt(lease)
        attempt.asking, attempt.message = False, answer.message
        self._rechecks[lease.job] = None
        if attempt.known in {Known.SEEN, Known.GONE}:
            return
        silent = answer.made in {Made.UNSENT, Made.UNKNOWN}
        attempt.unanswered = (attempt.unanswered or now) if silent else None
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
        """Record that a deletion could not be sent, and try again later."""
        if (attempt := self._find(lease)) is not None:
            attempt.stop_after = monotonic + TRY_AGAIN
            self._look_at(lease.job, attempt.stop_after)

    def not_asked(self, lease: Lease) -> None:
        """Record that a deletion was not sent after all."""
        if (attempt := self._find(lease)) is not None:
            attempt.stop_after = 0
        self._rechecks[lease.job] = None

    def kept(self, lease: Lease, outputs: str) -> None:
        """Record the digest of the list of saved output; empty if saving failed."""
        attempt = self._attempt(lease)
        attempt.keeping, attempt.outputs = False, outputs
        self._rechecks[lease.job] = None

    def not_kept(self, lease: Lease) -> None:
        """Record that saving output was not tried after all."""
        if (attempt := self._find(lease)) is not None:
            attempt.keeping = False
        self._rechecks[lease.job] = None

    def resume(self) -> None:
        """Forget calls that were cancelled with the previous run; their outcome is unknown."""
        for attempt in self._attempts():
            if attempt.asking and attempt.known is Known.UNASKED:
                attempt.known = Known.UNSURE
            attempt.asking, attempt.keeping, attempt.stop_after = False, False, 0
        self._rechecks = dict.fromkeys(self._jobs)

    def look_at(self, job: JobId, monotonic: int) -> None:
        """Check a job again at this time at the latest."""
        self._look_at(job, monotonic)

    def recheck(self, jobs: Iterable[JobId]) -> None:
        """Check jobs again in the next pass."""
        self._rechecks.update(dict.fromkeys(jobs))

    # --- output

    def orders(self, state: State, now: int, monotonic: int) -> DriverOrders:
        """Return what to propose and to ask for; call it only while the driver's view is current."""
        orders = DriverOrders.none()
        while self._timers and self._timers[0][0] <= monotonic:
            due, waited_for = heapq.heappop(self._timers)
            if self._due.get(waited_for) == due:
                del self._due[waited_for]
                self._rechecks[waited_for] = None
        rechecks, self._rechecks = self._rechecks, {}
        bound: dict[Lease, tuple[NodeName, ...]] = {}
        for job_id in rechecks:
            try:
                for attempt in list(self._jobs.get(job_id, {}).values()):
                    job = state.jobs.get(job_id) if attempt.wanted else None
                    if job is not None and is_on(job, self.cluster) and job.lease == attempt.lease:
                        self._look(Case(job, attempt, now, monotonic), orders, bound)
                    else:
                        self._clear(attempt, orders, now, monotonic)
            except Exception as error:  # noqa: BLE001 - no error may affect other jobs
                orders.failed.append((job_id, error))
        if bound:
            orders.proposals.append(SeeBound(self.cluster, tuple(bound), tuple(bound.values())))
        return orders

    def leftovers(self, monotonic: int) -> int:
        """Count attempts that exist and may run, but are not in the state."""
        return sum(attempt.is_left_over(monotonic) for attempt in self._attempts())

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases of all attempts that exist or may exist."""
        return tuple([attempt.lease for attempt in self._attempts()])

    def unsent(self) -> tuple[Lease, ...]:
        """Return leases that the cluster certainly does not know."""
        return tuple(attempt.lease for attempt in self._attempts() if attempt.is_unsent)

    def pending(self, lease: Lease) -> Pending | None:
        """Return why an attempt does not start; None if no reason is known."""
        attempt = self._find(lease)
        if attempt is None:
            return None
        if (seen := attempt.seen) is not None:
            if seen.gap is None or seen.pending is None:
                return seen.pending
            return replace(seen.pending, message=words_of(seen.gap, seen.pending))
        # The message is that of the last try, so an earlier refusal must not come first.
        if attempt.unanswered is not None:
            return (
                Pending(Hindrance.UNANSWERED, attempt.message, attempt.unanswered)
                if attempt.message
                else None
            )
        if attempt.refused is not None:
            return Pending(Hindrance.REFUSED, attempt.message, attempt.refused)
        return None

    def held(self, lease: Lease) -> str:
        """Return what delays the deletion of an attempt; empty if unknown."""
        attempt = self._find(lease)
        return attempt.seen.held if attempt is not None and attempt.seen is not None else ""

    def lease_of(self, job: JobId, attempt: int) -> Lease | None:
        """Return the latest lease under which an attempt exists on the cluster; None if it does not."""
        there = [lease for lease, each in self._jobs.get(job, {}).items() if each.known is Known.SEEN]
        return max(
            (lease for lease in there if lease.attempt == attempt), key=lambda lease: lease.seq, default=None
        )

    def is_wanted(self, lease: Lease) -> bool:
        """Return whether the state has an attempt on this cluster."""
        attempt = self._find(lease)
        return attempt is not None and attempt.wanted

    def next_look(self) -> int | None:
        """Return when to ask for orders if nothing happens before, on the monotonic clock; None if never."""
        return self._timers[0][0] if self._timers else None

    # --- attempts in the state

    def _look(self, case: Case, orders: DriverOrders, bound: dict[Lease, tuple[NodeName, ...]]) -> None:
        """Handle an attempt that should exist."""
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

    def _follow(self, case: Case, orders: DriverOrders, bound: dict[Lease, tuple[NodeName, ...]]) -> None:
        """Handle an attempt that exists."""
        job, attempt, seen = case.job, case.attempt, case.attempt.seen
        assert seen is not None  # noqa: S101 - it was seen
        if seen.ending is not None:
            if self._keep_output and seen.started is not None and attempt.outputs is None:
                if not attempt.keeping:
                    attempt.keeping = True
                    orders.keeps.append(attempt.lease)
                return
            case.say(orders, case.result(seen.ending, self._patience, attempt.outputs or ""))
            return
        if attempt.going is not None and (seen.vacant or (seen.stranded and job.extra.gang is not None)):
            # A foreign finalizer may keep the objects forever. Nothing of them runs, so do not keep their capacity. Nor
            # keep that of a whole gang for tasks on nodes that do not answer.
            if case.monotonic - attempt.going >= LASTS:
                self._conclude(case, orders)
                return
            self._look_at(job.id, attempt.going + LASTS)
        if seen.started is not None and type(job.phase) is Placed:
            case.say(orders, Started(DRIVER, attempt.lease, max(0, case.now - seen.started), seen.began))
        elif case.more_run(seen):
            case.say(orders, Started(DRIVER, attempt.lease, 0, seen.began))
        if len(seen.nodes) == job.shape.tasks and seen.nodes != case.nodes:
            bound[attempt.lease] = seen.nodes
        if case.stopping or attempt.withdrawal is not None:
            self._stop(attempt, job.terms.grace, orders, case.monotonic)
        elif not seen.going:
            self._await_start(case, seen, orders)

    def _await_start(self, case: Case, seen: Seen, orders: DriverOrders) -> None:
        """Handle an attempt of which nothing runs, or a gang that runs in part."""
        job, attempt = case.job, case.attempt
        if seen.pending is not None and type(job.phase) is Placed and not attempt.ran:
            self._wait_or_withdraw(case, seen.pending, orders)
        elif seen.gap is not None and job.extra.gang is not None:
            attempt.first = case.now if attempt.first is None else attempt.first
            limit = limit_of(job, seen.gap, seen.pending, self._patience, attempt.first)
            self._wait_or_end(case, limit, orders)

    def _wait_or_withdraw(self, case: Case, pending: Pending, orders: DriverOrders) -> None:
        """Handle an attempt that does not start: wait, or withdraw it."""
        passing = pending.why in PASSING
        patience = self._patience.bind if passing else self._patience.start
        left = pending.since + patience - case.now
        if left > 0:
            self._look_at(case.job.id, case.monotonic + left)
            return
        gap = case.attempt.seen.gap if case.attempt.seen is not None else None
        message = pending.message if gap is None else words_of(gap, pending, patience)
        case.attempt.withdrawal = Withdrawal(None if passing else Outcome.NOT_STARTED, message)
        self._stop(case.attempt, 0, orders, case.monotonic)

    def _wait_or_end(self, case: Case, limit: Limit, orders: DriverOrders) -> None:
        """Handle a gang that runs in part: wait for the other tasks, or have it stopped."""
        if (left := limit.at - case.now) > 0:
            self._look_at(case.job.id, case.monotonic + left)
            return
        case.attempt.short = limit.because
        case.say(orders, GangOverdue(case.attempt.lease, external=True))

    def _conclude(self, case: Case, orders: DriverOrders) -> None:
        """Report the end of an attempt whose objects are gone."""
        attempt = case.attempt
        if attempt.seen is not None and attempt.seen.ending is not None:
            case.say(orders, case.result(attempt.seen.ending, self._patience))
        elif attempt.withdrawal is not None and not attempt.ran:
            case.say(orders, self._withdrawn(case, attempt.withdrawal))
        elif case.stopping:
            case.say(orders, case.result(Ending(Outcome.STOPPED, usage=case.usage()), self._patience))
        else:
            why = f"its Job on {self.cluster} was deleted by someone else"
            if attempt.withdrawal is not None:
                why = f"it started while it was being withdrawn: {attempt.withdrawal.message}"
            lost = Ending(Outcome.LOST, usage=case.usage(), message=why)
            case.say(orders, case.result(lost, self._patience))

    def _ask(self, case: Case, orders: DriverOrders) -> None:
        """Handle an attempt that is not seen, and may never have been sent."""
        job, attempt = case.job, case.attempt
        if attempt.asking:
            return
        waited = 0 if attempt.refused is None else case.now - attempt.refused
        if attempt.withdrawal is not None:
            case.say(orders, self._withdrawn(case, attempt.withdrawal))
        elif case.stopping:
            case.say(orders, case.result(Ending(Outcome.STOPPED), self._patience))
        elif type(job.phase) is Running:
            self._conclude(case, orders)
        elif waited > self._patience.bind and attempt.known is Known.UNASKED:
            case.say(orders, self._withdrawn(case, Withdrawal(None, attempt.message)))
        elif case.monotonic < attempt.after:
            self._look_at(job.id, attempt.after)
        else:
            orders.starts.append(attempt.lease)

    def _withdrawn(self, case: Case, withdrawal: Withdrawal) -> Proposal:
        """Return the proposal for a job whose attempt was withdrawn before it started."""
        if withdrawal.outcome is not None:
            return case.result(Ending(withdrawal.outcome, message=withdrawal.message), self._patience)
        backoff = case.backoff(self._patience)
        return HandBack(DRIVER, (case.attempt.lease,), withdrawal.message, backoff)

    # --- attempts that are not in the state

    def _clear(self, attempt: Attempt, orders: DriverOrders, now: int, monotonic: int) -> None:
        """Delete a leftover: at once if it may run, after its retention if it has ended."""
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
        """Order a deletion, unless one was sent recently."""
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
        """Return the record of a lease; a new record is of an attempt that is not in the state."""
        attempts = self._jobs.setdefault(lease.job, {})
        if lease not in attempts:
            attempts[lease] = Attempt(lease, Known.UNSURE, wanted=False)
        return attempts[lease]

    def _expect(self, lease: Lease, known: Known) -> None:
        """Record that the state has an attempt on this cluster from now on."""
        attempt = self._attempt(lease)
        attempt.wanted = True
        if attempt.seen is None:
            attempt.known = known
        self.nodes.look_at(lease)
        self._rechecks[lease.job] = None

    def _mark_unwanted(self, job: JobId) -> None:
        """Record that the state no longer has attempts of a job on this cluster."""
        for attempt in self._jobs.get(job, {}).values():
            if attempt.wanted:
                attempt.wanted = False
                self.nodes.look_at(attempt.lease)
                self._rechecks[job] = None

    def _mark_gone(self, attempt: Attempt) -> None:
        """Record that objects of an attempt no longer exist."""
        attempt.known, attempt.stop_after = Known.GONE, 0
        self.nodes.forget(attempt.lease)
        self._rechecks[attempt.lease.job] = None

    def _drop(self, attempt: Attempt) -> None:
        attempts = self._jobs[attempt.lease.job]
        del attempts[attempt.lease]
        if not attempts:
            del self._jobs[attempt.lease.job]
            self._due.pop(attempt.lease.job, None)

    def _look_at(self, job: JobId, monotonic: int) -> None:
        """Check a job at this time, unless a check is due before; each check sets the next."""
        if (due := self._due.get(job)) is None or monotonic < due:
            self._due[job] = monotonic
            heapq.heappush(self._timers, (monotonic, job))
