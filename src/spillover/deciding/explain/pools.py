"""Explains what a pool would do for a job: whether it could ever rent machines for it, and why it does not now."""

from collections.abc import Sequence

from spillover.core.records.jobs import Queued
from spillover.core.records.machines import PoolRecord, RentedMachine
from spillover.core.state import State
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.renting.earmarks import ordered_for
from spillover.deciding.renting.money import PoolMoney
from spillover.deciding.renting.offers import OpenOffer, offers_for
from spillover.deciding.renting.reusing import new_besides
from spillover.deciding.renting.room import is_coming
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import JobId
from spillover.model.job import Shape
from spillover.model.pools import MachineState, OfferKey
from spillover.model.reasons import (
    FreeSoon,
    KeptForGang,
    MachineComing,
    NoOfferOpen,
    PoolAtMost,
    PoolIsPaused,
    PoolOutOfMoney,
    Reason,
)


def why_kept(cluster: Capacity, shape: Shape, job: JobId | None) -> KeptForGang | None:
    """Return the gang for which free machines are kept that a job would need to start; None if it needs none of them."""
    others = [gang for gang in cluster.earmarks.values() if gang != job]
    closed = cluster.earmarked(job or JobId("")) if others else ()
    if not closed or not cluster.fits(shape) or matching.fits_beside(cluster, shape, closed):
        return None
    machines = [each for each in cluster.machines if each.index in closed and each.fits(shape.least)]
    kept = [cluster.earmarks[each.name] for each in machines] or others
    return KeptForGang(cluster.name, kept[0], max(1, kept.count(kept[0])))


def why_not_rented(state: State, cluster: Capacity, shape: Shape, job: JobId | None = None) -> Reason | None:
    """Return why a pool that could rent machines for a job has none ready; None if it only has to order one."""
    spec, pool, now = cluster.spec, cluster.spec.pool, state.facts.now
    if pool is None:
        return None
    record = state.pool(spec.name)
    could = offers_for(spec, shape, record)
    live = state.live_machines(spec.name)
    keys = [each.offer.key for each in could]
    if (soon := _on_the_way(state, cluster, live, keys, shape, job)) is not None:
        return soon
    if record.paused:
        return PoolIsPaused(spec.name, record.paused)
    if all(record.is_closed(key, now) for key in keys):
        first = min([record.closed[key] for key in keys], key=lambda each: each.until)
        return NoOfferOpen(spec.name, len(keys), first.cause, first.why, first.until)
    new = [new_besides(state, cluster, each, shape, job) for each in could if not each.offer.nodes]
    needs, free = min(new, default=(1, 0)) if shape.is_gang else (1, 0)
    if len(live) + needs > pool.max and not any(_could_grow(each) for each in live):
        ending = sum(each.state is MachineState.ENDING for each in live)
        return PoolAtMost(spec.name, pool.max, ending, needs, len(live), free)
    money = PoolMoney(state, spec, now)
    opened = [each for each in could if not record.is_closed(each.offer.key, now)]
    if (
        money.period is not None
        and pool.budget is not None
        and not any(money.pays(each, _needed(state, cluster, each, shape, job), 0) for each in opened)
    ):
        return PoolOutOfMoney(
            spec.name, pool.budget.per, pool.budget.limit, max(0, money.left), money.period.until, needs
        )
    return None


def _on_the_way(
    state: State,
    cluster: Capacity,
    live: Sequence[RentedMachine],
    keys: Sequence[OfferKey],
    shape: Shape,
    job: JobId | None,
) -> MachineComing | FreeSoon | None:
    """Return the machines that a job waits for: some that were ordered, become free, or are nodes that come."""
    spec, now = cluster.spec, state.facts.now
    record = state.pool(spec.name)
    own = {each.id for each in ordered_for(state, job)} if job is not None else set()
    # A gang waits for what a plan ordered and kept for it alone. Others do not get what comes for gangs.
    coming = [
        each
        for each in live
        if is_coming(each) and each.offer.key in keys
        if (each.id in own) or not (own or _comes_for(state, each) or (shape.is_gang and not each.is_cluster))
    ]
    if coming:
        return _coming(state, spec, record, min(coming, key=lambda each: each.wanted_at), len(coming))
    if own and any(gang == job for gang in cluster.earmarks.values()):
        free = [mark.free_by for each in live if each.id in own and (mark := each.earmark) is not None]
        return FreeSoon(spec.name, len(own), max([now, *free]))
    growing = [each for each in live if each.offer.key in keys and _grows(state, each)]
    return _growing(state, spec, record, growing[0]) if growing else None


def _grows(state: State, machine: RentedMachine) -> bool:
    """Return whether a whole cluster is to have more nodes than it has."""
    if machine.state is not MachineState.READY or not machine.is_cluster:
        return False
    return machine.nodes > len(state.nodes_of(machine.cluster_made))


def _could_grow(machine: RentedMachine) -> bool:
    """Return whether a whole cluster may have more nodes."""
    return machine.state is MachineState.READY and machine.nodes < machine.offer.nodes


def _growing(state: State, spec: ClusterSpec, record: PoolRecord, machine: RentedMachine) -> MachineComing:
    """Return the reason for a job for which a whole cluster grows."""
    boot = 0 if spec.pool is None else record.node_boot(spec.pool, machine.offer.key)
    ready = max(state.facts.now, machine.spans[-1].since + boot)
    return MachineComing(spec.name, machine.id, machine.offer.type, "growing", ready, 1, machine.nodes)


def _needed(state: State, cluster: Capacity, offer: OpenOffer, shape: Shape, job: JobId | None) -> int:
    """Return how many new machines of an offer a job needs; a whole cluster grows."""
    return new_besides(state, cluster, offer, shape, job)[0] if shape.is_gang and not offer.offer.nodes else 1


def _comes_for(state: State, machine: RentedMachine) -> bool:
    """Return whether a machine comes for a gang that still waits for it."""
    gang = state.jobs.get(JobId(machine.group)) if machine.group else None
    return gang is not None and type(gang.phase) is Queued and bool(ordered_for(state, gang.id))


def _coming(
    state: State, spec: ClusterSpec, record: PoolRecord, machine: RentedMachine, count: int
) -> MachineComing:
    """Return the reason for a job for which machines were ordered."""
    boot = 0 if spec.pool is None else record.boot(spec.pool, machine.offer.key)
    ready = max(state.facts.now, machine.wanted_at + boot)
    return MachineComing(
        spec.name, machine.id, machine.offer.type, machine.state, ready, count, machine.nodes
    )
