"""Decides on starts and results of tasks. A result counts once, and only under the valid lease."""

from typing import Final

from msgspec.structs import replace

from spillover.core.deciders.endings import attempt_cost, elapsed, finish
from spillover.core.deciders.gangs import (
    given_back,
    in_part,
    may_try_again,
    starts_again,
    tasks_end,
    was_late,
)
from spillover.core.deciders.verdicts import again, requeued, verdict
from spillover.core.events import (
    AnyEvent,
    Back,
    JobEnded,
    JobRequeued,
    JobStarted,
    JobState,
    Lease,
    Outcome,
    TaskEnd,
    TaskRestarted,
    TasksEnded,
    TasksStarted,
)
from spillover.core.proposals import DRIVER, Done, Refusal, RefusalKind, Reply, Result, Started, Verdict
from spillover.core.records.jobs import Ended, Job, Placed, Running
from spillover.core.records.tasks import LEADER, added, deciding_end, state_of_end
from spillover.core.state import State
from spillover.model.ids import NodeKey

EXITED: Final = Outcome.EXITED
LOST: Final = Outcome.LOST
NOT_STARTED: Final = Outcome.NOT_STARTED
SUCCEEDED: Final = JobState.SUCCEEDED
ACCEPTED: Final = Verdict.ACCEPTED
# A module global is found several times faster than an enum member, and these are read for every job.


def holder(state: State, lease: Lease, node: NodeKey) -> Job | None:
    """Return the job that this node may report on under this lease; on external clusters only the driver may."""
    job = state.jobs.get(lease.job)
    if job is None or job.seq != lease.seq or job.attempt != lease.attempt:
        return None
    phase = job.phase
    if type(phase) is not Placed and type(phase) is not Running:
        return None
    extra, rank = job.extra, lease.task
    before, gang = extra.placed_on, extra.gang
    if phase.cluster in state.conditions or (before is not None and before.external):
        return job if node == DRIVER else None
    if gang is None:
        return job if rank == 0 and node == f"{phase.cluster}/{phase.node}" else None
    if not 0 <= rank < len(gang.tasks):
        return None
    return job if node == f"{phase.cluster}/{gang.tasks[rank].node}" else None


