"""Taking jobs in: all of a submission, or none of it."""

from spillover.core.deciders.endings import end_unplaced
from spillover.core.events import AnyEvent, JobHeld, JobState, JobSubmitted
from spillover.core.proposals import NewJob, Refusal, Refused, Reply, Submit, Submitted
from spillover.core.state import Job, State
from spillover.model.ids import JobId
from spillover.model.job import After, On
from spillover.model.reasons import DependencyFailed


def submit(state: State, proposal: Submit, now: int) -> tuple[list[AnyEvent], Reply]:
    """Take all jobs of a submission in, or say what is wrong with it."""
    events: list[AnyEvent] = []
    ids: list[JobId] = []
    fresh = {new.job: new for new in proposal.jobs}
    keyed: dict[str, NewJob] = {}
    if (circle := _circle(fresh)) is not None:
        names = " -> ".join(fresh[each].spec.name for each in circle)
        return [], Refusal(Refused.INVALID, f"`after` goes in a circle: {names}")
    for new in proposal.jobs:
        if new.key is not None:
            known = _known(state, keyed, new, proposal)
            if isinstance(known, Refusal):
                return [], known
            if known is not None:
                ids.append(known)
                continue
            keyed[new.key] = new
        if new.job in state.jobs:
            return [], Refusal(Refused.STALE, f"the id {new.job} is taken; try again")
        taken = _take(state, new, proposal, now, fresh)
        if isinstance(taken, Refusal):
            return [], taken
        events += taken
        ids.append(new.job)
    return events, Submitted(tuple(ids))


def _known(state: State, keyed: dict[str, NewJob], new: NewJob, proposal: Submit) -> JobId | Refusal | None:
    """The job that was submitted under a key before; a refusal if it was another one, or if nobody can know."""
    before: Job | NewJob | None = None
    if new.key in state.keys:
        before = state.jobs[state.keys[new.key]]
        job, body = before.id, before.extra.body
    elif new.key in keyed:
        before = keyed[new.key]
        job, body = before.job, before.body
    elif proposal.archived is not None and proposal.archived != state.facts.archived:
        return Refusal(Refused.STALE, "jobs were archived meanwhile; try again")
    else:
        return None
    if body != new.body:
        return Refusal(
            Refused.CONFLICT, f"the key {new.key!r} was used for another job, {job}; use a new key"
        )
    return job


def _take(
    state: State, new: NewJob, proposal: Submit, now: int, fresh: dict[JobId, NewJob]
) -> list[AnyEvent] | Refusal:
    """The events that take one job in."""
    after: list[After] = []
    failed: JobId | None = None
    for wanted in new.after:
        succeeded = wanted.succeeded
        if (found := state.jobs.get(wanted.job)) is not None:
            ended = found.state if found.state in _ENDED else None
            succeeded = None if ended is None else ended is JobState.SUCCEEDED
        elif succeeded is None and wanted.job not in fresh:
            return Refusal(Refused.STALE, f"the job {wanted.job} to run after moved meanwhile; try again")
        if succeeded is None:
            after.append(After(wanted.job, wanted.on))
        elif not succeeded and wanted.on is On.SUCCESS:
            failed = wanted.job
    spec = new.spec
    events: list[AnyEvent] = [
        JobSubmitted(
            job=new.job,
            at=now,
            user=proposal.user,
            name=spec.name,
            project=spec.project,
            queue=spec.queue,
            priority=spec.priority,
            spec=new.digest,
            shape=spec.shape,
            terms=spec.terms,
            deadline=spec.deadline,
            not_before=spec.not_before,
            array=spec.array,
            after=tuple(after),
            key=new.key,
            body=new.body,
        )
    ]
    if failed is not None:
        events.append(
            end_unplaced(new.job, 1, 0, now, JobState.CANCELLED, DependencyFailed(failed)),
        )
    elif new.held:
        events.append(JobHeld(new.job, now, proposal.user))
    return events


_ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})


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
