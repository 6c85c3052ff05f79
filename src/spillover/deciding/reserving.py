"""Chooses the nodes of an advance reservation, or finds the earliest other time for it.

A node is free over a span if no other reservation has it then, and if the jobs on it end before, by their walltimes or
as expected. So each node has some spans in which a reservation can start, and one pass over the ends of these spans
finds the first time at which enough nodes have one in common.

With thousands of nodes that takes a while, so `choosing` and `replacing` are generators of steps of a few milliseconds.
Between two steps other work may run, and may change jobs and nodes.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from spillover.core.records.jobs import Placed, Running
from spillover.core.records.nodes import Node
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.forecast.estimates import began_at
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Shape
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Topology
from spillover.model.units import FOREVER, MINUTE, format_moment

SHOWN: Final = 3
"""How many nodes or jobs a message names."""
STEP: Final = 250
"""How many machines one step looks at."""
AT_ONCE: Final = 1000
"""This many of the chosen nodes are looked at once more, because jobs may have started there since their step."""

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Does a part of its work at each `next`, and returns its answer with the last one."""
Spans: TypeAlias = "Mapping[Machine, Sequence[tuple[int, int]]]"
"""Machines with the spans of time, from now on, in which a reservation can start there, soonest first."""


def finish(steps: Steps[T]) -> T:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found


class Request(Struct, frozen=True):
    """What a person asks to reserve."""

    start: int
    """Nanoseconds UTC."""
    length: int
    """Nanoseconds."""
    count: int = 0
    """How many nodes; 0 if they are named, or if all are asked for."""
    named: tuple[NodeName, ...] = ()
    """The nodes by name; empty to let the scheduler choose."""
    within: str = ""
    """The level of which one vertex has all nodes; empty is any."""
    needs: tuple[str, ...] = ()
    """Words that each node must offer, sorted."""
    cluster: ClusterName | None = None
    """None lets the scheduler choose."""
    ignore_jobs: bool = False
    """Whether jobs that may still run at the start are left there instead of being in the way."""


class Choice(Struct, frozen=True):
    """The nodes for a reservation."""

    cluster: ClusterName
    nodes: tuple[NodeName, ...]


class NoChoice(Struct, frozen=True):
    """Why nothing can be reserved as asked."""

    message: str
    earliest: int | None = None
    """The earliest other time, nanoseconds UTC; None if there never is one."""
    possible: bool = False
    """Whether there are such nodes, although they are taken at that time."""
    most: int = 0
    """How many such nodes there are; -1 if the cluster has none of this name or level."""


def choose(index: SchedulingIndex, asked: Request, now: int) -> Choice | NoChoice:
    """Do all steps of `choosing` at once."""
    return finish(choosing(index, asked, now))


def choosing(index: SchedulingIndex, asked: Request, now: int) -> Steps[Choice | NoChoice]:
    """Choose nodes for a reservation, on the first cluster that has them; otherwise say what there is, or when."""
    clusters = [each for each in index.capacity.values() if asked.cluster in {None, each.name}]
    if not clusters:
        known = ", ".join(index.capacity) or "none"
        return NoChoice(f"there is no cluster {asked.cluster}; known clusters: {known}")
    if len(clusters) > 1 and not asked.count:
        what = "named nodes" if asked.named else "all nodes of a cluster"
        return NoChoice(f"to reserve {what}, say of which cluster: {', '.join(index.capacity)}")
    refused: list[NoChoice] = []
    for cluster in clusters:
        found = yield from _choose_on(index, cluster, asked, now)
        if isinstance(found, Choice):
            return found
        refused.append(found)
    later = [each for each in refused if each.earliest is not None]
    return min(later, key=lambda each: each.earliest or 0) if later else max(refused, key=_nearness)


def _nearness(refused: NoChoice) -> tuple[bool, int]:
    return refused.possible, refused.most


def replace_lost(index: SchedulingIndex, known: AdvanceReservation, now: int) -> tuple[NodeName, ...] | None:
    """Do all steps of `replacing` at once."""
    return finish(replacing(index, known, now))


def replacing(
    index: SchedulingIndex, known: AdvanceReservation, now: int
) -> Steps[tuple[NodeName, ...] | None]:
    """Return other nodes for a reservation that has lost some; None if it has lost none, or if none can replace them."""
    cluster = index.capacity.get(known.cluster)
    if cluster is None or known.named:
        return None
    kept = [name for name in known.nodes if (one := cluster.by_name.get(name)) is not None and one.ready]
    missing = len(known.nodes) - len(kept)
    if not missing:
        return None
    start = max(now, known.start)
    asked = Request(start, known.end - start, len(known.nodes), within=known.within, needs=known.needs)
    own = [cluster.by_name[name] for name in kept]
    starts = yield from _starts(index, cluster, _eligible(cluster, asked), asked, now, known.name)
    others = [each for each in _free(starts, asked) if each.name not in kept]
    chosen = _pick([*own, *others], asked, len(known.nodes), kept)
    if chosen is None or (known.start <= now and not set(kept).issubset(chosen)):
        return None  # once it has begun, its jobs run on the nodes that it has
    return chosen


