"""The cost of finding places for gangs on a large cluster of racks, alone: no queue, no state, no store.

Each match finds and takes the places of one job, as a cycle does. A shape is warm if jobs of that shape were matched
before, as in a queue of jobs that are alike; a cold match is the first one of its shape. Shapes of cold matches differ
by some bytes of memory. The very first match on a cluster reads all its machines once for all shapes, and is told apart.

A cluster that is 95 % full has tasks in 95 % of its slots of 8 cores and a GPU. Half of the free slots, or one rack if
that is more, are those of empty racks. The others are one by one on nodes that are full otherwise.

Every node reports its two sockets, with 32 cores and four linked GPUs each. A match of a slot is 8 cores and a GPU of one
socket. All matches name the GPUs and cores that each task gets.

Each match is timed twice, by the wall clock and in CPU time, because other programs on a busy machine show in p99 of
the first only. The collector runs as seldom as in a server.
"""

import gc
import resource
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from bench.reporting import Goal, Options, Report, Table, main, shown, tell
from spillover.core.records.nodes import Node
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.gangs import GangCandidates
from spillover.deciding.capacity.machine import Before, Machine
from spillover.deciding.protocols import Place
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName, task_key
from spillover.model.inside import Domain, Inside, Link
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.topology import Level, Topology
from spillover.policies.place import BestFit, SpreadOut
from spillover.server.up import COLLECT_AFTER

GIB: Final = 2**30
PER_RACK: Final = 40
PER_ZONE: Final = 25
WHOLE: Final = Resources(64_000, 256 * GIB, 8)
"""A node: two sockets of 32 cores, and eight GPUs."""
SLOT: Final = Resources(8_000, 0, 1)
SLOTS: Final = 8
"""Of each node."""
FULL: Final = 0.95
"""The part of all slots, and so of all cores and GPUs, that a full cluster has in use."""
GPUS: Final = tuple("01234567")
INSIDE: Final = Inside(
    (Domain(0, ("0-31",), GPUS[:4]), Domain(1, ("32-63",), GPUS[4:])),
    GPUS,
    (Link("nvlink", GPUS[:4]), Link("nvlink", GPUS[4:])),
)
IN_A_SOCKET: Final = Shape(SLOT, topology=Topology(pin="socket"))
FLUXION: Final = {"1 node": 0.4, "16 nodes": 3.1, "512 nodes": 58.0, "slot": 0.15}
"""Milliseconds of Fluxion with its policy `first`, measured on a machine like the one of the published results."""
FLUXION_PACKING: Final = 52.0
"""Milliseconds a slot of Fluxion when it packs 1,000 nodes."""
LEVELS: Final = (Level("zone", "zone"), Level("rack", "rack"))
PLACES: Final[dict[str, Place]] = {"spreading": SpreadOut(), "packing": BestFit()}


Case: TypeAlias = tuple[int, str, str, str, str]
"""Number of nodes, request, level, slots in use and place policy."""


class Asked(NamedTuple):
    """A request."""

    name: str
    shape: Shape


class Times(NamedTuple):
    """Milliseconds of some matches."""

    wall: list[float]
    cpu: list[float]

    def extend(self, other: "Times") -> None:
        """Add other matches."""
        self.wall.extend(other.wall)
        self.cpu.extend(other.cpu)

    @property
    def shown(self) -> tuple[float, float, float]:
        """p50 and p99 by the wall clock, and p99 of CPU time."""
        return statistics.median(self.wall), _p99(self.wall), _p99(self.cpu)


def asked(*, within: str) -> list[Asked]:
    """Return the requests: whole nodes, and a slot of 8 cores and a GPU."""
    rack = Topology(within=within)
    shapes = [
        Asked("1 node", Shape(WHOLE, topology=rack if within else None)),
        Asked("16 nodes", Shape(WHOLE, tasks=16, topology=rack if within else None)),
        Asked("slot", Shape(SLOT, topology=Topology(within=within, pin="socket"))),
    ]
    if not within:  # no rack has 512 nodes
        shapes.insert(2, Asked("512 nodes", Shape(WHOLE, tasks=512)))
    return shapes


