"""Finds a place for one job, and takes it on trial: on machines, as a prefetched lease, or for all tasks of a gang."""

from collections.abc import Collection, Sequence

from spillover.core.holding import revoked_from
from spillover.core.records.jobs import Job
from spillover.deciding.backfill.reservation import Reservation
from spillover.deciding.backfill.reservations import Reservations
from spillover.deciding.budgets.check import CostHold, CycleBudgets
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import HeldCapacity
from spillover.deciding.capacity.gangs import GangCandidates, Part, by_rank, nodes_by_rank
from spillover.deciding.capacity.limits import ClusterLimits
from spillover.deciding.capacity.machine import Before, Machine
from spillover.deciding.cycle.draft import ROOM_OWNED, Draft
from spillover.deciding.cycle.draws import mixed
from spillover.deciding.cycle.plan import GangMemberPlacement, GangPlacement, Placement
from spillover.deciding.cycle.sharers import Sharers
from spillover.deciding.forecast.estimates import late_on
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.lanes import Lane
from spillover.deciding.queue.limits import QueueUse, allow
from spillover.deciding.renting.slots import Slots
from spillover.deciding.renting.spot import SpotSlack
from spillover.model import ranges
from spillover.model.cluster import OWNED, RENTED, Role
from spillover.model.ids import JobId, member_id
from spillover.model.resources import Resources


