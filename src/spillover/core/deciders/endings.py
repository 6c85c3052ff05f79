"""Decides how a job ends, and what that means for its array and for dependent jobs."""

from collections import deque
from collections.abc import Iterable, Sequence

from spillover.core.events import (
    AnyEvent,
    DependencyEnded,
    JobEnded,
    JobReleased,
    JobState,
    MembersDropped,
    MembersFreed,
    Usage,
)
from spillover.core.records.jobs import Job, Members, Running, Waiting
from spillover.core.state import State
from spillover.model import ranges
from spillover.model.cluster import OWNED, cost_of_job
from spillover.model.ids import JobId, member_id, split_member
from spillover.model.job import WALLTIME_SLACK, Range
from spillover.model.reasons import (
    CancelledBy,
    DependencyFailed,
    DependencySucceeded,
    MembersFailed,
    Reason,
)

ITSELF = "spillover"
"""The author of actions that no person asked for."""


def end_unplaced(
    job: JobId, attempt: int, seq: int, now: int, ended: JobState, why: Reason, cost: int = 0
) -> JobEnded:
    """Return the end of a job that has no lease."""
    return JobEnded(job, now, ended, attempt, seq + 1, None, None, None, cost, Usage(), why)


def attempt_cost(state: State, job: Job, ran: int) -> int:
    """Return the cost of the current attempt if it ran this long, at the prices of its placement."""
    spec = state.cluster_of(job)
    if spec is None or spec.role is OWNED:
        return 0  # owned capacity costs nothing extra
    return cost_of_job(spec, job.shape, ran, job.terms.data)


def elapsed(state: State, job: Job, now: int) -> int:
    """Return how long a job has run as far as the state shows, without clock jumps and at most until it is killed.

    An agent kills its tasks at their walltime even if it is unreachable.
    """
    if type(job.phase) is not Running:
        return 0
    ran = max(0, now - job.phase.since - (state.facts.jumped - job.phase.jumped))
    walltime = job.walltime
    return ran if walltime is None else min(ran, walltime + job.terms.grace + WALLTIME_SLACK)


def finish(
    state: State, endings: Iterable[JobEnded], now: int, before: Iterable[AnyEvent] = ()
) -> list[AnyEvent]:
    """Return earlier events, the endings, and what follows: arrays that end, jobs that are released or cancelled."""
    events = list(before)
    _Following(state, now, events).end(
        list(endings), [each for each in events if type(each) is MembersDropped]
    )
    return events


class _Array:
    """What events leave of an array."""

    def __init__(self, array: Job, members: Members) -> None:
        self.pending = members.pending
        self.waits = {each.job: each.members for each in members.after}
        """For each array that members wait for, those members."""
        self.live = members.live
        self.cost = array.cost
        self.counts = dict(members.ended)

    @property
    def is_over(self) -> bool:
        """Whether all of its members have ended."""
        return not (self.live or self.pending or any(self.waits.values()))

    def count(self, state: JobState, members: int) -> None:
        """Count members that ended."""
        self.counts[state] = self.counts.get(state, 0) + members

    def drop(self, event: MembersDropped) -> None:
        """Follow the end of members that were not placed."""
        self.pending = ranges.minus(self.pending, event.members)
        self.waits = {job: ranges.minus(still, event.members) for job, still in self.waits.items()}
        self.count(event.state, ranges.size(event.members))

    def free(self, on: JobId, members: ranges.Ranges) -> bool:
        """Let members wait no longer for another array; return whether some of them wait for none now."""
        self.waits[on] = ranges.minus(self.waits[on], members)
        free = ranges.outside(members, self.waits.values())
        self.pending = ranges.union(self.pending, free)
        return bool(free)


