"""Applies events of arrays. An array is one record; each member becomes a separate job when it is placed."""

from collections.abc import Iterable

from spillover.core.appliers import machines
from spillover.core.appliers.queue import (
    count_granted,
    count_wait,
    grant,
    granted,
    job_of,
    leave_queue,
    let_rent,
    weight,
)
from spillover.core.events import JobState, MemberPlaced, MembersDropped, MembersFreed, MemberSplit
from spillover.core.holding import put_on_node
from spillover.core.learned import usage
from spillover.core.records.jobs import (
    NO_EXTRA,
    QUEUED,
    Extra,
    Job,
    Members,
    Phase,
    Placed,
    Queued,
    Spread,
    Waiting,
)
from spillover.core.state import State
from spillover.core.transitions import Impossible
from spillover.model import ranges
from spillover.model.ids import member_id, split_member
from spillover.model.job import AfterMembers
from spillover.model.ranges import Ranges


def member_placed(state: State, event: MemberPlaced) -> None:
    """Turn a pending member into a job with a lease."""
    array = job_of(state, event.array, event)
    latest = state.latest(array)
    _leave_array(state, array, event)
    extra = NO_EXTRA if array.extra.deadline is None else Extra(deadline=array.extra.deadline)
    if event.granted is not None:
        extra = Extra(deadline=array.extra.deadline, granted=(event.granted,))
    job = _member(array, event.index, Placed(event.cluster, event.node, event.at, event.why), extra)
    job.seq, job.latest = event.seq, latest
    _enter(state, array, job)
    put_on_node(state, job, event.cluster, event.node)
    if state.machines:
        machines.take_place(state, job)
    count_wait(state, job, event.seq, event.at)
    if state.facts.sharing is not None:
        usage.begin(state, job, event.at)


def member_split(state: State, event: MemberSplit) -> None:
    """Turn a pending member into a queued job. The next event places its tasks."""
    array = job_of(state, event.array, event)
    latest, due = state.latest(array), array.due
    _leave_array(state, array, event)
    job = _member(array, event.index, QUEUED, Extra(deadline=array.extra.deadline))
    _enter(state, array, job)
    state.queued += 1
    job.due = due
    if latest is not None:
        grant(state, job, latest)


def _leave_array(state: State, array: Job, event: MemberPlaced | MemberSplit) -> None:
    """Take a member out of those that are pending."""
    members = array.extra.members
    if members is None or not ranges.contains(members.pending, event.index):
        raise Impossible(f"{type(event).__name__} on {array}: {event!r}")
    before = granted(state, array)
    members.pending = ranges.without(members.pending, event.index)
    count_granted(state, array, granted(state, array) - before)
    members.live += 1
    if members.due and state.is_rented(event.cluster):
        members.due -= 1
        if not members.due:
            let_rent(state, array, None)
    state.queued -= 1
    if not members.pending and not members.after:
        array.phase = Spread(event.at)
    elif members.wait_for_members:
        leave_queue(state, array)
        array.phase = Waiting(None)


def _member(array: Job, index: int, phase: Phase, extra: Extra) -> Job:
    """Return a member as a separate job."""
    return Job(
        id=member_id(array.id, index),
        number=array.number,
        user=array.user,
        name=array.name,
        kind=array.kind,
        terms=array.terms,
        spec=array.spec,
        submitted=array.submitted,
        arrived=array.arrived,
        priority=array.priority,
        phase=phase,
        extra=extra,
        predicted=array.predicted,
        evidence=array.evidence,
        named=array.named,
        command=array.command,
    )


def _enter(state: State, array: Job, job: Job) -> None:
    """Add a member to the state."""
    state.jobs[job.id] = job
    state.members.setdefault(array.id, {})[job.id] = None
    state.touch_job(job.id)


def members_dropped(state: State, event: MembersDropped) -> None:
    """Drop pending members, which will never start."""
    array = state.jobs[event.array]
    members = array.extra.members
    if members is None:
        raise Impossible(f"MembersDropped on {array}: {event!r}")
    count = ranges.size(event.members)
    state.count_live(array, -count)
    pending = ranges.minus(members.pending, event.members)
    if members.after:
        _set_after(
            state,
            array,
            members,
            [(each, ranges.minus(each.members, event.members)) for each in members.after],
        )
    members.ended[event.state] = members.ended.get(event.state, 0) + count
    _set_pending(state, array, members, pending)
    if not members.pending and not members.after:
        array.phase = Spread(event.at)
    state.touch_job(array.id)


def members_freed(state: State, event: MembersFreed) -> None:
    """Let members wait no longer for those of another array."""
    array = state.jobs[event.array]
    members = array.extra.members
    if members is None:
        raise Impossible(f"MembersFreed on {array}: {event!r}")
    left = [
        (each, ranges.minus(each.members, event.members) if each.job == event.on else each.members)
        for each in members.after
    ]
    free = ranges.outside(event.members, [still for _, still in left])
    _set_after(state, array, members, left)
    _set_pending(state, array, members, ranges.union(members.pending, free))
    state.touch_job(array.id)


def _set_after(
    state: State, array: Job, members: Members, left: Iterable[tuple[AfterMembers, Ranges]]
) -> None:
    """Set which members still wait for those of other arrays."""
    kept: list[AfterMembers] = []
    for each, still in left:
        if still:
            kept.append(each if still is each.members else AfterMembers(each.job, each.on, still))
        else:
            state.no_longer_wait_for_members(array.id, each.job)
    members.after = tuple(kept)


def _set_pending(state: State, array: Job, members: Members, pending: Ranges) -> None:
    """Set which members may be placed; an array without any leaves the queue until others follow."""
    if type(array.phase) is not Queued:
        members.pending = pending
        return
    if not pending and members.after:
        leave_queue(state, array)
        members.pending = pending
        array.phase = Waiting(None)
        return
    # Those that join the others share the wait that was granted to them.
    before, size = granted(state, array), weight(array)
    members.pending = pending
    count_granted(state, array, granted(state, array) - before)
    state.queued += weight(array) - size


def note_member(state: State, job: Job) -> None:
    """Note whether a member waits outside of the queue; other jobs are left alone."""
    if (member := split_member(job.id)) is None:
        return
    if type(job.phase) is Waiting:
        state.waiting_members.setdefault(member[0], {})[job.id] = None
    elif waiting := state.waiting_members.get(member[0]):
        waiting.pop(job.id, None)
        if not waiting:
            del state.waiting_members[member[0]]


def count_ended(state: State, member: Job, ended: JobState) -> None:
    """Count an ended job in its array, if it is a member."""
    split = split_member(member.id)
    array = state.jobs.get(split[0]) if split is not None else None
    if array is None:
        return
    members = array.extra.members
    if members is None:
        raise Impossible(f"{member} is a member of {array}, which is not an array")
    note_member(state, member)
    members.live -= 1
    members.ended[ended] = members.ended.get(ended, 0) + 1
    array.cost += member.cost
    state.touch_job(array.id)
    if live := state.members.get(array.id):
        live.pop(member.id, None)
        if not live:
            del state.members[array.id]
