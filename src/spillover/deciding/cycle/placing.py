"""Finds places for jobs in queue order, on owned and on rented capacity."""

import heapq
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter

from spillover.core.holding import revoked_from
from spillover.core.records.jobs import NO_EXTRA, Job, Queued
from spillover.deciding.backfill.reservation import Reservation
from spillover.deciding.backfill.reservations import Reservations
from spillover.deciding.budgets.check import CostHold, CycleBudgets
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity, Ceiling
from spillover.deciding.capacity.future import HeldCapacity
from spillover.deciding.capacity.gangs import GangCandidates, Part, by_rank, nodes_by_rank
from spillover.deciding.capacity.limits import ClusterLimits
from spillover.deciding.capacity.machine import Before, Machine
from spillover.deciding.cycle.draft import ROOM_OWNED, Draft
from spillover.deciding.cycle.draws import mixed
from spillover.deciding.cycle.plan import GangPlacement, Placement
from spillover.deciding.forecast.ends import overdue_among
from spillover.deciding.forecast.estimates import late_from, late_on
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Entry, JobQueue, Lane, Walk
from spillover.deciding.queue.turns import MOST, Turn
from spillover.model import ranges
from spillover.model.cluster import OWNED, RENTED, Role
from spillover.model.ids import JobId, member_id
from spillover.model.inside import Granted
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

LOOKS = 1000
"""How many jobs a cycle may skip within lanes because of their deadlines."""
SOME = 16
"""Up to this many lanes, trying each one is faster than computing a ceiling over free capacity."""
MOST_PLACED = 1000
"""The most placements of one cycle. The next cycle continues, so that no cycle takes long."""
_ENTRY = itemgetter(0)


