"""Measures backfill policies on traces of real clusters, and the search for the first start among many reservations.

Jobs have the walltimes that their owners asked for, and nothing else is known about runtimes. A cluster is one machine
with all processors, as in the studies. CPU seconds are those of the simulation, without reading the trace.
"""

import gc
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.reporting import Goal, Options, Report, Table, main, tell
from spillover.core.records.nodes import Node
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Group
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.spans import Ask, Release
from spillover.deciding.capacity.timeline import Timeline
from spillover.forms.policystring import read_policies
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName, task_key
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.place import FirstFit
from spillover.sim.estimates import Told
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.outcome import JobOutcome
from spillover.sim.studies.study import Study, read_jobs, run
from spillover.sim.trace import TraceJob

TRACES: Final = Path(__file__).resolve().parents[2] / "shared" / "traces"
CLUSTERS: Final = {
    "kth_sp2_1996": "1x100cpu",
    "ctc_sp2_1996": "1x338cpu",
    "hpc2n_2002": "1x240cpu",
}
LARGE: Final = ("ctc_sp2_1996", "hpc2n_2002")
"""Traces that take minutes."""
BACKFILLS: Final = ("strict", "easy", "hybrid(8)", "conservative")
SHORT: Final = 10 * SECOND
"""Shorter runtimes count as this long in a bounded slowdown."""
QUICK: Final = 5000
"""Jobs of each trace in a quick run."""
NODES: Final = 1000
RESERVATIONS: Final = 5000
FLUXION: Final = (16.0, 85.0, 700.0)
"""Fluxion 0.54 on such a cluster, measured on a machine like ours: milliseconds at the median and at 95 %, and KB for each
reservation.
"""


def measure(options: Options) -> Report:
    """Measure the search, then one trace after the other."""
    report = Report("Backfill")
    _search(report, options)
    table = Table(
        "Backfill policies on traces of real clusters",
        ("trace", "jobs", "backfill", "mean bounded slowdown", "utilization", "CPU seconds", "jobs a second"),
    )
    report.tables.append(table)
    for name, owned in CLUSTERS.items():
        path = TRACES / f"{name}.csv.gz"
        if name in LARGE and not options.long and not options.quick:
            report.notes.append(f"The trace {name} takes minutes and is measured with `--long`.")
        elif path.exists():
            _trace(report, table, path, owned, options)
        else:
            report.notes.append(
                f"The trace {name} is not beside the repository (../shared/traces): left out."
            )
    return report


def _trace(report: Report, table: Table, path: Path, owned: str, options: Options) -> None:
    """Simulate one trace under each policy."""
    name = path.name.partition(".")[0]
    study = Study(str(path), read_owned(owned), read_rented("cpu=1"), told=Told.WALLTIME, skip_bad=True)
    jobs: Sequence[TraceJob] = read_jobs(study).jobs
    if options.quick:
        jobs = jobs[:QUICK]
    for backfill in BACKFILLS:
        policies = read_policies(f"wait=never,backfill={backfill}")
        before = time.process_time()
        result, outcomes = run(study, jobs, policies)
        took = time.process_time() - before
        slowdown = statistics.fmean(_slowdowns(jobs, outcomes))
        used = f"{result.statistics.owned_utilization:.1%}"
        table.add(name, len(jobs), backfill, slowdown, used, took, len(jobs) / took)
        tell(f"{name}, {backfill}: slowdown {slowdown:.2f}, utilization {used}, {took:.1f} CPU seconds")
        report.figures[f"{name} {backfill} seconds"] = took
        report.figures[f"{name} {backfill} slowdown"] = slowdown
        if name == "ctc_sp2_1996" and backfill == "conservative" and not options.quick:
            report.goals.append(Goal("CPU seconds of conservative on ctc_sp2", took, 120.0, at_most=True))


def _slowdowns(jobs: Sequence[TraceJob], outcomes: Sequence[JobOutcome]) -> list[float]:
    """Return by what factor each job took longer than it ran."""
    return [
        max(
            1.0,
            (each.start - jobs[each.job].submit + jobs[each.job].runtime)
            / max(SHORT, jobs[each.job].runtime),
        )
        for each in outcomes
    ]


def _search(report: Report, options: Options) -> None:
    """Book jobs on a full cluster, and measure the search for further ones."""
    dice = random.Random(1)
    count = RESERVATIONS // 10 if options.quick else RESERVATIONS
    cluster, ends = _full(dice)
    held = {machine: [(at, wants)] for at, machine, wants in ends}
    releases = [
        Release(at, Group(cluster, (machine,), wants)) for at, machine, wants in sorted(ends, key=_at)
    ]
    timeline = Timeline(0, releases, lambda machine: held.get(machine, ()))
    place = FirstFit()
    asks = {shape: [Ask(Candidates(cluster, shape))] for shape in _shapes()}
    for ask in asks.values():
        ask[0].candidates.best(place)
    gc.collect()
    before = _resident()
    for _ in range(count):
        booking = timeline.earliest(asks[dice.choice(_shapes())], dice.randint(60, 86_400) * SECOND, place, 1)
        if booking is not None:
            timeline.take(booking)
    each = (_resident() - before) / count / 1000
    took: list[float] = []
    for _ in range(300):
        shape, duration = dice.choice(_shapes()), dice.randint(60, 86_400) * SECOND
        began = time.process_time()
        booking = timeline.earliest(asks[shape], duration, place, 1)
        took.append((time.process_time() - began) * 1000)
        if booking is not None:
            timeline.take(booking)
    took.sort()
    p50, p95 = took[len(took) // 2], took[len(took) * 95 // 100]
    table = Table(
        f"The first start on a full cluster of {NODES:,} nodes with {count:,} reservations",
        ("", "p50 ms", "p95 ms", "KB each"),
    )
    table.add("Spillover", p50, p95, each)
    table.add("Fluxion 0.54", *FLUXION)
    report.tables.append(table)
    report.figures.update({"first start p50 ms": p50, "first start p95 ms": p95, "reservation KB": each})
    report.goals += [
        Goal("milliseconds to the first start, p50", p50, FLUXION[0], at_most=True),
        Goal("milliseconds to the first start, p95", p95, FLUXION[1], at_most=True),
        Goal("KB for each reservation", each, 20.0, at_most=True),
    ]


def _shapes() -> list[Shape]:
    """Return parts of a node, whole nodes, and gangs of whole nodes."""
    return [
        *[Shape(Resources(cpu * 1000)) for cpu in (1, 2, 4, 8, 16)],
        *[Shape(Resources(16_000), tasks=tasks) for tasks in (2, 4, 8, 16)],
    ]


def _full(dice: random.Random) -> tuple[Capacity, list[tuple[int, Machine, tuple[tuple[int, int], ...]]]]:
    """Return a cluster of which every node is in use, with the expected ends."""
    cluster = Capacity(ClusterSpec(ClusterName("owned"), "agents", Role.OWNED, gangs=True), 0)
    whole = Resources(16_000)
    ends = []
    for number in range(NODES):
        node = Node(cluster.name, NodeName(f"n{number}"), 1, whole, (), {}, 0, number=number + 1)
        node.used = whole
        node.holding[task_key(JobId(f"j{number}"), 1)] = whole
        cluster.refresh(node)
        ends.append((dice.randint(60, 86_400) * SECOND, cluster.slots[number], cluster.layout.held(whole, 1)))
    return cluster, ends


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _at(end: tuple[int, Machine, tuple[tuple[int, int], ...]]) -> int:
    return end[0]


if __name__ == "__main__":
    main(measure, __doc__ or "")