def started(state: State, proposal: Started, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record that a task runs."""
    job = holder(state, proposal.lease, proposal.node)
    if job is None:
        return [], Refusal(RefusalKind.STALE, f"the lease of {proposal.lease.job} is no longer valid")
    at = now - proposal.age if proposal.age > 0 else now
    if at < job.submitted:
        at = job.submitted
    if job.extra.gang is not None:
        return _more_run(job, proposal, at), Done()
    if type(job.phase) is Running:
        return [], Done()
    return [JobStarted(job.id, at, job.attempt, job.seq)], Done()


def _more_run(job: Job, proposal: Started, at: int) -> list[AnyEvent]:
    """Return events for tasks of a gang that newly run."""
    tasks, runs = job.tasks, type(job.phase) is Running
    if proposal.node != DRIVER:
        ranks = [proposal.lease.task]
    elif proposal.ranks:
        ranks = sorted({rank for rank in proposal.ranks if 0 <= rank < len(tasks)})
    else:
        ranks = [] if runs else [0]  # unknown which: assume the first
    ranks = [rank for rank in ranks if tasks[rank].state is JobState.PLACED]
    if not ranks:
        return []
    if runs:
        return [TasksStarted(job.id, at, job.attempt, job.seq, tuple(ranks))]
    started = JobStarted(job.id, at, job.attempt, job.seq, ranks[0])
    if len(ranks) == 1:
        return [started]
    return [started, TasksStarted(job.id, at, job.attempt, job.seq, tuple(ranks[1:]))]


def result(state: State, proposal: Result, now: int) -> tuple[list[AnyEvent], Reply]:
    """Decide on the end of a task: its job ends or is retried; a gang does so with its last task."""
    lease = proposal.lease
    job = holder(state, lease, proposal.node)
    if job is None:
        known = state.jobs.get(lease.job)
        same = known is not None and (known.attempt, known.seq) == (lease.attempt, lease.seq)
        return [], Verdict.DUPLICATE if same and type(known.phase) is Ended else Verdict.FENCED  # type: ignore[union-attr]
    ends = None
    if job.extra.gang is not None:
        if proposal.node != DRIVER:
            return _of_task(state, job, proposal, now)
        ends = _reported_ends(job, proposal, now)
    phase, outcome, ran = job.phase, proposal.outcome, proposal.usage.ran
    if ran < 0:
        ran = 0
    if outcome is LOST:  # its agent does not know when it ended
        ran = min(ran, elapsed(state, job, now))
    began = type(phase) is Running or (ran > 0 and outcome is not NOT_STARTED)
    cost = job.cost + (attempt_cost(state, job, ran) if began else 0)
    ended, why = SUCCEEDED, None
    if outcome is not EXITED or proposal.exit_code != 0:
        if was_late(job, outcome):
            outcome = NOT_STARTED
            proposal = replace(proposal, message=proposal.message or in_part(job))
        retried = _retried(job, proposal, outcome, now, cost, began=began)
        if retried is not None:
            return [retried] if ends is None else [ends, retried], ACCEPTED
        ended, why = verdict(job, outcome, proposal)
    finished = now - proposal.age if proposal.age > 0 else now
    if finished < job.submitted:
        finished = job.submitted
    since = phase.since if type(phase) is Running else None
    if since is None and began:
        since = finished - ran if finished - ran > job.submitted else job.submitted
    ending = JobEnded(
        job.id,
        finished if since is None or since < finished else since,
        ended,
        job.attempt,
        job.seq,
        since,
        proposal.exit_code,
        proposal.signal,
        cost,
        proposal.usage,
        why,
        proposal.value,
        proposal.value_digest,
        proposal.outputs,
        0 if ends is None else deciding_end(ends.ends).rank,
        (proposal.saved,) if proposal.saved and ended is not SUCCEEDED else (),
    )
    if ends is None and not state.members and job.id not in state.waiters:
        return [ending], ACCEPTED  # most jobs have no array and no dependent jobs
    return finish(state, [ending], now, () if ends is None else (ends,)), ACCEPTED


def _retried(
    job: Job, proposal: Result, outcome: Outcome, now: int, cost: int, *, began: bool
) -> JobRequeued | None:
    """Return the next attempt of a job that ended badly; None if it is not retried."""
    if was_late(job, proposal.outcome):
        if not may_try_again(job):
            return None
        return given_back(job, now, cost, proposal.message, proposal.backoff)
    back = again(job, outcome, proposal.exit_code)
    if back is None:
        return None
    if back is Back.INTERRUPTED and not began:
        return requeued(job, now, proposal.message)
    attempt, seq = job.attempt + 1, job.seq + 1
    saved = (proposal.saved,) if proposal.saved else ()
    return JobRequeued(
        job.id, now, back, attempt, seq, cost, proposal.outputs, proposal.message, saved=saved, began=began
    )


def _reported_ends(job: Job, proposal: Result, now: int) -> TasksEnded | None:
    """Return the ends of tasks that a driver reports together with the end of their gang; None if it reports none."""
    ends = {each.rank: each for each in proposal.tasks}
    living = tuple(
        replace(end, at=min(now, max(job.submitted, end.at)))  # `end.at` is by the clock of its cluster
        for task in job.tasks
        if task.lives and (end := ends.get(task.rank)) is not None
    )
    return TasksEnded(job.id, now, job.attempt, job.seq, living) if living else None


def _of_task(state: State, job: Job, proposal: Result, now: int) -> tuple[list[AnyEvent], Verdict]:
    """Decide on the end of one task of a gang."""
    task, outcome, used = job.tasks[proposal.lease.task], proposal.outcome, proposal.usage
    if not task.lives:
        return [], Verdict.DUPLICATE
    if proposal.run < task.run:  # its agent missed the answer
        return [], Verdict.RESTART
    ran = 0 if outcome is NOT_STARTED else max(0, used.ran)
    if outcome is LOST:  # its agent does not know when it ended
        ran = min(ran, elapsed(state, job, now))
    end = TaskEnd(
        task.rank,
        max(job.submitted, now - max(0, proposal.age)),
        state_of_end(outcome, proposal.exit_code),
        outcome,
        proposal.exit_code,
        proposal.signal,
        replace(used, ran=ran),
        proposal.message,
        saved=proposal.saved,
    )
    if proposal.waits and starts_again(job, end):
        restarted = TaskRestarted(job.id, now, job.attempt, job.seq, end, task.run + 1)
        return [
            *_more_run(job, Started(proposal.node, proposal.lease, 0), end.at),
            restarted,
        ], Verdict.RESTART
    end = replace(end, usage=added(task.before, end.usage))
    if task.rank == LEADER:  # what it returns and writes is what the job returns and writes
        end = replace(end, outputs=proposal.outputs, value=proposal.value, value_digest=proposal.value_digest)
    events = tasks_end(state, job, [end], now)
    last = events[-1]
    return (finish(state, [last], now, events[:-1]) if type(last) is JobEnded else events), ACCEPTED
