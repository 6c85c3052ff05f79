"""Applies the events in the lifecycle of a job."""

from msgspec.structs import replace

from spillover.core.appliers import machines, money
from spillover.core.appliers.arrays import count_ended, note_member
from spillover.core.appliers.queue import (
    count_wait,
    enter_queue,
    expected_of,
    grant,
    job_of,
    leave_queue,
    let_rent,
)
from spillover.core.events import (
    Back,
    BackoffEnded,
    DependencyEnded,
    GangPlaced,
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
    TaskEnd,
    TaskRestarted,
    TasksEnded,
    TasksStarted,
    WaitsExpired,
)
from spillover.core.holding import leave_node, leave_nodes, put_gang_on_nodes, put_on_node
from spillover.core.learned import usage
from spillover.core.learned.runtimes import learn
from spillover.core.records.jobs import (
    NO_EXTRA,
    ClusterBackoff,
    Ended,
    Extra,
    Job,
    Kind,
    Members,
    Placed,
    Running,
    Tried,
    Waiting,
)
from spillover.core.records.tasks import Gang, gang_on
from spillover.core.state import State
from spillover.core.transitions import Impossible
from spillover.model import ranges
from spillover.model.ids import NodeName, node_key, task_key
from spillover.model.inside import Granted
from spillover.model.pools import not_on_spot

NOT_YET = Waiting(None)
MOST_INTERRUPTIONS = 2
"""A job that was interrupted this many times gets no spot machine any more."""
_USES_LOST = frozenset({Back.LOST, Back.UNPREPARED})
"""Returns to the queue that use one of `retry.lost`."""


def submitted(state: State, event: JobSubmitted) -> None:
    """Add a job; queue it at once unless it is held or must wait for a time or for other jobs."""
    members = None
    if event.array:
        pending = ranges.outside(event.array, [each.members for each in event.after_members])
        size = ranges.size(event.array)
        members = Members(size, pending, most=event.throttle, after=event.after_members)
        state.wait_for_members(event.job, event.after_members)
    extra = NO_EXTRA
    if (
        event.after
        or members is not None
        or event.key is not None
        or event.deadline is not None
        or event.not_before is not None
        or event.blobs
        or event.traceparent
        or event.saved
        or event.notify
    ):
        extra = Extra(event.deadline, event.not_before, event.after, event.key, event.body, members)
        extra.blobs = event.blobs
        extra.traceparent = event.traceparent
        extra.saved = event.saved
        extra.notify = event.notify
    facts, user, name, terms = state.facts, event.user, event.name, event.terms
    kind = Kind(event.shape, event.queue, event.project)
    shared = state.shared().setdefault
    number = facts.numbered = facts.numbered + 1
    job = Job(
        event.job,
        number,
        shared(user, user),
        shared(name, name),
        shared(kind, kind),
        shared(terms, terms),
        event.spec,
        event.at,
        event.at - facts.jumped,
        event.priority,
        NOT_YET,
        extra=extra,
        predicted=event.predicted,
        evidence=None if event.evidence is None else shared(event.evidence, event.evidence),
        named=event.named,
        command=shared(event.command, event.command),
    )
    state.jobs[event.job] = job
    state.enter(job)
    state.dirty["job"][event.job] = None
    state.count_live(job, 1 if members is None else members.size)
    expected = terms.estimate or terms.walltime or event.predicted
    if expected:
        facts.tally.submit(event.shape, expected, 1 if members is None else members.size)
    if event.key is not None:
        state.keys.take(kind.project, event.key, job.id)
    for wanted in event.after:
        state.waiters.setdefault(wanted.job, {})[job.id] = None
    if event.held:
        job.phase = Waiting(job.user)
    elif members is not None and members.wait_for_members:
        pass
    elif not event.after and (event.not_before is None or event.not_before <= event.at):
        enter_queue(state, job)


def admitted(state: State, event: JobsAdmitted) -> None:
    """Set how long jobs wait for owned capacity."""
    for job, latest in zip(event.jobs, event.latest, strict=True):
        grant(state, state.jobs[job], latest)
        state.touch_job(job)


def expired(state: State, event: WaitsExpired) -> None:
    """Let jobs be rented."""
    for each in event.jobs:
        job = state.jobs[each]
        state.touch_job(each)
        if job.extra.members is not None:
            job.extra.members.due = event.members
            if event.members:
                state.partly_due[each] = None
        let_rent(state, job, event.why)


