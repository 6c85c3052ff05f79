"""Computes what an overview shows beyond lists: throughput, hourly cost, and the head of the queue.

Nothing here looks at the whole queue, so a screen that refreshes every second costs the same at any queue length.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from spillover import __version__
from spillover.control.live.loop import Loop
from spillover.core.events import AnyEvent, GangPlaced, JobEnded, JobPlaced, MemberPlaced
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.queue.lanes import Walk
from spillover.model.cluster import PER_RATE, Role, rate_of_job
from spillover.model.units import HOUR, MINUTE, SECOND, format_duration, format_time
from spillover.wire.api import ClockView, ServerView

_EACH: Final = SECOND
"""Nanoseconds in one counter of ended jobs."""


class Pace:
    """Counts jobs that ended in the last minute, on the monotonic clock."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._counts: deque[list[int]] = deque()
        """Pairs of a second and the number of jobs that ended in it."""
        loop.listen(self._see)

    def ended(self) -> int:
        """Return how many jobs ended in the last minute; members of arrays count separately."""
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
        """Return whether an array ended, whose members were counted before."""
        job = self._loop.state.jobs.get(event.job)
        return job is not None and job.extra.members is not None


class Waits:
    """The waits of jobs that were placed in the last minutes, on the monotonic clock."""

    KEPT: Final = 15 * MINUTE

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._sums: deque[tuple[int, int, int]] = deque()
        """A second, the jobs that were placed in it, and the nanoseconds that they had waited."""
        loop.listen(self._see)

    def mean(self) -> float | None:
        """Return the mean wait in seconds; None if no job was placed."""
        self._forget()
        count = sum(each for _, each, _ in self._sums)
        return None if not count else sum(each for _, _, each in self._sums) / count / SECOND

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        jobs, count, waited = self._loop.state.jobs, 0, 0
        for event in events:
            if isinstance(event, JobPlaced | GangPlaced | MemberPlaced):
                job = jobs.get(event.array if isinstance(event, MemberPlaced) else event.job)
                if job is not None:
                    count += 1
                    waited += job.waited(event.at)
        if count:
            second = self._loop.time.monotonic() // _EACH
            if self._sums and self._sums[-1][0] == second:
                _, others, before = self._sums.pop()
                count, waited = count + others, waited + before
            self._sums.append((second, count, waited))
            self._forget()  # also while nobody asks

    def _forget(self) -> None:
        oldest = (self._loop.time.monotonic() - self.KEPT) // _EACH
        while self._sums and self._sums[0][0] <= oldest:
            self._sums.popleft()


def placed_jobs(state: State) -> list[Job]:
    """Return all placed jobs, each once, although the tasks of a gang may be on several nodes."""
    ids = {job: None for node in state.nodes.values() for job in node.jobs}
    return [state.jobs[job] for job in ids]


def longest_first(placed: Sequence[Job], limit: int) -> list[Job]:
    """Return the jobs that have run the longest; those that have not started come last."""
    return heapq.nsmallest(limit, placed, key=_began)


def _began(job: Job) -> tuple[bool, int, int]:
    phase = job.phase
    if isinstance(phase, Running):
        return False, phase.since, job.number
    return True, phase.at if isinstance(phase, Placed) else 0, job.number


def cost_an_hour(state: State, placed: Sequence[Job]) -> int:
    """Return the cost per hour of what runs on rented capacity now, in millionths."""
    rate = 0
    for job in placed:
        spec = state.cluster_of(job)
        if spec is not None and spec.role is Role.RENTED and type(job.phase) is Running:
            rate += rate_of_job(spec.price, job.shape)
    return rate * HOUR // PER_RATE


def rent_an_hour(state: State, project: str | None = None) -> int:
    """Return the cost per hour of all that is rented now, in millionths; of a project, what its jobs pay for.

    Looks at what runs on rented machines only. Pools count by their machines, or for a project by the shares of its jobs.
    """
    rented = [spec for spec in state.facts.clusters if spec.role is Role.RENTED]
    pools = [spec.name for spec in rented if spec.pool is not None and project is None]
    names = {spec.name for spec in rented} - set(pools)
    ids = {job: None for node in state.nodes.values() if node.cluster in names for job in node.jobs}
    jobs = [job for each in ids if project in {None, (job := state.jobs[each]).kind.project}]
    machines = sum(each.hour for name in pools for each in state.live_machines(name))
    return cost_an_hour(state, jobs) + machines


def head_of_queue(engine: Engine, limit: int, project: str | None = None) -> list[Job]:
    """Return the queued jobs that a cycle tries first, in order; of one project if it is given."""
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
    """Return whether the server follows the machine's clock, and why."""
    time = loop.time
    lead, held, wall = time.lead(), time.held(), time.wall()
    votes = loop.clocks.votes(wall, time.monotonic())
    state: Literal["followed", "held", "behind"]
    if held:
        state = "held"
        message = (
            f"the machine's clock jumped ahead by {_about(held)}, too far to trust, so the server ignores "
            "it: no job ends, no lease expires and nothing is deleted because of it. Correct the clock, or "
            "accept it with `spill clock accept`. The server accepts it by itself once the clocks of most "
            "agents' machines agree with it"
        )
    elif lead < -MINUTE:
        state = "behind"
        message = (
            f"the machine's clock is {_about(-lead)} behind the server's time, which never goes back and "
            "continues at the clock's pace. Either the machine's clock is wrong, or an earlier server "
            "followed a wrong clock; docs/operations.md says what to do"
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
    """Return a long duration as text, to the second."""
    return format_duration(span // SECOND * SECOND)


def server_view(
    loop: Loop, state: State, currency: str, limits: tuple[int, int], traces: str | None = None
) -> ServerView:
    """Return the server's own state.

    `limits` are the most bytes of the inputs and of the outputs of a job, `traces` what keeps traces from their receiver.
    """
    clock = clock_view(loop)
    return ServerView(
        version=__version__,
        epoch=loop.epoch,
        leader=not loop.lost_lead.is_set(),
        writable=loop.problem is None,
        message=loop.problem,
        currency=currency,
        revision=loop.gate.durable,
        queued=state.queued,
        running=state.running,
        policy=msgspec.to_builtins(state.facts.policies),
        max_inputs=limits[0],
        max_outputs=limits[1],
        clock=None if clock.state == "followed" else clock.message,
        traces=traces,
    )