class _Following:
    """Finds what follows from endings, until nothing more does."""

    # An ending may cause others: of its array, of members of other arrays, and of jobs that need its success.

    def __init__(self, state: State, now: int, events: list[AnyEvent]) -> None:
        self._state = state
        self._now = now
        self._events = events
        self._arrays: dict[JobId, _Array] = {}
        self._after: dict[JobId, list[JobId]] = {}
        """The remaining dependencies of each job, after these events."""
        self._over: dict[JobId, None] = {}
        self._doomed: dict[JobId, None] = {}
        """Jobs whose end is decided, here or before."""
        self._released: dict[JobId, None] = {}
        self._todo: list[JobEnded] = []
        self._dropped: deque[MembersDropped] = deque()
        """Members that were dropped, of which nothing has followed yet. There may be a long chain of arrays."""

    def end(self, endings: Sequence[JobEnded], dropped: Sequence[MembersDropped]) -> None:
        """Follow endings, and those of members that are dropped besides."""
        self._doomed |= {ending.job: None for ending in endings}
        for event in dropped:
            self._array(self._state.jobs[event.array]).drop(event)
        self._dropped += dropped
        self._follow_dropped()
        self._todo += reversed(endings)
        while self._todo:
            ending = self._todo.pop()
            if ending.job in self._over:
                continue
            self._over[ending.job] = None
            self._events.append(ending)
            if (member := split_member(ending.job)) is not None:
                self._member_ended(ending, *member)
                self._follow_dropped()
            for waiter in self._state.waiters.get(ending.job, ()):
                if waiter not in self._doomed:
                    self._dependency_ended(self._state.jobs[waiter], ending)
                    self._follow_dropped()

    def _array(self, array: Job) -> _Array:
        """Return what is left of an array."""
        if (found := self._arrays.get(array.id)) is None:
            members = array.extra.members
            found = self._arrays[array.id] = _Array(array, Members(0, ()) if members is None else members)
        return found

    def _member_ended(self, ending: JobEnded, array_id: JobId, index: int) -> None:
        """Follow the end of a member: its array may end or go on, and so may members of others with its index."""
        array = self._state.jobs.get(array_id)
        if array is None:
            return
        found = self._array(array)
        found.live -= 1
        found.cost += ending.cost
        found.count(ending.state, 1)
        if found.is_over:
            self._doomed[array.id] = None
            self._todo.append(_end_of_array(array, self._now, found.counts, found.cost, ending.why))
        elif _most(array) == found.live + 1 and found.pending and _waits_alone(array):
            self._release(array)
        if array.id in self._state.member_waiters:
            succeeded = ending.state is JobState.SUCCEEDED
            self._members_ended(array, (Range(index, index),), ending.job, succeeded=succeeded)

    def _drop(self, event: MembersDropped) -> None:
        """Drop members; what follows from that comes next."""
        self._events.append(event)
        self._array(self._state.jobs[event.array]).drop(event)
        self._dropped.append(event)

    def _follow_dropped(self) -> None:
        """Follow the end of members that were dropped, and of those that are dropped because of that."""
        while self._dropped:
            self._followed(self._dropped.popleft())

    def _followed(self, event: MembersDropped) -> None:
        """Follow the end of members that were not placed."""
        array = self._state.jobs[event.array]
        if array.id in self._state.member_waiters:
            which = event.members[0]
            one = member_id(array.id, which.first) if ranges.size(event.members) == 1 else array.id
            self._members_ended(array, event.members, one, succeeded=event.state is JobState.SUCCEEDED)

    def _members_ended(self, array: Job, members: ranges.Ranges, named: JobId, *, succeeded: bool) -> None:
        """Let members of other arrays wait no longer for these, or drop them."""
        for each in tuple(self._state.member_waiters.get(array.id, ())):
            waiter = self._state.jobs[each]
            if each in self._doomed or waiter.extra.members is None:
                continue
            found = self._array(waiter)
            part = ranges.common(found.waits.get(array.id, ()), members)
            if not part:
                continue
            on = next(one.on for one in waiter.extra.members.after if one.job == array.id)
            if on.met(succeeded=succeeded):
                self._events.append(MembersFreed(each, self._now, array.id, part))
                if found.free(array.id, part) and type(waiter.phase) is Waiting:
                    left = self._after.get(each, waiter.extra.after)
                    if not left and _may_go_on(waiter, self._now) and not 0 < _most(waiter) <= found.live:
                        self._release(waiter)
                continue
            why = unmet(named if ranges.size(part) == 1 else array.id, succeeded=succeeded)
            self._drop(MembersDropped(each, self._now, part, JobState.CANCELLED, ITSELF, why))
            if found.is_over:
                self._doomed[each] = None
                self._todo.append(_end_of_array(waiter, self._now, found.counts, found.cost, why))

    def _dependency_ended(self, job: Job, ending: JobEnded) -> None:
        """Follow the end of a job that another one waits for as a whole."""
        wanted = next(each for each in job.extra.after if each.job == ending.job)
        succeeded = ending.state is JobState.SUCCEEDED
        if not wanted.on.met(succeeded=succeeded):
            self._doomed[job.id] = None
            why = unmet(ending.job, succeeded=succeeded)
            left = self._array(job)
            unplaced = ranges.union(
                left.pending, ranges.merged(part for each in left.waits.values() for part in each)
            )
            if unplaced:
                self._drop(MembersDropped(job.id, self._now, unplaced, JobState.CANCELLED, ITSELF))
            self._todo.append(end_unplaced(job.id, job.attempt, job.seq, self._now, JobState.CANCELLED, why))
            return
        self._events.append(DependencyEnded(job.id, ending.job))
        left_of = self._after.setdefault(job.id, [each.job for each in job.extra.after])
        left_of.remove(ending.job)
        if left_of or not _may_go_on(job, self._now):
            return
        found = self._array(job)
        if job.extra.members is None or (found.pending and not 0 < _most(job) <= found.live):
            self._release(job)

    def _release(self, job: Job) -> None:
        """Let a job join the queue, once."""
        if job.id not in self._released:
            self._released[job.id] = None
            self._events.append(JobReleased(job.id, self._now, ITSELF))