def placed(state: State, event: JobPlaced) -> None:
    """Record the lease of a job."""
    job = job_of(state, event.job, event)
    latest = state.latest(job)
    count_wait(state, job, event.seq, event.at)
    leave_queue(state, job)
    job.latest = latest  # if the lease is prefetched, the wait continues
    job.phase = Placed(event.cluster, event.node, event.at, event.why)
    job.attempt = event.attempt
    job.seq = event.seq
    if event.granted is not None or job.extra.granted:
        _keep_granted(job, () if event.granted is None else (event.granted,))
    put_on_node(state, job, event.cluster, event.node)
    if state.machines:
        machines.take_place(state, job)
    if state.facts.sharing is not None:
        usage.begin(state, job, event.at)


def _keep_granted(job: Job, granted: tuple[Granted | None, ...]) -> None:
    """Record what the tasks of an attempt have for themselves."""
    if granted or job.extra.granted:
        if job.extra is NO_EXTRA:
            job.extra = Extra()
        job.extra.granted = granted


def gang_placed(state: State, event: GangPlaced) -> None:
    """Record the leases for all tasks of a gang."""
    job = job_of(state, event.job, event)
    count_wait(state, job, event.seq, event.at)
    leave_queue(state, job)
    job.phase = Placed(event.cluster, event.nodes[0], event.at, event.why)
    job.attempt = event.attempt
    job.seq = event.seq
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    job.extra.gang = gang_on(event.nodes, state.facts.jumped)
    _keep_granted(job, event.granted)
    put_gang_on_nodes(state, job, event.cluster)
    if state.machines:
        machines.take_place(state, job)
    if state.facts.sharing is not None:
        usage.begin(state, job, event.at)


def started(state: State, event: JobStarted) -> None:
    """Mark a placed job as running."""
    job = job_of(state, event.job, event)
    phase = job.phase
    if type(phase) is not Placed:
        raise Impossible(f"JobStarted on {job}: {event!r}")
    job.phase = Running(
        phase.cluster,
        phase.node,
        phase.at,
        event.at,
        phase.why,
        phase.stopping,
        phase.by,
        state.facts.jumped,
    )
    state.running += 1
    gang = job.extra.gang
    if gang is not None:
        gang.start((event.rank,), event.at)


def tasks_started(state: State, event: TasksStarted) -> None:
    """Mark more tasks of a gang as running."""
    _gang(job_of(state, event.job, event), event).start(event.ranks, event.at)


def tasks_ended(state: State, event: TasksEnded) -> None:
    """Record the end of tasks of a gang, and release what they held."""
    job = job_of(state, event.job, event)
    gang, phase = _gang(job, event), job.phase
    for end in event.ends:
        task = gang.tasks[end.rank]
        if not task.lives or not isinstance(phase, Placed | Running):
            raise Impossible(f"TasksEnded on {job}: {event!r}")
        key = task_key(job.id, job.attempt, end.rank)
        leave_node(state, key, phase.cluster, task.node, end.usage.ran)
        gang.finish(end)
        if state.machines:
            machines.leave_place(state, phase.cluster, (task.node,), 0, event.at)


def task_restarted(state: State, event: TaskRestarted) -> None:
    """Record that a task of a gang failed and starts again. It keeps what it holds."""
    job = job_of(state, event.job, event)
    gang = _gang(job, event)
    if not gang.tasks[event.end.rank].lives:
        raise Impossible(f"TaskRestarted on {job}: {event!r}")
    gang.restart(event.end, event.run)
    job.exits += 1


def _gang(job: Job, event: TasksStarted | TasksEnded | TaskRestarted) -> Gang:
    """Return the tasks of a gang."""
    if job.extra.gang is None:
        raise Impossible(f"{type(event).__name__} on {job}: {event!r}")
    return job.extra.gang


def stopping(state: State, event: JobStopping) -> None:
    """Record that a job is being stopped; it keeps its resources until that is confirmed."""
    job = job_of(state, event.job, event)
    match job.phase:
        case Placed() | Running():
            job.phase = replace(job.phase, stopping=event.why, by=event.who)
        case _:
            raise Impossible(f"JobStopping on {job}: {event!r}")


