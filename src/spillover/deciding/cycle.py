"""One cycle: look at what waits and at what is free, and decide. Pure: the board is as it was found when it returns.

The steps, as `run` calls them: expire waits of jobs tried before, place on owned capacity in order, admit new jobs that found
no place, and rent what was tried and may wait no longer. What ended was freed when its event was applied; why a job is not
placed is derived when somebody asks (`explain`).
"""

import heapq
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from spillover.core import ranges
from spillover.core.jobs import NO_EXTRA, Job, Queued
from spillover.core.state import State
from spillover.deciding.board import Board
from spillover.deciding.draws import mixed
from spillover.deciding.heaps import in_order
from spillover.deciding.keeping import Keeper
from spillover.deciding.lanes import Entry, Lane, Line, Walk
from spillover.deciding.lining_up import in_order_of
from spillover.deciding.lookahead import Outlook, Reviewing, Waiter
from spillover.deciding.plan import Expiry, GangPlacement, Placement, Plan
from spillover.deciding.protocols import Policies
from spillover.deciding.purse import Till
from spillover.deciding.rooms import Ceiling, Free, Machine, Room, Seat
from spillover.model.cluster import OWNED, RENTED, Role
from spillover.model.ids import JobId
from spillover.model.job import ALWAYS, NEVER
from spillover.model.reasons import AlwaysRented, NotInTime, QueueFull, Reason, RoomOwned, RoomSoon, WaitOver
from spillover.model.units import FOREVER

ROOM_OWNED = RoomOwned()
ROOM_SOON = RoomSoon()
QUEUE_FULL = QueueFull()
_NUMBER = attrgetter("number", "id")
_ENTRY = itemgetter(0)
SOME = 16
"""Lanes of which each is tried faster than it is found out what fits at the most."""


class Outcome(Struct, frozen=True):
    """A plan, and when to make another."""

    plan: Plan
    passed: bool
    """Whether some jobs had to wait for others: for the head, for lanes within `depth`, or for their caps to be looked at."""
    again: int
    """When time alone could let a job start that did not, nanoseconds UTC; FOREVER if never."""
    settled: bool
    """Whether machines have on the board what the plan leaves them, so that they need not be looked at when it is carried out."""


def run(
    state: State, board: Board, policies: Policies, now: int, seed: int, *, keep: bool = False
) -> Outcome:
    """Decide. With `keep`, what was tried stays taken, for a plan that is carried out at once."""
    if board.ranking is not None:
        board.ranking.rank(now)
    cycle = _Cycle(state, board, policies, now, seed, keep=keep)
    if board.waits and board.waits[0][0] <= cycle.steady:
        cycle.expire()
    if board.queue.first:
        cycle.place()
    if board.fresh:
        cycle.admit()
        if board.reviews:
            cycle.review()
    if policies.max_queue is not None:
        cycle.cap_queue()
    if cycle.expired or board.due.first:
        cycle.rent()
    if not keep:
        cycle.undo()
    again = FOREVER if cycle.till is None and cycle.keeper is None else cycle.again()
    return Outcome(cycle.plan(), cycle.passed, again, keep and not cycle.ahead)


