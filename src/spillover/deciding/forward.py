"""Runs the scheduler forward on a snapshot: when waiting jobs start if running jobs end at given times.

The snapshot decides as the live engine would, with its policies, so the answer holds for every policy, for gangs, arrays
and dependencies. Nobody submits more jobs meanwhile, no machine fails, and machines that are ordered boot as usual.
"""

import heapq
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.core.events import (
    AnyEvent,
    GangPlaced,
    JobPlaced,
    JobRequeued,
    JobStopping,
    LeasesRevoked,
    MachinesEnding,
    MachinesWanted,
    MemberPlaced,
    Usage,
)
from spillover.core.pool_proposals import SeeGone
from spillover.core.proposals import DRIVER, HandBack, Outcome, Proposal, Register, Result
from spillover.core.records.jobs import Job, Placed, Running, Waiting
from spillover.core.records.machines import RentedMachine
from spillover.deciding.engine import Engine
from spillover.deciding.explain.explain import Decider
from spillover.deciding.forecast.estimates import began_at
from spillover.deciding.queue.lanes import Walk
from spillover.deciding.renting.offers import ASSUMED
from spillover.deciding.renting.room import is_coming
from spillover.model.ids import JobId, NodeKey, NodeName, member_id, node_key, split_member, task_key
from spillover.model.pools import MachineId, machine_number
from spillover.model.units import FOREVER, MINUTE

FEW: Final = 5000
"""Up to this many jobs, a forecast also looks for jobs that are not queued yet."""

Runtime: TypeAlias = Callable[[Job, int], int]
"""Returns how long a job runs in all, nanoseconds, if it has run for the second argument already."""


class Starts(Struct, frozen=True):
    """When waiting jobs would start."""

    at: dict[JobId, int]
    """Nanoseconds UTC. An array has the start of its next member, and members have their own."""
    steps: int
    """How many steps the scheduler took."""


def first_jobs(engine: Decider, most: int) -> list[JobId]:
    """Return the first jobs of the queue, at most `most`; in a small state, then those that are not queued yet."""
    index, jobs = engine.index, engine.state.jobs
    found: list[JobId] = []
    for queue in (index.queue, index.due):
        walk = Walk(queue.lanes(), queue.jobs, FOREVER, len(queue.first))
        while len(found) < most and (each := walk.next()) is not None:
            entry, lane = each
            found.append(entry[2])
            walk.go_on(lane)
    if len(jobs) <= FEW:
        found += [job.id for job in jobs.values() if type(job.phase) is Waiting and job.phase.by is None]
    return list(dict.fromkeys(found))[:most]


def as_expected(engine: Engine) -> Runtime:
    """Return the runtimes that the scheduler expects; a job that has run longer is expected to end in a minute."""

    def runtime(job: Job, ran: int) -> int:
        expected = engine.index.runs(job)
        return expected if expected > ran else ran + MINUTE

    return runtime


def run_forward(
    engine: Engine,
    now: int,
    wanted: Collection[JobId],
    runtime: Runtime,
    most: int,
    enough: Callable[[], bool] | None = None,
) -> Starts:
    """Let a snapshot go on until all wanted jobs have started, or nothing happens any more.

    It stops earlier after `most` steps, or when `enough` says so.
    """
    return _Forward(engine, runtime).run(max(now, engine.now), wanted, most, enough)


