"""Applies changes of what a job asks for."""

from msgspec.structs import replace

from spillover.core.appliers.arrays import note_member
from spillover.core.appliers.queue import enter_queue, expected_of, job_of, leave_queue, live_of
from spillover.core.events import JobChanged
from spillover.core.records.jobs import NO_EXTRA, Extra, Job, Queued, Running, Waiting
from spillover.core.state import State
from spillover.model import ranges


def changed(state: State, event: JobChanged) -> None:
    """Change what a job asks for."""
    job = job_of(state, event.job, event)
    queued = type(job.phase) is Queued
    expected = expected_of(job)
    if queued and (event.again or event.held):
        leave_queue(state, job)
    if event.name:
        _rename(state, job, event.name)
    if event.shape is not None or event.queue:
        state.count_live(job, -live_of(job))
        kind = replace(job.kind, shape=event.shape or job.kind.shape, queue=event.queue or job.kind.queue)
        job.kind = state.share(kind)
        state.count_live(job, live_of(job))
    if event.terms is not None:
        job.terms = state.share(event.terms)
    job.spec = event.spec
    job.predicted, job.named = event.predicted, event.named
    job.evidence = (
        None if event.evidence is None else state.shared().setdefault(event.evidence, event.evidence)
    )
    if job.seq:  # the tally has what it was expected to run until now, and subtracts that at its end
        state.facts.tally.ran += expected_of(job) - expected
        state.touch_facts()
    _extra(state, job, event)
    if event.held:
        job.phase = Waiting(None)
        note_member(state, job)
    elif queued and event.again:
        enter_queue(state, job)


def _rename(state: State, job: Job, name: str) -> None:
    """Give a job another name; members of arrays are not found by theirs."""
    found = "." not in job.id
    if found:
        state.leave(job)
    job.name = state.share(name)
    if found:
        state.enter(job)


def _extra(state: State, job: Job, event: JobChanged) -> None:
    """Change what few jobs have."""
    runs = type(job.phase) is Running
    if not (runs or {"deadline", "after", "throttle"} & set(event.changed)):
        return
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    if runs:
        job.extra.limited = job.seq
    if "deadline" in event.changed:
        job.extra.deadline = event.deadline
    if "after" in event.changed:
        for each in job.extra.after:
            state.no_longer_waits(job.id, each.job)
        job.extra.after = event.after
        if (members := job.extra.members) is not None and (members.after or event.after_members):
            for waited in members.after:
                state.no_longer_wait_for_members(job.id, waited.job)
            unplaced = members.unplaced
            members.after = event.after_members
            members.pending = ranges.outside(unplaced, [each.members for each in event.after_members])
            state.wait_for_members(job.id, event.after_members)
        for each in event.after:
            state.waiters.setdefault(each.job, {})[job.id] = None
    if "throttle" in event.changed and job.extra.members is not None:
        job.extra.members.most = event.throttle
