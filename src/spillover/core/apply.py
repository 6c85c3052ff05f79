"""The only code that changes state: one small function for each event, which assigns what the event says.

An event that is durable has been decided on this very state, so nothing here refuses; `Impossible` is a bug of ours.
"""

from collections.abc import Callable
from typing import Any

from spillover.core import ranges
from spillover.core.book import leave_node, put_on_node
from spillover.core.events import (
    AgentDraining,
    AgentLost,
    AgentRegistered,
    AnyEvent,
    Back,
    ClockJumped,
    ClustersConfigured,
    Decided,
    DependencyEnded,
    EpochStarted,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobsAdmitted,
    JobsArchived,
    JobStarted,
    JobState,
    JobStopping,
    JobSubmitted,
    MemberPlaced,
    MembersDropped,
    PolicyChanged,
    WaitsExpired,
)
from spillover.core.state import (
    NO_EXTRA,
    QUEUED,
    Ended,
    Extra,
    Job,
    Kind,
    Members,
    Node,
    Placed,
    Queued,
    Running,
    Spread,
    State,
    Waiting,
)
from spillover.core.transitions import AGENT, JOB, Impossible
from spillover.model.ids import JobId, member_id, split_member


def apply(state: State, event: AnyEvent) -> None:
    """Let an event change the state."""
    _APPLIERS[type(event)](state, event)


def _job(state: State, job: JobId, event: AnyEvent) -> Job:
    """The job of an event, if its state allows such an event."""
    found = state.jobs.get(job)
    if found is None or (found.state, type(event)) not in JOB:
        raise Impossible(f"{type(event).__name__} on {found or job!r}: {event}")
    state.touch_job(job)
    return found


def _leave_queue(state: State, job: Job) -> None:
    """Count a job out of the queue."""
    if type(job.phase) is Queued:
        members = job.extra.members
        state.queued -= 1 if members is None else ranges.size(members.pending)


def _enter_queue(state: State, job: Job) -> None:
    """Let a job be scheduled from now on; a cycle will give it a new wait."""
    job.phase = QUEUED
    job.latest = None
    job.due = None
    members = job.extra.members
    state.queued += 1 if members is None else ranges.size(members.pending)


def _submitted(state: State, event: JobSubmitted) -> None:
    members = Members(ranges.size(event.array), event.array) if event.array else None
    rare = event.deadline, event.not_before, event.after, event.key, members
    extra = NO_EXTRA
    if any(value is not None and value != () for value in rare):
        extra = Extra(event.deadline, event.not_before, event.after, event.key, event.body, members)
    state.facts.numbered += 1
    state.touch_facts()
    job = Job(
        id=event.job,
        number=state.facts.numbered,
        user=state.share(event.user),
        name=state.share(event.name),
        kind=state.share(Kind(event.shape, event.queue, event.project)),
        terms=state.share(event.terms),
        spec=event.spec,
        submitted=event.at,
        arrived=state.steady(event.at) if state.facts.jumped else event.at,
        priority=event.priority,
        phase=Waiting(None),
        extra=extra,
    )
    state.jobs[job.id] = job
    state.touch_job(job.id)
    if event.key is not None:
        state.keys[event.key] = job.id
    for wanted in event.after:
        state.waiters.setdefault(wanted.job, []).append(job.id)
    if not event.after and (event.not_before is None or event.not_before <= event.at):
        _enter_queue(state, job)


def _admitted(state: State, event: JobsAdmitted) -> None:
    for job, latest in zip(event.jobs, event.latest, strict=True):
        state.jobs[job].latest = latest
        state.touch_job(job)


def _expired(state: State, event: WaitsExpired) -> None:
    for each in event.jobs:
        job = state.jobs[each]
        state.touch_job(each)
        if job.extra.members is not None:
            job.extra.members.due = event.members
        job.due = event.why


def _placed(state: State, event: JobPlaced) -> None:
    job = _job(state, event.job, event)
    _leave_queue(state, job)
    job.phase = Placed(event.cluster, event.node, event.at, event.why)
    job.attempt = event.attempt
    job.seq = event.seq
    put_on_node(state, job, event.cluster, event.node)


