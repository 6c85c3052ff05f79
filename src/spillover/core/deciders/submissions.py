"""Taking jobs in: all of a submission, or none of it."""

from collections.abc import Iterable

from spillover.core import ranges
from spillover.core.deciders.endings import ITSELF, end_unplaced
from spillover.core.events import AnyEvent, JobState, JobSubmitted, MembersDropped
from spillover.core.history import predict
from spillover.core.proposals import Dependency, NewJob, Refusal, RefusalKind, Reply, Submit, Submitted
from spillover.core.state import State
from spillover.core.transitions import TERMINAL
from spillover.model.ids import JobId
from spillover.model.job import After, On
from spillover.model.reasons import DependencyFailed


def submit(state: State, proposal: Submit, now: int) -> tuple[list[AnyEvent], Reply]:
    """Take all jobs of a submission in, or say what is wrong with it."""
    events: list[AnyEvent] = []
    for new in proposal.jobs:
        if new.after or new.key is not None:
            return _submit_with_ties(state, proposal, now)
    if (full := _full(state, proposal, proposal.jobs)) is not None:
        return [], full
    taken_in: list[JobId] = []
    for new in proposal.jobs:
        if new.job in state.jobs:
            return [], _taken(new)
        events.append(_submitted(state, new, proposal.user, now, ()))
        taken_in.append(new.job)
    return events, Submitted(tuple(taken_in))


def _submit_with_ties(state: State, proposal: Submit, now: int) -> tuple[list[AnyEvent], Reply]:  # noqa: C901 - the checks of one submission, in their order
    """Take in jobs of which some have a key, or wait for others."""
    events: list[AnyEvent] = []
    fresh = {new.job: new for new in proposal.jobs}
    keyed: dict[tuple[str, str], NewJob] = {}
    if (circle := _circle(fresh)) is not None:
        names = " -> ".join(fresh[each].spec.name for each in circle)
        return [], Refusal(RefusalKind.INVALID, f"`after` goes in a circle: {names}")
    there: dict[JobId, JobId] = {}
    """Jobs of the submission that are there already under their key."""
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
    wanted: dict[JobId, list[Dependency]] = {}
    for new in proposal.jobs:
        if new.job not in there:
            resolved = _resolve(state, new, fresh, there)
            if isinstance(resolved, Refusal):
                return [], resolved
            wanted[new.job] = resolved
    if (full := _full(state, proposal, [fresh[job] for job in wanted])) is not None:
        return [], full
    failed = _doomed(wanted)
    for new in proposal.jobs:
        if new.job in wanted:
            events += _take(state, new, proposal.user, now, wanted[new.job], failed)
    return events, Submitted(tuple(there.get(new.job, new.job) for new in proposal.jobs))


def _full(state: State, proposal: Submit, coming: Iterable[NewJob]) -> Refusal | None:
    """Why there is no room in the queue for all of these jobs, if there is none."""
    bounds = proposal.bounds
    if bounds is None:
        return None
    counts: dict[str, int] = {}
    for new in coming:
        project = new.spec.project
        counts[project] = counts.get(project, 0) + (ranges.size(new.spec.array) if new.spec.array else 1)
    total, most = sum(counts.values()), bounds.queued
    # What has ended is counted out, so that all is well as a rule without a look at what runs.
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
            told = _no_room(f"the queue of project {project!r}", waiting, each, count)
            return Refusal(RefusalKind.PROJECT_FULL, told)
    return None


def _placed(state: State, project: str | None) -> dict[JobId, None]:
    """Jobs that have a place: all, or those of a project."""
    ids = {job: None for node in state.nodes.values() for job in node.jobs}
    if project is None:
        return ids
    return {job: None for job in ids if state.jobs[job].kind.project == project}


def _no_room(whose: str, waiting: int, most: int, count: int) -> str:
    return f"{whose} holds {waiting} of at most {most} jobs; {count} more would pass that, so none was taken"


def _taken(new: NewJob) -> Refusal:
    return Refusal(RefusalKind.STALE, f"the id {new.job} is taken; try again")


