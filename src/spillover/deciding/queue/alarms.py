"""What time alone changes for a job: its earliest start, its deadline, its walltime, its return from rented capacity, and the end of a backoff.

An alarm is not taken back when it has become void: whoever hears it looks at the job. Void ones are swept out when they are
most of the heap, so that jobs that ended long before their deadline leave nothing behind.
"""

import heapq
from typing import Final

from spillover.core.jobs import Ended, Job, Placed, Running, Waiting
from spillover.core.state import State
from spillover.model.ids import JobId
from spillover.model.job import WALLTIME_SLACK
from spillover.model.units import FOREVER

KINDS: Final = 5
"""Alarms that a job can have at one time, at the most."""
MOVING: Final = frozenset({"walltime", "return"})
"""Kinds that belong to an attempt: set anew for each, and moved by jumps of the clock."""
SPARE: Final = 1024
"""Void entries that are not worth a sweep."""

Alarm = tuple[int, int, str, JobId]
"""Time, number of the job, what falls due, and the job."""


class Alarms:
    """Everything that is to ring."""

    def __init__(self, state: State, back_after: int | None = None) -> None:
        self._state = state
        self._back_after = back_after
        """Nanoseconds on rented capacity after which a job is brought back once; None as a rule."""
        self.heap: list[Alarm] = []
        """The next one first; some are void."""

    def __len__(self) -> int:
        return len(self.heap)

    def copy(self, state: State) -> "Alarms":
        """The same, of a book of its own."""
        own = Alarms(state, self._back_after)
        own.heap = self.heap.copy()
        return own

    def set(self, job: Job) -> None:
        """Let all ring that time will change for a job as it is now."""
        if job.extra.deadline is not None and type(job.phase) is not Ended:
            self._push((job.extra.deadline, job.number, "deadline", job.id))
        if type(job.phase) is Waiting and job.extra.not_before is not None:
            self._push((job.extra.not_before, job.number, "not_before", job.id))
        if job.extra.backoffs and type(job.phase) is not Ended:
            until = min([each.until for each in job.extra.backoffs])
            self._push((until, job.number, "backoff", job.id))
        if (over := self._walltime_over(job)) is not None:
            self._push(over)
        if (back := self._back(job)) is not None:
            self._push(back)

    def rings(self, now: int) -> bool:
        """Whether any may fall due."""
        return bool(self.heap) and self.heap[0][0] <= now

    def due(self, now: int, most: int | None = None) -> list[tuple[str, JobId]]:
        """What falls due, each alarm once; so many at the most."""
        ringing: dict[tuple[str, JobId], None] = {}
        while self.heap and self.heap[0][0] <= now and (most is None or len(ringing) < most):
            alarm = heapq.heappop(self.heap)
            _, _, what, job = alarm
            if what in MOVING:
                late = self._anew(what, self._state.jobs.get(job))
                if late is None:
                    continue  # of an attempt that is over
                if (
                    late != alarm
                ):  # clocks jumped since it was set, or another attempt began: it rings in its turn
                    heapq.heappush(self.heap, late)
                    continue
            ringing[what, job] = None
        return list(ringing)

    def is_due(self, what: str, job: JobId, now: int) -> bool:
        """Whether an alarm that rang before would ring now: one of an attempt that is over does not."""
        if what not in MOVING:
            return True
        late = self._anew(what, self._state.jobs.get(job))
        return late is not None and late[0] <= now

    def next_time(self) -> int:
        """When the next one rings, be it void by then; FOREVER if none does."""
        return self.heap[0][0] if self.heap else FOREVER

    def _push(self, alarm: Alarm) -> None:
        heapq.heappush(self.heap, alarm)
        if len(self.heap) > 2 * KINDS * len(self._state.jobs) + SPARE:
            self.heap = [each for each in dict.fromkeys(self.heap) if self._matters(each)]
            heapq.heapify(self.heap)

    def _matters(self, alarm: Alarm) -> bool:
        job = self._state.jobs.get(alarm[3])
        if job is None or type(job.phase) is Ended:
            return False
        return alarm[2] not in MOVING or alarm == self._anew(alarm[2], job)

    def _anew(self, what: str, job: Job | None) -> Alarm | None:
        """An alarm of a kind that moves, as it would be set now; None if it would not."""
        return self._walltime_over(job) if what == "walltime" else self._back(job)

    def _back(self, job: Job | None) -> Alarm | None:
        """The alarm for the return of a job; None if it is not rented, or was brought back before."""
        if (
            self._back_after is None
            or job is None
            or not isinstance(job.phase, Placed | Running)
            or job.extra.returned
            or not self._state.is_rented(job.phase.cluster)
        ):
            return None
        if type(job.phase) is Running:
            began = job.phase.since + self._state.facts.jumped - job.phase.jumped
        else:
            began = job.phase.at + self._state.clusters[job.phase.cluster].startup
        return began + self._back_after, job.number, "return", job.id

    def _walltime_over(self, job: Job | None) -> Alarm | None:
        """The alarm for the walltime of a job; None if it does not run, or has none."""
        if job is None or type(job.phase) is not Running or (walltime := job.walltime) is None:
            return None
        jumped = self._state.facts.jumped - job.phase.jumped
        at = job.phase.since + jumped + walltime + job.terms.grace + WALLTIME_SLACK
        return at, job.number, "walltime", job.id
