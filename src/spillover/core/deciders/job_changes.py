"""Decides on changes of what a job asks for, by the rules that hold for a submission."""

from collections.abc import Sequence

from msgspec.structs import replace

from spillover.core.deciders.changes import pending_member
from spillover.core.deciders.submissions import crowded, not_reserved, unended
from spillover.core.events import AnyEvent, JobChanged, JobReleased, JobReprioritised
from spillover.core.learned.runtimes import predict
from spillover.core.proposals import ChangeJob, Dependency, Done, NewJob, Refusal, RefusalKind, Reply
from spillover.core.records.jobs import NO_EXTRA, Ended, Job, Placed, Queued, Running, Spread, Waiting
from spillover.core.state import State
from spillover.model import ranges
from spillover.model.ids import JobId, split_member
from spillover.model.job import After, AfterMembers, JobSpec, Shape
from spillover.model.units import format_duration, format_moment

_SIZED = frozenset({"queue", "resources", "walltime", "estimate"})
"""What the wait policy and the limits of a queue look at."""


def change_job(state: State, proposal: ChangeJob, now: int) -> tuple[list[AnyEvent], Reply]:
    """Change what a waiting job asks for, or the walltime of a running one."""
    job = state.jobs.get(proposal.job)
    if job is None:
        if (member := pending_member(state, proposal.job)) is not None:
            told = f"{proposal.job} has not been placed yet; change its array {member[0].id} instead"
            return [], _conflict(told)
        return [], Refusal(RefusalKind.UNKNOWN, f"there is no job {proposal.job} that can be changed")
    if job.spec != proposal.was:
        return [], Refusal(RefusalKind.STALE, f"{job.id} was changed in the meantime; try again")
    refused = _unchangeable(job, proposal)
    if refused is None and _SIZED.intersection(proposal.changed):
        refused = _against_rules(state, job, proposal.spec, proposal)
    if refused is None and type(job.phase) is Running:
        refused = _running_longer(state, job, job.phase, proposal.spec.terms.walltime, now)
    if refused is not None:
        return [], refused
    members = job.extra.members
    after = job.extra.after, () if members is None else members.after
    if "after" in proposal.changed:
        resolved = _resolved(state, job, proposal.after)
        if isinstance(resolved, Refusal):
            return [], resolved
        after = resolved
    return _events(state, job, proposal, *after, now), Done()


def _conflict(message: str) -> Refusal:
    return Refusal(RefusalKind.CONFLICT, message)


def _unchangeable(job: Job, proposal: ChangeJob) -> Refusal | None:
    """Return why a job cannot be changed so in its state; None if it can."""
    more = [each for each in proposal.changed if each != "walltime"]
    if proposal.spec.priority != job.priority:
        more.append("priority")
    match job.phase:
        case Ended():
            return _conflict(f"{job.id} has ended ({job.state}) and cannot be changed")
        case Spread():
            told = (
                f"all members of {job.id} have been placed; change the walltime of each, such as {job.id}.1"
            )
            return _conflict(told)
        case Placed():
            return _conflict(
                f"{job.id} is PLACED and about to start; change its walltime when it runs, or requeue it first"
            )
        case Running() if more:
            told = f"{job.id} is RUNNING, so only its walltime can be changed, not {' and '.join(more)}"
            return _conflict(told)
        case Running(stopping=stopping) if stopping is not None:
            return _conflict(f"{job.id} is being stopped and cannot be changed")
        case _:
            pass
    members = job.extra.members
    if "throttle" in proposal.changed and members is None:
        return Refusal(RefusalKind.INVALID, f"{job.id} is not an array, so it has no throttle")
    if "after" in proposal.changed and members is not None and members.live:
        return _conflict(f"members of {job.id} have been placed, so it cannot wait for other jobs any more")
    return None


def _against_rules(state: State, job: Job, spec: JobSpec, proposal: ChangeJob) -> Refusal | None:
    """Return which rule of its queue or reservation a job would break; None if it breaks none."""
    pending = job.extra.members.unplaced if job.extra.members is not None else ()
    new = NewJob(job.id, replace(spec, array=pending), proposal.digest)
    if state.queues:
        queue = state.queues.of(spec.queue)
        if queue is None:
            return Refusal(RefusalKind.INVALID, f"{spec.name}: {state.queues.unknown(spec.queue)}")
        if type(job.phase) is Running:
            problems = queue.walltime_problems(spec.terms.walltime, None)
        else:
            problems = queue.problems(new.spec, job.user)
        for _, problem in problems:
            return Refusal(RefusalKind.INVALID, f"{spec.name}: {problem}")
        if "queue" in proposal.changed and (full := crowded(state, job.user, [new])) is not None:
            return full
    return not_reserved(state, new) if spec.shape.reservation else None