def _known(
    state: State, keyed: dict[tuple[str, str], NewJob], new: NewJob, key: str, archived: int | None
) -> JobId | Refusal | None:
    """The job that its project submitted under a key before; a refusal if it was another one, or if nobody can know."""
    project = new.spec.project
    if (live := state.keys.find(project, key)) is not None:
        job, body = live, state.jobs[live].extra.body
    elif (same := keyed.get((project, key))) is not None:
        job, body = same.job, same.body
    elif archived is not None and state.keys.may_have_left(project, key, archived):
        return Refusal(RefusalKind.STALE, f"the job under the key {key!r} was archived meanwhile; try again")
    else:
        return None
    return job if body == new.body else Refusal(RefusalKind.CONFLICT, key_taken(key, job))


def key_taken(key: str | None, job: str) -> str:
    """That a key was used for another job of the project."""
    return f"the key {key!r} was used for another job, {job}; use a new key"


def _resolve(
    state: State, new: NewJob, fresh: dict[JobId, NewJob], there: dict[JobId, JobId]
) -> list[Dependency] | Refusal:
    """What a job waits for, each once and with how it ended; named twice, success is asked for if either asks."""
    found: dict[JobId, Dependency] = {}
    for each in new.after:
        job = there.get(each.job, each.job)
        if job == new.job:
            return Refusal(RefusalKind.INVALID, f"`after` goes in a circle: {new.spec.name} waits for itself")
        succeeded = each.succeeded
        if (live := state.jobs.get(job)) is not None:
            succeeded = live.state is JobState.SUCCEEDED if live.state in TERMINAL else None
        elif succeeded is None and job not in fresh:
            return Refusal(RefusalKind.STALE, f"the job {job} to run after moved meanwhile; try again")
        on = On.SUCCESS if job in found and found[job].on is On.SUCCESS else each.on
        found[job] = Dependency(job, on, succeeded)
    return list(found.values())


def _doomed(wanted: dict[JobId, list[Dependency]]) -> dict[JobId, JobId]:
    """Jobs of a submission that will never start, each with the job whose failure it waits for in vain."""
    followers: dict[JobId, list[JobId]] = {}
    failed: dict[JobId, JobId] = {}
    for job, after in wanted.items():
        for each in after:
            if each.on is On.SUCCESS and each.succeeded is False:
                failed.setdefault(job, each.job)
            elif each.on is On.SUCCESS and each.job in wanted:
                followers.setdefault(each.job, []).append(job)
    todo = list(failed)
    for job in todo:
        for follower in followers.get(job, ()):
            if follower not in failed:
                failed[follower] = job
                todo.append(follower)
    return failed


def _take(
    state: State, new: NewJob, user: str, now: int, after: list[Dependency], failed: dict[JobId, JobId]
) -> list[AnyEvent]:
    """The events that take one job in."""
    waits = () if new.job in failed else _waits(after, failed)
    events: list[AnyEvent] = [_submitted(state, new, user, now, waits)]
    if new.job in failed:
        if new.spec.array:
            events.append(MembersDropped(new.job, now, new.spec.array, JobState.CANCELLED, ITSELF))
        why = DependencyFailed(failed[new.job])
        events.append(end_unplaced(new.job, 1, 0, now, JobState.CANCELLED, why))
    return events


def _submitted(state: State, new: NewJob, user: str, now: int, after: tuple[After, ...]) -> JobSubmitted:
    """A job is accepted; of one that does not say how long it will run, it is noted how long those like it did."""
    spec = new.spec
    silent = spec.terms.estimate is None
    return JobSubmitted(
        new.job,
        now,
        user,
        spec.name,
        spec.project,
        spec.queue,
        spec.priority,
        new.digest,
        spec.shape,
        spec.terms,
        spec.deadline,
        spec.not_before,
        spec.array,
        after,
        new.key,
        new.body,
        predict(state, user, spec.name, spec.shape) if silent else None,
        bool(spec.digests),
    )


def _waits(after: list[Dependency], failed: dict[JobId, JobId]) -> tuple[After, ...]:
    """What has not ended yet of that which a job waits for."""
    return tuple(
        After(each.job, each.on) for each in after if each.succeeded is None and each.job not in failed
    )


def _circle(fresh: dict[JobId, NewJob]) -> list[JobId] | None:
    """A circle of `after` within a submission, if there is one; it cannot reach outside, where all ids are older."""
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
