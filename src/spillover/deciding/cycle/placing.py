"""Finds places for jobs in queue order, on owned and on rented capacity. `places` finds that of one job."""

import heapq
from collections.abc import Iterator
from operator import itemgetter

from spillover.core.records.jobs import NO_EXTRA, Job, Queued
from spillover.deciding.backfill.kept import KeptReservations
from spillover.deciding.backfill.reservations import Reservations
from spillover.deciding.capacity.cluster import Ceiling
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.cycle.places import Places
from spillover.deciding.forecast.ends import overdue_among
from spillover.deciding.forecast.estimates import late_from
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Entry, JobQueue, Lane, Walk
from spillover.deciding.queue.turns import MOST, Turn
from spillover.model.cluster import OWNED, RENTED, Role
from spillover.model.units import FOREVER

LOOKS = 1000
"""How many jobs a cycle may skip within lanes because of their deadlines."""
SOME = 16
"""Up to this many lanes, trying each one is faster than computing a ceiling over free capacity."""
SHORT = 3
"""With up to this many lanes, trying all jobs again takes no longer than finding out that only new ones need be tried."""
MOST_PLACED = 1000
"""The most placements of one cycle. The next cycle continues, so that no cycle takes long."""
_ENTRY = itemgetter(0)


class Placer(Places):
    """Walks the queue, and decides which jobs are tried, left out or kept waiting."""

    __slots__ = (
        "_bounded",
        "_held_back",
        "_late_from",
        "_left_out",
        "_looks",
        "_most",
        "_walked",
        "complete",
        "cut",
        "passed",
        "spent",
        "turn",
    )

    def __init__(
        self,
        index: SchedulingIndex,
        policies: Policies,
        draft: Draft,
        keep: bool,
        bounded: bool,
        one_reservation: bool,
        compares: bool,
    ) -> None:
        Places.__init__(self, index, policies, draft, keep, one_reservation, compares)
        self.passed = False
        """Whether some jobs were left out, or kept waiting, because of others."""
        self._looks = LOOKS
        self._held_back = 0
        """How many lanes were left out because of the limits of their queues, although those are not reached."""
        self._left_out: dict[Lane, Entry] = {}
        """Lanes in which jobs were left out, with the last entry that was tried."""
        self._bounded = bounded
        """Whether the number of placements is bounded, and jobs left out get their turn."""
        self.turn: Turn | None = None
        """The current turn, if jobs of other turns were left out; None otherwise."""
        self._most = MOST_PLACED if bounded else FOREVER
        self.cut = False
        """Whether the cycle reached its limit of placements, so that some jobs may not have been tried."""
        self.complete = False
        """Whether the cycle tried all queued jobs on owned capacity that could start there."""
        self._walked: Walk | None = None
        """The walk over owned capacity; None if the cycle tried no job there, or only newcomers."""
        self.spent = False
        """Whether a bounded look met a job that cannot start."""
        self._late_from = FOREVER
        """When the next job that others may wait for will miss its deadline everywhere; nanoseconds UTC."""

    def place(self) -> None:
        """Place jobs on owned capacity, in order. Jobs tried before are tried again only if capacity was gained."""
        queue, index = self._index.queue, self._index
        calm = index.turn is None and index.ranking is None  # as in most cycles
        gains = index.gained or (not calm and index.gains(self._draft.now))
        contended = index.spent and self._is_contended(queue)
        if gains or contended or (index.in_turn and not self._only_newcomers_without_room()):
            kept, index.kept = index.kept, None
            if gains or contended or not isinstance(kept, KeptReservations) or not self._resume(kept):
                walk = self._walked = self._walk(queue, everything=True)
                self.complete = self._fill(walk, OWNED, strict=self._policies.backfill.strict)
            return
        if isinstance(index.kept, KeptReservations):
            index.kept.arrived.update(index.fresh)
        self.passed, self.spent, self.turn = index.passed, index.spent, index.turn  # from the last cycle
        if queue.woken and not index.in_turn and not self._place_newcomer(queue):
            self._fill(self._walk(queue, everything=False), OWNED, strict=False)

    def _is_contended(self, line: JobQueue) -> bool:
        """Return whether a woken lane competes for bounded looks: then all lanes are tried, in order."""
        return any(lane.timed or line is self._index.due for lane in line.woken)

    def _only_newcomers_without_room(self) -> bool:
        """Return whether nothing has changed since the last cycle but for new jobs at the end, which do not fit now.

        Then no job can start, and no reservation need be made. Most jobs that arrive at a full cluster are such jobs.
        """
        index, draft, place = self._index, self._draft, self._policies.place
        lanes = len(index.queue.first)
        if index.reordered or lanes <= SHORT or lanes > self._policies.chosen.depth:
            return False
        if index.windowed or index.turn is not None or index.ranking is not None:
            return False
        if draft.expired or index.finder.eager() or len(index.fresh) > SOME:
            return False
        if index.ends is not None and overdue_among(index.ends.sorted, draft.now):
            return False  # their expected ends move with the time, and reservations with them
        for each in index.fresh:
            job = self._state.jobs[each]
            lane = index.lane_of(job)
            if lane.is_held_back:
                continue
            if job.extra.deadline is not None:
                return False
            if lane.kind.shape.is_gang:
                if any(one.cluster.may_hold(one.total) for one in index.finder.gang_candidates(lane, OWNED)):
                    return False
            elif any(one.best(place) is not None for one in index.finder.candidates(lane, OWNED)):
                return False
        return True

    def _resume(self, kept: KeptReservations) -> bool:
        """Try only new jobs, beside the reservations of the last cycle, if they still hold; return whether they do."""
        index, draft = self._index, self._draft
        if index.reordered or index.turn is not None or index.spent:
            return False
        if len(index.queue.first) > self._policies.chosen.depth:
            return False
        found = kept.newcomers(index, draft.now, draft.expired)
        if found is None:
            return False
        kept.made.resume(draft.now, self._reserves)
        self.reservation, self.passed = kept.made, index.passed
        lanes: dict[Lane, list[Entry]] = {}
        for entry, lane in found:
            lanes.setdefault(lane, []).append(entry)
        walk = self._walked = Walk(iter(found), lambda lane: iter(lanes[lane]), kept.patience, len(lanes))
        walk.last = kept.last
        self.complete = self._fill(walk, OWNED, strict=False)
        return True

    def keep(self) -> None:
        """Keep the reservations for the next cycle, if this one tried all jobs and time alone does not change them."""
        made, walk = self.reservation, self._walked
        if type(made) is not Reservations or not self.complete or not made.keeps:
            return
        index, draft = self._index, self._draft
        if walk is None or not walk.is_over:
            return
        if self.spent or self.turn is not None or self._late_from < FOREVER:
            return
        if any(index.capacity[each.cluster].owned for each in draft.placements):
            return
        gone = (*draft.expired, *draft.taken)
        if walk.last is not None and KeptReservations.can_keep(made, index, draft.now, gone):
            index.kept = KeptReservations(made, index, walk.last, walk.patience)

    def _place_newcomer(self, queue: JobQueue) -> bool:
        """Place the job if it is the only one of the only woken lane, as most new jobs are; return whether it was."""
        if len(queue.woken) > 1 or len(queue.first) > self._policies.chosen.depth:
            return False
        (lane,) = queue.woken
        if len(queue.heaps[lane]) > 1:
            return False
        job = self._state.jobs[queue.first[lane][2]]
        if job.extra.members is not None:
            return False
        self._index.looking_at = job.id
        if not lane.is_held_back:
            self._place(job, lane, OWNED)
        return True

    def rent(self) -> None:
        """Rent jobs that may be rented and found no owned capacity, in order."""
        due, draft = self._index.due, self._draft
        if len(draft.expired) == 1 and not due.first and self._rent_one():
            return
        newly: dict[Lane, list[Entry]] = {}
        for each in draft.expired:
            job = self._state.jobs[each]
            if type(job.phase) is Queued and draft.left(job):
                newly.setdefault(self._index.lane_of(job), []).append(self._index.spot(job))
        for entries in newly.values():
            entries.sort()
        everything = bool(newly) or self._index.gains(draft.now)
        everything = everything or self._index.kept_off or (self._index.spent and self._is_contended(due))
        if not everything:
            self.passed = self.passed or self._index.passed
            self.spent = self.spent or self._index.spent
            self.turn = self.turn or self._index.turn
        if everything or due.woken:
            self._fill(self._walk(due, everything, newly), RENTED, strict=False)

    def _rent_one(self) -> bool:
        """Rent the job if it is the only one that may be and has no cap, as most do; return whether it was."""
        (each,) = self._draft.expired
        job = self._state.jobs[each]
        if type(job.phase) is not Queued or job.extra.members is not None:
            return False
        if job.terms.max_cost is not None or self._state.caps:
            return False
        lane = self._index.lane_of(job)
        if job.id not in self._draft.taken and not lane.is_held_back:
            self._index.looking_at = job.id
            self._place(job, lane, RENTED)
        return True

    def again(self, *, final: bool) -> int:
        """Return when time alone could let a job start: a budget renews, or forecasts or deadlines pass.

        After a final cycle none will look at what it starts.
        """
        again = self._late_from
        if self.budgets is not None:
            again = min(again, self.budgets.renews)
        if self.reservation is not None and self.reservation.waits_for_end:
            again = min(again, self.reservation.again(started=final))
        return again

    def spot_again(self) -> int:
        """Return when a job that was kept off spot machines may use them."""
        return FOREVER if self._spot is None else self._spot.again

    def _walk(self, line: JobQueue, everything: bool, newly: dict[Lane, list[Entry]] | None = None) -> Walk:
        """Return a walk over all lanes, or over those that changed since they were tried, in order."""
        jobs = line.jobs
        if newly:

            def jobs(lane: Lane) -> Iterator[Entry]:
                more = newly.get(lane)
                return heapq.merge(line.jobs(lane), more) if more else line.jobs(lane)

        depth, count = self._policies.chosen.depth, len(line.first) + (len(newly) if newly else 0)
        if count > depth:
            self.passed = everything = True  # stuck lanes count against depth
        heads = line.startable() if everything else iter(line.awake())
        if newly:
            heads = heapq.merge(
                heads,
                sorted(((entries[0], lane) for lane, entries in newly.items()), key=_ENTRY),
                key=_ENTRY,
            )
        return Walk(heads, jobs, depth, count)

    def _fill(self, walk: Walk, role: Role, *, strict: bool) -> bool:
        """Place jobs in the order of a walk while there is room; return whether all were tried that could start."""
        jobs, draft, index = self._state.jobs, self._draft, self._index
        ceiling: Ceiling | None = None
        reservation = self.reservation if role is OWNED else None
        many = len(walk) > SOME
        self._left_out = {}
        while (found := walk.next()) is not None:
            entry, lane = found
            index.looking_at = entry[2]
            job = jobs[entry[2]]
            plain = job.extra is NO_EXTRA and reservation is None and entry[2] not in draft.taken
            plain = plain and not lane.kind.shape.reservation and not lane.limits
            if not plain and self._is_skipped(job, walk, entry, lane, role):
                continue
            if (ceiling is None or not self._rules_out(ceiling, lane)) and self._place(job, lane, role):
                if len(draft.placements) >= self._most:
                    self.passed = self.cut = True
                    return False
                if ceiling is not None:
                    ceiling.took()
                # The next member of an array comes before other jobs.
                again = job.extra.members is not None and draft.left(job, role)
                walk.again(entry, lane) if again else walk.go_on(lane)
                continue
            if strict:
                self.passed = True
                return False
            if self._is_passed_over(job, walk, entry, lane):
                continue
            self._reserve_for(job, lane, role)
            if many:
                # Once even the smallest queued job fits nowhere, no other lane can start anything.
                ceiling = ceiling or Ceiling.over(index.capacity.values(), role, index.least_cpu())
                if ceiling.failed():
                    return True
            walk.stuck()
            if self._barred or (reservation is not None and reservation.blocked):
                self._go_on_behind(walk, entry, lane, role)
        if self._left_out and self._bounded:
            self._take_turns(role, strict=strict)
        return not self._left_out and walk.patience > 0

    def _hold_back(self, walk: Walk) -> None:
        """Leave out a lane that the limits of its queue hold back. It delays no other, but many count as stuck."""
        self._held_back += 1
        if self._held_back > LOOKS:
            self.passed = True
            walk.stuck()

    def _is_skipped(self, job: Job, walk: Walk, entry: Entry, lane: Lane, role: Role) -> bool:
        """Return whether to skip a job: it is placed completely, would be late, or its queue or a reservation blocks it."""
        if lane.limits and lane.is_held_back:  # most lanes have none, which spares them a call
            self._hold_back(walk)
            return True
        draft, members = self._draft, job.extra.members
        if (members is not None or job.id in draft.taken) and not draft.left(job, role):
            walk.go_on(lane)
            return True
        if job.extra.deadline is not None and self._misses_deadline(job, lane, role):
            self._pass_over(walk, entry, lane)
            return True
        if job.kind.shape.reservation and not self._is_open(job):
            if self._is_open(job, whole=False):
                self._pass_over(walk, entry, lane)
            return True  # nobody waits for it, and if its reservation is not open, none of its lane can start
        reservation = self.reservation if role is OWNED else None
        if reservation is not None and reservation.keeps and reservation.is_blocked(job, lane):
            if reservation.looks > 0:
                walk.go_on(lane)
            return True
        return False

    def _reserve_for(self, job: Job, lane: Lane, role: Role) -> None:
        """Reserve capacity for a job that does not fit, while there are reservations left."""
        reservation = self.reservation if role is OWNED else None
        if reservation is not None and not reservation.is_full:
            reservation.keep_for(job, lane, kept=self._is_kept_for(job))

    def _go_on_behind(self, walk: Walk, entry: Entry, lane: Lane, role: Role) -> None:
        """Try the next job of a lane too, if a shorter one than the last may still start."""
        if self._is_blocked_by_reservation(lane, role):
            walk.go_on(lane)
        elif self._barred:
            self.passed = True
            self._left_out[lane] = entry

    def _is_blocked_by_reservation(self, lane: Lane, role: Role) -> bool:
        """Return whether only a reservation blocked the last job of a lane: then a shorter one may still start."""
        reservation = self.reservation if role is OWNED else None
        if self._barred:
            self._looks -= 1
            return self._looks > 0
        if reservation is None or not reservation.blocked:
            return False
        self.passed = True
        return reservation.block(lane)

    def _take_turns(self, role: Role, *, strict: bool) -> None:
        """Try the jobs that were left out and have their turn now, in order."""
        draft, reservation = self._draft, self.reservation if role is OWNED else None
        turn = self._index.turns.at(draft.now)
        if not turn.includes_all:
            self.turn, self.passed = turn, True
        stuck: set[Lane] = set()
        for lane, job in self._whose_turn(turn, role):
            if lane in stuck or lane.is_held_back or draft.left(job, role) <= 0:
                continue
            if job.extra.deadline is not None and self._misses_deadline(job, lane, role):
                continue
            if lane.kind.shape.reservation and not self._is_open(job):
                continue
            if reservation is not None and reservation.keeps and reservation.is_blocked(job, lane):
                continue
            fits = self._place_all(job, lane, role)
            if self.cut:
                return
            if fits or self._late:
                continue
            if self.budgets is not None and self.budgets.refusals:
                self.budgets.goes_on(job, self._index.finder.rented_for(lane))
                continue
            if strict:
                self.passed = True
                return
            self._reserve_for(job, lane, role)
            if not self._is_blocked_by_reservation(lane, role):
                stuck.add(lane)

    def _place_all(self, job: Job, lane: Lane, role: Role) -> bool:
        """Place all that is left of a job, up to the limit of the cycle; return False if some of it does not fit."""
        draft = self._draft
        while draft.left(job, role) > 0 and not lane.is_held_back:
            if not self._place(job, lane, role):
                return False
            if len(draft.placements) >= self._most:
                self.passed = self.cut = True
                return True
        return True

    def _whose_turn(self, turn: Turn, role: Role) -> list[tuple[Lane, Job]]:
        """Return the jobs behind the last ones tried that have this turn, in order."""
        index, draft, jobs = self._index, self._draft, self._state.jobs
        found: list[tuple[Entry, Lane]] = []
        for each in index.turns.of(turn):
            job = jobs[each]
            lane = index.known_lane(job.kind, job.user)
            last = None if lane is None else self._left_out.get(lane)
            if lane is None or last is None:
                continue
            if role is RENTED and job.due is None and each not in draft.expired:
                continue
            if (spot := index.spot(job)) > last:
                found.append((spot, lane))
        found.sort()
        return [(lane, jobs[spot[2]]) for spot, lane in found[: 4 * MOST]]

    def _is_passed_over(self, job: Job, walk: Walk, entry: Entry, lane: Lane) -> bool:
        """Return whether a job is late or refused by its caps, so that another one of its lane may start."""
        if self._late:
            self._pass_over(walk, entry, lane)
            return True
        if self.budgets is None or not self.budgets.refusals:
            return False
        self.passed = self.spent = True
        if self.budgets.goes_on(job, self._index.finder.rented_for(lane)):
            walk.go_on(lane)
            return True
        if self.budgets.rest_may_rent:
            self._left_out[lane] = entry
        return False

    def _rules_out(self, ceiling: Ceiling, lane: Lane) -> bool:
        """Return whether no machine has enough room for jobs of a lane, so that none need be tried."""
        if not ceiling.rules_out(lane.kind.shape):
            return False
        self._forget_blockers()
        return True

    def _misses_deadline(self, job: Job, lane: Lane, role: Role) -> bool:
        """Return whether a job would miss its deadline on every cluster of a role: then no other job waits for it."""
        finder, gang = self._index.finder, job.kind.shape.is_gang
        found = finder.gang_candidates(lane, role) if gang else finder.candidates(lane, role)
        since = max([late_from(job, each.cluster.spec) for each in found], default=FOREVER)
        if since > self._draft.now:
            self._late_from = min(self._late_from, since)
        return since <= self._draft.now

    def _pass_over(self, walk: Walk, entry: Entry, lane: Lane) -> None:
        """Continue with the next job of a lane, or leave the rest of the lane out if the looks are used up."""
        self._looks -= 1
        self.spent = True
        if self._looks > 0:
            walk.go_on(lane)
        else:
            self.passed = True
            self._left_out[lane] = entry
