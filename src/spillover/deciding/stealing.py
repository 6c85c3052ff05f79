"""Proposes which unstarted leases idle agents should take over from busy ones.

Jobs wait at the server and agents prefetch few leases, so stealing matters in the tail: a task that runs longer than
the ones before it blocks the leases queued behind it, while another agent is idle. The function is pure, and the engine
decides its proposals like any other.
"""

import heapq
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

from spillover.core.events import Lease
from spillover.core.holding import ahead_of, free_capacity, names_gpus, revoked_from, slots_of
from spillover.core.proposals import AskSteal
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.deciding.cycle.draws import mixed
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.admission import matches, offered
from spillover.model.ids import ClusterName, JobId, job_of_task
from spillover.model.pools import MARKET_LABEL, SPOT
from spillover.model.resources import Resources
from spillover.model.units import SECOND

MOVING: Final = SECOND // 50
"""Shortest time in nanoseconds until a stolen lease can start elsewhere: two requests and two writes."""
SAMPLED: Final = 3
"""How many agents a thief looks at before it chooses one."""
MANY: Final = 256
"""With more lanes than this, assume that a queued job fits instead of checking each lane."""


def no_transfer_time(job: Job) -> int:
    """Return 0 nanoseconds for the transfer of a job's files: the default if the transfer time is unknown."""
    del job
    return 0


class _Held(NamedTuple):
    """A lease that a thief could take."""

    start: int
    """Nanoseconds until it would start on its present agent."""
    expected: int
    """Expected runtime in nanoseconds."""
    job: Job


class _Victim:
    """An agent with leases that it has not started."""

    def __init__(self, state: State, node: Node, now: int) -> None:
        self.node = node
        starts = _starts(state, node, now)
        self.backlog = starts[-1].start
        """Nanoseconds until it has started all of its leases."""
        wanted = [
            each for each in starts if type(each.job.phase) is Placed and each.job.phase.thief is not None
        ]
        self.left = len(starts) // 2 - len(wanted)
        """How many more leases may be stolen from it: at most half of those it holds."""
        self.leases = [each for each in starts[1:] if _is_free(each.job)]
        """Leases that may be stolen, in starting order. The next one to start is never among them."""


class _Thief:
    """An agent with free capacity, and the leases that it could prefetch."""

    def __init__(
        self, node: Node, coming: Collection[Resources], horizon: int, barred: Callable[[Job], bool]
    ) -> None:
        self.node = node
        self._barred = barred
        """Returns whether it is closed to a job."""
        self.offers = offered(node.offers)
        self.room = free_capacity(node)
        for resources in coming:
            self.room = self.room - resources
        self.spare = ahead_of(node, horizon) - len(coming)
        """How many more leases it can prefetch."""
        self.work = 0
        """Nanoseconds of work that it has asked for, over all of its CPUs."""

    def wants(self, held: _Held, carried: int) -> bool:
        """Return whether a lease starts sooner here; if so, count it."""
        shape = held.job.kind.shape
        if not self.offers.issuperset(shape.needs) or not shape.resources.fits(self.node.capacity):
            return False
        if shape.rules is not None and not matches(
            shape.rules, self.node.name, self.node.labels, self.offers
        ):
            return False
        if self._barred(held.job) or (shape.resources.gpu and names_gpus(self.node)):
            return False
        fits = shape.resources.fits(self.room)
        later = 0 if fits else self.work // slots_of(self.node)
        if held.start <= MOVING + carried + later or (not fits and self.spare <= 0):
            return False
        if fits:
            self.room = self.room - shape.resources
        else:
            self.spare -= 1
        self.work += held.expected
        return True


def choose(
    state: State,
    index: SchedulingIndex,
    now: int,
    seed: int,
    *,
    spared: Collection[JobId] = (),
    carrying: Callable[[Job], int] = no_transfer_time,
) -> list[AskSteal]:
    """Return the leases that idle agents should ask busy agents for.

    `seed` draws the agents that a thief looks at. Jobs in `spared` are left alone. `carrying` returns the transfer time
    of a job's files.
    """
    asked: list[AskSteal] = []
    for cluster, nodes in _by_cluster(state).items():
        busy = [node for node in nodes if len(node.ahead) > 1]
        idle = [node for node in nodes if not node.ahead and _has_room(node)] if busy else []
        idle = [node for node in idle if not _is_wanted(index, node)]
        if not idle:
            continue
        victims = [_Victim(state, node, now) for node in busy]
        coming = _coming(state, nodes)
        for node in idle:
            victim = _drawn(victims, mixed(seed, len(asked)))
            if victim is None:
                break
            barred = partial(_is_barred, index, node, now)
            thief = _Thief(node, coming.get(node.name, ()), state.facts.ahead, barred)
            asked += _take(cluster, thief, victim, spared, carrying)
    return asked


