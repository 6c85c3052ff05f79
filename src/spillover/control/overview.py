"""What a glance at the server needs beyond its lists: how much ends, what is rented by the hour, and who is next.

None of it looks at all that waits: a screen that asks every second costs the same with a queue of a hundred thousand jobs.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final

from spillover.control.loop import Loop
from spillover.core.events import AnyEvent, JobEnded
from spillover.core.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.lanes import Walk
from spillover.model.cluster import PER_RATE, Role, rate_of_job
from spillover.model.units import HOUR, MINUTE, SECOND

_EACH: Final = SECOND
"""Nanoseconds whose endings are counted together."""


class Pace:
    """How many jobs ended in the last minute, by the monotonic clock."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._counts: deque[list[int]] = deque()
        """For each second in which any ended: the second, and how many."""
        loop.listen(self._see)

    def ended(self) -> int:
        """Jobs that ended in the last minute, members of arrays one by one."""
        self._forget(self._second())
        return sum(count for _, count in self._counts)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        count = sum(type(event) is JobEnded and not self._is_array(event) for event in events)
        if not count:
            return
        second = self._second()
        if self._counts and self._counts[-1][0] == second:
            self._counts[-1][1] += count
        else:
            self._forget(second)
            self._counts.append([second, count])

    def _second(self) -> int:
        return self._loop.time.monotonic() // _EACH

    def _forget(self, second: int) -> None:
        while self._counts and self._counts[0][0] <= second - MINUTE // _EACH:
            self._counts.popleft()

    def _is_array(self, event: JobEnded) -> bool:
        """Whether an array ended, whose members were counted."""
        job = self._loop.state.jobs.get(event.job)
        return job is not None and job.extra.members is not None


def placed_jobs(state: State) -> list[Job]:
    """Jobs that an agent has, each once: the tasks of a gang may be on several."""
    ids = {job: None for node in state.nodes.values() for job in (*node.holding, *node.ahead)}
    return [state.jobs[job] for job in ids]


def longest_first(placed: Sequence[Job], limit: int) -> list[Job]:
    """The first of those that run, by when they began; those that have not started come last."""
    return heapq.nsmallest(limit, placed, key=_began)


def _began(job: Job) -> tuple[bool, int, int]:
    phase = job.phase
    if isinstance(phase, Running):
        return False, phase.since, job.number
    return True, phase.at if isinstance(phase, Placed) else 0, job.number


def cost_an_hour(state: State, placed: Sequence[Job]) -> int:
    """Millionths that an hour costs of what runs on rented capacity now."""
    rate = 0
    for job in placed:
        spec = state.cluster_of(job)
        if spec is not None and spec.role is Role.RENTED and type(job.phase) is Running:
            rate += rate_of_job(spec.price, job.kind.shape)
    return rate * HOUR // PER_RATE


def head_of_queue(engine: Engine, limit: int, project: str | None = None) -> list[Job]:
    """The queued jobs that are tried first, in that order: of all projects, or of one."""
    line = engine.board.queue
    lanes = (each for each in line.lanes() if project is None or each[1].kind.project == project)
    walk = Walk(lanes, line.jobs, 1, 0)
    found: list[Job] = []
    while len(found) < limit and (following := walk.next()) is not None:
        entry, lane = following
        found.append(engine.state.jobs[entry[2]])
        walk.go_on(lane)
    return found
