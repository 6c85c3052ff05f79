"""Updates the scheduling index after each event, so that it need not be rebuilt."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from spillover.core.events import (
    AgentRegistered,
    BackoffEnded,
    ClockJumped,
    ClusterAdded,
    ClusterChanged,
    ClusterDraining,
    ClusterOpened,
    ClusterRemoved,
    ClusterResumed,
    ClusterUpdated,
    CostHeld,
    EpochStarted,
    GangPlaced,
    JobChanged,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobsAdmitted,
    JobStarted,
    JobSubmitted,
    LeaseMoved,
    MemberPlaced,
    MembersDropped,
    MembersFreed,
    MemberSplit,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
    ReservationMoved,
    StealRefused,
    TasksBound,
    TasksEnded,
    WaitsExpired,
)
from spillover.core.records.jobs import NO_EXTRA, Ended, Placed, Queued, Running
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.queue.prefetched import is_ahead
from spillover.model.ids import member_id


def _arrived(index: SchedulingIndex, event: JobReleased | JobReprioritised) -> None:
    index.enter(index.state.jobs[event.job])


def _changed(index: SchedulingIndex, event: JobChanged) -> None:
    job = index.state.jobs[event.job]
    index.alarms.set(job)
    if type(job.phase) is Running:
        if index.ends is not None:
            index.ends.set(job)
        index.gained = index.gained or index.passed  # what waits for it may start at another time
        return
    index.forget(job)
    index.enter(job)
    index.gained = True


def _requeued(index: SchedulingIndex, event: JobRequeued) -> None:
    job = index.state.jobs[event.job]
    index.enter(job)
    if event.backing_off is not None:
        index.alarms.set(job)
    if index.counts:
        index.move_out(event.job)
    if index.ends is not None:
        index.ends.forget(event.job)


def _backoff_ended(index: SchedulingIndex, event: BackoffEnded) -> None:
    job = index.state.jobs[event.job]
    backing_off = tuple(sorted((*job.kind.backing_off, event.cluster)))
    index.alarms.set(job)
    index.change_lane(job, replace(job.kind, backing_off=backing_off))


def _submitted(index: SchedulingIndex, event: JobSubmitted) -> None:
    job = index.state.jobs[event.job]
    index.enter(job)
    if job.extra is not NO_EXTRA:
        index.alarms.set(job)


def _left(index: SchedulingIndex, event: JobHeld) -> None:
    index.leave(index.state.jobs[event.job])


def _placed(index: SchedulingIndex, event: JobPlaced | GangPlaced) -> None:
    job = index.state.jobs[event.job]
    index.leave(job)
    if index.counts:
        index.move_in(job)
    if index.brings_back:
        index.alarms.set(job)
    if index.ends is not None:
        index.ends.set(job)
    if job.due is not None:
        index.prefetched.note_rentable(job)


def _ended(index: SchedulingIndex, event: JobEnded) -> None:
    job = index.state.jobs[event.job]
    if index.ends is not None:
        index.ends.forget(event.job)
    if index.counts:
        index.move_out(event.job)
    if type(job.phase) is not Ended or job.phase.cluster is None:  # a job that ran has already left the queue
        index.leave(job)


def _members_left(
    index: SchedulingIndex, event: MemberPlaced | MemberSplit | MembersDropped | MembersFreed
) -> None:
    index.leave(index.state.jobs[event.array])


def _member_placed(index: SchedulingIndex, event: MemberPlaced) -> None:
    _members_left(index, event)
    member = index.state.jobs[member_id(event.array, event.index)]
    if index.counts:
        index.move_in(member)
    index.alarms.set(member)
    if index.ends is not None:
        index.ends.set(member)
    if is_ahead(index.state, member):
        index.waits.add(member)
        if member.due is not None:
            index.prefetched.note_rentable(member)


def _started(index: SchedulingIndex, event: JobStarted) -> None:
    job = index.state.jobs[event.job]
    index.alarms.set(job)
    if index.ends is not None:
        index.ends.set(job)
        index.gained = index.gained or index.passed  # it ends later than expected when it was placed


def _tasks_ended(index: SchedulingIndex, event: TasksEnded) -> None:
    if index.ends is not None:
        index.ends.shrink(event.job)


def _moved(index: SchedulingIndex, event: LeaseMoved) -> None:
    job = index.state.jobs[event.job]
    if index.ends is not None:
        index.ends.set(job)
    if not is_ahead(index.state, job):
        return
    index.prefetched.note(f"{event.cluster}/{event.thief}")  # it may be older than that agent's other leases
    if job.due is None:
        index.waits.add(job)
    else:
        index.prefetched.note_rentable(job)


def _not_moved(index: SchedulingIndex, event: StealRefused) -> None:
    job = index.state.jobs[event.job]
    if isinstance(job.phase, Placed) and is_ahead(index.state, job):  # it may be asked back from now on
        index.prefetched.note(job.phase.key)
        if job.due is not None:
            index.prefetched.note_rentable(job)


def _registered(index: SchedulingIndex, event: AgentRegistered) -> None:
    key = f"{event.cluster}/{event.node}"
    if index.state.nodes[key].ahead:  # prefetched leases may have lost the room that they were to use
        index.prefetched.note(key)


def _bound(index: SchedulingIndex, event: TasksBound) -> None:
    if index.ends is None:
        return
    index.apply_moves()  # the jobs may be on nodes that appeared in the same step
    for job in event.jobs:
        index.ends.set(index.state.jobs[job])
    index.gained = index.gained or index.passed  # the reservation may now be on other machines


def _opened(
    index: SchedulingIndex,
    event: ClusterChanged | EpochStarted | ClusterOpened | ClusterDraining | ClusterResumed,
) -> None:
    del event
    index.open_clusters()


def _cluster_taken(index: SchedulingIndex, event: ClusterAdded | ClusterUpdated) -> None:
    """Add or replace one cluster; refresh only what is on it."""
    state, name = index.state, event.spec.name
    cluster = index.capacity[name] = index.capacity_of(event.spec)
    index.pooled = any(spec.pool is not None for spec in state.facts.clusters)
    index.rents_at = index.rents_after = 0
    index.kept_off = False
    cluster.open = state.is_open(name)
    cluster.reserve(state.reservations.values())
    for node in state.nodes.values():
        if node.cluster == name:
            cluster.refresh(node)
    _look_elsewhere(index)
    for job in [state.jobs[each] for each in state.jobs_on(name)]:
        index.move_in(job)
        index.alarms.set(job)  # its cluster may now be a rented one
        if index.ends is not None:
            index.ends.set(job)
    index.gained = True


def _cluster_gone(index: SchedulingIndex, event: ClusterRemoved) -> None:
    """Remove a cluster, on which nothing is left."""
    index.capacity.pop(event.cluster, None)
    _look_elsewhere(index)


def _look_elsewhere(index: SchedulingIndex) -> None:
    """Make all lanes find their candidates again, because the clusters have changed."""
    clusters = index.capacity
    index.limit()
    index.grown = [one for one in index.grown if clusters.get(one[0].name) is one[0]]
    index.finder.forget()
    for lane in index.lanes.values():
        lane.forget_clusters()


def _jumped(index: SchedulingIndex, event: ClockJumped) -> None:
    del event
    if index.ends is not None:
        state = index.state
        placed = (each for node in state.nodes.values() for each in node.jobs)
        for job in dict.fromkeys(placed):
            index.ends.set(state.jobs[job])


def _admitted(index: SchedulingIndex, event: JobsAdmitted) -> None:
    for each in event.jobs:
        job = index.state.jobs[each]
        index.fresh.pop(each, None)
        if job.due is None:
            index.waits.add(job)
        if index.wait_queue is not None and type(job.phase) is Queued:
            index.wait_queue.keep(job)


def _expired(index: SchedulingIndex, event: WaitsExpired) -> None:
    for each in event.jobs:
        job = index.state.jobs[each]
        if not job.partly_due:
            index.waits.patient.pop(each, None)
        if type(job.phase) is Queued:
            index.due.push(index.lane_of(job), index.entry(job))
            if index.wait_queue is not None:
                index.wait_queue.keep(job)
        else:
            index.prefetched.note_rentable(job)


def _reserved(
    index: SchedulingIndex,
    event: ReservationMade | ReservationMoved | ReservationCancelled | ReservationEnded,
) -> None:
    index.apply_moves()  # the nodes may have appeared in the same step
    index.reserve(event.at)
    if type(event) is ReservationMade:
        index.alarms.end_of(index.state.reservations[event.name])
    index.gained = True


def _held(index: SchedulingIndex, event: CostHeld) -> None:
    index.holders.note(index.state.jobs[event.job])


FOLLOWERS: Final[dict[type, Callable[[SchedulingIndex, Any], None]]] = {
    JobSubmitted: _submitted,
    JobReleased: _arrived,
    JobRequeued: _requeued,
    BackoffEnded: _backoff_ended,
    JobReprioritised: _arrived,
    JobChanged: _changed,
    JobPlaced: _placed,
    JobHeld: _left,
    JobEnded: _ended,
    GangPlaced: _placed,
    MemberPlaced: _member_placed,
    MemberSplit: _members_left,
    MembersDropped: _members_left,
    MembersFreed: _members_left,
    JobStarted: _started,
    TasksEnded: _tasks_ended,
    LeaseMoved: _moved,
    StealRefused: _not_moved,
    AgentRegistered: _registered,
    TasksBound: _bound,
    ClusterChanged: _opened,
    EpochStarted: _opened,
    ClusterOpened: _opened,
    ClusterDraining: _opened,
    ClusterResumed: _opened,
    CostHeld: _held,
    JobsAdmitted: _admitted,
    ClockJumped: _jumped,
    WaitsExpired: _expired,
    ReservationMade: _reserved,
    ReservationMoved: _reserved,
    ReservationCancelled: _reserved,
    ReservationEnded: _reserved,
}

CLUSTER_FOLLOWERS: Final[dict[type, Callable[[SchedulingIndex, Any], None]]] = {
    ClusterAdded: _cluster_taken,
    ClusterUpdated: _cluster_taken,
    ClusterRemoved: _cluster_gone,
}
"""Followers of cluster events. If such an event changes all waits, the engine rebuilds the index instead."""
