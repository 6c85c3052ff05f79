"""Which leases idle agents should take over from busy ones. Pure: what is proposed is decided like anything else.

What waits stays with the server, and little is prefetched, so this is for the tail: a task that runs longer than
those before it keeps what was handed out behind it from starting, while another agent has nothing to do.
"""

import heapq
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from spillover.core.book import ahead_of, room_of, slots_of
from spillover.core.events import Lease
from spillover.core.jobs import Job, Placed, Running
from spillover.core.nodes import Node
from spillover.core.proposals import AskSteal
from spillover.core.state import State
from spillover.deciding.cycle.draws import mixed
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.admission import matches
from spillover.model.ids import ClusterName, JobId, job_of_task
from spillover.model.resources import Resources
from spillover.model.units import SECOND

MOVING: Final = SECOND // 50
"""Nanoseconds that it takes at the least until a lease that was asked for starts elsewhere: two questions, and two writes."""
SAMPLED: Final = 3
"""Agents that a thief looks at before it chooses."""
MANY: Final = 256
"""Kinds of queued jobs of which it is not found out whether one fits."""


def nothing_to_carry(job: Job) -> int:
    """Nanoseconds for what a job brings along, if nobody knows of any."""
    del job
    return 0


class _Held(NamedTuple):
    """A lease that may be taken."""

    start: int
    """Nanoseconds until it would start where it is."""
    expected: int
    """Nanoseconds that it is expected to run."""
    job: Job


class _Victim:
    """An agent with work that it has not begun."""

    def __init__(self, state: State, node: Node, now: int) -> None:
        self.node = node
        starts = _starts(state, node, now)
        self.backlog = starts[-1].start
        """Nanoseconds until it has begun all that it holds."""
        wanted = [
            each for each in starts if type(each.job.phase) is Placed and each.job.phase.thief is not None
        ]
        self.left = len(starts) // 2 - len(wanted)
        """How many more may be asked for: half of what it holds, at the most."""
        self.leases = [each for each in starts[1:] if _is_free(each.job)]
        """Never what starts next; the last one is what waits the longest."""


class _Thief:
    """An agent with room, and what it would do with more than fits."""

    def __init__(self, node: Node, coming: Collection[Resources], horizon: int) -> None:
        self.node = node
        self.offers = frozenset(node.offers)
        self.room = room_of(node)
        for resources in coming:
            self.room = self.room - resources
        self.spare = ahead_of(node, horizon) - len(coming)
        """How many it prefetches."""
        self.work = 0
        """Nanoseconds of work that it asked for, on all of its CPUs together."""

    def wants(self, held: _Held, carried: int) -> bool:
        """Whether a lease starts sooner here; it is counted if so."""
        shape = held.job.kind.shape
        if not self.offers.issuperset(shape.needs) or not shape.resources.fits(self.node.capacity):
            return False
        if shape.rules is not None and not matches(shape.rules, self.node.name, self.node.labels):
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
    carrying: Callable[[Job], int] = nothing_to_carry,
) -> list[AskSteal]:
    """What idle agents should ask busy ones for.

    `seed` draws whom a thief looks at; `spared` are jobs not to be asked for now; `carrying` is how long what a job needs is under way.
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
            thief = _Thief(node, coming.get(node.name, ()), state.facts.ahead)
            asked += _take(cluster, thief, victim, spared, carrying)
    return asked


def _by_cluster(state: State) -> dict[ClusterName, list[Node]]:
    """Agents that may be given work, where there are several."""
    nodes: dict[ClusterName, list[Node]] = {}
    for node in state.agents.values():
        if node.status == "ready":
            nodes.setdefault(node.cluster, []).append(node)
    return {cluster: each for cluster, each in nodes.items() if len(each) > 1}


def _has_room(node: Node) -> bool:
    return node.used.cpu < node.capacity.cpu


def _is_wanted(index: SchedulingIndex, node: Node) -> bool:
    """Whether something queued may want the room of an agent: that comes first."""
    lanes = index.queue.first
    if not lanes:
        return False
    if index.in_turn or len(lanes) > MANY:
        return True
    machine = index.capacity[node.cluster].by_name[node.name]
    return any(machine.fits(lane.kind.shape) for lane in lanes)


def _coming(state: State, nodes: Iterable[Node]) -> dict[str, list[Resources]]:
    """What each agent has asked for and not been given yet."""
    coming: dict[str, list[Resources]] = {}
    for node in nodes:
        for held in (node.holding, node.ahead):
            for key, resources in held.items():
                phase = state.jobs[job_of_task(key)].phase
                if type(phase) is Placed and phase.thief is not None:
                    coming.setdefault(phase.thief, []).append(resources)
    return coming


def _drawn(victims: list[_Victim], bits: int) -> _Victim | None:
    """Of a few that are drawn, the one with the most to do that has anything to give; None if nobody has."""
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
    """What one agent asks of another: the last ones first, as many as start sooner for it."""
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
    """Whether a lease may be asked for: nobody has, it is not to be stopped, and it does not rather go and be rented."""
    phase = job.phase
    return (
        type(phase) is Placed
        and phase.thief is None
        and phase.stopping is None
        and not phase.revoked
        and job.due is None
    )


def _starts(state: State, node: Node, now: int) -> list[_Held]:
    """When the prefetched leases of an agent would start there, in its order."""
    ends = [
        (_left(state.jobs[job_of_task(each)], node, now), at, asked)
        for at, (each, asked) in enumerate(node.holding.items())
    ]
    heapq.heapify(ends)
    free, time, count = room_of(node), 0, len(ends)
    starts: list[_Held] = []
    for key, asked in node.ahead.items():
        job = state.jobs[job_of_task(key)]
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
    """Nanoseconds that a job is expected to run: as it says, as jobs like it did, or as tasks there do."""
    expected = job.terms.estimate or job.predicted or node.pace
    return expected if job.terms.walltime is None else min(expected, job.terms.walltime)


def _left(job: Job, node: Node, now: int) -> int:
    """Nanoseconds that a task runs on; one that runs longer than expected is taken to be half done."""
    expected = _expected(job, node)
    if type(job.phase) is not Running:
        return expected
    ran = max(0, now - job.phase.since)
    return expected - ran if ran < expected else ran
