"""What renting jobs now would mean on machines of pools: when each would start, and what it would add to the bill.

A free slot on a machine that stays anyway costs nothing: other tasks run there for longer, or its hour is paid. Beyond
that time, a job pays its share. If there is no slot, a machine must boot, and is paid in whole steps. The wait policy
sees this for each job, so that it can tell a slot that costs nothing from an expensive machine. What no machine takes may
get nodes of a whole cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from msgspec.structs import replace

from spillover.core.records.jobs import Job, Kind
from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.forecast.starts import Waiter
from spillover.deciding.protocols import Policies, Rental
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.demand import Demand, due_jobs, weight_of
from spillover.deciding.renting.money import PoolMoney
from spillover.deciding.renting.next_cluster import NextClusters, NextNodes
from spillover.deciding.renting.offers import Alike, OpenOffer, open_offers
from spillover.deciding.renting.ordering import Limits, best_machine, grouped
from spillover.deciding.renting.room import growth_of, is_coming
from spillover.deciding.renting.slots import Slot, Slots
from spillover.deciding.renting.spot import SpotSlack
from spillover.model.admission import may_run
from spillover.model.cluster import (
    PER_RATE,
    RENTED,
    WHOLE,
    ClusterSpec,
    rate_of_job,
    share_of,
)
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

MOST_CLAIMS: Final = 256
"""Jobs that may be rented already and take their room first."""
MOST_MACHINES: Final = 32
"""New machines that are filled in thought with jobs that would be rented together. Jobs beyond pay their share of a full one."""
MOST_OFFERS: Final = 4
"""The cheapest offers for a shape that are compared for each of its jobs."""
EMPTY: Final[dict[JobId, Rental]] = {}


class _NewMachine:
    """An offer as a job of one shape sees it."""

    __slots__ = ("machines", "offer", "share")

    def __init__(self, offer: OpenOffer, shape: Shape, share: int) -> None:
        self.offer = offer
        self.machines = offer.machines_for(shape) if shape.is_gang else 1
        """How many of them a job needs; 0 if it does not fit."""
        self.share = share
        """The part of one machine that the job takes, in millionths; more than all of it for many tasks."""

    def rental(self, runs: int, usual: int) -> Rental:
        """Return what renting a job means if others share what it leaves of the machine."""
        price = self.offer.cost(runs) * min(self.share, self.machines * WHOLE) // WHOLE
        return Rental(self.offer.boot, self.offer.late, price, usual)


class _Line:
    """Slots where tasks of a shape may still fit. Most are never looked at: the first one has room."""

    def __init__(self, slots: Iterator[Slot]) -> None:
        self._slots = slots
        self._first = next(slots, None)

    def first(self, shape: Shape) -> Slot | None:
        """Return the first slot with room, and forget those before it; None if there is none."""
        while self._first is not None and not self._first.place.fits(shape):
            self._first = next(self._slots, None)
        return self._first


class Rentals:
    """What renting the waiting jobs of a cycle would mean. A job that is asked about takes the room that it would get."""

    def __init__(
        self, draft: Draft, index: SchedulingIndex, policies: Policies, *, whole: bool = True
    ) -> None:
        self._draft = draft
        self._sees_whole = whole
        """Whether whole clusters count, which earlier rules did not know."""
        self._index = index
        self._place = policies.place
        self._state: State = draft.state
        self._now = draft.now
        self._offers: list[OpenOffer] = []
        self._money: dict[ClusterName, PoolMoney] = {}
        self._left: dict[ClusterName, int] = {}
        """How many more machines each pool may order."""
        self._coming: list[Slot] = []
        self._clusters: NextClusters | None = None
        """Whole clusters for what no machine takes; None if there are no templates."""
        self._alike = Alike(draft.state)
        self._spot = SpotSlack(draft.state, index, draft.now)
        self._there = Slots(draft, index, copies=True)
        self._fitting: dict[tuple[Shape, tuple[ClusterName, ...], bool], _Line] = {}
        """By shape, where a task may still fit: what is there by cluster and then by how long it is paid, then what comes."""
        self._new: dict[tuple[Shape, tuple[ClusterName, ...], int], list[_NewMachine]] = {}
        self._claims: list[Demand] = []
        """Jobs that may be rented already and find no room: machines are ordered for them in this cycle."""
        self._fresh: dict[JobId, None] = {}
        """Jobs for which a machine would be ordered."""
        self._look()

    def _look(self) -> None:
        """Read pools and machines, and let jobs that may be rented already take their room."""
        state, now, known = self._state, self._now, self._index.imagined
        coming: list[RentedMachine] = []
        whole: list[OpenOffer] = []
        for cluster in self._index.capacity.values():
            spec, pool = cluster.spec, cluster.spec.pool
            if pool is None:
                continue
            self._left[spec.name] = pool.max - len(state.live_rented.get(spec.name, ()))
            self._money[spec.name] = PoolMoney(state, spec, now)
            coming += [each for each in state.unsettled_machines(spec.name) if is_coming(each)]
            if spec.is_template and self._sees_whole:
                whole += open_offers(state, spec, now, known)  # those that are there may grow
            elif self._left[spec.name] > 0:
                found = open_offers(state, spec, now, known)
                self._offers += [each for each in found if not each.offer.nodes]
        self._coming = [slot for each in coming if (slot := self._coming_slot(each)) is not None]
        if whole and self._sees_whole:
            self._clusters = NextClusters(state, whole, self._left, now)
            for name in dict.fromkeys([each.spec.name for each in whole]):
                self._coming += [
                    slot for each in state.unsettled_machines(name) for slot in self._node_slots(each)
                ]
        for job in islice(due_jobs(self._draft, self._index), MOST_CLAIMS):
            runs = max(1, self._index.runs(job))
            shape, count = job.kind.shape, self._draft.left(job, RENTED)
            while count > 0 and not shape.is_gang and (slot := self._slot(job)) is not None:
                slot.take(shape, runs)
                count -= 1
            if count > 0:
                self._claims.append(Demand(job, count, runs, 0, 0, self._spot.of(job, runs)))

    # --- rooms

    def _coming_slot(self, machine: RentedMachine) -> Slot | None:
        """Return a machine that was ordered; None if it is unknown how it will be."""
        cluster = self._index.capacity.get(machine.cluster)
        pool = None if cluster is None else cluster.spec.pool
        if cluster is None or pool is None or machine.group or machine.is_cluster:
            return (
                None  # one that is for a gang has no room; of a whole cluster, nobody knows what it will have
            )
        boot = self._state.pool(machine.cluster).boot(pool, machine.offer.key)
        ready = max(self._now, machine.wanted_at + boot)
        place = self._alike.empty(cluster.spec, machine.offer)
        made = machine if machine.made_at is not None else replace(machine, made_at=machine.wanted_at)
        return Slot(self._there.bills, cluster.spec, place, made, ready, ready)

    def _node_slots(self, machine: RentedMachine) -> Iterator[Slot]:
        """Yield the nodes that a whole cluster will have soon, but for those of a gang."""
        cluster = self._index.capacity.get(machine.cluster)
        pool = None if cluster is None else cluster.spec.pool
        if cluster is None or pool is None or not machine.is_cluster or machine.group or not machine.spans:
            return
        record, last = self._state.pool(machine.cluster), machine.spans[-1]
        if last.job is not None:
            return
        ready, count = machine.wanted_at + record.boot(pool, machine.offer.key), machine.nodes
        if not machine.is_coming:
            ready, count = growth_of(self._state, pool, machine)
        if count <= 0:
            return
        # A node costs its own hour and leaves by its own boot time. What the cluster costs besides is paid anyway.
        offer = replace(machine.offer, nodes=0, least=0, cluster_hour=0)
        self._there.bills.boots[id(offer)] = record.node_boot(pool, machine.offer.key)
        node = replace(machine, offer=offer, spans=(), made_at=last.since)
        ready = max(self._now, ready)
        for _ in range(min(count, MOST_MACHINES)):
            place = self._alike.empty(cluster.spec, machine.offer)
            yield Slot(self._there.bills, cluster.spec, place, node, ready, ready)

    def _slot(self, job: Job) -> Slot | None:
        """Return where a job of one task would go, if there is room or room is coming."""
        shape, off = job.kind.shape, self._spot.keeps_off(job)
        key = shape, job.kind.backing_off, off
        slots = self._fitting.get(key)
        if slots is None:
            slots = self._fitting[key] = self._slots_for(job, off=off)
        return slots.first(shape)

    def _slots_for(self, job: Job, *, off: bool) -> "_Line":
        """Return machines with room for tasks of a shape, in the order in which they are used; if `off`, no spot ones."""
        found: list[Iterator[Slot]] = []
        for candidates in self._index.finder.candidates(self._index.lane_of(job), RENTED):
            cluster = candidates.cluster
            closed = self._index.closed_on(cluster, job, self._now)
            if off and cluster.spots:
                closed = {*closed, *cluster.spots}
            candidates.read_all(self._place)
            found.append(self._there.by_busy(candidates, closed))
        return _Line(chain(*found, self._coming_for(job.kind, off=off)))

    def _coming_for(self, kind: Kind, *, off: bool) -> Iterator[Slot]:
        """Yield machines that are coming and could hold tasks of a shape; if `off`, no spot ones."""
        for each in self._coming:
            if each.spec.name in kind.backing_off or (off and each.is_spot):
                continue
            if each.place.could_fit(kind.shape) and (not self._sees_whole or may_run(kind.shape, each.spec)):
                yield each

    # --- answers

    def of(self, job: Job, runs: int) -> Rental | None:
        """Return what renting a job now would mean; None if no pool could rent it. The job takes no room."""
        shape = job.kind.shape
        slot = None if shape.is_gang else self._slot(job)
        return self._in(slot, shape, runs) if slot is not None else self._on_new(job, shape, runs)

    def take(self, job: Job) -> None:
        """Let a job that is rented now take its room."""
        slot = None if job.kind.shape.is_gang else self._slot(job)
        if slot is not None:
            slot.take(job.kind.shape, max(1, self._index.runs(job)))

    def in_order(self, waiters: Sequence[Waiter]) -> Mapping[JobId, Rental]:
        """Return what renting each of these jobs would mean: each takes the room that those before it leave."""
        found: dict[JobId, Rental] = {}
        for waiter in waiters:
            if not waiter.rentable:
                continue
            job, runs = self._state.jobs[waiter.job], waiter.expected
            shape = job.kind.shape
            slot = None if shape.tasks > 1 or shape.most else self._slot(job)
            rental, left = None, waiter.many
            while slot is not None and left:
                rental = self._in(slot, shape, runs)  # of the last member that finds room
                slot.take(shape, runs)
                left -= 1
                slot = self._slot(job) if left else None
            if left:
                rental = self._on_new(job, shape, runs)
                self._fresh[job.id] = None
            if rental is not None:
                found[job.id] = rental
        return found

    def together(self, waiters: Sequence[Waiter]) -> Mapping[JobId, Rental]:
        """Return what renting these jobs would mean if only these are: machines are ordered for those without room.

        Those that could not find room before share machines, with each other and with jobs that may be rented already.
        """
        known = [each for each in waiters if each.job in self._fresh]
        if not known:
            return EMPTY
        demand = [replace(each) for each in self._claims]
        found: dict[JobId, Rental] = {}
        for each in known:
            job = self._state.jobs[each.job]
            slack = self._spot.of(job, max(1, each.expected))
            demand.append(Demand(job, each.many, max(1, each.expected), 0, 0, slack))
            if job.kind.shape.is_gang:
                self._add_gang(each, job, found)
        shapes: dict[Shape, int] = {}
        for one in demand:
            one.alike = shapes.setdefault(one.job.kind.shape, len(shapes))
        left = [one for one in demand if not one.job.kind.shape.is_gang]
        wanted = {each.job: each for each in known}
        self._share_machines(left, wanted, found)
        if self._clusters is not None:
            alone = [one for one in left if one.count and one.job.id not in found]
            for job_id, nodes, price in self._clusters.together(alone, self._nodes_of):
                if job_id in wanted:
                    found[job_id] = self._of_nodes(nodes, price, wanted[job_id])
        return found

    def _share_machines(
        self, left: list[Demand], wanted: Mapping[JobId, Waiter], found: dict[JobId, Rental]
    ) -> None:
        """Add what jobs of one task pay of the machines that would be ordered for them and others."""
        limits = Limits(dict(self._left), self._money)
        groups = grouped(left, self._offers) if left else []
        for _ in range(MOST_MACHINES):
            if not left:
                break
            best = best_machine(left, groups, limits)
            if best is None:
                left = left[1:]
                continue
            offer, filled = best
            cost = offer.cost(filled.stays)
            for at, count in filled.taken.items():
                one = left[at]
                one.count -= count
                waiter = wanted.get(one.job.id)
                if waiter is not None:
                    price = cost * weight_of(one.job, one.runs, offer.spec) // filled.work
                    found[one.job.id] = self._rental(offer, price, waiter)
            left = [one for one in left if one.count]

    def _nodes_of(self, demand: Demand) -> NextNodes | None:
        """Return the nodes of a whole cluster that a job would get; None if machines are for it, or there are none."""
        job, shape = demand.job, demand.job.kind.shape
        if self._clusters is None or self._offers_for(job, shape, demand.runs):
            return None
        return self._clusters.of(job, shape, self._slack(job, demand.runs), demand.runs)

    def _of_nodes(self, nodes: NextNodes, price: int, waiter: Waiter) -> Rental:
        usual = _usual(nodes.offer.spec, waiter.shape, waiter.expected)
        return Rental(nodes.boot, nodes.late, price, usual)

    def _add_gang(self, waiter: Waiter, job: Job, found: dict[JobId, Rental]) -> None:
        """Add what machines for a gang cost, which no other job shares."""
        best: tuple[int, OpenOffer] | None = None
        for each in self._offers_for(job, job.kind.shape, waiter.expected):
            cost = each.machines * each.offer.cost(waiter.expected)
            if best is None or cost < best[0]:
                best = cost, each.offer
        if best is not None:
            found[job.id] = self._rental(best[1], best[0], waiter)
        elif self._clusters is not None:
            shape, slack = job.kind.shape, self._slack(job, waiter.expected)
            nodes = self._clusters.of(job, shape, slack, waiter.expected)
            if nodes is not None:
                found[job.id] = self._of_nodes(nodes, nodes.alone(nodes.nodes, waiter.expected), waiter)

    def _rental(self, offer: OpenOffer, price: int, waiter: Waiter) -> Rental:
        return Rental(offer.boot, offer.late, price, _usual(offer.spec, waiter.shape, waiter.expected))

    def _in(self, slot: Slot, shape: Shape, runs: int) -> Rental:
        """Return what renting a job in a slot means."""
        boot, price = slot.ready - self._now, slot.price(shape, runs)
        usual = _usual(slot.place.spec, shape, runs)
        return Rental(boot, boot, price, usual, idle=slot.empty and not price)

    def _on_new(self, job: Job, shape: Shape, runs: int) -> Rental | None:
        """Return what renting a job means for which a machine must be ordered; None if none could be."""
        best: Rental | None = None
        for each in self._offers_for(job, shape, runs):
            rental = each.rental(runs, _usual(each.offer.spec, shape, runs))
            if best is None or rental.price < best.price:
                best = rental
        if best is None and self._clusters is not None:
            nodes = self._clusters.of(job, shape, self._slack(job, runs), runs)
            if nodes is not None:
                usual = _usual(nodes.offer.spec, shape, runs)
                best = Rental(nodes.boot, nodes.late, nodes.price(shape, runs), usual)
        return best

    def _slack(self, job: Job, runs: int) -> int:
        """Return the slack of a job; FOREVER if every boot is within it, so that jobs with deadlines are alike."""
        slack = self._spot.of(job, max(1, runs))
        return FOREVER if slack >= 2 * self._spot.most else slack

    def _offers_for(self, job: Job, shape: Shape, runs: int) -> list[_NewMachine]:
        """Return the offers of which machines could be ordered for a job."""
        slack = self._slack(job, runs)
        key = shape, job.kind.backing_off, slack
        found = self._new.get(key)
        if found is None:
            found = []
            shares: dict[Resources, int] = {}  # the offers of one type are of one size
            for offer in self._offers:
                if not offer.admits(job, slack):
                    continue
                total = offer.size()[0]
                share = shares.get(total)
                if share is None:
                    parts = [share_of(total, part.resources) * part.tasks for _, part in shape.parts]
                    share = shares[total] = sum(parts)
                one = _NewMachine(offer, shape, share)
                if 0 < one.machines <= self._left[offer.spec.name]:
                    found.append(one)
            found.sort(key=lambda one: one.offer.offer.hour * one.share)
            found = self._new[key] = found[:MOST_OFFERS]
        return found


def _usual(spec: ClusterSpec, shape: Shape, runs: int) -> int:
    """Return the price of a job by its share of a machine and its runtime alone, in millionths."""
    return rate_of_job(spec.price, shape) * runs // PER_RATE