def _running_longer(state: State, job: Job, phase: Running, walltime: int | None, now: int) -> Refusal | None:
    """Return why a running job cannot have another walltime; None if it can."""
    key = phase.key
    if key not in state.agents:
        return _conflict(
            f"{job.id} runs on {phase.cluster}, which is no cluster of agents, so its walltime cannot be changed"
        )
    before = job.walltime
    if before is None or (walltime is not None and walltime <= before):
        return None
    if job.extra.hold is not None:
        told = f"a budget pays for {format_duration(before)} of this attempt of {job.id}"
        return _conflict(f"{told}; write {format_duration(before)} or less")
    ends = None if walltime is None else phase.since + walltime + state.facts.jumped - phase.jumped
    nodes = {task.node for task in job.tasks if task.lives}
    for each in state.reservations.values():
        own = each.name == job.kind.shape.reservation
        there = each.cluster == phase.cluster and not nodes.isdisjoint(each.nodes) and each.end > now
        if own and (ends is None or ends > each.end):
            return _conflict(
                f"reservation {each.name} of {job.id} ends {format_moment(each.end)}, before that"
            )
        if there and not own and (ends is None or ends > each.start):
            told = f"a node of {job.id} is reserved as {each.name} from {format_moment(each.start)}"
            return _conflict(f"{told}, before that")
    return None


def _resolved(
    state: State, job: Job, wanted: Sequence[Dependency]
) -> tuple[tuple[After, ...], tuple[AfterMembers, ...]] | Refusal:
    """Return the dependencies of a job that have not ended, or why it cannot have them."""
    if job.extra.members is None and any(each.same for each in wanted):
        told = (
            f"{job.id} is not an array, so it has no members that could wait for others; write `members: all`"
        )
        return Refusal(RefusalKind.INVALID, told)
    found = unended(state, wanted, job)
    if isinstance(found, Refusal):
        return found
    for waited in [each.job for each in found[0]] + [each.job for each in found[1]]:
        if (trail := _path(state, waited, job.id)) is not None:
            names = " -> ".join([job.name, *(state.jobs[one].name for one in trail), job.name])
            return Refusal(RefusalKind.INVALID, f"`after` has a cycle: {names}")
    return found


def _path(state: State, start: JobId, goal: JobId) -> list[JobId] | None:
    """Return the jobs through which one waits for another, without that; None if it does not."""
    before: dict[JobId, JobId | None] = {start: None}
    todo = [start]
    while todo:
        here = todo.pop()
        member = split_member(here)
        if here == goal or (member is not None and member[0] == goal):
            trail: list[JobId] = []
            at = before[here]
            while at is not None:
                trail.insert(0, at)
                at = before[at]
            return trail
        extra = state.jobs[here].extra if here in state.jobs else NO_EXTRA
        members = () if extra.members is None else extra.members.after
        for waited in [each.job for each in extra.after] + [each.job for each in members]:
            if waited not in before:
                before[waited] = here
                todo.append(waited)
    return None


def _events(
    state: State,
    job: Job,
    proposal: ChangeJob,
    after: tuple[After, ...],
    after_members: tuple[AfterMembers, ...],
    now: int,
) -> list[AnyEvent]:
    """Return what changes a job, and what follows for its place in the queue."""
    events: list[AnyEvent] = []
    spec, changed, members = proposal.spec, proposal.changed, job.extra.members
    most = 0 if members is None else spec.throttle if "throttle" in changed else members.most
    stuck = members is not None and 0 < most <= members.live
    if members is not None and after_members:
        stuck = stuck or not ranges.outside(members.unplaced, [each.members for each in after_members])
    renewed = "after" in changed and bool(after_members or (members is not None and members.after))
    if changed:
        sized = bool(_SIZED.intersection(changed))
        terms = replace(job.terms, walltime=spec.terms.walltime, estimate=spec.terms.estimate)
        if "queue" in changed:
            terms = replace(terms, max_cost=spec.terms.max_cost)
        shape = _shape(state, job, spec, queue="queue" in changed)
        found = None
        if terms.estimate is None:
            user, named = job.user, proposal.named
            found = predict(state, user, spec.name, job.command, shape, terms, named=named)
        events.append(
            JobChanged(
                job.id,
                now,
                proposal.who,
                changed,
                proposal.digest,
                spec.name if "name" in changed else "",
                spec.queue if "queue" in changed else "",
                shape if shape != job.kind.shape else None,
                terms if terms != job.terms else None,
                spec.deadline if "deadline" in changed else None,
                after if "after" in changed else (),
                spec.throttle if "throttle" in changed else 0,
                None if found is None else found[0],
                None if found is None else found[1],
                proposal.named,
                type(job.phase) is Queued and bool(after or stuck),
                (sized or renewed) and type(job.phase) is Queued,
                after_members if "after" in changed else (),
            )
        )
    if spec.priority != job.priority:
        events.append(JobReprioritised(job.id, now, proposal.who, spec.priority))
    not_before = job.extra.not_before
    waits = after or stuck or (not_before is not None and not_before > now)
    if type(job.phase) is Waiting and job.phase.by is None and not waits:
        events.append(JobReleased(job.id, now, proposal.who))
    return events


def _shape(state: State, job: Job, spec: JobSpec, *, queue: bool) -> Shape:
    """Return the shape of a changed job; what it learned about nodes stays."""
    before = job.kind.shape
    asked = replace(before, resources=spec.shape.resources, rest=spec.shape.rest)
    if not queue:
        return asked
    found = state.queues.get(spec.queue)
    shape = replace(spec.shape, rules=before.rules)
    return shape if found is None else found.restricted(shape)
