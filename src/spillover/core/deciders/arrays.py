"""Decides which members of an array may be in the queue after they came back to it, by its hold and its throttle.

A member that was placed is a job of its own. If it returns to the queue, it waits while its array is held, and while as
many other members are queued, placed or running as may be at a time.
"""

from collections.abc import Iterable, Iterator

from spillover.core.deciders.endings import ITSELF
from spillover.core.events import (
    AnyEvent,
    JobChanged,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
)
from spillover.core.records.jobs import Ended, Job, Queued, Waiting
from spillover.core.state import State
from spillover.model.ids import JobId, split_member


def members_of(state: State, array: Job) -> list[Job]:
    """Return the live members of an array, lowest index first."""
    return [state.jobs[member] for member in sorted(state.members.get(array.id, ()), key=_by_index)]


class _Array:
    """What events leave of the members of an array."""

    def __init__(self, state: State, array: Job) -> None:
        members = array.extra.members
        waiting = [state.jobs[each] for each in state.waiting_members.get(array.id, ())]
        self.most = 0 if members is None else members.most
        self.active = 0 if members is None else members.live - len(waiting)
        """Live members that are queued, placed or running."""
        self.waiting = {job.id: job.phase.by for job in waiting if type(job.phase) is Waiting}
        """Other live members, each with who holds it."""
        self.by = array.phase.by if type(array.phase) is Waiting else None
        """Who holds the array."""
        self.queued: dict[JobId, None] = {}
        """Members that came to the queue, or all in it if the array was held or its throttle was changed."""
        self.left: dict[JobId, None] = {}
        """Members that left it by these events."""
        self.freed: dict[JobId, None] = {}
        """Waiting members whose hold ended with that of the array."""
        self.who = ITSELF
        """Who ended that hold."""

    def follow(self, state: State, array: Job, event: AnyEvent) -> None:
        """Follow an event of the array or of one of its members."""
        match event:
            case JobHeld(job=array.id):
                self._hold(state, array, event.who or None, event.released_by)
            case JobReleased(job=array.id):
                self._hold(state, array, None, event.who)
            case JobChanged(job=array.id):
                if "throttle" in event.changed:
                    self.most = event.throttle
                    self._look(state, array)
            case JobRequeued():
                self.queued[event.job] = None
            case JobReleased():
                if event.job in self.waiting:
                    del self.waiting[event.job]
                    self.queued[event.job] = None
                    self.active += 1
            case JobHeld():
                self._leave(event.job, event.who or None)
            case JobChanged() if event.held:
                self._leave(event.job, None)
            case JobEnded():
                if event.job in self.waiting:
                    del self.waiting[event.job]
                else:
                    self.active -= 1
                self.queued.pop(event.job, None)
                self.left[event.job] = None
            case _:
                pass

    def _hold(self, state: State, array: Job, by: str | None, who: str) -> None:
        """Follow a hold of the whole array, or its end."""
        if by is None and self.by is None:
            return  # one of its members ended, so that another one may begin
        if by is None:
            self.who = who
            self.freed = {member: None for member, holder in self.waiting.items() if holder is not None}
        self.by = by
        self._look(state, array)

    def _look(self, state: State, array: Job) -> None:
        """Look at all members that are in the queue."""
        for each in members_of(state, array):
            if type(each.phase) is Queued and each.id not in self.left:
                self.queued[each.id] = None

    def _leave(self, member: JobId, by: str | None) -> None:
        """Count a member out of the queue."""
        self.active -= member not in self.waiting
        self.waiting[member] = by
        self.queued.pop(member, None)
        self.left[member] = None

    def settled(self, state: State, now: int) -> Iterator[AnyEvent]:
        """Yield what takes members out of the queue or lets them into it."""
        queued = sorted(self.queued, key=_by_index)
        if self.by is not None:
            unheld = [member for member, by in self.waiting.items() if by is None]
            for each in sorted([*queued, *unheld], key=_by_index):
                yield JobHeld(each, now, self.by)
            return
        over = max(0, self.active - self.most) if self.most else 0
        for each in queued[max(0, len(queued) - over) :]:
            yield JobHeld(each, now, "", throttled=True)
        room = max(0, self.most - self.active) if self.most else len(self.waiting)
        for each in sorted(self.waiting, key=_by_index):
            freed = each in self.freed
            if (
                each in self.left
                or not (freed or self.waiting[each] is None)
                or not _may_go_on(state, each, now)
            ):
                continue
            if room:
                room -= 1
                yield JobReleased(each, now, self.who)
            elif freed:
                yield JobHeld(each, now, "", self.who, throttled=True)


def _by_index(member: JobId) -> tuple[int, str]:
    return len(member), member


def _may_go_on(state: State, member: JobId, now: int) -> bool:
    """Return whether a waiting member waits for nothing but its array."""
    extra = state.jobs[member].extra
    return not extra.after and (extra.not_before is None or extra.not_before <= now)


def settle(state: State, events: Iterable[AnyEvent], now: int) -> list[AnyEvent]:
    """Return what events mean for members of arrays that are in the queue or wait to be."""
    arrays: dict[JobId, _Array] = {}
    events = list(events)
    for event in events:
        if (array := _array_of(state, event)) is not None and array.id not in arrays:
            arrays[array.id] = _Array(state, array)
    if not arrays:
        return []
    for event in events:
        found = _of(event)
        if found is not None and (known := arrays.get(found)) is not None:
            known.follow(state, state.jobs[found], event)
    ended = {event.job for event in events if type(event) is JobEnded}
    return [
        each for array, known in arrays.items() if array not in ended for each in known.settled(state, now)
    ]


def _of(event: AnyEvent) -> JobId | None:
    """Return the array of an event about a member, or the job of one about an array or another job."""
    if not isinstance(event, JobRequeued | JobEnded | JobHeld | JobReleased | JobChanged):
        return None
    member = split_member(event.job)
    return event.job if member is None else member[0]


def _array_of(state: State, event: AnyEvent) -> Job | None:
    """Return the array whose members an event may take out of the queue or let into it; None if it has none."""
    found = _of(event)
    array = None if found is None else state.jobs.get(found)
    if array is None or array.extra.members is None or type(array.phase) is Ended:
        return None
    if not isinstance(event, JobRequeued | JobReleased) and array.id not in state.waiting_members:
        # Most members end while no other one waits; what a person does to an array may take members out of the queue.
        return array if array.id in state.members and not isinstance(event, JobEnded) else None
    return array