def _member_placed(state: State, event: MemberPlaced) -> None:
    array = _job(state, event.array, event)
    members = array.extra.members
    if members is None or not ranges.contains(members.pending, event.index):
        raise Impossible(f"MemberPlaced on {array}: {event}")
    members.pending = ranges.without(members.pending, event.index)
    members.live += 1
    if members.due and state.is_rented(event.cluster):
        members.due -= 1
        if not members.due:
            array.due = None
    state.queued -= 1
    if not members.pending:
        array.phase = Spread(event.at)
    extra = NO_EXTRA if array.extra.deadline is None else Extra(deadline=array.extra.deadline)
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
        latest=array.latest,
        extra=extra,
    )
    state.jobs[job.id] = job
    state.touch_job(job.id)
    put_on_node(state, job, event.cluster, event.node)


def _members_dropped(state: State, event: MembersDropped) -> None:
    array = state.jobs[event.array]
    members = array.extra.members
    if members is None:
        raise Impossible(f"MembersDropped on {array}: {event}")
    count = ranges.size(event.members)
    members.pending = ranges.minus(members.pending, event.members)
    members.ended[event.state] = members.ended.get(event.state, 0) + count
    if type(array.phase) is Queued:
        state.queued -= count
    if not members.pending:
        array.phase = Spread(event.at)
    state.touch_job(array.id)


def _started(state: State, event: JobStarted) -> None:
    job = _job(state, event.job, event)
    phase = job.phase
    if type(phase) is not Placed:
        raise Impossible(f"JobStarted on {job}: {event}")
    job.phase = Running(phase.cluster, phase.node, phase.at, event.at, phase.why, phase.stopping, phase.by)
    state.running += 1


def _stopping(state: State, event: JobStopping) -> None:
    job = _job(state, event.job, event)
    match job.phase:
        case Placed(cluster, node, at, why):
            job.phase = Placed(cluster, node, at, why, event.why, event.who)
        case Running(cluster, node, at, since, why):
            job.phase = Running(cluster, node, at, since, why, event.why, event.who)


def _requeued(state: State, event: JobRequeued) -> None:
    job = _job(state, event.job, event)
    _leave_place(state, job)
    job.attempt = event.attempt
    job.seq = event.seq
    job.cost = event.cost
    if event.why is Back.LOST:
        job.lost += 1
    elif event.why is Back.EXIT:
        job.exits += 1
    due = job.due
    _enter_queue(state, job)
    if event.why is Back.RELEASED:
        job.due = due  # it never ran: a wait that was over stays over


def _ended(state: State, event: JobEnded) -> None:
    job = _job(state, event.job, event)
    phase = job.phase if isinstance(job.phase, Placed | Running) else None
    if phase is not None:
        _leave_place(state, job, event.usage.ran)
    else:
        _leave_queue(state, job)
    job.phase = Ended(
        event.state,
        event.at,
        event.started,
        phase.cluster if phase is not None else None,
        phase.node if phase is not None else None,
        phase.why if phase is not None else None,
        event.exit_code,
        event.signal,
        event.usage,
        event.why,
    )
    job.attempt = event.attempt
    job.seq = event.seq
    job.cost = event.cost
    for wanted in job.extra.after:
        waiters = state.waiters.get(wanted.job, [])
        if job.id in waiters:
            waiters.remove(job.id)
    if job.extra.after:
        job.extra.after = ()
    member = split_member(job.id)
    if member is not None and (array := state.jobs.get(member[0])) is not None:
        _member_ended(state, array, job, event.state)


def _member_ended(state: State, array: Job, member: Job, ended: JobState) -> None:
    """Count a member into its array."""
    members = array.extra.members
    if members is None:
        raise Impossible(f"{member} is a member of {array}, which is no array")
    members.live -= 1
    members.ended[ended] = members.ended.get(ended, 0) + 1
    array.cost += member.cost
    state.touch_job(array.id)


def _leave_place(state: State, job: Job, ran: int = 0) -> None:
    """Give back what a placed job held."""
    if type(job.phase) is Running:
        state.running -= 1
    if isinstance(job.phase, Placed | Running):
        leave_node(state, job, job.phase.cluster, job.phase.node, ran)