class _Cycle:
    """A plan in the making."""

    def __init__(
        self, state: State, board: Board, policies: Policies, now: int, seed: int, *, keep: bool
    ) -> None:
        self.state = state
        self.seed = seed
        self.board = board
        self.policies = policies
        self.now = now
        self.keep = keep
        """Whether what is tried stays taken."""
        self.steady = now - state.facts.jumped
        self.admitted: dict[JobId, int] = {}
        self.expired: dict[JobId, Expiry] = {}
        self.placements: list[Placement | GangPlacement] = []
        self.taken: dict[JobId, int] = {}
        """How many members of each array, or 1 for each job, this plan places."""
        self.rented: dict[JobId, int] = {}
        """How many of those on rented capacity."""
        self.trials: list[tuple[Room, Machine, Free]] = []
        """Where trial placements were made that are to be undone, with what was free before."""
        self.ahead: dict[JobId, None] = {}
        """Jobs that this plan places ahead of room: their wait goes on."""
        self.turns: list[tuple[Machine, int]] = []
        """Machines that are given leases ahead of room, with their turn before."""
        self.keeper = None if board.ends is None else Keeper(board, board.ends, policies, now)
        """Of room for a job that does not fit; None if no policy looks ahead."""
        self.till: Till | None = None
        """Where it is asked whether caps let a job be rented; None until one is that a cap concerns."""
        self.passed = False
        """Whether some jobs were not looked at, or kept waiting, because of others."""

    # --- the steps

    def expire(self) -> None:
        """Let jobs whose wait is over be rented, also those that were leased ahead of room and still wait for it."""
        for wait in in_order(self.board.waits):
            if wait[0] > self.steady:
                break
            job = self.board.waiting(wait)
            if job is not None:
                self.expired[job.id] = Expiry(job.id, WaitOver(self.steady - job.arrived))

    def place(self) -> None:
        """Place on owned capacity, in order; what was tried before is only tried again where room was gained."""
        queue, board = self.board.queue, self.board
        if board.in_turn or board.gained or (board.ranking is not None and board.gains(self.now)):
            self._fill(self._walk(queue, everything=True), OWNED, strict=self.policies.backfill.strict)
            return
        self.passed = board.passed  # of those that are not looked at
        if queue.woken and not self._place_newcomer(queue):
            self._fill(self._walk(queue, everything=False), OWNED, strict=False)

    def _place_newcomer(self, queue: Line) -> bool:
        """Place a job that is the only one of the only lane to be tried, if it is so: most that come are."""
        if len(queue.woken) > 1 or len(queue.first) > self.policies.chosen.depth:
            return False
        (lane,) = queue.woken
        if len(queue.heaps[lane]) > 1:
            return False
        job = self.state.jobs[queue.first[lane][2]]
        if job.extra.members is not None:
            return False
        self._place(job, lane, OWNED)
        return True

    def admit(self) -> None:
        """Give new jobs that found no place the time until which they wait for owned capacity.

        A wait that is over as it begins lets them be rented: they were tried.
        """
        jobs, taken, ahead = self.state.jobs, self.taken, self.ahead
        fresh: list[Job] = []
        for each in self.board.fresh:
            job = jobs[each]
            if each not in taken or each in ahead or (job.extra is not NO_EXTRA and self._left(job) > 0):
                fresh.append(job)
        if len(fresh) > 1:
            fresh.sort(key=_NUMBER)
        for job in fresh:
            latest = self.admitted[job.id] = self._latest(job)
            if latest <= self.steady and job.id not in self.expired and job.due is None:
                always = job.kind.shape.burst is ALWAYS
                why = AlwaysRented() if always else WaitOver(self.steady - job.arrived)
                self.expired[job.id] = Expiry(job.id, why)

    def review(self) -> None:
        """Let jobs be rented for which waiting on is not worth it, as the wait policy foresees when others come."""
        reviewer = cast("Reviewing", self.policies.wait)
        queue = self._queue(reviewer.most_jobs) if self.keeper is not None else {}
        fresh = {
            each: latest
            for each, latest in self.admitted.items()
            if (waiter := queue.get(each)) is not None and waiter.rentable
        }
        if not fresh or self.keeper is None:
            return
        rooms = {name: room for name, room in self.board.rooms.items() if room.owned}
        outlook = Outlook(
            self.now,
            self.steady,
            list(queue.values()),
            fresh,
            self.keeper.ends(),
            rooms,
            self.policies.place,
            self.policies.backfill.strict,
        )
        for late in reviewer.review(outlook):
            job = self.state.jobs[late.job]
            patient, left = self._patient(job), self._left(job)
            members = left - patient + late.many if late.many < patient else 0
            self.expired[late.job] = Expiry(late.job, NotInTime(max(0, late.limit - self.now)), members)

    def _queue(self, most: int) -> dict[JobId, Waiter]:
        """Jobs that wait for owned capacity after this plan, in order; the first of them."""
        newcomers = {each: latest for each, latest in self.admitted.items() if each not in self.expired}
        queue: dict[JobId, Waiter] = {}
        for waiter in in_order_of(self.board, newcomers, most):
            job = self.state.jobs[waiter.job]
            if job.id in self.expired:
                continue
            if job.extra.members is not None:
                count = self._patient(job) if waiter.rentable else self._left(job)
                if count > 0:
                    queue[job.id] = replace(waiter, many=count)
            elif job.id not in self.taken:
                queue[job.id] = waiter
        return queue

    def cap_queue(self) -> None:
        """Let jobs past `max_queue` be rented, the last of the queue first."""
        limit = self.policies.max_queue
        if limit is None or self.state.queued <= limit:
            return
        waiting = [
            job
            for job in (
                self.state.jobs[each] for each in dict.fromkeys([*self.board.patient, *self.admitted])
            )
            if self.board.counts_waiting(job) and not self._may_be_rented(job) and self._patient(job) > 0
        ]
        excess = sum(self._patient(job) for job in waiting) - limit
        if excess <= 0:
            return
        for _, _, each in heapq.nlargest(excess, (self.board.spot(job) for job in waiting)):
            job = self.state.jobs[each]
            patient, left = self._patient(job), self._left(job)
            count = min(patient, excess)
            self.expired[each] = Expiry(each, QUEUE_FULL, left - patient + count if count < patient else 0)
            excess -= count
            if excess <= 0:
                break

    def rent(self) -> None:
        """Rent what was tried and may wait no longer, in order."""
        due = self.board.due
        if len(self.expired) == 1 and not due.first and self._rent_one():
            return
        newly: dict[Lane, list[Entry]] = {}
        for each in self.expired:
            job = self.state.jobs[each]
            if type(job.phase) is Queued and self._left(job):
                newly.setdefault(self.board.lane_of(job), []).append(self.board.spot(job))
        for entries in newly.values():
            entries.sort()
        everything = bool(newly) or self.board.gains(self.now)
        if not everything:
            self.passed = self.passed or self.board.passed
        if everything or due.woken:
            self._fill(self._walk(due, everything, newly), RENTED, strict=False)

    def _rent_one(self) -> bool:
        """Rent the only job that may be, if it is one that no cap concerns: most are."""
        (each,) = self.expired
        job = self.state.jobs[each]
        if type(job.phase) is not Queued or job.extra.members is not None:
            return False
        if job.terms.max_cost is not None or self.state.caps:
            return False
        if job.id not in self.taken:
            self._place(job, self.board.lane_of(job), RENTED)
        return True

    def again(self) -> int:
        """When time alone could let a job start: a budget begins anew, or what was expected to end did not."""
        again = self.till.renews if self.till is not None else FOREVER
        if self.keeper is not None and self.keeper.waits_for_end:
            again = min(again, self.keeper.again())
        return again

    def undo(self) -> None:
        """Take all trial placements back."""
        for room, machine, free in reversed(self.trials):
            room.set(machine, free)
        for machine, turn in reversed(self.turns):
            machine.turn = turn

    def plan(self) -> Plan:
        """What was decided. A job that starts at once need not be told how long it may wait."""
        admitted: tuple[tuple[JobId, int], ...] = ()
        expired: tuple[Expiry, ...] = ()
        if self.admitted:
            jobs = self.state.jobs
            admitted = tuple(
                [(each, latest) for each, latest in self.admitted.items() if self._waits(jobs[each])]
            )
        if self.expired:
            expired = tuple(
                each
                for each in self.expired.values()
                if self._waits(self.state.jobs[each.job])
                or type(self.state.jobs[each.job].phase) is not Queued
            )
        holds = tuple(self.till.holds) if self.till is not None else ()
        return Plan(self.now, self.seed, admitted, expired, tuple(self.placements), holds)

    # --- how they do it

    def _latest(self, job: Job) -> int:
        """Until when a job waits for owned capacity, in steady time."""
        shape = job.kind.shape
        if job.due is not None or shape.burst is ALWAYS:
            return self.steady
        if shape.burst is NEVER or not self.board.can_rent:
            return FOREVER
        case = self.policies.case_of(job, self.state.facts.tally)
        return min(FOREVER, job.arrived + self.policies.wait_of(case))

    def _walk(self, line: Line, everything: bool, newly: dict[Lane, list[Entry]] | None = None) -> Walk:
        """Lanes to be tried, in order: all, or those that were not tried since they changed."""
        jobs = line.jobs
        if newly:

            def jobs(lane: Lane) -> Iterator[Entry]:
                more = newly.get(lane)
                return heapq.merge(line.jobs(lane), more) if more else line.jobs(lane)

        depth, count = self.policies.chosen.depth, len(line.first) + (len(newly) if newly else 0)
        if count > depth:
            self.passed = everything = True  # what is stuck counts against depth
        heads = line.lanes() if everything else iter(line.awake())
        if newly:
            heads = heapq.merge(
                heads,
                sorted(((entries[0], lane) for lane, entries in newly.items()), key=_ENTRY),
                key=_ENTRY,
            )
        return Walk(heads, jobs, depth, count)

    def _fill(self, walk: Walk, role: Role, *, strict: bool) -> None:
        """Place jobs in the order of a walk for as long as there is room."""
        jobs = self.state.jobs
        ceiling: Ceiling | None = None
        many = len(walk) > SOME
        keeper = self.keeper if role is OWNED else None
        while (found := walk.next()) is not None:
            entry, lane = found
            job = jobs[entry[2]]
            if (job.id in self.taken or job.extra.members is not None) and (
                job.kind.shape.tasks > 1 or not self._left(job, role)
            ):  # no cluster runs an array of gangs
                walk.go_on(lane)
                continue
            if keeper is not None and keeper.keeps and keeper.is_blocked(job, lane):
                if keeper.looks > 0:
                    walk.go_on(lane)
                continue
            if (ceiling is not None and ceiling.rules_out(lane.kind.shape)) or not self._place(
                job, lane, role
            ):
                if strict:
                    self.passed = True
                    return
                if self.till is not None and self.till.refusals:
                    self.passed = True
                    if self.till.goes_on(job, self.board.rented_for(lane)):
                        walk.go_on(lane)
                        continue
                if keeper is not None and not keeper.keeps and self._is_kept_for(job):
                    keeper.keep_for(lane)
                if many:
                    ceiling = ceiling or Ceiling.over(self.board.rooms.values(), role)
                    if ceiling.failed() < self.board.least_cpu():
                        return
                walk.stuck()
                if keeper is not None and keeper.blocked:  # a shorter one of the lane may start
                    self.passed = True
                    keeper.block(lane)
                    walk.go_on(lane)
                continue
            if self.till is not None:
                self.till.refusals.clear()
            if ceiling is not None:
                ceiling.took()
            if job.extra.members is not None and self._left(job, role):
                walk.again(entry, lane)
            else:
                walk.go_on(lane)

    def _place(self, job: Job, lane: Lane, role: Role) -> bool:
        """Find a place for a job, if there is one."""
        if job.kind.shape.tasks > 1:
            return self._place_gang(job, lane, role)
        owned = role is OWNED
        keeper = self.keeper if owned else None
        seats = lane.owned if owned else lane.rented
        for seat in self.board.seats(lane, role) if seats is None else seats:
            machine = seat.best(self.policies.place)
            if machine is None:
                continue
            if keeper is not None and keeper.keeps:
                machine = keeper.best(job, seat, machine)
            if machine is not None and (owned or self._may_pay(job, seat.room)):
                self._take(job, seat, machine, ahead=False)
                return True
        if not self.board.eager() or (keeper is not None and keeper.keeps):
            return False
        return self._place_ahead(job, lane, role)

    def _place_ahead(self, job: Job, lane: Lane, role: Role) -> bool:
        """Find a place for a job ahead of room, if there is one."""
        seats = self.board.seats(lane, role)
        if role is OWNED and self._may_be_rented(job) and self.board.seats(lane, RENTED):
            return False  # room to rent comes before a place ahead of owned room
        if role is RENTED:
            seats = self.board.seats(lane, OWNED) + seats
        for seat in seats:
            machine = seat.ahead(self.policies.route, mixed(self.seed, len(self.placements)))
            if machine is not None and self._may_pay(job, seat.room):
                self._take(job, seat, machine, ahead=True)
                return True
        return False

    def _place_gang(self, job: Job, lane: Lane, role: Role) -> bool:
        """Find places for all tasks of a job on one cluster, if there are."""
        if job.extra.members is not None:
            return False  # each member would be a gang: nothing runs those
        keeper = self.keeper if role is OWNED else None
        for seat in self.board.gang_seats(lane, role):
            barred = keeper.barred(job, seat.room) if keeper is not None else ()
            parts = seat.take(self.policies.place, barred) if self._may_pay(job, seat.room) else []
            if parts:
                if not self.keep:
                    self.trials += [(seat.room, part.machine, part.before) for part in parts]
                self._count(job, seat.room)
                nodes = tuple([part.machine.name for part in parts for _ in range(part.tasks)])
                why = self._why(job, seat.room, ahead=False)
                self.placements.append(GangPlacement(job.id, seat.room.name, nodes, why))
                if keeper is not None:
                    keeper.took(job, seat.room, [(part.machine, part.resources) for part in parts])
                return True
            if barred and keeper is not None:
                keeper.blocked = True
        return False

    def _is_kept_for(self, job: Job) -> bool:
        """Whether room is kept for a job that does not fit: one that may be rented takes what it gets."""
        return (
            self.policies.backfill.reservations > 0
            and job.kind.shape.burst is not ALWAYS
            and not self._may_be_rented(job)
        )

    # --- writing it down

    def _take(self, job: Job, seat: Seat, machine: Machine, *, ahead: bool) -> None:
        """Try a place out, and write it down."""
        room = seat.room
        if not self.keep:
            self.trials.append((room, machine, machine.free))
        if ahead:
            room.take_ahead(machine)
            self.ahead[job.id] = None
            self.turns.append((machine, machine.turn))
            machine.turn = self.state.facts.turns + len(self.turns)
        else:
            room.take(machine, seat.asked)
            if self.keeper is not None and room.owned:
                self.keeper.took(job, room, ((machine, seat.asked),))
        count = self._count(job, room)
        members = job.extra.members
        index = None if members is None else ranges.nth(members.pending, count)
        why = ROOM_OWNED if room.owned and not ahead else self._why(job, room, ahead=ahead)
        self.placements.append(Placement(job.id, index, room.name, machine.name, why))

    def _may_pay(self, job: Job, room: Room) -> bool:
        """Whether the caps on a job let it run there."""
        if self.till is not None:
            self.till.holding = None
        if room.owned or (job.terms.max_cost is None and not self.state.caps):
            return True
        self.till = self.till or Till(self.state, self.now)
        return self.till.may_pay(job, room.spec)

    def _count(self, job: Job, room: Room) -> int:
        """Note that one more of a job is placed; returns how many were before."""
        count = self.taken.get(job.id, 0)
        self.taken[job.id] = count + 1
        if not room.owned:
            self.rented[job.id] = self.rented.get(job.id, 0) + 1
            if self.till is not None:
                self.till.hold(len(self.placements))
        return count

    def _why(self, job: Job, room: Room, *, ahead: bool) -> Reason:
        """Why the job is placed there."""
        if room.owned:
            return ROOM_SOON if ahead else ROOM_OWNED
        if job.id in self.expired:
            return self.expired[job.id].why
        return job.due or AlwaysRented()

    def _waits(self, job: Job) -> bool:
        """Whether a job, or some of it, still waits for room after this plan."""
        return job.id in self.ahead or self._left(job) > 0

    def _may_be_rented(self, job: Job) -> bool:
        """Whether all of a job may be rented."""
        return (job.due is not None and not job.partly_due) or job.id in self.expired

    def _patient(self, job: Job) -> int:
        """How much of a job is left and waits for owned capacity only."""
        members = job.extra.members
        due = members.due if members is not None and job.due is not None else 0
        return self._left(job) - due

    def _left(self, job: Job, role: Role = OWNED) -> int:
        """How much of a job this plan has not placed yet; for renting, of what may be rented."""
        members = job.extra.members
        taken = self.taken.get(job.id, 0)
        if members is None:
            return 1 - taken
        pending = ranges.size(members.pending)
        if role is RENTED:
            limit = self.expired[job.id].members if job.id in self.expired else members.due
            return min(pending - taken, (limit or pending) - self.rented.get(job.id, 0))
        return pending - taken
