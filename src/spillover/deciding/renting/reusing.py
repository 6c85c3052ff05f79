"""Finds machines of pools for gangs that are there, or coming, so that only the rest must be ordered.

A gang starts only when all of its tasks have room at once. Without this, it would need as many new machines as if its pool
had none, although some are empty, or are so before a new machine were ready. What it gets, old or new, is in one zone, and
is kept for it until it starts. It never takes machines on which jobs before it in the queue count.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.amounts import change
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.forecast.estimates import began_at, estimate
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.demand import Demand
from spillover.deciding.renting.offers import Alike, OpenOffer
from spillover.deciding.renting.ordering import Choice, Limits
from spillover.deciding.renting.spot import LateBoots, SpotSlack
from spillover.model.admission import may_run
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName, JobId, NodeName, job_of_task
from spillover.model.job import Burst, Shape
from spillover.model.pools import MachineId, MachineState

MOST_GANGS: Final = 16
"""The most gangs that one plan looks for such machines for. Others get new ones."""
MOST_MATCHED: Final = 64
"""The most machines that are there which are matched with new ones, for gangs whose tasks are not alike or not anywhere."""


class Reused(Struct, frozen=True):
    """How a gang gets its room: on machines of a cluster that are there or coming, and on new ones."""

    job: JobId
    cluster: ClusterName
    machines: tuple[MachineId, ...]
    """Those that are not new; none if all of them have room now, so that the gang starts for another reason, or not."""
    free_by: int
    """When all of them are expected to have room, nanoseconds UTC."""
    order: Choice | None
    """None if it needs no new machines."""


class _There(Struct):
    """A machine that is there or coming, as it is expected to be when a gang could start."""

    id: MachineId
    node: Node | OpenOffer
    """Its offer, as it was ordered, if it is coming."""
    place: Machine
    """With what is free then."""
    at: int
    """When it has that room, nanoseconds UTC."""
    empty: bool
    """Whether nothing runs there then."""


class _Group(Struct):
    """Some machines that are there, and how many new ones a gang needs besides."""

    machines: list[_There]
    new: int


class Reusing:
    """Machines that are there or coming, for the gangs of one plan."""

    def __init__(self, draft: Draft, index: SchedulingIndex, earmarks: Mapping[MachineId, JobId]) -> None:
        self._draft = draft
        self._state: State = draft.state
        self._now = draft.now
        self._index = index
        self._spot = SpotSlack(draft.state, index, draft.now)
        self._late = LateBoots(draft.state)
        self._alike = Alike(draft.state)
        self.kept: dict[MachineId, JobId] = dict(earmarks)
        """Machines that are kept for gangs, with those that this plan keeps."""

    def has_any(self) -> bool:
        """Return whether any pool has a machine that no gang has yet."""
        return any(
            each not in self.kept
            for cluster in self._index.capacity.values()
            if cluster.spec.pool is not None
            for each in self._state.live_rented.get(cluster.name, ())
        )

    def find(
        self,
        demand: Demand,
        offers: Sequence[OpenOffer],
        limits: Limits,
        used: Collection[str],
        ahead: int,
    ) -> Reused | None:
        """Return the cheapest way in which a gang gets machines that are there, or coming; None if there is none.

        Jobs before it count on the machines that are `used`, and on `ahead` new ones.
        """
        shape = demand.job.kind.shape
        best: tuple[int, int, OpenOffer | None, _Group] | None = None
        there: dict[tuple[ClusterName, str, int], list[_There]] = {}
        for number, offer in enumerate(offers):
            if offer.offer.nodes or not offer.admits(demand.job, demand.slack):
                continue
            key = offer.spec.name, offer.offer.zone, offer.boot
            if key not in there:
                there[key] = self._there(offer.spec, offer.offer.zone, demand, self._now + offer.boot, used)
            group = _fewest(offer, shape, there[key])
            if group is None or not group.machines:
                continue
            if group.new and not limits.allow_behind(offer, group.new, demand.runs, ahead):
                continue
            cost = group.new * offer.cost(demand.runs)
            if best is None or (cost, number) < best[:2]:
                best = cost, number, offer if group.new else None, group
        if best is not None:
            return self._reused(demand, best[3], best[2])
        return self._without_new(demand, used)

    def _without_new(self, demand: Demand, used: Collection[str]) -> Reused | None:
        """Return machines that will have room while the gang may wait for others to end, as jobs of one task do."""
        for cluster in self._index.capacity.values():
            spec, pool = cluster.spec, cluster.spec.pool
            if pool is None or spec.is_template or not _may_run(demand.job, spec):
                continue
            record = self._state.pool(spec.name)
            boot = min([record.boot(pool, each.key) for each in pool.offers])
            until = max(self._now, demand.limit) + boot
            for zone in dict.fromkeys([each.zone for each in pool.offers]):
                there = self._there(spec, zone, demand, until, used)
                group = _without(spec, demand.job.kind.shape, there)
                if group is not None:
                    return self._reused(demand, group, None)
        return None

    def _reused(self, demand: Demand, group: _Group, offer: OpenOffer | None) -> Reused:
        job = demand.job.id
        cluster = group.machines[0].place.spec.name
        order = None if offer is None else Choice(offer, group.new, job, demand.runs, gang=True)
        free_by = max([each.at for each in group.machines])
        if (
            order is None
            and free_by <= self._now
            and all(isinstance(each.node, Node) for each in group.machines)
        ):
            return Reused(job, cluster, (), free_by, None)
        machines = tuple([each.id for each in group.machines])
        self.kept |= dict.fromkeys(machines, job)
        return Reused(job, cluster, machines, free_by, order)

    # --- what is there

    def _there(
        self, spec: ClusterSpec, zone: str, demand: Demand, until: int, used: Collection[str]
    ) -> list[_There]:
        """Return the machines of a zone that have room for tasks of a gang by a time, as they are then."""
        cluster = self._index.capacity[spec.name]
        return [*self._ready(cluster, zone, demand, until, used), *self._coming(spec, zone, demand, used)]

    def _ready(
        self, cluster: Capacity, zone: str, demand: Demand, until: int, used: Collection[str]
    ) -> Iterator[_There]:
        """Yield the ready machines of a zone."""
        shape = demand.job.kind.shape
        closed = {
            *self._index.closed_on(cluster, demand.job, self._now),
            *self._spot.closed(demand.job, cluster),
        }
        for machine in cluster.machines:
            known = self._state.machines.get(MachineId(machine.name))
            if known is None or known.cluster != cluster.name or known.offer.zone != zone:
                continue
            if known.state is not MachineState.READY or known.notice is not None or known.id in self.kept:
                continue
            if not machine.ready or machine.index in closed or machine.name in used:
                continue
            if not _admits(machine, shape):
                continue
            node = self._state.nodes.get(known.key)
            there = None if node is None else self._freed(known.id, machine, node, until)
            if there is not None and _has_room(there.place, shape):
                yield there

    def _freed(self, id_: MachineId, machine: Machine, node: Node, until: int) -> _There | None:
        """Return a machine without the tasks that end by a time; None if that frees nothing of one that a job has alone."""
        own, at = machine.copy(machine.layout), self._now
        ends = [
            (held, end)
            for key, held in node.holding.items()
            if (end := self._end(self._state.jobs[job_of_task(key)])) is not None and end <= until
        ]
        if node.alone:
            if len(ends) < len(node.holding):
                return None
            own.free = list(own.idle) + [0] * (len(own.free) - len(own.idle))
        for held, end in ends:
            if not node.alone:
                change(own.free, own.layout.wants(held), 1)
            at = max(at, end)
        empty = len(ends) == len(node.holding) and not node.ahead and own.is_empty(own.free)
        return _There(id_, node, own, at, empty)

    def _end(self, job: Job) -> int | None:
        """Return when a job is expected to end; None if it has run for longer than expected, so that nobody knows."""
        phase = job.phase
        if type(phase) is not Running and type(phase) is not Placed:
            return None
        unknown, jumped = self._index.policies.chosen.unknown_runtime, self._state.facts.jumped
        end = began_at(phase, jumped) + estimate(job, unknown).runtime
        return end if end > self._now else None

    def _coming(
        self, spec: ClusterSpec, zone: str, demand: Demand, used: Collection[str]
    ) -> Iterator[_There]:
        """Yield the machines of a zone that were ordered, and are kept for no gang. A new one would not be ready sooner."""
        pool, state = spec.pool, self._state
        if pool is None or not state.is_open(spec.name):
            return
        record = state.pool(spec.name)
        for machine in state.unsettled_machines(spec.name):
            if not machine.is_coming or machine.offer.zone != zone or machine.id in self.kept:
                continue
            if machine.id in used or (machine.offer.spot and demand.slack < self._late.of(spec)):
                continue
            offer = OpenOffer(spec, pool, record, machine.offer, self._index.imagined)
            at = max(self._now, machine.wanted_at + offer.boot)
            place = self._alike.empty(spec, machine.offer)
            if not _admits(place, demand.job.kind.shape) or not _has_room(place, demand.job.kind.shape):
                continue
            yield _There(machine.id, offer, place, at, empty=True)


def _may_run(job: Job, spec: ClusterSpec) -> bool:
    """Return whether a gang may be rented on a cluster at all."""
    shape = job.kind.shape
    if shape.burst is Burst.NEVER or shape.reservation or not spec.gangs:
        return False
    return spec.name not in job.kind.backing_off and may_run(shape, spec)


def _admits(machine: Machine, shape: Shape) -> bool:
    """Return whether any task of a gang may run on a machine."""
    return any(machine.admits(part) for _, part in shape.parts)


def _has_room(place: Machine, shape: Shape) -> bool:
    """Return whether any task of a gang has room on a machine."""
    return any(_tasks_on(place, part) for _, part in shape.parts)


def _tasks_on(place: Machine, part: Shape) -> int:
    """Return how many tasks of a part of a gang fit on a machine that admits them."""
    return max(0, place.tasks_of(part, place.asks(part, place.layout.wants(part.resources)), place.free))


def new_besides(
    state: State, cluster: Capacity, offer: OpenOffer, shape: Shape, gang: JobId | None
) -> tuple[int, int]:
    """Return how many new machines of an offer a gang needs besides those of its zone with room now, and how many those are."""
    there: list[_There] = []
    for machine in cluster.machines:
        known = state.machines.get(MachineId(machine.name))
        if known is None or known.state is not MachineState.READY or known.offer.zone != offer.offer.zone:
            continue
        node = state.nodes.get(known.key)
        if not machine.ready or node is None or cluster.earmarks.get(node.name, gang) != gang:
            continue
        if _admits(machine, shape) and _has_room(machine, shape):
            there.append(_There(known.id, node, machine, 0, machine.is_empty(machine.free)))
    group = _fewest(offer, shape, there)
    return (offer.machines_for(shape), 0) if group is None else (group.new, len(group.machines))


def _is_plain(shape: Shape) -> bool:
    """Return whether all tasks of a gang are alike and may be anywhere, so that counting them is enough."""
    return shape.topology is None and len(shape.parts) == 1


def _fewest(offer: OpenOffer, shape: Shape, there: Sequence[_There]) -> _Group | None:
    """Return the fewest new machines of an offer that a gang needs besides those that are there; None if it cannot start."""
    most = offer.machines_for(shape)
    if not most or not there:
        return None
    if _is_plain(shape):
        ((_, part),) = shape.parts
        return _counted(there, part, _tasks_on(offer.empty(), part))
    for new in range(most):
        group = _matched(offer.spec, shape, there, [offer.node(number) for number in range(1, new + 1)])
        if group is not None:
            return group
    return None


def _without(spec: ClusterSpec, shape: Shape, there: Sequence[_There]) -> _Group | None:
    """Return machines that are there and hold all of a gang; None if there are too few."""
    if not there:
        return None
    if not _is_plain(shape):
        return _matched(spec, shape, there, [])
    ((_, part),) = shape.parts
    group = _counted(there, part, 0)
    return None if group.new else group


def _counted(there: Sequence[_There], part: Shape, each_new: int) -> _Group:
    """Return which machines hold tasks that may be anywhere: those that hold most, and are free first."""
    left = part.tasks
    rooms = [(_tasks_on(each.place, part), each) for each in there]
    missing = max(0, left - sum([many for many, _ in rooms]))
    new = -(-missing // each_new) if each_new else missing
    left -= new * each_new
    rooms.sort(key=lambda room: (-min(room[0], part.tasks), room[1].at))
    chosen: list[_There] = []
    for many, each in rooms:
        if left <= 0:
            break
        chosen.append(each)
        left -= many
    return _Group(chosen, new)


def _matched(spec: ClusterSpec, shape: Shape, there: Sequence[_There], new: Sequence[Node]) -> _Group | None:
    """Place a gang for trial on empty machines that are there, and on new ones; None if it does not fit."""
    cluster, known = Capacity(spec, 0), {}
    empty = sorted([each for each in there if each.empty], key=lambda each: each.at)[:MOST_MATCHED]
    for number, each in enumerate(empty, 1):
        node = _alone(each, number)
        known[node.name] = each
        cluster.refresh(node)
    for number, node in enumerate(new, len(empty) + 1):
        cluster.refresh(replace(node, number=number))
    machines = matching.machines_now(cluster, shape)
    if machines is None:
        return None
    return _Group([known[each.name] for each in machines if each.name in known], len(new))


def _alone(there: _There, number: int) -> Node:
    """Return the node of a machine as if nothing ran there."""
    node = there.node
    if isinstance(node, OpenOffer):
        return replace(node.node(number), name=NodeName(there.id))
    bare = Node(node.cluster, node.name, node.incarnation, node.capacity, node.offers, node.labels, 0)
    return replace(bare, number=number, taints=node.taints, inside=node.inside, gangs=node.gangs)