def _slots_taken(count: int) -> list[int]:
    """Return how many slots are taken on each node of a cluster of which 95 % are."""
    free = round(count * SLOTS * (1 - FULL))
    racks = count // PER_RACK
    empty = max(1, round(free / 2 / SLOTS / PER_RACK))
    dice = Random(1)  # a fixed draw, so that each run measures the same cluster
    spared = set(dice.sample(range(racks), empty))
    taken = [0 if number // PER_RACK in spared else SLOTS for number in range(count)]
    busy = [number for number in range(count) if taken[number]]
    for number in dice.sample(busy, free - SLOTS * (count - len(busy))):
        taken[number] -= 1
    return taken


def a_cluster(count: int, *, full: bool) -> Capacity:
    """Return an empty cluster, or one that is 95 % full."""
    cluster = Capacity(ClusterSpec(ClusterName("lab"), "agents", Role.OWNED, gangs=True, levels=LEVELS), 0)
    dice = Random(2)
    taken = _slots_taken(count) if full else [0] * count
    for number in range(count):
        rack = number // PER_RACK
        labels = {"zone": f"z{rack // PER_ZONE}", "rack": f"r{rack}"}
        node = Node(ClusterName("lab"), NodeName(f"n{number}"), 1, WHOLE, (), labels, 0, number=number + 1)
        node.inside = INSIDE
        cluster.refresh(node)
        if taken[number]:
            machine = cluster.by_name[node.name]
            for rank in range(taken[number]):
                cluster.take(machine, cluster.layout.wants(SLOT))
                granted = cluster.grant(machine, IN_A_SOCKET, SLOT)
                assert granted is not None
                key = task_key(JobId("j"), 1, rank)
                held = replace(SLOT, memory=dice.randrange(30 * GIB))
                node.granted[key], node.holding[key] = granted, held
                node.used = node.used + held
            cluster.refresh(node)
    return cluster


def _taker(cluster: Capacity, shape: Shape, place: Place) -> Callable[[], list[tuple[Machine, Before]]]:
    """Return what takes places for one job as a cycle does: single tasks and gangs are found in different ways."""
    asked = shape.resources
    if shape.tasks > 1:
        gangs = GangCandidates(cluster, shape)

        def take_all() -> list[tuple[Machine, Before]]:
            parts = gangs.take(place)
            for part in parts:
                for _ in range(part.tasks):
                    cluster.grant(part.machine, shape, asked)
            return [(part.machine, part.before) for part in parts]

        return take_all
    candidates = Candidates(cluster, shape)

    def take() -> list[tuple[Machine, Before]]:
        machine = candidates.best(place)
        if machine is None:
            return []
        before = machine.before
        cluster.take(machine, candidates.taken(machine))
        cluster.grant(machine, shape, asked)
        return [(machine, before)]

    return take


def measure_cold(cluster: Capacity, one: Asked, place: Place, rounds: int, *, fits: bool) -> Times:
    """Time the first match of each of some shapes."""
    asked, times = one.shape.resources, Times([], [])
    for number in range(rounds):
        new = replace(asked, memory=asked.memory - number if asked.memory else number + 1)
        shape = replace(one.shape, resources=new)
        times.extend(measure_one(cluster, one._replace(shape=shape), place, 1, fits=fits, cold=True))
    return times


def measure_one(
    cluster: Capacity, one: Asked, place: Place, rounds: int, *, fits: bool, cold: bool = False
) -> Times:
    """Time each match, warm or cold. What a match takes is given back at once."""
    times = Times([], [])
    begin, used = time.perf_counter(), time.process_time()
    take = _taker(cluster, one.shape, place)
    for number in range(rounds if cold else rounds + 1):
        if number:
            begin, used = time.perf_counter(), time.process_time()
        parts = take()
        if number or cold:
            times.cpu.append((time.process_time() - used) * 1e3)
            times.wall.append((time.perf_counter() - begin) * 1e3)
        for machine, before in reversed(parts):
            cluster.set(machine, before)
        if len(cluster.changes) > 4 * len(cluster.machines):
            cluster._forget()  # noqa: SLF001 - as a refresh does
        if bool(parts) is not fits:
            raise AssertionError(
                f"{one.name} must {'' if fits else 'not '}fit, so this measures something else"
            )
    return times


def measure(options: Options) -> Report:
    """Measure matches on 1,000 and 10,000 nodes."""
    report = Report("Matching on a resource graph")
    gc.freeze()  # as a server does, and as seldom as it does
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    rounds = 50 if options.quick else 400
    warm: dict[Case, float] = {}
    cold: dict[Case, float] = {}
    for count in (1_000, 10_000):
        table = Table(
            f"{count:,} nodes of 64 cores and 8 GPUs in racks of {PER_RACK}; {rounds} matches of each kind, {rounds} of new shapes; milliseconds",
            (
                *("request", "within", "slots in use", "place"),
                *("p50", "p99", "p99 CPU", "new shape: p50", "p99", "p99 CPU"),
            ),
        )
        for load, full in (("none", False), ("95 %", True)):
            tell(f"building {count:,} nodes, slots in use: {load}")
            cluster = a_cluster(count, full=full)
            first = measure_cold(cluster, asked(within="")[0], PLACES["packing"], 1, fits=True).wall[0]
            report.figures[f"{count} very first match, {load} in use"] = first
            report.notes.append(
                f"The very first match on {count:,} nodes, slots in use: {load}: {shown(first)} ms."
            )
            for within in ("", "rack"):
                for one in asked(within=within):
                    for name, place in PLACES.items():
                        fits = one.shape.tasks <= _empty(cluster) or one.shape.resources == SLOT
                        known = measure_one(cluster, one, place, rounds, fits=fits).shown
                        new = measure_cold(cluster, one, place, rounds, fits=fits).shown
                        case = count, one.name, within, load, name
                        warm[case], cold[case] = known[0], new[0]
                        told = one.name if fits else f"{one.name}, refused"
                        table.add(told, within or "-", load, name, *known, *new)
                        what = f"{count} {one.name} {within or 'anywhere'} {load} {name}"
                        report.figures[f"{what} p50"] = known[0]
                        report.figures[f"{what} new shape p50"] = new[0]
        report.tables.append(table)
    _judge(report, warm, cold)
    return report


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def _empty(cluster: Capacity) -> int:
    return sum(machine.is_empty(machine.free) for machine in cluster.machines)


def _judge(report: Report, warm: dict[Case, float], cold: dict[Case, float]) -> None:
    """Compare the largest cluster with the figures of Fluxion and with the smaller one."""
    for found, told in ((warm, ""), (cold, ", new shapes")):
        for name, theirs in FLUXION.items():
            ours = max(p50 for (count, one, *_), p50 in found.items() if count == 10_000 and one == name)
            factor = 1.0 if name == "512 nodes" else 2.0
            report.figures[f"{name}{told}: times Fluxion's `first`"] = ours / theirs
            what = f"{name}{told}: p50 in ms, slowest case"
            report.goals.append(Goal(what, ours, factor * theirs, at_most=True))
        packing = max(
            p50 for (_, one, _, _, place), p50 in found.items() if (one, place) == ("slot", "packing")
        )
        what = f"slot, packing{told}: p50 in ms"
        report.goals.append(Goal(what, packing, FLUXION_PACKING / 10, at_most=True))
        growth = {
            case: found[10_000, *case[1:]] / p50
            for case, p50 in found.items()
            if case[0] == 1_000 and case[3] == "none"
        }
        (_, name, within, _, place), most = max(growth.items(), key=lambda one: one[1])
        what = f"growth from 1,000 to 10,000 nodes{told}, most: {name}, within {within or '-'}, {place}"
        report.goals.append(Goal(what, most, 3.0, at_most=True))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.goals.append(Goal("memory of the process in MB", megabytes, 500, at_most=True))
    report.notes.append(
        "Times of one process on this machine, by the wall clock unless they say CPU. What a match takes is returned untimed."
    )


if __name__ == "__main__":
    main(measure, "Cost of finding places for gangs on a large cluster of racks.")
