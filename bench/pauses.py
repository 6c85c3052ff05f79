"""Measures how long one step of the engine takes for queues of any length: the engine alone, in CPU time.

A live server does all other work between two steps. A step leaves to the next what it cannot do in a short time, so the
longest step counts. It is compared with a hundredth of the jobs, and with all work in one step, as in a replay.
"""

import gc
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from msgspec import structs

from bench.reporting import Goal, Options, Report, Table, main, tell
from spillover.control.live.garbage import FrozenState
from spillover.core.proposals import (
    AgentGone,
    Forget,
    NewJob,
    Proposal,
    Refusal,
    Register,
    SetPolicies,
    StartEpoch,
    Submit,
)
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.explain.explain import explain
from spillover.deciding.whatif import Snapshot, try_jobs
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import JobSpec, Range, Shape, Shell, Terms
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, MONEY, SECOND
from spillover.policies.loading import load

NODES: Final = 100
LANES: Final = 3000
CHUNK: Final = 10_000
"""Jobs submitted in one step while the queue is built."""
LIMIT: Final = 100.0
"""Milliseconds that a step may take."""
START: Final = 1_800_000_000 * SECOND
OWNED: Final = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED)
CLOUD: Final = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=MONEY))
OTHER: Final = ClusterSpec(ClusterName("other"), "agents", Role.RENTED, Price(cpu_hour=2 * MONEY))
HOURLY: Final = PolicySet(wait=Choice("constant", {"wait": HOUR}))
SLOWLY: Final = PolicySet(order=Choice("priority"), wait=Choice("constant", {"wait": 2 * HOUR}))
BUDGETS: Final = (Budget(Of.PROJECT, "*", Per.DAY, MONEY),)


class Pause(NamedTuple):
    """One measurement in CPU milliseconds."""

    longest: float
    """Of the steps that it takes, the longest."""
    steps: int
    whole: float
    """All of them together."""


