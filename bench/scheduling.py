"""Measures the cost of one decision as the queue grows: the engine alone, on a virtual clock.

In every cycle one task ends on one of a hundred busy nodes, and one queued job takes its place. The queues take turns,
so that a change in the speed of the machine affects all of them.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from bench.reporting import Goal, Options, Report, Table, main, tell
from spillover.core.events import JobPlaced, Usage
from spillover.core.proposals import Archived, NewJob, Outcome, Register, Result, Started, StartEpoch, Submit
from spillover.core.records.jobs import Placed
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, node_key
from spillover.model.job import JobSpec, Shape, Shell, Terms
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load

NODES: Final = 100
CPUS: Final = 32
SHAPES: Final = 500
RUNTIMES: Final = 10_000
NOBODY: Final = "offered-by-nobody"
DEPTH: Final = 1000
"""Lanes that a cycle tries: the default."""
CHUNK: Final = 10_000
"""Jobs submitted in one step while the queue is built."""
CLUSTER: Final = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED)
SMALL: Final = JobSpec(Shell("true"), "job", "default", "default", Shape(Resources(1000, 2**20)), priority=1)
"""A job that fits wherever one has ended, and is tried before all others."""
START: Final = 1_800_000_000 * SECOND


class Cost(NamedTuple):
    """Costs in CPU microseconds."""

    placing: float
    """From the end of a task to the placement of another, or until all that may be tried was."""
    taking: float
    """To take one job into the queue; where nothing else fits, to place it as well."""


class Queue:
    """A scheduler with many queued jobs on full nodes."""

    def __init__(self, jobs: int, *, shapes: int, depth: int, fitting: bool = True) -> None:
        self._numbers = count()
        self._shapes = shapes
        self._fitting = fitting
        self.now = START
        self.engine = Engine(State(), load, now=START)
        policies = PolicySet(order=Choice("priority"), wait=Choice("never"), depth=depth)
        self.engine.step(self.now, [StartEpoch(1, (CLUSTER,), policies)])
        capacity = Resources(CPUS * 1000, 256 * 2**30)
        registrations = [
            Register(CLUSTER.name, NodeName(f"n{each}"), each + 1, capacity, (), {}, 0, ())
            for each in range(NODES)
        ]
        self.engine.step(self.now, registrations)
        self._running: list[tuple[NodeKey, JobId]] = []
        self._fill()
        for start in range(0, jobs, CHUNK):
            self._submit(min(CHUNK, jobs - start))
        self.decided = 0

    def _spec(self, number: int) -> JobSpec:
        """Return a job of one CPU, with one of the shapes and runtimes."""
        memory = (1 + number % self._shapes) * 2**20
        needs = () if self._fitting else (NOBODY,)  # seen only by trying: no sum of what is free rules it out
        terms = Terms(estimate=(1 + number * 7919 % RUNTIMES) * SECOND)
        return JobSpec(
            Shell("true"), "job", "default", "default", Shape(Resources(1000, memory), needs), terms
        )

    def _new(self, number: int) -> NewJob:
        return NewJob(JobId(f"j{number:011d}"), self._spec(number), number.to_bytes(16, "big"))

    def _submit(self, many: int) -> None:
        jobs = tuple(self._new(next(self._numbers)) for _ in range(many))
        self.engine.step(self.now, [Submit(jobs, "ada")])

    def _fill(self) -> None:
        """Occupy all nodes."""
        jobs = tuple(NewJob(JobId(f"f{each:011d}"), SMALL, b"spec") for each in range(NODES * CPUS))
        self.engine.step(self.now, [Submit(jobs, "ada")])
        for job in jobs:
            phase = self.engine.state.jobs[job.job].phase
            assert isinstance(phase, Placed)
            self._running.append((phase.key, job.job))
        self._start([job.job for job in jobs])

    def _start(self, jobs: list[JobId]) -> None:
        book = self.engine.state.jobs
        self.engine.step(
            self.now,
            [
                Started(phase.key, book[job].lease, 0)
                for job in jobs
                if isinstance(phase := book[job].phase, Placed)
            ],
        )

    def run(self, cycles: int) -> Cost:
        """Return the mean cost of placing a job on freed capacity, and of submitting one."""
        placing = taking = 0.0
        for _ in range(cycles):
            self.now += SECOND
            at = self.decided * 7919 % len(self._running)
            node, job = self._running[at]
            lease = self.engine.state.jobs[job].lease
            result = Result(node, lease, Outcome.EXITED, 0, None, Usage(SECOND, SECOND, 2**20), 0)
            begin = time.process_time()
            events = self.engine.step(self.now, [result]).events
            ended = time.process_time()
            if self._fitting:
                self._submit(1)  # the queue stays as long as it is
            else:  # nothing that waited fits: the next one that comes does
                small = NewJob(JobId(f"s{next(self._numbers):011d}"), SMALL, b"spec")
                events += self.engine.step(self.now, [Submit((small,), "ada")]).events
            taken = time.process_time()
            placing += ended - begin
            taking += taken - ended
            (placed,) = [event for event in events if isinstance(event, JobPlaced)]
            self._running[at] = (node_key(placed.cluster, placed.node), placed.job)
            self._start([placed.job])
            self.engine.step(self.now, [Archived((job,))])
            self.engine.state.dirty.clear()
            self.decided += 1
        return Cost(placing / cycles * 1e6, taking / cycles * 1e6)


def _serve(pipe: Connection, make: Callable[[], Queue]) -> None:
    """Measure a queue on request, in a separate process, so that one queue does not slow another down."""
    queue = make()
    pipe.send(None)
    while cycles := pipe.recv():
        pipe.send(queue.run(cycles))


def _rounds(makers: dict[str, Callable[[], Queue]], cycles: int, rounds: int) -> dict[str, Cost]:
    """Return the median of alternating rounds for each queue."""
    context = multiprocessing.get_context("fork")
    pipes: dict[str, Connection] = {}
    for name, make in makers.items():
        tell(f"queueing: {name}")
        pipes[name], theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, make), daemon=True).start()
        pipes[name].recv()
    found: dict[str, list[Cost]] = {name: [] for name in makers}
    for number in range(rounds + 1):
        for name, pipe in pipes.items():
            pipe.send(cycles)
            cost = pipe.recv()
            if number:  # the first round warms up
                found[name].append(cost)
    for pipe in pipes.values():
        pipe.send(0)
    return {
        name: Cost(
            statistics.median(each.placing for each in costs),
            statistics.median(each.taking for each in costs),
        )
        for name, costs in found.items()
    }


def measure(options: Options) -> Report:
    """Measure long queues, then many shapes."""
    report = Report("Cost of a decision")
    _long_queues(report, options)
    _many_shapes(report, options)
    return report


def _long_queues(report: Report, options: Options) -> None:
    """Measure cycles that place a job each, for queues of any length."""
    cycles, rounds = (200, 3) if options.quick else (1000, 7)
    sizes = (1000, 10_000, 100_000) if options.quick else (1000, 10_000, 100_000, 1_000_000)
    cost = _rounds(
        {f"{size:,}": partial(Queue, size, shapes=SHAPES, depth=DEPTH) for size in sizes}, cycles, rounds
    )
    base = cost["1,000"]
    table = Table(
        f"{NODES} nodes, {SHAPES} shapes, {RUNTIMES:,} runtimes, a job placed in every cycle; median of {rounds} rounds",
        ("queued jobs", "µs a decision", "growth", "µs to take a job in", "growth"),
    )
    for name, each in cost.items():
        table.add(name, each.placing, each.placing / base.placing, each.taking, each.taking / base.taking)
        report.figures[f"queued {name}"] = each.placing
    report.tables.append(table)
    growth = max(each.placing for each in cost.values()) / base.placing
    report.goals.append(Goal(f"growth from 1,000 to {sizes[-1]:,} queued jobs", growth, 1.5, at_most=True))
    report.notes.append("Microseconds of CPU, of the engine alone: no store, no network.")


def _many_shapes(report: Report, options: Options) -> None:
    """Measure cycles in which no waiting job fits; they try `depth` lanes."""
    many = 20_000 if options.quick else 100_000
    cycles, rounds = (20, 3) if options.quick else (50, 5)
    table = Table(
        f"every queued job of a shape of its own, none of which fits; median of {rounds} rounds",
        ("distinct shapes", "depth", "µs a decision", "of 10 times fewer"),
    )
    for depth in (100, DEPTH):
        cost = _rounds(
            {
                f"{shapes:,}": partial(Queue, shapes, shapes=shapes, depth=depth, fitting=False)
                for shapes in (many // 10, many)
            },
            cycles,
            rounds,
        )
        few, all_of_them = (each.placing for each in cost.values())
        for name, each in cost.items():
            table.add(name, depth, each.placing, each.placing / few)
            report.figures[f"shapes {name} depth {depth}"] = each.placing
        report.goals.append(
            Goal(
                f"depth {depth}: growth from {many // 10:,} to {many:,} shapes",
                all_of_them / few,
                1.5,
                at_most=True,
            )
        )
    report.tables.append(table)


if __name__ == "__main__":
    main(measure, "Cost of a decision as the queue grows.")