def unmet(job: JobId, *, succeeded: bool) -> Reason:
    """Return why a job never starts that needs another end of this one."""
    return DependencySucceeded(job) if succeeded else DependencyFailed(job)


def may_queue(job: Job, now: int) -> bool:
    """Return whether a waiting job has no hold and its time has come; dependencies are checked separately."""
    return _may_go_on(job, now) and not job.waits_for_members


def _may_go_on(job: Job, now: int) -> bool:
    """Return whether a waiting job has no hold and its time has come, if it waits for no member."""
    not_before = job.extra.not_before
    if type(job.phase) is not Waiting or job.phase.by is not None:
        return False
    return not_before is None or not_before <= now


def _waits_alone(array: Job) -> bool:
    """Return whether only the end of a member keeps the rest of an array from the queue."""
    return type(array.phase) is Waiting and array.phase.by is None


def drop_pending(job: Job, now: int, ended: JobState, who: str) -> list[AnyEvent]:
    """Drop all pending members of an array."""
    if job.extra.members is None:
        return []
    unplaced = job.extra.members.unplaced
    return [MembersDropped(job.id, now, unplaced, ended, who)] if unplaced else []


def end_of_dropped(array: Job, now: int, ended: JobState, why: Reason) -> list[JobEnded]:
    """Return the end of an array whose pending members are dropped, if no member is live."""
    if _live(array):
        return []
    return [end_unplaced(array.id, array.attempt, array.seq, now, ended, why, array.cost)]


def drop_members(
    array: Job, now: int, members: ranges.Ranges, who: str
) -> tuple[MembersDropped, list[JobEnded]]:
    """Cancel some pending members of an array, and end the array if nothing of it is left."""
    dropped = MembersDropped(array.id, now, members, JobState.CANCELLED, who)
    if array.extra.members is None:
        return dropped, []
    left = _Array(array, array.extra.members)
    left.drop(dropped)
    if not left.is_over:
        return dropped, []
    return dropped, [_end_of_array(array, now, left.counts, array.cost, CancelledBy(who))]


def _end_of_array(
    array: Job, now: int, counts: dict[JobState, int], cost: int, last: Reason | None
) -> JobEnded:
    """Return the end of an array from the end states of its members; `last` is the reason of the last one."""
    failed = sum(count for state, count in counts.items() if state is not JobState.SUCCEEDED)
    if not failed:
        return JobEnded(array.id, now, JobState.SUCCEEDED, 1, array.seq + 1, None, None, None, cost, Usage())
    worst = next(
        each for each in (JobState.CANCELLED, JobState.TIMED_OUT, JobState.FAILED) if counts.get(each)
    )
    why = last if worst is JobState.CANCELLED and type(last) is CancelledBy else MembersFailed(failed)
    return end_unplaced(array.id, 1, array.seq, now, worst, why, cost)


def _live(array: Job) -> int:
    return array.extra.members.live if array.extra.members is not None else 0


def _most(array: Job) -> int:
    """Return how many members of an array may be live at a time; 0 is all."""
    return array.extra.members.most if array.extra.members is not None else 0