class _Forward:
    """A snapshot, and what happens on its clusters."""

    def __init__(self, engine: Engine, runtime: Runtime) -> None:
        self._engine = engine
        self._state = engine.state
        self._runtime = runtime
        self._ends: list[tuple[int, int, JobId, int]] = []
        """Heap of the end of each task that runs, with the number, id and seq of its job."""
        self._prefetched: dict[JobId, None] = {}
        """Jobs leased to a node that has no room for them yet."""
        self._next: list[Proposal] = []
        """What agents report at once."""
        self._starts: dict[JobId, int] = {}
        self._joins: list[tuple[int, int, MachineId]] = []
        """Heap of when machines that were ordered are ready, with their number."""
        self._incarnations = engine.state.facts.incarnations

    def run(
        self, now: int, wanted: Collection[JobId], most: int, enough: Callable[[], bool] | None
    ) -> Starts:
        """See run_forward."""
        engine, ends, starts = self._engine, self._ends, self._starts
        for job in {job: None for node in self._state.nodes.values() for job in node.jobs}:
            self._look_at(self._state.jobs[job], now)
        for machine in self._state.machines.values():
            if is_coming(machine):
                self._join_at(machine, now)
        left = dict.fromkeys(wanted)
        steps = 0
        while steps < most and not (enough is not None and enough()):
            step = engine.step(now, [*self._next, *self._due(now)])
            steps += 1
            self._next.clear()
            before = len(starts)
            self._follow(step.events, now)
            if len(starts) > before:
                left = {job: None for job in left if job not in starts}
            if not left:
                break
            if not self._next:
                now = min(ends[0][0] if ends else FOREVER, engine.next_time())
                now = min(now, self._joins[0][0]) if self._joins else now
            if now >= FOREVER:
                break
        return Starts(starts, steps)

    def _look_at(self, job: Job, now: int) -> None:
        """Note when a job on a node ends, or that it waits for room there."""
        phase = job.phase
        if not isinstance(phase, Placed | Running):
            return
        if self._waits_for_room(job, phase):
            self._prefetched[job.id] = None
            return
        began = began_at(phase, self._state.facts.jumped)
        if type(phase) is Placed:
            began += self._startup(job)
        at = now + job.terms.grace if phase.stopping is not None else FOREVER
        ran = max(0, now - began)
        self._end_at(job, min(at, began + max(ran, self._runtime(job, ran))))

    def _waits_for_room(self, job: Job, phase: Placed | Running) -> bool:
        node = self._state.nodes.get(node_key(phase.cluster, phase.node))
        return node is not None and task_key(job.id, job.attempt) in node.ahead

    def _end_at(self, job: Job, at: int) -> None:
        heapq.heappush(self._ends, (at, job.number, job.id, job.seq))

    # --- what the clusters report

    def _due(self, now: int) -> list[Proposal]:
        """Return the reports of tasks that end now."""
        ends, reports = self._ends, list[Proposal]()
        while self._joins and self._joins[0][0] <= now:
            reports += self._joined(heapq.heappop(self._joins)[2])
        while ends and ends[0][0] <= now:
            _, _, job_id, seq = heapq.heappop(ends)
            job = self._state.jobs.get(job_id)
            if job is not None and job.seq == seq and isinstance(job.phase, Placed | Running):
                reports += self._ended(job, job.phase, now)
        return reports

    def _ended(self, job: Job, phase: Placed | Running, now: int) -> list[Proposal]:
        """Return the reports that all tasks of a job have ended, successfully unless they were asked to stop."""
        stopped = phase.stopping is not None
        outcome, code = (Outcome.STOPPED, None) if stopped else (Outcome.EXITED, 0)
        usage = Usage(max(0, now - began_at(phase, self._state.facts.jumped)))
        return [
            Result(node, job.lease_of(rank), outcome, code, None, usage, 0)
            for rank, node in self._reporters(job, phase)
        ]

    def _reporters(self, job: Job, phase: Placed | Running) -> list[tuple[int, NodeKey]]:
        """Return who reports on which task: the agent of each, or the driver of a cluster for all."""
        if self._state.health(phase.cluster) is not None:
            return [(0, DRIVER)]
        return [(task.rank, node_key(phase.cluster, task.node)) for task in job.tasks if task.lives]

    # --- machines of pools

    def _join_at(self, machine: RentedMachine, now: int) -> None:
        """Note when a machine that was ordered is ready: after the usual boot time."""
        spec = self._state.clusters.get(machine.cluster)
        if spec is not None and spec.pool is not None:
            boot = self._state.pool(machine.cluster).boot(spec.pool, machine.offer.key)
            number = machine_number(machine.id)
            heapq.heappush(self._joins, (max(now, machine.wanted_at + boot), number, machine.id))

    def _joined(self, machine_id: MachineId) -> list[Proposal]:
        """Return the registration of the agent of a machine, unless the machine was given up."""
        machine = self._state.machines.get(machine_id)
        if machine is None or not is_coming(machine) or machine.is_cluster:
            return []
        self._incarnations += 1
        record, offer = self._state.pools.get(machine.cluster), machine.offer
        seen = None if record is None else record.seen.get(offer.key)
        capacity, words, labels = (
            (offer.resources, tuple(sorted({*offer.words, *ASSUMED})), offer.agent_labels)
            if seen is None
            else (seen.resources, seen.words, seen.labels)
        )
        name = NodeName(machine.id)
        return [
            Register(machine.cluster, name, self._incarnations, capacity, words, labels, 0, (), admin=True)
        ]

    # --- what the scheduler decides

    def _follow(self, events: Iterable[AnyEvent], now: int) -> None:  # noqa: C901 - one case for each event
        """Carry out decisions as obedient clusters would."""
        jobs = self._state.jobs
        for event in events:
            match event:
                case JobPlaced() | GangPlaced():
                    job = jobs[event.job]
                    if isinstance(job.phase, Placed) and job.seq == event.seq:
                        self._placed(job, job.phase, now)
                case MemberPlaced():
                    member = jobs[member_id(event.array, event.index)]
                    if isinstance(member.phase, Placed):
                        self._placed(member, member.phase, now)
                case JobStopping():
                    job = jobs[event.job]
                    if isinstance(job.phase, Placed | Running):
                        self._next += self._ended(job, job.phase, now)
                case JobRequeued():
                    self._prefetched.pop(event.job, None)
                case MachinesWanted():
                    for wish in event.wishes:
                        self._join_at(self._state.machines[wish.machine], now)
                case MachinesEnding():
                    self._next += [SeeGone(event.cluster, each) for each in event.machines]
                case LeasesRevoked():
                    self._hand_back([jobs[each] for each in event.jobs])
        if self._prefetched:
            self._start_prefetched(now)

    def _placed(self, job: Job, phase: Placed, now: int) -> None:
        if self._waits_for_room(job, phase):
            self._prefetched[job.id] = None
        else:
            self._start(job, now)

    def _start(self, job: Job, now: int) -> None:
        """Note the start of a job, and when it ends."""
        start = now + self._startup(job)
        self._starts.setdefault(job.id, start)
        member = split_member(job.id)
        if member is not None:
            self._starts.setdefault(member[0], start)
        self._end_at(job, start + self._runtime(job, 0))

    def _startup(self, job: Job) -> int:
        """Return how long a machine of its cluster takes to start, nanoseconds."""
        spec = self._state.cluster_of(job)
        return 0 if spec is None else spec.startup

    def _hand_back(self, revoked: list[Job]) -> None:
        """Return leases that have not started, as agents do when they are asked."""
        for job in revoked:
            phase = job.phase
            if isinstance(phase, Placed) and self._waits_for_room(job, phase):
                self._prefetched.pop(job.id, None)
                self._next.append(HandBack(node_key(phase.cluster, phase.node), (job.lease,)))

    def _start_prefetched(self, now: int) -> None:
        """Start prefetched jobs whose node has room for them now."""
        for each in list(self._prefetched):
            job = self._state.jobs.get(each)
            if job is None or not isinstance(job.phase, Placed):
                del self._prefetched[each]
            elif not self._waits_for_room(job, job.phase):
                del self._prefetched[each]
                self._start(job, now)