def requeued(state: State, event: JobRequeued) -> None:
    """Return a job to the queue."""
    job = job_of(state, event.job, event)
    _leave_place(state, job)
    _end_attempt(state, job, event)
    if state.machines and isinstance(phase := job.phase, Placed | Running):
        spent = event.cost - job.cost
        machines.leave_place(state, phase.cluster, nodes_of(job), spent, event.at, event.why)
    if state.facts.sharing is not None:
        usage.end(state, job, event.at)  # before its tasks are forgotten: they say how large it was
    if job.extra.gang is not None:
        job.extra.gang = None
    if job.extra.granted:
        job.extra.granted = ()
    if event.outputs:
        _keep_outputs(job, job.attempt, event.outputs)
    if event.saved:
        _keep_saved(job, event.saved)
    job.attempt = event.attempt
    job.seq = event.seq
    if event.cost != job.cost or job.extra.hold is not None:
        money.settle(state, job, event.cost, event.at)
        money.note(job, event.cost, event.at)
    job.cost = event.cost
    _count_return(state, job, event)
    if event.backing_off is not None:
        _back_off(state, job, ClusterBackoff(event.backing_off, event.until, event.because))
        failed = [node_key(event.backing_off, name) for name in event.unprepared]
        job.extra.unprepared = tuple(dict.fromkeys((*job.extra.unprepared, *failed)))
    due = job.due
    enter_queue(state, job)
    if event.why is Back.RELEASED:
        job.due = due  # it never ran, so a wait that was over stays over


def _end_attempt(state: State, job: Job, event: JobRequeued) -> None:
    """Count the time of an attempt, which is no wait; one that was returned before it started was only that."""
    phase = job.phase
    if event.why is Back.RELEASED or not isinstance(phase, Placed | Running):
        return
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    job.extra.attempted += max(0, event.at - phase.at)
    job.extra.requeued = event.at
    if type(phase) is Running:
        ran = max(0, event.at - phase.since - (state.facts.jumped - phase.jumped))
        job.extra.tried += (Tried(event.at, phase.cluster, ran, len(job.tasks)),)


def _count_return(state: State, job: Job, event: JobRequeued) -> None:
    """Count how many times a job returned to the queue, by the reason."""
    if event.why in _USES_LOST:
        job.lost += 1
    elif event.why is Back.EXIT:
        job.exits += 1
    elif event.why in {Back.INTERRUPTED, Back.RETURNED}:
        if job.extra is NO_EXTRA:
            job.extra = Extra()
        if event.why is Back.INTERRUPTED:
            job.extra.interrupted += 1
            if job.extra.interrupted == MOST_INTERRUPTIONS:
                rules = not_on_spot(job.kind.shape.rules)
                job.kind = state.share(replace(job.kind, shape=replace(job.kind.shape, rules=rules)))
            return
        job.extra.returned += 1
        job.extra.came_back = event.seq
        job.arrived = state.steady(event.at)


def backoff_ended(state: State, event: BackoffEnded) -> None:
    """Let a job be tried on a cluster again."""
    job = job_of(state, event.job, event)
    _set_backoffs(state, job, [each for each in job.extra.backoffs if each.cluster != event.cluster])


def _back_off(state: State, job: Job, backoff: ClusterBackoff) -> None:
    """Let a job back off from a cluster."""
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    others = [each for each in job.extra.backoffs if each.cluster != backoff.cluster]
    _set_backoffs(state, job, [*others, backoff])


def _set_backoffs(state: State, job: Job, backoffs: list[ClusterBackoff]) -> None:
    """Set the backoffs of a job, and its kind accordingly."""
    job.extra.backoffs = tuple(sorted(backoffs, key=lambda each: each.cluster))
    backing_off = tuple([each.cluster for each in job.extra.backoffs])
    job.kind = state.share(replace(job.kind, backing_off=backing_off))


def ended(state: State, event: JobEnded) -> None:
    """End a job for good."""
    job = job_of(state, event.job, event)
    facts, phase = state.facts, job.phase
    cluster = node = why = ready = None
    if type(phase) is Placed or type(phase) is Running:
        cluster, node, why = phase.cluster, phase.node, phase.why
        ready = job.arrived + (phase.jumped if type(phase) is Running else facts.jumped)
        _leave_place(state, job, event.usage.ran)
        if state.machines:
            machines.leave_place(state, phase.cluster, nodes_of(job), event.cost - job.cost, event.at)
        facts.tally.ran += event.usage.ran - expected_of(job)
        if facts.sharing is not None:
            usage.end(state, job, event.at)
    else:
        leave_queue(state, job)
    if job.extra.members is None:  # members of an array are subtracted one by one
        state.count_live(job, -1)
    job.phase = Ended(
        event.state,
        event.at,
        event.started,
        cluster,
        node,
        why,
        event.exit_code,
        event.signal,
        event.usage,
        event.why,
        ready,
        event.value,
        event.value_digest,
    )
    job.attempt = event.attempt
    job.seq = event.seq
    if event.outputs:
        _keep_outputs(job, event.attempt, event.outputs)
    if job.extra is not NO_EXTRA:
        _settle(state, job, event)
        job.extra.saved = ()  # for no later attempt
        if job.extra.gang is not None:
            _end_tasks(job.extra.gang, event)
    job.cost = event.cost
    if state.members:
        count_ended(state, job, event.state)
    learn(state, job, event)