def _by_cluster(state: State) -> dict[ClusterName, list[Node]]:
    """Group the agents that accept work by cluster; skip clusters with only one."""
    nodes: dict[ClusterName, list[Node]] = {}
    for node in state.agents.values():
        if node.status == "ready":
            nodes.setdefault(node.cluster, []).append(node)
    return {cluster: each for cluster, each in nodes.items() if len(each) > 1}


def _has_room(node: Node) -> bool:
    return node.used.cpu < node.capacity.cpu and not node.alone


def _is_barred(index: SchedulingIndex, node: Node, now: int, job: Job) -> bool:
    """Return whether an agent must not steal a job now: for an advance reservation, or because it is kept for a gang."""
    if job.kind.shape.reservation or node.name in index.capacity[node.cluster].earmarks:
        return True
    if job.extra.deadline is not None and node.labels.get(MARKET_LABEL) == SPOT:
        return True  # it may have been kept off spot machines
    windows = index.capacity[node.cluster].by_name[node.name].windows if index.windowed else ()
    until = revoked_from(now, index.state.facts.ahead) + index.length(job)
    return any(window.bars(index.requester(job), now, until) for window in windows)


def _is_wanted(index: SchedulingIndex, node: Node) -> bool:
    """Return whether a queued job may need the free capacity of an agent: queued jobs come first."""
    lanes = index.queue.first
    if not lanes:
        return False
    if index.in_turn or len(lanes) > MANY:
        return True
    machine = index.capacity[node.cluster].by_name[node.name]
    return any(machine.fits(lane.kind.shape) for lane in lanes)


def _coming(state: State, nodes: Iterable[Node]) -> dict[str, list[Resources]]:
    """For each agent, collect the resources of leases that it has asked for but not received."""
    coming: dict[str, list[Resources]] = {}
    for node in nodes:
        for held in (node.holding, node.ahead):
            for key, resources in held.items():
                phase = state.jobs[job_of_task(key)].phase
                if type(phase) is Placed and phase.thief is not None:
                    coming.setdefault(phase.thief, []).append(resources)
    return coming


def _drawn(victims: list[_Victim], bits: int) -> _Victim | None:
    """Draw a few victims and return the one with the largest backlog; None if none has leases to give."""
    able = [victim for victim in victims if victim.left > 0 and victim.leases]
    if not able:
        return None
    first = bits % len(able)
    few = [able[(first + step) % len(able)] for step in range(min(SAMPLED, len(able)))]
    return max(few, key=lambda victim: victim.backlog)


def _take(
    cluster: ClusterName,
    thief: _Thief,
    victim: _Victim,
    spared: Collection[JobId],
    carrying: Callable[[Job], int],
) -> list[AskSteal]:
    """Return what one agent asks of another, last leases first, while they start sooner on the thief."""
    asked: list[AskSteal] = []
    for held in reversed(tuple(victim.leases)):
        job = held.job
        if victim.left <= 0 or held.start <= MOVING:
            break
        if job.id in spared or not thief.wants(held, carrying(job)):
            continue
        victim.leases.remove(held)
        victim.left -= 1
        lease = Lease(job.id, job.attempt, job.seq)
        asked.append(AskSteal(cluster, victim.node.name, lease, thief.node.name))
    return asked


def _is_free(job: Job) -> bool:
    """Return whether a lease may be stolen: not asked for already, not stopping, revoked, rentable or bound to levels."""
    phase = job.phase
    return (
        type(phase) is Placed
        and phase.thief is None
        and phase.stopping is None
        and not phase.revoked
        and job.due is None
        and job.kind.shape.topology is None
    )


def _starts(state: State, node: Node, now: int) -> list[_Held]:
    """Return when the prefetched leases of an agent would start there, in their order."""
    ends = [
        (_left(state.jobs[job_of_task(each)], node, now), at, asked)
        for at, (each, asked) in enumerate(node.holding.items())
    ]
    heapq.heapify(ends)
    free, time, count = free_capacity(node), 0, len(ends)
    starts: list[_Held] = []
    for key, asked in node.ahead.items():
        job = state.jobs[job_of_task(key)]
        # Simulate the agent: each lease starts when enough of the tasks before it have ended.
        while not asked.fits(free) and ends:
            ended, _, resources = heapq.heappop(ends)
            time, free = max(time, ended), free + resources
        expected = _expected(job, node)
        starts.append(_Held(time, expected, job))
        count += 1
        heapq.heappush(ends, (time + expected, count, asked))
        free = free - asked
    return starts


def _expected(job: Job, node: Node) -> int:
    """Return the expected runtime in nanoseconds: the job's estimate, that of similar jobs, or the agent's pace."""
    expected = job.terms.estimate or job.predicted or node.pace
    return expected if job.terms.walltime is None else min(expected, job.terms.walltime)


def _left(job: Job, node: Node, now: int) -> int:
    """Return the nanoseconds that a task still runs; one that runs longer than expected counts as half done."""
    expected = _expected(job, node)
    if type(job.phase) is not Running:
        return expected
    ran = max(0, now - job.phase.since)
    return expected - ran if ran < expected else ran