class Places:
    """Takes places for jobs, and writes them into the draft of one cycle."""

    __slots__ = (
        "_barred",
        "_counted",
        "_draft",
        "_index",
        "_keep",
        "_late",
        "_policies",
        "_sharers",
        "_slots",
        "_spot",
        "_state",
        "_trials",
        "_turns",
        "budgets",
        "holds",
        "reservation",
    )

    def __init__(
        self,
        index: SchedulingIndex,
        policies: Policies,
        draft: Draft,
        keep: bool,
        one_reservation: bool,
        compares: bool,
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
        if (ends := index.ends) is not None:
            if policies.backfill.reservations <= 1 or one_reservation:
                self.reservation = Reservation(index, ends, policies, draft.now)
            else:
                self.reservation = Reservations(index, ends, policies, draft.now, self._reserves)
        self.budgets: CycleBudgets | None = None
        """Checks caps before renting; None until a job with a cap is tried."""
        self.holds: Sequence[tuple[int, CostHold]] = ()
        """Cost holds of placements, by position."""
        self._counted: list[tuple[ClusterLimits | QueueUse, JobId]] = []
        """Jobs counted on trial in clusters and queues with limits."""
        self._late = False
        """Whether the last job tried would miss its deadline on a cluster that has room."""
        self._barred = False
        """Whether machines were closed to the last job tried: by advance reservations, or for gangs."""
        self._sharers: Sharers | None = None
        """The jobs that wait beside gangs of elastic size; None until such a gang is placed."""
        self._spot: SpotSlack | None = None
        """Keeps jobs without slack off spot machines; None without pools."""
        self._slots: Slots | None = None
        """What jobs add to the bills of rented machines; None without pools."""
        if index.pooled:
            self._spot = SpotSlack(draft.state, index, draft.now)
            if compares:
                self._slots = Slots(draft, index)

    def undo(self) -> None:
        """Undo all trial placements."""
        for cluster, machine, before in reversed(self._trials):
            cluster.set(machine, before)
        for machine, turn in reversed(self._turns):
            machine.turn = turn
        for limits, job in self._counted:
            limits.leave(job)

    def _forget_blockers(self) -> None:
        """Forget what blocked the previous job."""
        self._late = self._barred = False
        if self.budgets is not None:
            self.budgets.refusals = []
        if self.reservation is not None:
            self.reservation.blocked = False

    def _suits(self, job: Job, cluster: Capacity, tasks: int = 0) -> bool:
        """Return whether a job would meet its deadline on a cluster and stay within its limits and those of the queue."""
        if late_on(job, cluster.spec, self._draft.now) is not None:
            self._late = True
            return False
        if tasks and self._index.queue_use is not None:  # without a size, it was looked at with its lane
            use, kind = self._index.queue_use, job.kind
            if not allow(use.of(kind.queue, job.user), _total(job, tasks)):
                return False
        return cluster.limits is None or cluster.limits.allow(_total(job, tasks))

    def _place(self, job: Job, lane: Lane, role: Role) -> bool:  # noqa: C901 - in one piece, because it runs for every job that is tried
        """Place a job if it fits somewhere; return whether it does."""
        # As `_forget_blockers`, without a call for every job that is tried.
        self._late = self._barred = False
        if self.budgets is not None:
            self.budgets.refusals = []
        reservation = self.reservation
        if reservation is not None:
            reservation.blocked = False
        shape = job.kind.shape
        if shape.reservation and not self._is_open(job):
            return False
        if shape.tasks > 1 or shape.most:  # as `is_gang`, without a call for every job that is tried
            return self._place_gang(job, lane, role)
        owned = role is OWNED
        if not owned:
            reservation = None
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
            closes = cluster.windows is not None or cluster.earmarks or (timed and cluster.spots)
            if closes and (closed := self._closed(job, cluster)):
                machine = each.best(self._policies.place, closed)
                if machine is None:
                    self._bar()
                    continue
            if reservation is not None and reservation.keeps:
                machine = reservation.best(job, each, machine, closed)
            elif self._slots is not None and not owned and cluster.spec.pool is not None:
                machine = self._cheapest(job, each, closed, self._slots)
            if machine is not None and (owned or self._may_pay(job, cluster)):
                self._take(job, each, machine, ahead=False)
                return True
        kept = reservation is not None and reservation.keeps
        return self._index.finder.eager() and not kept and self._place_ahead(job, lane, role)

    def _cheapest(
        self, job: Job, candidates: Candidates, closed: Collection[int], slots: Slots
    ) -> Machine | None:
        """Return the machine of a pool to whose bill a job adds least; the place policy decides between equals."""
        candidates.read_all(self._policies.place)
        index = slots.cheapest(candidates, job.kind.shape, max(1, self._index.runs(job)), closed)
        return None if index is None else candidates.cluster.slots[index]

    def _place_ahead(self, job: Job, lane: Lane, role: Role) -> bool:
        """Give a job to an agent as a prefetched lease, if one takes it; return whether one does."""
        draft, candidates = self._draft, self._index.finder.candidates(lane, role)
        if role is OWNED and draft.may_be_rented(job) and self._index.finder.candidates(lane, RENTED):
            return False  # rented capacity with room comes before a prefetched lease on owned capacity
        if role is RENTED:
            candidates = self._index.finder.candidates(lane, OWNED) + candidates
        for each in candidates:
            closed: Collection[int] = ()
            if each.cluster.windows is not None or each.cluster.earmarks or each.cluster.spots:
                closed = self._closed(job, each.cluster, ahead=True)
            machine = each.ahead(self._policies.route, mixed(draft.seed, len(draft.placements)), closed)
            if machine is not None and self._suits(job, each.cluster) and self._may_pay(job, each.cluster):
                self._take(job, each, machine, ahead=True)
                return True
        return False

    def _place_gang(self, job: Job, lane: Lane, role: Role) -> bool:
        """Place all tasks of a gang on one cluster, if they fit; return whether they do."""
        members = job.extra.members
        index = None if members is None else ranges.nth(members.pending, self._draft.taken.get(job.id, 0))
        reservation = self.reservation if role is OWNED else None
        for each in self._index.finder.gang_candidates(lane, role):
            cluster, parts = each.cluster, self._take_gang(job, lane, each)
            if parts and job.kind.shape.most:
                parts = self._take_most(job, lane, each, parts, role)
            if parts:
                if not self._keep:
                    self._trials += [(cluster, part.machine, part.before) for part in parts]
                nodes = nodes_by_rank(job.kind.shape, parts)
                self._count(job, cluster, job.id if index is None else member_id(job.id, index), len(nodes))
                why = self._draft.why(job, cluster, ahead=False)
                ordered = each.grant(by_rank(job.kind.shape, parts))
                granted = tuple([one for part in ordered for one in part.granted or ()])
                if any(granted):
                    self._draft.granted.append((len(self._draft.placements), granted))
                placed = GangPlacement(job.id, cluster.name, nodes, why)
                if index is not None:
                    placed = GangMemberPlacement(job.id, cluster.name, nodes, why, index)
                self._draft.placements.append(placed)
                if reservation is not None:
                    reservation.took(job, tuple([part.held_on(cluster) for part in ordered]))
                return True
        return False

    def _take_gang(self, job: Job, lane: Lane, gang: GangCandidates, tasks: int = 0) -> list[Part]:
        """Take capacity for a gang of a size, where limits, caps and reservations allow it; 0 is its least size."""
        cluster = gang.cluster
        if not self._suits(job, cluster, tasks) or not self._may_pay(job, cluster, tasks):
            return []
        closes = cluster.windows is not None or cluster.earmarks or cluster.spots
        closed = self._closed(job, cluster) if closes else ()
        if job.extra.unprepared and (parts := self._take_elsewhere(job, lane, gang, closed, tasks)):
            return parts
        parts = self._take_parts(job, lane, gang, closed, tasks)
        if closed and not parts:
            self._bar()
        return parts

    def _take_elsewhere(
        self, job: Job, lane: Lane, gang: GangCandidates, closed: Collection[int], tasks: int
    ) -> list[Part]:
        """Take capacity for a gang, but not on machines that could not prepare it before."""
        cluster, reservation = gang.cluster, self.reservation
        failed = [
            each.index for each in cluster.machines if f"{cluster.name}/{each.name}" in job.extra.unprepared
        ]
        if not failed:
            return []
        blocked = False if reservation is None else reservation.blocked
        parts = self._take_parts(job, lane, gang, {*closed, *failed}, tasks)
        if reservation is not None:
            reservation.blocked = blocked  # by these machines, if at all, which the gang may still use
        return parts

    def _take_parts(
        self, job: Job, lane: Lane, gang: GangCandidates, closed: Collection[int], tasks: int
    ) -> list[Part]:
        """Take capacity for a gang on machines that are not closed, where it delays no job with a reservation."""
        if self.reservation is None or not gang.cluster.owned:
            return gang.take(self._policies.place, closed, tasks)
        return self.reservation.take_gang(job, lane, gang, closed, tasks)

    def _take_most(
        self, job: Job, lane: Lane, gang: GangCandidates, parts: list[Part], role: Role
    ) -> list[Part]:
        """Take capacity for the size of an elastic gang that the policy allows; its least has just been taken."""
        shape = job.kind.shape
        least = tried = shape.tasks
        most = shape.most
        if not self._policies.takes_all:
            if self._sharers is None:
                self._sharers = Sharers(self._index, self._draft, self._policies.place)
            most = self._policies.size.most(self._sharers.case(job, gang, role))
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
        """Return the machines that are closed to a job that starts now, or as a prefetched lease."""
        now = self._draft.now
        wait = revoked_from(now, self._state.facts.ahead) - now if ahead else 0
        closed = self._index.closed_on(cluster, job, now, wait)
        if self._spot is None or not cluster.spots:
            return closed
        spots = self._spot.closed(job, cluster)
        return {*closed, *spots} if spots else closed

    def _bar(self) -> None:
        """Note that free machines are closed to a job. They may be open to the next one, which is shorter or a gang."""
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
        return max(0, self._draft.patient(job)) if self._is_kept_for(job) else 0

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
            if self._slots is not None and not cluster.owned:
                self._slots.of(cluster.spec, machine).extend(max(1, self._index.runs(job)))
            if plain:
                cluster.take(machine, candidates.wants)
            else:
                self._take_exactly(job, candidates, machine)
        members = job.extra.members
        index = None if members is None else ranges.nth(members.pending, draft.taken.get(job.id, 0))
        if cluster.limits is None and self.budgets is None and self._index.queue_use is None:
            draft.count(job, cluster)  # as `_count`, without a call for most jobs
        else:
            self._count(job, cluster, job.id if index is None else member_id(job.id, index))
        why = ROOM_OWNED if cluster.owned and not ahead else draft.why(job, cluster, ahead=ahead)
        draft.placements.append(Placement(job.id, index, cluster.name, machine.name, why))

    def _take_exactly(self, job: Job, candidates: Candidates, machine: Machine) -> None:
        """Take a whole machine, or cores and GPUs of a machine that knows its inside."""
        cluster, draft = candidates.cluster, self._draft
        if candidates.alone:
            cluster.take_whole(machine)
        else:
            cluster.take(machine, candidates.taken(machine))
        if machine.inside is not None:
            granted = cluster.grant(machine, job.kind.shape, job.kind.shape.resources)
            if granted is not None:
                draft.granted.append((len(draft.placements), (granted,)))

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
        if (use := self._index.queue_use) is not None:
            use.take(placed, job.kind.queue, job.user, _total(job, tasks))
            if not self._keep:
                self._counted.append((use, placed))
        self._draft.count(job, cluster)


def _total(job: Job, tasks: int) -> Resources:
    """Return the resources of all tasks of a job; `tasks` is the size of a gang of elastic size, 0 its least."""
    shape = job.kind.shape
    return shape.sized(tasks).total if tasks else shape.total
