"""Alarms for what time alone changes about a job: its earliest start, deadline, walltime, return and backoffs.

An alarm stays in the heap when it becomes void; the receiver checks the job. Void alarms are removed when they
are most of the heap, so that jobs that ended long before their deadlines leave nothing behind.
"""

import heapq
from typing import Final

from spillover.core.records.jobs import Ended, Job, Placed, Running, Waiting
from spillover.core.state import State
from spillover.deciding.queue.heaps import SPARE
from spillover.model.ids import JobId
from spillover.model.job import WALLTIME_SLACK
from spillover.model.reservation import AdvanceReservation
from spillover.model.units import FOREVER

KINDS: Final = 5
"""The most alarms that one job can have at a time."""
MOVING: Final = frozenset({"walltime", "return"})
"""Alarms of an attempt. Each attempt sets them again, and clock jumps move them."""
RESERVATION: Final = "reservation"
"""The alarm for the end of an advance reservation, with its name in place of a job."""

Alarm = tuple[int, int, str, JobId]
"""Time, number of the job, kind of alarm, and job."""


class Alarms:
    """The alarms of all jobs."""

    def __init__(self, state: State, back_after: int | None = None) -> None:
        self._state = state
        self._back_after = back_after
        """Nanoseconds on rented capacity after which a job returns to the queue, once; None if it never does."""
        self.heap: list[Alarm] = []
        """Heap of alarms, the next one first; some are void."""

    def __len__(self) -> int:
        return len(self.heap)

    def copy(self, state: State) -> "Alarms":
        """Return a copy for another state."""
        own = Alarms(state, self._back_after)
        own.heap = self.heap.copy()
        return own

    def set(self, job: Job) -> None:
        """Set all alarms that a job needs in its present phase."""
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

    def end_of(self, reservation: AdvanceReservation) -> None:
        """Set the alarm for the end of an advance reservation."""
        self._push((reservation.end, 0, RESERVATION, JobId(reservation.name)))

    def rings(self, now: int) -> bool:
        """Return whether an alarm may be due."""
        return bool(self.heap) and self.heap[0][0] <= now

    def due(self, now: int, most: int | None = None) -> list[tuple[str, JobId]]:
        """Remove and return due alarms, each once, at most `most` of them."""
        ringing: dict[tuple[str, JobId], None] = {}
        while self.heap and self.heap[0][0] <= now and (most is None or len(ringing) < most):
            alarm = heapq.heappop(self.heap)
            _, _, what, job = alarm
            if what in MOVING:
                late = self._recomputed(what, self._state.jobs.get(job))
                if late is None:
                    continue  # its attempt is over
                if late != alarm:  # a clock jump or a new attempt has moved it: set it again
                    heapq.heappush(self.heap, late)
                    continue
            ringing[what, job] = None
        return list(ringing)

    def is_due(self, what: str, job: JobId, now: int) -> bool:
        """Return whether an alarm that rang before is still due; not if its attempt is over."""
        if what not in MOVING:
            return True
        late = self._recomputed(what, self._state.jobs.get(job))
        return late is not None and late[0] <= now

    def next_time(self) -> int:
        """Return the time of the next alarm, void or not; FOREVER if there is none."""
        return self.heap[0][0] if self.heap else FOREVER

    def _push(self, alarm: Alarm) -> None:
        heapq.heappush(self.heap, alarm)
        if len(self.heap) > 2 * KINDS * len(self._state.jobs) + SPARE:
            self.heap = [each for each in dict.fromkeys(self.heap) if self._matters(each)]
            heapq.heapify(self.heap)

    def _matters(self, alarm: Alarm) -> bool:
        if alarm[2] == RESERVATION:
            return alarm[3] in self._state.reservations
        job = self._state.jobs.get(alarm[3])
        if job is None or type(job.phase) is Ended:
            return False
        return alarm[2] not in MOVING or alarm == self._recomputed(alarm[2], job)

    def _recomputed(self, what: str, job: Job | None) -> Alarm | None:
        """Return a walltime or return alarm as it would be set now; None if it would not be set."""
        return self._walltime_over(job) if what == "walltime" else self._back(job)

    def _back(self, job: Job | None) -> Alarm | None:
        """Return the alarm for the return of a job; None if it is not rented, or has returned before."""
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
        """Return the walltime alarm of a job; None if the job does not run or has no walltime."""
        if job is None or type(job.phase) is not Running or (walltime := job.walltime) is None:
            return None
        jumped = self._state.facts.jumped - job.phase.jumped
        at = job.phase.since + jumped + walltime + job.terms.grace + WALLTIME_SLACK
        return at, job.number, "walltime", job.id