def _held(state: State, event: JobHeld) -> None:
    job = _job(state, event.job, event)
    _leave_queue(state, job)
    job.phase = Waiting(event.who or None)


def _released(state: State, event: JobReleased) -> None:
    _enter_queue(state, _job(state, event.job, event))


def _dependency_ended(state: State, event: DependencyEnded) -> None:
    job = state.jobs[event.job]
    job.extra.after = tuple(wanted for wanted in job.extra.after if wanted.job != event.on)
    waiters = state.waiters.get(event.on, [])
    if event.job in waiters:
        waiters.remove(event.job)
    if not waiters:
        state.waiters.pop(event.on, None)
    state.touch_job(job.id)


def _reprioritised(state: State, event: JobReprioritised) -> None:
    state.jobs[event.job].priority = event.priority
    state.touch_job(event.job)


def _archived(state: State, event: JobsArchived) -> None:
    for each in event.jobs:
        job = state.jobs.pop(each, None)
        if job is not None:
            state.touch_job(each)
            state.waiters.pop(each, None)
            if job.extra.key is not None:
                state.keys.pop(job.extra.key, None)
    state.facts.archived += len(event.jobs)
    state.touch_facts()


def _clusters(state: State, event: ClustersConfigured) -> None:
    state.facts.clusters = event.clusters
    state.clusters = {spec.name: spec for spec in event.clusters}
    state.touch_facts()
    _wait_anew(state)


def _agent_registered(state: State, event: AgentRegistered) -> None:
    key = f"{event.cluster}/{event.node}"
    node = state.nodes.get(key)
    if node is None:
        node = Node(
            event.cluster,
            event.node,
            event.incarnation,
            event.capacity,
            event.offers,
            event.labels,
            event.queue,
            status="unknown",
        )
        state.nodes[key] = node
    node.incarnation = event.incarnation
    node.capacity = event.capacity
    node.offers = event.offers
    node.labels = event.labels
    node.queue = event.queue
    node.status = AGENT[node.status, AgentRegistered]
    state.facts.incarnations = max(state.facts.incarnations, event.incarnation)
    state.touch_node(key)
    state.touch_facts()


def _agent_changed(state: State, event: AgentDraining | AgentLost) -> None:
    key = f"{event.cluster}/{event.node}"
    node = state.nodes[key]
    node.status = AGENT[node.status, type(event)]
    state.touch_node(key)


def _epoch_started(state: State, event: EpochStarted) -> None:
    state.facts.epoch = event.epoch
    for key, node in state.nodes.items():
        node.status = AGENT[node.status, EpochStarted]
        state.touch_node(key)
    state.touch_facts()


def _clock_jumped(state: State, event: ClockJumped) -> None:
    state.facts.jumped += event.by
    state.touch_facts()


def _policy_changed(state: State, event: PolicyChanged) -> None:
    state.facts.policies = event.policies
    state.touch_facts()
    _wait_anew(state)


def _wait_anew(state: State) -> None:
    """Let the next cycle give every waiting job a new wait."""
    for job in state.jobs.values():
        if type(job.phase) is Queued and job.latest is not None and job.due is None:
            job.latest = None
            state.touch_job(job.id)


def _decided(state: State, event: Decided) -> None:
    state.facts.now = max(state.facts.now, event.now)
    state.facts.cycles += 1
    state.touch_facts()


_APPLIERS: dict[type, Callable[[State, Any], None]] = {
    JobSubmitted: _submitted,
    JobsAdmitted: _admitted,
    WaitsExpired: _expired,
    JobPlaced: _placed,
    MemberPlaced: _member_placed,
    MembersDropped: _members_dropped,
    JobStarted: _started,
    JobStopping: _stopping,
    JobRequeued: _requeued,
    JobEnded: _ended,
    JobHeld: _held,
    JobReleased: _released,
    DependencyEnded: _dependency_ended,
    JobReprioritised: _reprioritised,
    JobsArchived: _archived,
    ClustersConfigured: _clusters,
    AgentRegistered: _agent_registered,
    AgentDraining: _agent_changed,
    AgentLost: _agent_changed,
    EpochStarted: _epoch_started,
    ClockJumped: _clock_jumped,
    PolicyChanged: _policy_changed,
    Decided: _decided,
}
