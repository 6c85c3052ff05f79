"""Applies events of arrays. An array is one record; each member becomes a separate job when it is placed."""

from spillover.core.appliers import machines
from spillover.core.appliers.queue import count_granted, count_wait, granted, job_of, leave_queue, let_rent
from spillover.core.events import JobState, MemberPlaced, MembersDropped
from spillover.core.holding import put_on_node
from spillover.core.learned import usage
from spillover.core.records.jobs import NO_EXTRA, Extra, Job, Placed, Queued, Spread, Waiting
from spillover.core.state import State
from spillover.core.transitions import Impossible
from spillover.model import ranges
from spillover.model.ids import member_id, split_member


def member_placed(state: State, event: MemberPlaced) -> None:
    """Turn a pending member into a job with a lease."""
    array = job_of(state, event.array, event)
    members = array.extra.members
    if members is None or not ranges.contains(members.pending, event.index):
        raise Impossible(f"MemberPlaced on {array}: {event!r}")
    before, latest = granted(state, array), state.latest(array)
    members.pending = ranges.without(members.pending, event.index)
    count_granted(state, array, granted(state, array) - before)
    members.live += 1
    if members.due and state.is_rented(event.cluster):
        members.due -= 1
        if not members.due:
            let_rent(state, array, None)
    state.queued -= 1
    if not members.pending:
        array.phase = Spread(event.at)
    elif members.throttled:
        leave_queue(state, array)
        array.phase = Waiting(None)
    extra = NO_EXTRA if array.extra.deadline is None else Extra(deadline=array.extra.deadline)
    if event.granted is not None:
        extra = Extra(deadline=array.extra.deadline, granted=(event.granted,))
    job = Job(
        id=member_id(array.id, event.index),
        number=array.number,
        user=array.user,
        name=array.name,
        kind=array.kind,
        terms=array.terms,
        spec=array.spec,
        submitted=array.submitted,
        arrived=array.arrived,
        priority=array.priority,
        phase=Placed(event.cluster, event.node, event.at, event.why),
        seq=event.seq,
        latest=latest,
        extra=extra,
        predicted=array.predicted,
        evidence=array.evidence,
        named=array.named,
    )
    state.jobs[job.id] = job
    state.members.setdefault(array.id, {})[job.id] = None
    state.touch_job(job.id)
    put_on_node(state, job, event.cluster, event.node)
    if state.machines:
        machines.take_place(state, job)
    count_wait(state, job, event.seq, event.at)
    if state.facts.sharing is not None:
        usage.begin(state, job, event.at)


def members_dropped(state: State, event: MembersDropped) -> None:
    """Drop pending members, which will never start."""
    array = state.jobs[event.array]
    members = array.extra.members
    if members is None:
        raise Impossible(f"MembersDropped on {array}: {event!r}")
    count = ranges.size(event.members)
    state.count_live(array, -count)
    before = granted(state, array)
    members.pending = ranges.minus(members.pending, event.members)
    if type(array.phase) is Queued:
        count_granted(state, array, granted(state, array) - before)
    members.ended[event.state] = members.ended.get(event.state, 0) + count
    if type(array.phase) is Queued:
        state.queued -= count
    if not members.pending:
        array.phase = Spread(event.at)
    state.touch_job(array.id)


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