class Queue:
    """An engine with many queued jobs on full nodes: of several kinds, or one array."""

    def __init__(self, jobs: int, lanes: int) -> None:
        self.now = START
        self.engine = Engine(State(), load, now=START)
        self._lanes, self._submitted, self._epoch = lanes, 0, 1
        self._frozen = FrozenState()  # as a server does
        registrations = [
            Register(OWNED.name, NodeName(f"n{each}"), each + 1, Resources(1000, 2**40), (), {}, 0, ())
            for each in range(NODES)
        ]
        self.engine.step(self.now, [StartEpoch(1, (OWNED, CLOUD), HOURLY), *registrations])
        self._submit(NODES)
        if lanes:
            for start in range(0, jobs, CHUNK):
                self._submit(min(CHUNK, jobs - start))
        else:
            self.engine.step(self.now, [Submit((self._new((Range(1, jobs),)),), "ada")])
        self.engine.state.dirty.clear()
        gc.collect()
        gc.freeze()

    def _new(self, array: tuple[Range, ...] = ()) -> NewJob:
        number = self._submitted
        self._submitted += 1
        shape = Shape(Resources(1000, (1 + number % max(1, self._lanes)) * 2**20))
        terms = Terms(walltime=HOUR, estimate=MINUTE)
        spec = JobSpec(Shell("true"), "job", "default", "default", shape, terms, array=array)
        return NewJob(JobId(f"j{number:011d}"), spec, number.to_bytes(16, "big"))

    def _submit(self, many: int) -> None:
        self.engine.step(self.now, [Submit(tuple(self._new() for _ in range(many)), "ada")])

    def step(self, *proposals: Proposal, short: bool = True) -> Pause:
        """Step with these proposals until nothing more follows."""
        longest = whole = 0.0
        steps, more = 0, True
        while more:
            begin = time.process_time()
            more = self.engine.step(self.now, proposals, short=short).more
            rebuilt = not self.engine.is_ready or not short
            self._frozen.look(len(self.engine.state.jobs), rebuilt=rebuilt, goes_on=more)
            took = (time.process_time() - begin) * 1e3
            longest, whole, steps, proposals = max(longest, took), whole + took, steps + 1, ()
        return Pause(longest, steps, whole)

    def configure(self, clusters: tuple[ClusterSpec, ...], budgets: tuple[Budget, ...]) -> Pause:
        """Start as a server with other clusters or budgets, to which the agents return."""
        self._epoch += 1
        policies = self.engine.state.policies.configured
        start = StartEpoch(self._epoch, clusters, policies, 0, budgets)
        return self.step(start)

    def asked(self, ask: Callable[[], object]) -> Pause:
        """Measure a question that the server answers between two steps."""
        begin = time.process_time()
        ask()
        took = (time.process_time() - begin) * 1e3
        return Pause(took, 1, took)

    def _try(self) -> None:
        tried = try_jobs(Snapshot(self.engine), self.now, Submit((self._new(),), "ada"))
        assert not isinstance(tried, Refusal)

    def run(self) -> dict[str, Pause]:
        """Run every operation that looked at all jobs in earlier versions."""
        last = next(reversed(self.engine.state.jobs.values()))
        gone = NodeName("n7")
        found = {
            "other policies": self.step(SetPolicies(SLOWLY, "ada")),
            "other policies, at once": self.step(SetPolicies(HOURLY, "ada"), short=False),
            "an agent is lost and forgotten": self.step(
                AgentGone(OWNED.name, gone, 8), Forget(OWNED.name, gone, "ada")
            ),
            "a dry run": self.asked(self._try),
            "why": self.asked(lambda: explain(self.engine, last)),
            "a start with other budgets": self.configure((OWNED, CLOUD), BUDGETS),
            "a start with another cluster": self.configure((OWNED, CLOUD, OTHER), BUDGETS),
        }
        room = Resources(10_000_000, 2**60)
        rented = Register(CLOUD.name, NodeName("v1"), NODES + 1, room, (), {}, 0, ())
        self.step(rented)
        self.now += 3 * HOUR
        found["all waits are over, and a budget is spent"] = self.step()
        self.configure((OWNED, CLOUD, OTHER), ())
        found["much room to rent"] = self.step(structs.replace(rented, incarnation=NODES + 2))
        return found


def _serve(pipe: Connection, make: Callable[[], Queue]) -> None:
    pipe.send(make().run())


def _measured(make: Callable[[], Queue]) -> dict[str, Pause]:
    """Measure in a separate process, so that one queue does not slow another down."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, make), daemon=True)
    process.start()
    theirs.close()
    found: dict[str, Pause] = ours.recv()
    process.join()
    return found


def measure(options: Options) -> Report:
    """Measure the longest step of each operation, for three queues of two lengths."""
    many = 50_000 if options.quick else 1_000_000
    few = many // 100
    report = Report("pauses")
    for name, lanes in ((f"{LANES:,} kinds of jobs", LANES), ("one kind", 1), ("one array", 0)):
        tell(f"{many:,} jobs, {name}")
        short, long = _measured(partial(Queue, few, lanes)), _measured(partial(Queue, many, lanes))
        table = Table(
            f"{many:,} queued jobs, {name}: CPU milliseconds",
            ("what happens", "longest step", f"with {few:,}", "steps", "in all"),
        )
        for what, pause in long.items():
            table.add(what, pause.longest, short[what].longest, pause.steps, pause.whole)
            report.figures[f"{name}: {what}"] = pause.longest
        report.tables.append(table)
        worst = max(pause.longest for what, pause in long.items() if not what.endswith("at once"))
        report.goals.append(Goal(f"{name}: longest step, ms", worst, LIMIT, at_most=True))
    report.notes.append(
        "`at once` is the old way: the engine builds the whole scheduling index and decides everything in one step."
    )
    return report


if __name__ == "__main__":
    main(measure, __doc__ or "")
