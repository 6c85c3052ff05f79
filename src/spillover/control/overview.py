"""What a glance at the server needs beyond its lists: how much ends, what is rented by the hour, and who is next.

None of it looks at all that waits: a screen that asks every second costs the same with a queue of a hundred thousand jobs.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

from spillover.control.loop import Loop
from spillover.core.events import AnyEvent, JobEnded
from spillover.core.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.queue.lanes import Walk
from spillover.model.cluster import PER_RATE, Role, rate_of_job
from spillover.model.units import HOUR, MINUTE, SECOND, format_duration, format_time
from spillover.wire.api import ClockView

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
    ids = {job: None for node in state.nodes.values() for job in node.jobs}
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
    line = engine.index.queue
    lanes = (each for each in line.lanes() if project is None or each[1].kind.project == project)
    walk = Walk(lanes, line.jobs, 1, 0)
    found: list[Job] = []
    while len(found) < limit and (following := walk.next()) is not None:
        entry, lane = following
        found.append(engine.state.jobs[entry[2]])
        walk.go_on(lane)
    return found


def clock_view(loop: Loop) -> ClockView:
    """What is believed of the clock of this machine, and why."""
    time = loop.time
    lead, held, wall = time.lead(), time.held(), time.wall()
    votes = loop.clocks.votes(wall, time.monotonic())
    state: Literal["followed", "held", "behind"]
    if held:
        state = "held"
        message = (
            f"the machine's clock jumped ahead by {_about(held)}, too far to be believed, and is not followed: nothing ends, expires or is "
            "deleted for it. Correct it, or have it followed with `spill clock accept`. It is followed by itself once "
            "most machines that agents connect from agree with it"
        )
    elif lead < -MINUTE:
        state = "behind"
        message = (
            f"the machine's clock is {_about(-lead)} behind the server's time, which never goes back and goes on at its pace. Either the "
            "machine's clock is wrong, or a server followed a wrong clock before; docs/operations.md says what can be done then"
        )
    else:
        state, message = "followed", "the server's time follows the machine's clock"
    return ClockView(
        now=format_time(loop.now()),
        wall=format_time(wall),
        state=state,
        differs_s=lead / SECOND,
        agree=votes.agree,
        disagree=votes.disagree,
        message=message,
    )


def _about(span: int) -> str:
    """A long time in words, to the second."""
    return format_duration(span // SECOND * SECOND)