def lost_nodes(known: AdvanceReservation, nodes: Mapping[str, Node]) -> tuple[NodeName, ...]:
    """Return the nodes of a reservation that have left or do not accept work."""
    found = [(name, nodes.get(f"{known.cluster}/{name}")) for name in known.nodes]
    return tuple([name for name, node in found if node is None or node.status != "ready"])


def _choose_on(
    index: SchedulingIndex, cluster: Capacity, asked: Request, now: int
) -> Steps[Choice | NoChoice]:
    """Choose nodes of one cluster."""
    if (problem := _unknown(cluster, asked)) is not None:
        return problem
    eligible = _eligible(cluster, asked)
    yield
    if (problem := _impossible(cluster, asked, eligible)) is not None:
        return problem
    many = asked.count or len(eligible)
    starts = yield from _starts(index, cluster, eligible, asked, now)
    while (chosen := _pick(free := _free(starts, asked), asked, many)) is not None:
        # Jobs may have started there meanwhile. Nodes that have left are refused later.
        known = [cluster.by_name[name] for name in chosen[:AT_ONCE] if name in cluster.by_name]
        again = {each: _starts_on(index, cluster, each, asked, now) for each in known}
        if len(_free(again, asked)) == len(again):
            return Choice(cluster.name, chosen)
        starts = {**starts, **again}
        yield
    yield
    at = _earliest(starts, many, asked)
    where = f"in one {asked.within} of {cluster.name}" if asked.within else f"of {cluster.name}"
    have = matching.most_together(dict.fromkeys(free, 1), Topology(within=asked.within))
    message = f"only {have} of {many} nodes {where} are free from {format_moment(asked.start)} on"
    yield
    if (why := _in_the_way(index, cluster, asked, now, starts)) is not None:
        message += f" ({why})"
    if at is None:
        return NoChoice(message, possible=True)
    return NoChoice(f"{message}; the earliest other time is {format_moment(at)}", at, possible=True)


def _unknown(cluster: Capacity, asked: Request) -> NoChoice | None:
    """Return which of the names in a request a cluster does not have."""
    unknown = [name for name in asked.named if name not in cluster.by_name]
    if unknown:
        known = [machine.name for machine in cluster.machines]
        more = f" and {len(known) - 10} more" if len(known) > 10 else ""
        listed = ", ".join(known[:10]) or "none"
        return NoChoice(f"cluster {cluster.name} has no node {unknown[0]}; it has {listed}{more}", most=-1)
    levels = cluster.spec.level_names
    if asked.within and asked.within not in levels:
        told = f"cluster {cluster.name} has no level {asked.within!r}; it has {', '.join(levels)}"
        return NoChoice(told, most=-1)
    return None


def _impossible(cluster: Capacity, asked: Request, eligible: Sequence[Machine]) -> NoChoice | None:
    """Return why a cluster does not have so many nodes, at any time."""
    most = matching.most_together(dict.fromkeys(eligible, 1), Topology(within=asked.within))
    if eligible and most >= asked.count:
        return None
    what = f" with {' and '.join(asked.needs)}" if asked.needs else ""
    where = f" in one {asked.within}" if asked.within else ""
    have = "no ready node" if not most else "only 1 ready node" if most == 1 else f"only {most} ready nodes"
    told = f"cluster {cluster.name} has {have}{what}{where}; you ask for {max(1, asked.count)}"
    return NoChoice(told, most=most)


def _eligible(cluster: Capacity, asked: Request) -> list[Machine]:
    """Return the machines to choose from. Those that a person names, or all of a cluster, need not be ready."""
    if asked.named:
        return [cluster.by_name[name] for name in dict.fromkeys(asked.named)]
    if not asked.count:
        return list(cluster.machines)
    shape = Shape(Resources(), asked.needs)
    return [machine for machine in cluster.machines if machine.ready and machine.admits(shape)]


def _pick(
    free: Sequence[Machine], asked: Request, many: int, kept: Collection[NodeName] = ()
) -> tuple[NodeName, ...] | None:
    """Pick nodes where they must be together: first those to keep, then in the order of joining. None if too few."""
    together = matching.group(dict.fromkeys(free, 1), asked.within) if asked.within else {True: free}
    picked: list[list[tuple[bool, int, NodeName]]] = []
    for key, machines in together.items():
        if key is not None and len(machines) >= many:
            ranked = sorted([(each.name not in kept, each.index, each.name) for each in machines])
            picked.append(ranked[:many])
    best = min(picked, default=None)
    return None if best is None else tuple([name for _, _, name in best])


