"""Measures pools of rented machines: what it costs to plan them, what they cost, and how soon jobs start on them.

The plan of machines is measured alone, on a virtual clock, with offers and machines as a large site has them. What
machines cost is simulated: a day of a real trace, on a pool, beside capacity that is there at once and costs nothing
while it is idle, and beside pools under fixed rules. Then real servers rent processes: `bench.rented_machines`.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench.rented_machines import measure_fleet, measure_starts
from bench.reporting import Options, Report, Table, main, tell
from spillover.core.events import MachinesWanted
from spillover.core.pool_proposals import PausePool, SeeMade
from spillover.core.proposals import NewJob, Proposal, Register, Started, StartEpoch, Submit, UpdateCluster
from spillover.core.records.jobs import Placed
from spillover.core.state import State
from spillover.deciding.cycle.draft import Draft
from spillover.deciding.engine import Engine
from spillover.deciding.renting.plan import rent
from spillover.forms.policystring import read_policies
from spillover.model.cluster import ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Burst, JobSpec, Shape, Shell, Terms
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineState, Offer, Pool
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.studies.study import Study, read_jobs, run

GIB: Final = 2**30
START: Final = 1_800_000_000 * SECOND
CLOUD: Final = ClusterName("cloud")
TYPES: Final = (
    (4, 16),
    (8, 32),
    (16, 64),
    (32, 128),
    (48, 192),
    (64, 256),
    (8, 64),
    (16, 128),
    (32, 256),
    (64, 512),
)
"""CPUs and GiB of memory of each type that the pool offers."""
ZONES: Final = "abcde"
NODE: Final = Resources(4000, 16 * GIB)
"""The machines that are there are of the first type."""
BOOTING, EMPTY, BUSY = "booting", "empty", "busy"
DUE: Final = (0, 1, 100, 2000)
SHAPES: Final = 20
"""Different requests of the due jobs, none of which fits on machines that are there."""

PHILLY: Final = Path(__file__).resolve().parents[2] / "shared" / "traces" / "philly_2017.csv.gz"
DAY_OF_TRACE: Final = 46
OWNED: Final = "32x8gpu"
POLICY: Final = "wait=compute(0.076)"
QUICK: Final = 300
"""Jobs of the day in a quick run."""
IDEAL: Final = "gpu=2.5"
_TYPES: Final = "8gpu,hour=20,boot=90s,minimum=60s,max=1000;4gpu,hour=10;2gpu,hour=5;1gpu,hour=2.5"
RENTED: Final = {
    "ideal": IDEAL,
    "pool": f"pool:{_TYPES}",
    "pool with spot": f"pool:{_TYPES};8gpu,spot,hour=7,hazard=0.05;1gpu,spot,hour=0.9",
    "idle 10 minutes": f"pool:{_TYPES},idle=10m",
    "one type": "pool:8gpu,hour=20,boot=90s,minimum=60s,max=1000",
    "one type, idle 10 minutes": "pool:8gpu,hour=20,boot=90s,minimum=60s,max=1000,idle=10m",
    "pool by the hour": f"pool:{_TYPES},step=1h",
    "one type by the hour, idle 10 minutes": "pool:8gpu,hour=20,boot=90s,step=1h,max=1000,idle=10m",
}
"""Rented capacity, the ideal first. All types have one price for a GPU."""


class Site:
    """An engine with a pool of many offers, whose machines are booting, empty, or have one job each."""

    def __init__(self, machines: int, due: int, kind: str) -> None:
        self._jobs = self._agents = 0
        self.engine = Engine(State(), load, now=START)
        policies = PolicySet(wait=Choice("zero"), depth=max(DUE))
        self._step(StartEpoch(1, (_cloud(machines, least=machines),), policies))
        self._boot(machines, join=kind != BOOTING)
        if kind == BUSY:
            self._submit([_job(NODE, HOUR * (number + 1) // machines) for number in range(machines)])
        self._step(UpdateCluster(_cloud(machines), "ada"))
        self._step(PausePool(CLOUD, "ada"))
        self._submit([_due(number) for number in range(due)])
        state = self.engine.state
        state.pools[CLOUD] = replace(state.pools[CLOUD], paused="")  # a proposal would order machines at once

    def _step(self, *proposals: Proposal) -> None:
        self.engine.step(START, proposals)
        self.engine.state.dirty.clear()

    def _boot(self, machines: int, *, join: bool) -> None:
        """Let all machines be ordered and made, and let them join."""
        state = self.engine.state
        while len(state.machines) < machines:
            self._step()
        self._step(*[SeeMade(CLOUD, each, f"i-{each}", START) for each in state.machines])
        for number, each in enumerate(state.machines.values() if join else ()):
            offer, name = each.offer, NodeName(each.id)
            self._step(
                Register(CLOUD, name, number + 1, offer.resources, offer.words, offer.agent_labels, 0, ())
            )

    def _submit(self, specs: Sequence[JobSpec]) -> None:
        """Submit jobs, and start those that get a place."""
        jobs = [NewJob(JobId(f"j{self._jobs + at:011d}"), spec, b"spec") for at, spec in enumerate(specs)]
        self._jobs += len(jobs)
        self._step(Submit(tuple(jobs), "ada"))
        book = [self.engine.state.jobs[each.job] for each in jobs]
        self._step(*[Started(job.phase.key, job.lease, 0) for job in book if isinstance(job.phase, Placed)])

    def plan(self) -> tuple[float, int]:
        """Plan machines, carry nothing out, and return the CPU milliseconds and how many machines were ordered."""
        engine = self.engine
        draft = Draft(engine.state, START, 1)
        before = time.process_time()
        events, *_ = rent(draft, engine.index, engine.policies)
        took = time.process_time() - before
        return took * 1000, sum(len(each.wishes) for each in events if isinstance(each, MachinesWanted))

    def floor(self) -> float:
        """Return the CPU milliseconds of one look at each machine and its node."""
        state = self.engine.state
        before = time.process_time()
        for each in state.machines.values():
            node = state.nodes.get(each.key)
            if each.state is MachineState.READY and node is not None and not node.held:
                continue
        return (time.process_time() - before) * 1000


def _cloud(machines: int, least: int = 0) -> ClusterSpec:
    pool = Pool("process", tuple(_offers()), min=least, max=2 * machines)
    return ClusterSpec(CLOUD, "agents", Role.RENTED, pool_price(pool), gangs=True, pool=pool)


def _offers() -> Iterator[Offer]:
    """Yield all types in all zones, on demand and spot."""
    for number, (cpus, memory) in enumerate(TYPES):
        for at, zone in enumerate(ZONES):
            for spot in (False, True):
                hour = round((50_000 * cpus + 2000 * memory) * (1 + at / 50) * (0.4 if spot else 1))
                yield Offer(f"type{number}", Resources(cpus * 1000, memory * GIB), hour, zone, spot)


def _job(asked: Resources, runs: int) -> JobSpec:
    """Return a job that may be rented at once."""
    shape = Shape(asked, burst=Burst.ALWAYS)
    return JobSpec(Shell("true"), "job", "default", "default", shape, Terms(estimate=runs))


def _due(number: int) -> JobSpec:
    """Return a job that is too large for the machines that are there."""
    kind = number % SHAPES
    return _job(Resources(5000 + 500 * kind, (4 + kind) * GIB), (5 + kind) * MINUTE)


def measure(options: Options) -> Report:
    """Measure plans, then costs, then real machines."""
    report = Report("Pools")
    _plans(report, options)
    _costs(report, options)
    measure_fleet(report, options, measure_starts(report, options))
    return report


def _plans(report: Report, options: Options) -> None:
    """Measure plans of machines for any number of due jobs, while machines boot, are empty, or are busy."""
    machines, rounds = (100, 10) if options.quick else (1000, 50)
    table = Table(
        f"One plan of machines: {len(tuple(_offers()))} offers, {machines:,} machines; {rounds} plans each",
        ("machines", "due jobs", "p50 ms", "p99 ms", "ordered", "floor ms"),
    )
    for name in (BOOTING, EMPTY, BUSY):
        for due in DUE:
            site = Site(machines, due, name)
            found = [site.plan() for _ in range(rounds)]
            took = sorted([each for each, _ in found])
            p50, p99 = statistics.median(took), took[rounds * 99 // 100]
            floor = statistics.median([site.floor() for _ in range(rounds)])
            table.add(name, due, p50, p99, found[-1][1], floor)
            report.figures[f"plan {name} {due} p50 ms"] = p50
            report.figures[f"plan {name} {due} p99 ms"] = p99
            tell(f"{due:,} due jobs, {name} machines: {p50:.2f} ms a plan")
    report.tables.append(table)
    report.notes.append(
        "CPU milliseconds of the plan of machines alone, in a process that does nothing else. Due jobs fit on no machine "
        "that is there. The floor is one look at each machine and its node. A plan orders at most 256 machines."
    )


def _costs(report: Report, options: Options) -> None:
    """Simulate a day of a trace on capacity as it would be at best, on a pool, and on pools under fixed rules."""
    if not PHILLY.exists():
        report.notes.append(
            "The trace philly_2017 is not beside the repository (../shared/traces): costs left out."
        )
        return
    owned = read_owned(OWNED)
    read = read_jobs(Study(str(PHILLY), owned, read_rented(IDEAL), skip_bad=True)).jobs
    jobs = [replace(each, submit=each.submit % DAY) for each in read if each.submit // DAY == DAY_OF_TRACE]
    if options.quick:
        jobs = jobs[:QUICK]
    table = Table(
        f"{len(jobs):,} jobs of one day of philly_2017 on {OWNED}, {POLICY}",
        ("rented", "cost", "of ideal", "mean wait s", "p99 wait s", "machines", "useful", "CPU s"),
    )
    ideal = 0.0
    for name, rented in RENTED.items():
        study = Study(str(PHILLY), owned, read_rented(rented))
        before = time.process_time()
        found = run(study, jobs, read_policies(POLICY))[0].statistics
        took = time.process_time() - before
        ideal = ideal or found.rented_cost
        pool = found.pool
        useful = "" if pool is None else f"{pool.useful_hours / pool.paid_hours:.1%}"
        machines = "" if pool is None else pool.machines
        times = found.rented_cost / ideal
        table.add(name, found.rented_cost, times, found.mean_wait_s, found.p99_wait_s, machines, useful, took)
        report.figures[f"cost {name} of ideal"] = times
        tell(f"{name}: {found.rented_cost:,.0f}, {times:.3f} of ideal, {took:.1f} CPU seconds")
        if found.never_ran:
            report.notes.append(f"{name}: {found.never_ran} jobs never ran.")
    report.tables.append(table)
    report.notes.append(
        "`ideal` is capacity without boots and idle time, paid by use. `useful` is the share of the paid machine hours "
        f"in which completed jobs used the machine, by their part of it. The pool is `{RENTED['pool']}`; the others differ "
        "in what their names say. A GPU costs the same in all on-demand types."
    )


if __name__ == "__main__":
    main(measure, __doc__ or "")
