"""Decides on submissions: accepts all jobs of one, or none."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from spillover.core.deciders.endings import ITSELF, end_unplaced, unmet
from spillover.core.events import AnyEvent, JobState, JobSubmitted, MembersDropped
from spillover.core.learned.runtimes import predict
from spillover.core.proposals import Dependency, NewJob, Refusal, RefusalKind, Reply, Submit, Submitted
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.core.transitions import TERMINAL
from spillover.model import ranges
from spillover.model.ids import JobId, member_id, split_member
from spillover.model.job import After, AfterMembers, On, Range
from spillover.model.reasons import Reason
from spillover.model.units import format_duration, so_many


def submit(state: State, proposal: Submit, now: int) -> tuple[list[AnyEvent], Reply]:
    """Accept all jobs of a submission, or return why not."""
    events: list[AnyEvent] = []
    for new in proposal.jobs:
        if new.after or new.key is not None or new.spec.singleton:
            return _submit_linked(state, proposal, now)
    queues = state.queues.named
    if queues:
        queued = _in_queues(state, proposal.jobs, proposal.user)
        if isinstance(queued, Refusal):
            return [], queued
        proposal = replace(proposal, jobs=queued)
    # Most simulations bound neither.
    bounded = proposal.bounds is not None or queues
    if bounded and (full := _full(state, proposal, proposal.jobs)) is not None:
        return [], full
    taken_in: list[JobId] = []
    for new in proposal.jobs:
        if new.job in state.jobs:
            return [], _taken(new)
        if new.spec.shape.reservation and (refused := not_reserved(state, new)) is not None:
            return [], refused
        events.append(_submitted(state, new, proposal.user, now, ()))
        taken_in.append(new.job)
    return events, Submitted(tuple(taken_in))


def _submit_linked(state: State, proposal: Submit, now: int) -> tuple[list[AnyEvent], Reply]:  # noqa: C901, PLR0911, PLR0912 - the checks of one submission, in order
    """Accept jobs of which some have a key or depend on others."""
    events: list[AnyEvent] = []
    fresh = {new.job: _alone(state, new, proposal) for new in proposal.jobs}
    keyed: dict[tuple[str, str], NewJob] = {}
    if (cycle := _dependency_cycle(fresh)) is not None:
        names = " -> ".join(fresh[each].spec.name for each in cycle)
        return [], Refusal(RefusalKind.INVALID, f"`after` has a cycle: {names}")
    there: dict[JobId, JobId] = {}
    """Jobs of the submission that already exist under their key."""
    for new in proposal.jobs:
        if new.key is not None:
            known = _known(state, keyed, new, new.key, proposal.archived)
            if isinstance(known, Refusal):
                return [], known
            if known is not None:
                there[new.job] = known
                continue
            keyed[new.spec.project, new.key] = new
        if new.job in state.jobs:
            return [], _taken(new)
        if new.spec.shape.reservation and (refused := not_reserved(state, new)) is not None:
            return [], refused
    if state.queues:
        queued = _in_queues(state, [each for job, each in fresh.items() if job not in there], proposal.user)
        if isinstance(queued, Refusal):
            return [], queued
        fresh |= {new.job: new for new in queued}
    wanted: dict[JobId, list[Dependency]] = {}
    for new in proposal.jobs:
        if new.job not in there:
            resolved = _resolve(state, fresh[new.job], fresh, there)
            if isinstance(resolved, Refusal):
                return [], resolved
            wanted[new.job] = resolved
    if (full := _full(state, proposal, [fresh[job] for job in wanted])) is not None:
        return [], full
    failed = _never_start(wanted)
    for new in proposal.jobs:
        if new.job in wanted:
            taken = _take(state, fresh[new.job], proposal.user, now, wanted[new.job], failed, fresh)
            if isinstance(taken, Refusal):
                return [], taken
            events += taken
    return events, Submitted(tuple(there.get(new.job, new.job) for new in proposal.jobs))


def _in_queues(state: State, jobs: Iterable[NewJob], user: str) -> tuple[NewJob, ...] | Refusal:
    """Return jobs with the defaults of their queues, or a refusal if one can never run in its queue."""
    found: list[NewJob] = []
    for new in jobs:
        queue = state.queues.of(new.spec.queue)
        if queue is None:
            return Refusal(RefusalKind.INVALID, f"{new.spec.name}: {state.queues.unknown(new.spec.queue)}")
        spec = queue.completed(new.spec)
        for _, problem in queue.problems(spec, user):
            return Refusal(RefusalKind.INVALID, f"{spec.name}: {problem}")
        found.append(replace(new, spec=spec))
    return tuple(found)


def _full(state: State, proposal: Submit, coming: Iterable[NewJob]) -> Refusal | None:
    """Return a refusal if the queue has no room for all of these jobs; None if it has."""
    coming = list(coming)
    if state.queues and (refused := crowded(state, proposal.user, coming)) is not None:
        return refused
    bounds = proposal.bounds
    if bounds is None:
        return None
    counts: dict[str, int] = {}
    for new in coming:
        project = new.spec.project
        counts[project] = counts.get(project, 0) + (ranges.size(new.spec.array) if new.spec.array else 1)
    total, most = sum(counts.values()), bounds.queued
    # Live jobs include placed ones. So this usually passes without counting the placed ones.
    if most is not None and total + state.alive > most:
        waiting = state.alive - len(_placed(state, None))
        if total and total + waiting > most:
            return Refusal(RefusalKind.FULL, _no_room("the queue", waiting, most, total))
    each = bounds.queued_per_project
    if each is None:
        return None
    for project, count in counts.items():
        live = state.live.get(project, 0)
        if count + live > each and count + (waiting := live - len(_placed(state, project))) > each:
            message = _no_room(f"the queue of project {project!r}", waiting, each, count)
            return Refusal(RefusalKind.PROJECT_FULL, message)
    return None


def crowded(state: State, user: str, coming: Iterable[NewJob]) -> Refusal | None:
    """Return a refusal if a named queue has no room for these jobs of a user; None if all have."""
    counts: dict[str, int] = {}
    for new in coming:
        counts[new.spec.queue] = counts.get(new.spec.queue, 0) + (ranges.size(new.spec.array) or 1)
    for name, count in counts.items():
        if (queue := state.queues.get(name)) is None:
            continue
        for most, whose in ((queue.total.queued, None), (queue.each.queued, user)):
            if not most or (live := _live_in(state, name, whose)) + count <= most:
                continue
            placed = [state.jobs[job] for job in _placed(state, None)]
            waiting = live - sum(job.kind.queue == name and whose in {None, job.user} for job in placed)
            if waiting + count > most:
                of = "" if whose is None else f" of {whose}"
                return Refusal(RefusalKind.QUEUE_FULL, _no_room(f"queue {name}", waiting, most, count, of))
    return None


def _live_in(state: State, queue: str, user: str | None) -> int:
    """Return how many jobs of a queue have not ended, of one user if it is given."""
    if user is not None:
        return state.live_in.get((queue, user), 0)
    return sum(count for (name, _), count in state.live_in.items() if name == queue)


def _placed(state: State, project: str | None) -> dict[JobId, None]:
    """Return the placed jobs, of one project if it is given."""
    ids = {job: None for node in state.nodes.values() for job in node.jobs}
    if project is None:
        return ids
    return {job: None for job in ids if state.jobs[job].kind.project == project}


def _no_room(whose: str, waiting: int, most: int, count: int, of: str = "") -> str:
    return f"{whose} holds {waiting} of at most {so_many(most)}{of}; {count} more would exceed that, so none was accepted"


def _taken(new: NewJob) -> Refusal:
    return Refusal(RefusalKind.STALE, f"the id {new.job} is taken; try again")


def not_reserved(state: State, new: NewJob) -> Refusal | None:
    """Return a refusal if a job names an advance reservation in which it can never run; None if it can."""
    spec = new.spec
    name, walltime = spec.shape.reservation, spec.terms.walltime
    known = state.reservations.get(name)
    if known is not None and known.maintenance:
        message = f"reservation {name} is for maintenance, so no job can run in it"
    elif known is None or known.project != spec.project:  # who else has one is not for everybody to know
        message = f"project {spec.project} has no reservation {name}, or it has ended; `spill reservations` lists them"
    elif walltime is not None and walltime > known.end - known.start:
        lasts = format_duration(known.end - known.start)
        message = f"reservation {name} lasts {lasts}, less than the walltime of {format_duration(walltime)}"
    else:
        return None
    return Refusal(RefusalKind.INVALID, message)


def _known(
    state: State, keyed: dict[tuple[str, str], NewJob], new: NewJob, key: str, archived: int | None
) -> JobId | Refusal | None:
    """Return the earlier job under this key; a refusal if it differs or may be archived; None if there is none."""
    project = new.spec.project
    if (live := state.keys.find(project, key)) is not None:
        job, body = live, state.jobs[live].extra.body
    elif (same := keyed.get((project, key))) is not None:
        job, body = same.job, same.body
    elif archived is not None and state.keys.may_have_left(project, key, archived):
        return Refusal(
            RefusalKind.STALE, f"the job under the key {key!r} was archived in the meantime; try again"
        )
    else:
        return None
    return job if body == new.body else Refusal(RefusalKind.CONFLICT, key_taken(key, job))


def key_taken(key: str | None, job: str) -> str:
    """Format the message that a key was used for another job."""
    return f"the key {key!r} was used for another job, {job}; use a new key"


def _resolve(
    state: State, new: NewJob, fresh: dict[JobId, NewJob], there: dict[JobId, JobId]
) -> list[Dependency] | Refusal:
    """Return the dependencies of a job, each once and with its end; of two entries, success is the stricter."""
    found: dict[JobId, Dependency] = {}
    if any(_job_of(each.job) in there for each in new.spec.taken):
        return Refusal(RefusalKind.STALE, "a job under its key was submitted in the meantime; try again")
    for each in new.after:
        job = there.get(each.job, each.job)
        if job == new.job:
            return Refusal(RefusalKind.INVALID, f"`after` has a cycle: {new.spec.name} waits for itself")
        succeeded = each.succeeded
        if (live := state.jobs.get(job)) is not None:
            succeeded = live.state is JobState.SUCCEEDED if live.state in TERMINAL else None
        elif succeeded is None and job not in fresh:
            return Refusal(RefusalKind.STALE, f"dependency {job} was archived in the meantime; try again")
        on = each.on
        if job in found and On.ANY not in {on, found[job].on} and on is not found[job].on:
            name = each.job if job not in fresh else fresh[job].spec.name
            return Refusal(
                RefusalKind.INVALID, f"`after` asks for both the success and the failure of {name}"
            )
        if on is On.ANY and job in found:
            on = found[job].on
        same = each.same and (job not in found or found[job].same)
        found[job] = replace(each, job=job, on=on, succeeded=succeeded, same=same)
    return list(found.values())


class Corresponding(Struct, frozen=True):
    """What members of an array find of the members with their indexes of another one."""

    waits: AfterMembers
    """Those whose counterpart has not ended."""
    unmet: ranges.Ranges
    """Those whose counterpart ended otherwise than they need."""


def corresponding(
    state: State, array: ranges.Ranges, wanted: Dependency, name: str
) -> Corresponding | Refusal:
    """Return for which members of another array those of an array wait, and which can never start."""
    waits = AfterMembers(wanted.job, wanted.on, ranges.common(array, _going(state, wanted.job)))
    over = ranges.minus(array, waits.members)
    if wanted.on is On.ANY:
        return Corresponding(waits, ())
    live = state.jobs.get(wanted.job)
    if wanted.succeeded or (live is not None and live.state is JobState.SUCCEEDED):
        well = over
    else:
        well = ranges.common(over, wanted.well)
        # A few members may have ended since the archive was read.
        for index in ranges.indexes(ranges.minus(over, wanted.ended)):
            member = state.jobs.get(member_id(wanted.job, index))
            if member is None:
                told = f"{name}: members of {wanted.job} were archived in the meantime; try again"
                return Refusal(RefusalKind.STALE, told)
            if member.state is JobState.SUCCEEDED:
                well = ranges.union(well, (Range(index, index),))
    return Corresponding(waits, ranges.minus(over, well) if wanted.on is On.SUCCESS else well)


def _going(state: State, array: JobId) -> ranges.Ranges:
    """Return which members of an array have not ended; none if it is gone."""
    live = state.jobs.get(array)
    members = None if live is None else live.extra.members
    if members is None:
        return ()
    placed = [split_member(each) for each in state.members.get(array, ())]
    own = [Range(each[1], each[1]) for each in placed if each is not None]
    return ranges.merged((*members.unplaced, *own))


def _job_of(ref: str) -> JobId:
    """Return a job, or the array of a member."""
    member = split_member(JobId(ref))
    return JobId(ref) if member is None else member[0]


def _alone(state: State, new: NewJob, proposal: Submit) -> NewJob:
    """Return a job with what it waits for, if it must be the only one of its name that runs."""
    if not new.spec.singleton:
        return new
    name, project = new.spec.name, new.spec.project
    named = [state.jobs[job] for job in state.called(name, project)]
    earlier = [job.id for job in named if job.user == proposal.user and job.state not in TERMINAL]
    for each in proposal.jobs:
        if each.job == new.job:
            break
        if (each.spec.name, each.spec.project) == (name, project):
            earlier.append(each.job)
    return replace(new, after=(*new.after, *[Dependency(job, On.ANY) for job in earlier]))


def _never_start(wanted: dict[JobId, list[Dependency]]) -> dict[JobId, Reason]:
    """Return jobs of a submission that can never start, each with the reason."""
    followers: dict[JobId, list[JobId]] = {}
    failed: dict[JobId, Reason] = {}
    for job, after in wanted.items():
        for each in after:
            if each.same and each.job not in wanted:
                continue  # each member by itself
            if each.succeeded is not None and not each.on.met(succeeded=each.succeeded):
                failed.setdefault(job, unmet(each.job, succeeded=each.succeeded))
            elif each.on is On.SUCCESS and each.job in wanted:
                followers.setdefault(each.job, []).append(job)
    todo = list(failed)
    for job in todo:
        for follower in followers.get(job, ()):
            if follower not in failed:
                failed[follower] = unmet(job, succeeded=False)
                todo.append(follower)
    return failed


def _take(
    state: State,
    new: NewJob,
    user: str,
    now: int,
    after: list[Dependency],
    failed: dict[JobId, Reason],
    fresh: dict[JobId, NewJob],
) -> list[AnyEvent] | Refusal:
    """Return the events that accept one job."""
    array = new.spec.array
    if new.job in failed:
        events: list[AnyEvent] = [_submitted(state, new, user, now, ())]
        if array:
            events.append(MembersDropped(new.job, now, array, JobState.CANCELLED, ITSELF))
        events.append(end_unplaced(new.job, 1, 0, now, JobState.CANCELLED, failed[new.job]))
        return events
    waits: list[AfterMembers] = []
    dropped: list[AnyEvent] = []
    left, why = array, None
    for each in after:
        if not each.same or each.job in failed:
            continue
        if each.job in fresh:
            waits.append(AfterMembers(each.job, each.on, left))
            continue
        found = corresponding(state, left, each, new.spec.name)
        if isinstance(found, Refusal):
            return found
        if found.waits.members:
            waits.append(found.waits)
        if found.unmet:
            one = each.job if ranges.size(found.unmet) > 1 else member_id(each.job, found.unmet[0].first)
            why = unmet(one, succeeded=each.on is On.FAILURE)
            left = ranges.minus(left, found.unmet)
            dropped.append(MembersDropped(new.job, now, found.unmet, JobState.CANCELLED, ITSELF, why))
    events = [_submitted(state, new, user, now, _waits(after, failed), _within(waits, left)), *dropped]
    if not left and why is not None:
        events.append(end_unplaced(new.job, 1, 0, now, JobState.CANCELLED, why))
    return events


def _within(waits: list[AfterMembers], left: ranges.Ranges) -> tuple[AfterMembers, ...]:
    """Return for which arrays members wait that may still start."""
    found = [replace(each, members=ranges.common(each.members, left)) for each in waits]
    return tuple(each for each in found if each.members)


def _submitted(
    state: State,
    new: NewJob,
    user: str,
    now: int,
    after: tuple[After, ...],
    members: tuple[AfterMembers, ...] = (),
) -> JobSubmitted:
    """Return the event that accepts a job. A job without an estimate gets a prediction from similar jobs."""
    spec = new.spec
    queue = state.queues.named.get(spec.queue)
    shape = spec.shape if queue is None else queue.restricted(spec.shape)
    found = None
    if spec.terms.estimate is None:
        found = predict(state, user, spec.name, new.command, shape, spec.terms, named=new.named)
    return JobSubmitted(
        new.job,
        now,
        user,
        spec.name,
        spec.project,
        spec.queue,
        spec.priority,
        new.digest,
        shape,
        spec.terms,
        spec.deadline,
        spec.not_before,
        spec.array,
        after,
        new.key,
        new.body,
        None if found is None else found[0],
        spec.needs_blobs,
        spec.hold,
        spec.throttle,
        None if found is None else found[1],
        new.named,
        new.traceparent,
        new.saved,
        new.saved_by,
        bool(spec.notify),
        members,
        new.command,
    )


def unended(
    state: State, wanted: Iterable[Dependency], job: Job
) -> tuple[tuple[After, ...], tuple[AfterMembers, ...]] | Refusal:
    """Return what a job waits for that has not ended, each once; a refusal if something ended otherwise than required."""
    found: dict[JobId, Dependency] = {}
    members: dict[JobId, AfterMembers] = {}
    unplaced = () if job.extra.members is None else job.extra.members.unplaced
    for each in wanted:
        succeeded = each.succeeded
        if (live := state.jobs.get(each.job)) is not None:
            succeeded = live.state is JobState.SUCCEEDED if live.state in TERMINAL else None
        elif succeeded is None:
            return Refusal(
                RefusalKind.STALE, f"dependency {each.job} was archived in the meantime; try again"
            )
        if each.same:
            part = corresponding(state, unplaced, each, job.name)
            if isinstance(part, Refusal):
                return part
            if part.unmet:
                one = member_id(each.job, part.unmet[0].first)
                told = unmet(one, succeeded=each.on is On.FAILURE)
                return Refusal(RefusalKind.INVALID, f"member {part.unmet[0].first} could never start: {told}")
            if part.waits.members:
                members[each.job] = part.waits
            continue
        if succeeded is not None and not each.on.met(succeeded=succeeded):
            return Refusal(
                RefusalKind.INVALID, f"it could never start: {unmet(each.job, succeeded=succeeded)}"
            )
        found[each.job] = replace(each, succeeded=succeeded)
    after = tuple([After(each.job, each.on) for each in found.values() if each.succeeded is None])
    return after, tuple(members.values())


def _waits(after: list[Dependency], failed: dict[JobId, Reason]) -> tuple[After, ...]:
    """Return the jobs that have not ended and that a job waits for as a whole."""
    return tuple(
        After(each.job, each.on)
        for each in after
        if each.succeeded is None and each.job not in failed and not each.same
    )


def _dependency_cycle(fresh: dict[JobId, NewJob]) -> list[JobId] | None:
    """Return a cycle of `after` within a submission, if any. Other jobs are older and cannot be part of one."""
    done: dict[JobId, None] = {}
    for start in fresh:
        path: dict[JobId, None] = {}
        stack: list[tuple[JobId, bool]] = [(start, False)]
        while stack:
            job, leaving = stack.pop()
            if leaving:
                del path[job]
                done[job] = None
            elif job in path:
                trail = list(path)
                return [*trail[trail.index(job) :], job]
            elif job in fresh and job not in done:
                path[job] = None
                stack.append((job, True))
                stack += [(wanted.job, False) for wanted in fresh[job].after]
    return None
