"""The cost of finding places for gangs on a large cluster of racks, alone: no queue, no state, no store.

Each match finds and takes the places of one job, as a cycle does. A shape is warm if jobs of that shape were matched
before, as in a queue of jobs that are alike; a cold match is the first one of its shape. Shapes of cold matches differ
by some bytes of memory.

A cluster that is 95 % full has tasks in 95 % of its slots of 8 cores and a GPU. Half of the free slots, or one rack if
that is more, are those of empty racks. The others are one by one on nodes that are full otherwise.

Every node reports its two sockets, with 32 cores and four linked GPUs each. A match of a slot is 8 cores and a GPU of one
socket. All matches name the GPUs and cores that each task gets.
"""

import resource
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from msgspec.structs import replace

from bench.reporting import Goal, Options, Report, Table, main, tell
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
PLACES: Final[dict[str, Place]] = {"spreading": SpreadOut(), "packing": BestFit()}


class Asked(NamedTuple):
    """A request."""

    name: str
    shape: Shape


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
    levels = (Level("zone", "zone"), Level("rack", "rack"))
    cluster = Capacity(ClusterSpec(ClusterName("lab"), "agents", Role.OWNED, gangs=True, levels=levels), 0)
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
                node.granted[key], node.holding[key] = granted, SLOT
                node.used = node.used + SLOT
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


def measure_cold(cluster: Capacity, one: Asked, place: Place, rounds: int, *, fits: bool) -> list[float]:
    """Return the milliseconds of the first match of each of some shapes."""
    asked, times = one.shape.resources, list[float]()
    for number in range(rounds):
        new = replace(asked, memory=asked.memory - number if asked.memory else number + 1)
        times += measure_one(
            cluster, one._replace(shape=replace(one.shape, resources=new)), place, 1, fits=fits, cold=True
        )
    return times


def measure_one(
    cluster: Capacity, one: Asked, place: Place, rounds: int, *, fits: bool, cold: bool = False
) -> list[float]:
    """Return the milliseconds of each match, warm or cold. What a match takes is given back at once."""
    begin = time.perf_counter()
    take = _taker(cluster, one.shape, place)
    times: list[float] = []
    for number in range(rounds if cold else rounds + 1):
        if number:
            begin = time.perf_counter()
        parts = take()
        times.append((time.perf_counter() - begin) * 1e3)
        for machine, before in reversed(parts):
            cluster.set(machine, before)
        if len(cluster.changes) > 4 * len(cluster.machines):
            cluster._look_again()  # noqa: SLF001 - as a refresh does when it forgets old changes
        if bool(parts) is not fits:
            raise AssertionError(
                f"{one.name} must {'' if fits else 'not '}fit, so this measures something else"
            )
    return times if cold else times[1:]


def measure(options: Options) -> Report:
    """Measure matches on 1,000 and 10,000 nodes."""
    report = Report("Matching on a resource graph")
    rounds, colds = (50, 20) if options.quick else (400, 40)
    found: dict[tuple[int, str, str, str, str], float] = {}
    for count in (1_000, 10_000):
        table = Table(
            f"{count:,} nodes of 64 cores and 8 GPUs in racks of {PER_RACK}; {rounds} matches of each kind, {colds} of new shapes",
            ("request", "within", "slots in use", "place", "p50, ms", "p99, ms", "new shape: p50", "p99"),
        )
        for load, full in (("none", False), ("95 %", True)):
            tell(f"building {count:,} nodes, slots in use: {load}")
            cluster = a_cluster(count, full=full)
            for within in ("", "rack"):
                for one in asked(within=within):
                    for name, place in PLACES.items():
                        fits = one.shape.tasks <= _empty(cluster) or one.shape.resources == SLOT
                        p50, p99 = _both(measure_one(cluster, one, place, rounds, fits=fits))
                        cold = _both(measure_cold(cluster, one, place, colds, fits=fits))
                        found[count, one.name, within, load, name] = p50
                        told = one.name if fits else f"{one.name}, refused"
                        table.add(told, within or "-", load, name, p50, p99, *cold)
                        what = f"{count} {one.name} {within or 'anywhere'} {load} {name}"
                        report.figures[f"{what} p50"] = p50
                        report.figures[f"{what} new shape p50"] = cold[0]
        report.tables.append(table)
    _judge(report, found)
    return report


def _both(times: list[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def _empty(cluster: Capacity) -> int:
    return sum(machine.is_empty(machine.free) for machine in cluster.machines)


def _judge(report: Report, found: dict[tuple[int, str, str, str, str], float]) -> None:
    """Compare the largest cluster with the figures of Fluxion and with the smaller one."""
    for name, theirs in FLUXION.items():
        ours = max(p50 for (count, one, *_), p50 in found.items() if count == 10_000 and one == name)
        factor = 1.0 if name == "512 nodes" else 2.0
        report.figures[f"{name}: times Fluxion's `first`"] = ours / theirs
        report.goals.append(Goal(f"{name}: p50 in ms, slowest case", ours, factor * theirs, at_most=True))
    packing = max(p50 for (_, one, _, _, place), p50 in found.items() if one == "slot" and place == "packing")
    report.goals.append(Goal("slot, packing: p50 in ms", packing, FLUXION_PACKING / 10, at_most=True))
    for (count, name, within, load, place), p50 in found.items():
        if count == 1_000 and load == "none":
            growth = found[10_000, name, within, load, place] / p50
            what = f"growth from 1,000 to 10,000 nodes: {name}, within {within or '-'}, {place}"
            report.goals.append(Goal(what, growth, 3.0, at_most=True))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.goals.append(Goal("memory of the process in MB", megabytes, 500, at_most=True))
    report.notes.append(
        "Times of one process on this machine, wall clock. What a match takes is returned untimed."
    )


if __name__ == "__main__":
    main(measure, "Cost of finding places for gangs on a large cluster of racks.")