def _keep_outputs(job: Job, attempt: int, outputs: str) -> None:
    """Record the output files of an attempt."""
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    job.extra.outputs = (*job.extra.outputs, (attempt, outputs))


def _keep_saved(job: Job, saved: tuple[str, ...]) -> None:
    """Record what tasks saved for later attempts. One that saved nothing keeps what it saved before."""
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    ranks = range(max(len(saved), len(job.extra.saved)))
    job.extra.saved = tuple([(saved[rank] if rank < len(saved) else "") or job.saved(rank) for rank in ranks])


def held(state: State, event: JobHeld) -> None:
    """Hold a job, or end a hold while the job still waits for a time or for other jobs."""
    job = job_of(state, event.job, event)
    leave_queue(state, job)
    job.phase = Waiting(event.who or None)
    note_member(state, job)


def released(state: State, event: JobReleased) -> None:
    """Queue a job that nothing holds back any more; its wait begins."""
    job = job_of(state, event.job, event)
    job.arrived = state.steady(event.at)
    enter_queue(state, job)
    if state.waiting_members:
        note_member(state, job)


def dependency_ended(state: State, event: DependencyEnded) -> None:
    """Remove a dependency that has ended."""
    job = state.jobs[event.job]
    job.extra.after = tuple(wanted for wanted in job.extra.after if wanted.job != event.on)
    state.no_longer_waits(event.job, event.on)
    state.touch_job(job.id)


def reprioritised(state: State, event: JobReprioritised) -> None:
    """Change the priority of a job."""
    state.jobs[event.job].priority = event.priority
    state.touch_job(event.job)


def archived(state: State, event: JobsArchived) -> None:
    """Remove archived jobs."""
    archived = state.facts.archived + len(event.jobs)
    for each in event.jobs:
        job = state.jobs.pop(each, None)
        if job is not None:
            state.touch_job(each)
            if "." not in each:
                state.leave(job)
            if job.extra.key is not None:
                state.keys.archive(job.kind.project, job.extra.key, job.id, archived)
    state.facts.archived = archived
    state.touch_facts()


def _settle(state: State, job: Job, event: JobEnded) -> None:
    """Release the cost hold and the dependencies of a job that ended."""
    if job.extra.hold is not None:
        money.settle(state, job, event.cost, event.at)
    for wanted in job.extra.after:
        state.no_longer_waits(job.id, wanted.job)
    if job.extra.after:
        job.extra.after = ()
    members = job.extra.members
    if members is not None and members.after:
        for each in members.after:
            state.no_longer_wait_for_members(job.id, each.job)
        members.after = ()


def _end_tasks(gang: Gang, event: JobEnded) -> None:
    """End tasks without a report together with their job: like the deciding task, successfully, or as cancelled."""
    for task in tuple(gang.tasks):
        if not task.lives:
            continue
        if task.rank == event.rank:
            end = TaskEnd(task.rank, event.at, event.state, None, event.exit_code, event.signal, event.usage)
        elif event.state is JobState.SUCCEEDED:
            end = TaskEnd(task.rank, event.at, event.state, None, event.exit_code)
        else:
            end = TaskEnd(task.rank, event.at, JobState.CANCELLED)
        gang.finish(end)


def nodes_of(job: Job) -> list[NodeName]:
    """Return the nodes of a placed job, each once."""
    return list(dict.fromkeys([task.node for task in job.tasks]))


def _leave_place(state: State, job: Job, ran: int = 0) -> None:
    """Release what a placed job holds."""
    phase = job.phase
    if type(phase) is Running:
        state.running -= 1
    if type(phase) is Placed or type(phase) is Running:
        if job.extra.gang is None:  # a shortcut for most jobs, which have no records of tasks
            leave_node(state, task_key(job.id, job.attempt), phase.cluster, phase.node, ran)
        else:
            leave_nodes(state, job, phase.cluster, ran)
    if job.extra is not NO_EXTRA and job.extra.placed_on is not None:
        job.extra = replace(job.extra, placed_on=None)