def _free(starts: Spans, asked: Request) -> list[Machine]:
    """Return the machines that are free over the span that was asked for."""
    at = asked.start
    return [machine for machine, spans in starts.items() if any(first <= at < last for first, last in spans)]


def _starts(
    index: SchedulingIndex,
    cluster: Capacity,
    machines: Sequence[Machine],
    asked: Request,
    now: int,
    own: str = "",
) -> Steps[Spans]:
    """Return when a reservation can start on each of these machines; windows of the reservation `own` do not count."""
    found: dict[Machine, Sequence[tuple[int, int]]] = {}
    for begin in range(0, len(machines), STEP):
        for machine in machines[begin : begin + STEP]:
            found[machine] = _starts_on(index, cluster, machine, asked, now, own)
        yield
    return found


def _starts_on(
    index: SchedulingIndex, cluster: Capacity, machine: Machine, asked: Request, now: int, own: str = ""
) -> list[tuple[int, int]]:
    """Return the spans, from now on, in which a reservation of this length can start on a machine."""
    until = now if asked.ignore_jobs else _busy_until(index, cluster, machine, now)
    if not machine.windows:
        return [(until, FOREVER)]
    taken = [(each.start, each.end) for each in machine.windows if each.name != own]
    if until > now:
        taken.append((now, until))
    spans: list[tuple[int, int]] = []
    at = now
    for start, end in sorted(taken):
        if start - asked.length >= at:
            spans.append((at, start - asked.length + 1))
        at = max(at, end)
    return [*spans, (at, FOREVER)]


def _busy_until(index: SchedulingIndex, cluster: Capacity, machine: Machine, now: int) -> int:
    """Return when the last job on a machine ends, by its walltime or as expected; `now` if there is none."""
    return max([end for _, end in _ends_on(index, cluster, machine, now)], default=now)


def _ends_on(
    index: SchedulingIndex, cluster: Capacity, machine: Machine, now: int
) -> Iterator[tuple[str, int]]:
    """Yield the jobs on a machine, and when each ends. One that runs longer than expected ends in a minute."""
    state = index.state
    node = state.nodes.get(f"{cluster.name}/{machine.name}")
    for each in () if node is None else node.jobs:
        job = state.jobs[each]
        if isinstance(job.phase, Placed | Running):
            end = began_at(job.phase, state.facts.jumped) + index.length(job)
            yield job.id, end if end > now else now + MINUTE


def _earliest(starts: Spans, many: int, asked: Request) -> int | None:
    """Return the first time from `asked.start` on at which enough machines can start together; None if never."""
    changes: list[tuple[int, int, Machine]] = []
    for machine, spans in starts.items():
        for first, last in spans:
            if last > asked.start:
                changes.append((max(first, asked.start), 1, machine))
                if last < FOREVER:
                    changes.append((last, -1, machine))
    counts: dict[object, int] = {}
    for at, group in _together(changes):
        changed: dict[object, None] = {}
        for _, change, machine in group:
            key: object = None
            if asked.within:
                key = machine if asked.within == NODE else machine.vertex(asked.within)
                if key is None:
                    continue
            counts[key] = counts.get(key, 0) + change
            changed[key] = None
        if any(counts[key] >= many for key in changed):
            return at
    return None


def _together(
    changes: Iterable[tuple[int, int, Machine]],
) -> Iterator[tuple[int, list[tuple[int, int, Machine]]]]:
    """Yield each time with all that changes then, soonest first."""
    group: list[tuple[int, int, Machine]] = []
    for each in sorted(changes, key=lambda one: one[0]):
        if group and each[0] != group[0][0]:
            yield group[0][0], group
            group = []
        group.append(each)
    if group:
        yield group[0][0], group


def _in_the_way(
    index: SchedulingIndex, cluster: Capacity, asked: Request, now: int, starts: Spans
) -> str | None:
    """Name what takes the other machines over that span."""
    end = asked.start + asked.length
    free = dict.fromkeys(_free(starts, asked))
    others = [machine for machine in starts if machine not in free]
    windows = [each for machine in others for each in machine.windows]
    names = dict.fromkeys(each.name for each in windows if each.start < end and each.end > asked.start)
    if names:
        return f"reserved as {', '.join(list(names)[:SHOWN])}"
    jobs = dict.fromkeys(
        job for one in others for job, until in _ends_on(index, cluster, one, now) if until > asked.start
    )
    if not jobs:
        return None
    first = next(iter(jobs))
    return f"{first} may still run" if len(jobs) == 1 else f"{len(jobs)} jobs may still run, such as {first}"