class Placer:
    """Writes the places that it finds into the draft of one cycle."""

    __slots__ = (
        "_barred",
        "_bounded",
        "_counted",
        "_draft",
        "_index",
        "_keep",
        "_late",
        "_late_from",
        "_left_out",
        "_looks",
        "_most",
        "_policies",
        "_state",
        "_trials",
        "_turns",
        "budgets",
        "cut",
        "holds",
        "passed",
        "reservation",
        "spent",
        "turn",
    )

    def __init__(
        self,
        index: SchedulingIndex,
        policies: Policies,
        draft: Draft,
        *,
        keep: bool,
        bounded: bool = True,
        one_reservation: bool = False,
    ) -> None:
        self._state = draft.state
        self._index = index
        self._policies = policies
        self._draft = draft
        self._keep = keep
        """Whether trial placements stay."""
        self._trials: list[tuple[Capacity, Machine, Before]] = []
        """Trial placements to undo, each with what was free before."""
        self._turns: list[tuple[Machine, int]] = []
        """Machines that get prefetched leases, each with its turn before."""
        self.reservation: Reservation | None = None
        """Reservations for jobs that do not fit; None if no policy looks ahead."""
        if index.ends is not None and (policies.backfill.reservations <= 1 or one_reservation):
            self.reservation = Reservation(index, index.ends, policies, draft.now)
        elif index.ends is not None:
            self.reservation = Reservations(index, index.ends, policies, draft.now, self._reserves)
        self.budgets: CycleBudgets | None = None
        """Checks caps before renting; None until a job with a cap is tried."""
        self.holds: Sequence[tuple[int, CostHold]] = ()
        """Cost holds of placements, by position."""
        self.passed = False
        """Whether some jobs were left out, or kept waiting, because of others."""
        self._counted: list[tuple[ClusterLimits, JobId]] = []
        """Jobs counted on trial in clusters with limits."""
        self._late = False
        """Whether the last job tried would miss its deadline on a cluster that has room."""
        self._barred = False
        """Whether advance reservations kept the last job tried from some machines."""
        self._looks = LOOKS
        self._left_out: dict[Lane, Entry] = {}
        """Lanes in which jobs were left out, with the last entry that was tried."""
        self._bounded = bounded
        """Whether the number of placements is bounded, and jobs left out get their turn."""
        self.turn: Turn | None = None
        """The current turn, if jobs of other turns were left out; None otherwise."""
        self._most = MOST_PLACED if bounded else FOREVER
        self.cut = False
        """Whether the cycle reached its limit of placements, so that some jobs may not have been tried."""
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
            self._fill(self._walk(queue, everything=True), OWNED, strict=self._policies.backfill.strict)
            return
        self.passed, self.spent, self.turn = index.passed, index.spent, index.turn  # from the last cycle
        if queue.woken and not index.in_turn and not self._place_newcomer(queue):
            self._fill(self._walk(queue, everything=False), OWNED, strict=False)

    def _is_contended(self, line: JobQueue) -> bool:
        """Return whether a woken lane competes for bounded looks: then all lanes are tried, in order."""
        return any(lane.timed or line is self._index.due for lane in line.woken)

    def _only_newcomers_without_room(self) -> bool:
        """Return whether nothing has changed since the last cycle but for new jobs, which do not fit now.

        Then no job can start, and no reservation need be made. Most jobs that arrive at a full cluster are such jobs.
        """
        index, draft, place = self._index, self._draft, self._policies.place
        many = len(index.queue.first) > self._policies.chosen.depth
        if index.reordered or index.windowed or index.turn is not None or index.ranking is not None or many:
            return False
        if draft.expired or index.finder.eager() or len(index.fresh) > SOME:
            return False
        if index.ends is not None and overdue_among(index.ends.sorted, draft.now):
            return False  # their expected ends move with the time, and reservations with them
        for each in index.fresh:
            job = self._state.jobs[each]
            lane = index.lane_of(job)
            if job.extra.deadline is not None:
                return False
            if lane.kind.shape.is_gang:
                if any(one.cluster.may_hold(one.total) for one in index.finder.gang_candidates(lane, OWNED)):
                    return False
            elif any(one.best(place) is not None for one in index.finder.candidates(lane, OWNED)):
                return False
        return True

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
        everything = everything or (self._index.spent and self._is_contended(due))
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
        if job.id not in self._draft.taken:
            self._index.looking_at = job.id
            self._place(job, self._index.lane_of(job), RENTED)
        return True

    def again(self) -> int:
        """Return when time alone could let a job start: a budget renews, or forecasts or deadlines pass."""
        again = self._late_from
        if self.budgets is not None:
            again = min(again, self.budgets.renews)
        if self.reservation is not None and self.reservation.waits_for_end:
            again = min(again, self.reservation.again())
        return again

    def undo(self) -> None:
        """Undo all trial placements."""
        for cluster, machine, before in reversed(self._trials):
            cluster.set(machine, before)
        for machine, turn in reversed(self._turns):
            machine.turn = turn
        for limits, job in self._counted:
            limits.leave(job)

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
        heads = line.lanes() if everything else iter(line.awake())
        if newly:
            heads = heapq.merge(
                heads,
                sorted(((entries[0], lane) for lane, entries in newly.items()), key=_ENTRY),
                key=_ENTRY,
            )
        return Walk(heads, jobs, depth, count)

    def _fill(self, walk: Walk, role: Role, *, strict: bool) -> None:
        """Place jobs in the order of a walk while there is room."""
        jobs, draft, index = self._state.jobs, self._draft, self._index
        ceiling: Ceiling | None = None
        reservation = self.reservation if role is OWNED else None
        many = len(walk) > SOME
        self._left_out = {}
        while (found := walk.next()) is not None:
            entry, lane = found
            index.looking_at = entry[2]
            job = jobs[entry[2]]
            plain = job.extra is NO_EXTRA and reservation is None and job.id not in draft.taken
            plain = plain and not lane.kind.shape.reservation
            if not plain and self._is_skipped(job, walk, entry, lane, role):
                continue
            if (ceiling is None or not self._rules_out(ceiling, lane)) and self._place(job, lane, role):
                if len(draft.placements) >= self._most:
                    self.passed = self.cut = True
                    return
                if ceiling is not None:
                    ceiling.took()
                # The next member of an array comes before other jobs.
                again = job.extra.members is not None and draft.left(job, role)
                walk.again(entry, lane) if again else walk.go_on(lane)
                continue
            if strict:
                self.passed = True
                return
            if self._is_passed_over(job, walk, entry, lane):
                continue
            self._reserve_for(job, lane, role)
            if many:
                # Once even the smallest queued job fits nowhere, no other lane can start anything.
                ceiling = ceiling or Ceiling.over(index.capacity.values(), role)
                if ceiling.failed() < index.least_cpu():
                    return
            walk.stuck()
            if self._barred or (reservation is not None and reservation.blocked):
                self._go_on_behind(walk, entry, lane, role)
        if self._left_out and self._bounded:
            self._take_turns(role, strict=strict)

    def _is_skipped(self, job: Job, walk: Walk, entry: Entry, lane: Lane, role: Role) -> bool:
        """Return whether to skip a job: it is placed completely, would be late, or a reservation blocks its lane."""
        draft, members = self._draft, job.extra.members
        # No cluster runs an array of gangs.
        if (members is not None or job.id in draft.taken) and (
            job.kind.shape.is_gang or not draft.left(job, role)
        ):
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
            if lane in stuck or draft.left(job, role) <= 0:
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
        while draft.left(job, role) > 0:
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
            lane = index.lanes.get(job.kind)
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

    def _forget_blockers(self) -> None:
        """Forget what blocked the previous job."""
        self._late = self._barred = False
        if self.budgets is not None:
            self.budgets.refusals = []
        if self.reservation is not None:
            self.reservation.blocked = False

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

    def _suits(self, job: Job, cluster: Capacity, tasks: int = 0) -> bool:
        """Return whether a job would meet its deadline on a cluster and stay within the limits of the cluster."""
        if late_on(job, cluster.spec, self._draft.now) is not None:
            self._late = True
            return False
        return cluster.limits is None or cluster.limits.allow(_total(job, tasks))

    def _place(self, job: Job, lane: Lane, role: Role) -> bool:
        """Place a job if it fits somewhere; return whether it does."""
        self._late = self._barred = False
        if self.budgets is not None or self.reservation is not None:
            self._forget_blockers()
        shape = job.kind.shape
        if shape.reservation and not self._is_open(job):
            return False
        if shape.tasks > 1 or shape.most:  # as `is_gang`, without a call for every job that is tried
            return self._place_gang(job, lane, role)
        owned = role is OWNED
        reservation = self.reservation if owned else None
        timed = job.extra.deadline is not None
        candidates = lane.owned if owned else lane.rented
        for each in self._index.finder.candidates(lane, role) if candidates is None else candidates:
            machine = each.best(self._policies.place)
            if machine is None:
                continue
            cluster = each.cluster
            if (timed or cluster.limits is not None) and not self._suits(job, cluster):
                continue
            closed: Collection[int] = ()
            if cluster.windows is not None and (closed := self._closed(job, cluster)):
                machine = each.best(self._policies.place, closed)
                if machine is None:
                    self._bar()
                    continue
            if reservation is not None and reservation.keeps:
                machine = reservation.best(job, each, machine, closed)
            if machine is not None and (owned or self._may_pay(job, cluster)):
                self._take(job, each, machine, ahead=False)
                return True
        if not self._index.finder.eager() or (reservation is not None and reservation.keeps):
            return False
        return self._place_ahead(job, lane, role)

    def _place_ahead(self, job: Job, lane: Lane, role: Role) -> bool:
        """Give a job to an agent as a prefetched lease, if one takes it; return whether one does."""
        draft, candidates = self._draft, self._index.finder.candidates(lane, role)
        if role is OWNED and draft.may_be_rented(job) and self._index.finder.candidates(lane, RENTED):
            return False  # rented capacity with room comes before a prefetched lease on owned capacity
        if role is RENTED:
            candidates = self._index.finder.candidates(lane, OWNED) + candidates
        for each in candidates:
            closed: Collection[int] = ()
            if each.cluster.windows is not None:
                closed = self._closed(job, each.cluster, ahead=True)
            machine = each.ahead(self._policies.route, mixed(draft.seed, len(draft.placements)), closed)
            if machine is not None and self._suits(job, each.cluster) and self._may_pay(job, each.cluster):
                self._take(job, each, machine, ahead=True)
                return True
        return False

    def _place_gang(self, job: Job, lane: Lane, role: Role) -> bool:
        """Place all tasks of a gang on one cluster, if they fit; return whether they do."""
        if job.extra.members is not None:
            return False  # each member would be a gang, which no cluster runs
        reservation = self.reservation if role is OWNED else None
        for each in self._index.finder.gang_candidates(lane, role):
            cluster, parts = each.cluster, self._take_gang(job, lane, each)
            if parts and job.kind.shape.most:
                parts = self._take_most(job, lane, each, parts)
            if parts:
                if not self._keep:
                    self._trials += [(cluster, part.machine, part.before) for part in parts]
                nodes = nodes_by_rank(job.kind.shape, parts)
                self._count(job, cluster, job.id, len(nodes))
                why = self._draft.why(job, cluster, ahead=False)
                ordered = by_rank(job.kind.shape, parts)
                granted = _grant_parts(cluster, job.kind.shape, ordered)
                if any(any(each) for each in granted):
                    together = tuple([one for each in granted for one in each])
                    self._draft.granted.append((len(self._draft.placements), together))
                self._draft.placements.append(GangPlacement(job.id, cluster.name, nodes, why))
                if reservation is not None:
                    held = zip(ordered, granted, strict=True)
                    reservation.took(job, tuple([part.held_on(cluster, each) for part, each in held]))
                return True
        return False

    def _take_gang(self, job: Job, lane: Lane, gang: GangCandidates, tasks: int = 0) -> list[Part]:
        """Take capacity for a gang of a size, where limits, caps and reservations allow it; 0 is its least size."""
        cluster = gang.cluster
        if not self._suits(job, cluster, tasks) or not self._may_pay(job, cluster, tasks):
            return []
        closed = () if cluster.windows is None else self._closed(job, cluster)
        if self.reservation is None or not cluster.owned:
            parts = gang.take(self._policies.place, closed, tasks)
        else:
            parts = self.reservation.take_gang(job, lane, gang, closed, tasks)
        if closed and not parts:
            self._bar()
        return parts

    def _take_most(self, job: Job, lane: Lane, gang: GangCandidates, parts: list[Part]) -> list[Part]:
        """Take capacity for the largest size of an elastic gang, of which the least size has just been taken."""
        shape = job.kind.shape
        least, most = shape.tasks, shape.most
        tried = least
        while least < most:
            # The whole range often fits, so try that first, and halve what is left after that.
            tried = most if tried == shape.tasks else (least + most + 1) // 2
            gang.undo(parts)
            if larger := self._take_gang(job, lane, gang, tried):
                least, parts = tried, larger
            else:
                most = tried - 1
                parts = self._take_gang(job, lane, gang, least)
        self._barred = False  # what kept it from growing does not count
        if self.reservation is not None:
            self.reservation.blocked = False
        return parts

    def _closed(self, job: Job, cluster: Capacity, *, ahead: bool = False) -> Collection[int]:
        """Return the machines that advance reservations close to a job that starts now, or as a prefetched lease."""
        now = self._draft.now
        wait = revoked_from(now, self._state.facts.ahead) - now if ahead else 0
        return self._index.closed_on(cluster, job, now, wait)

    def _bar(self) -> None:
        """Note that a job would have a place if it ended sooner, before an advance reservation begins."""
        self._barred = True
        if self.reservation is not None:
            self.reservation.blocked = True

    def _is_open(self, job: Job, *, whole: bool = True) -> bool:
        """Return whether a job may start now in the advance reservation that it names, and end there if it is `whole`."""
        found, now = self._state.reservations.get(job.kind.shape.reservation), self._draft.now
        if found is None or found.project != job.kind.project or not found.start <= now < found.end:
            return False
        return not whole or job.terms.walltime is None or now + job.terms.walltime <= found.end

    def _reserves(self, job: Job) -> int:
        """Return how many reservations a job may have: as many as it has members that wait, or one."""
        if not self._is_kept_for(job) or (job.kind.shape.is_gang and job.extra.members is not None):
            return 0  # no cluster runs an array of gangs
        return max(0, self._draft.patient(job))

    def _is_kept_for(self, job: Job) -> bool:
        """Return whether a job that does not fit may have a reservation."""
        return self._policies.keeps_room_for(job) and not self._draft.may_be_rented(job)

    def _take(self, job: Job, candidates: Candidates, machine: Machine, *, ahead: bool) -> None:
        """Occupy a place on trial and record the placement."""
        draft, cluster = self._draft, candidates.cluster
        if not self._keep:
            self._trials.append((cluster, machine, machine.before))
        if ahead:
            cluster.take_ahead(machine)
            draft.ahead[job.id] = None
            self._turns.append((machine, machine.turn))
            machine.turn = self._state.facts.turns + len(self._turns)
        else:
            plain = machine.inside is None and not candidates.alone  # as most: it takes what it asks for
            if self.reservation is not None and cluster.owned:
                held = candidates.wants if plain else candidates.held(machine)
                self.reservation.took(job, (HeldCapacity(cluster, machine, held),))
            if plain:
                cluster.take(machine, candidates.wants)
            elif candidates.alone:
                cluster.take_whole(machine)
            else:
                cluster.take(machine, candidates.taken(machine))
            if machine.inside is not None:
                granted = cluster.grant(machine, job.kind.shape, job.kind.shape.resources)
                if granted is not None:
                    draft.granted.append((len(draft.placements), (granted,)))
        members = job.extra.members
        index = None if members is None else ranges.nth(members.pending, draft.taken.get(job.id, 0))
        self._count(job, cluster, job.id if index is None else member_id(job.id, index))
        why = ROOM_OWNED if cluster.owned and not ahead else draft.why(job, cluster, ahead=ahead)
        draft.placements.append(Placement(job.id, index, cluster.name, machine.name, why))

    def _may_pay(self, job: Job, cluster: Capacity, tasks: int = 0) -> bool:
        """Return whether the caps of a job let it run on a cluster."""
        if self.budgets is not None:
            self.budgets.holding = None
        if cluster.owned or (job.terms.max_cost is None and not self._state.caps):
            return True
        if self.budgets is None:
            self.budgets = CycleBudgets(self._state, self._draft.now)
            self.holds = self.budgets.holds
        return self.budgets.may_pay(job, cluster.spec, tasks)

    def _count(self, job: Job, cluster: Capacity, placed: JobId, tasks: int = 0) -> None:
        """Count one more placement of a job or array member, with its cost hold."""
        if self.budgets is not None and not cluster.owned:
            self.budgets.hold(len(self._draft.placements))
        if cluster.limits is not None:
            cluster.limits.take(placed, _total(job, tasks))
            if not self._keep:
                self._counted.append((cluster.limits, placed))
        self._draft.count(job, cluster)


def _total(job: Job, tasks: int) -> Resources:
    """Return the resources of all tasks of a job; `tasks` is the size of a gang of elastic size, 0 its least."""
    shape = job.kind.shape
    return shape.sized(tasks).total if tasks else shape.total


def _grant_parts(cluster: Capacity, shape: Shape, parts: Sequence[Part]) -> list[list[Granted | None]]:
    """Choose the cores and GPUs of each task of a gang, by part."""
    granted: list[list[Granted | None]] = []
    for part in parts:
        own = shape.parts[part.number].shape
        if part.machine.inside is None:
            granted.append([None] * part.tasks)
        else:
            granted.append([cluster.grant(part.machine, own, own.resources) for _ in range(part.tasks)])
    return granted
