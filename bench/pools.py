"""Measures pools of rented machines: what it costs to plan them, what they cost, and how soon jobs start on them.

The plan of machines is measured alone, on a virtual clock, with offers and machines as a large site has them. Then whole
decisions are, with the wait policy that compares owned with rented capacity. What
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
from bench.reporting import Goal, Options, Report, Table, main, tell
from spillover.core.decide import DECIDERS
from spillover.core.events import MachinesWanted
from spillover.core.pool_proposals import PausePool, SeeMade
from spillover.core.proposals import NewJob, Proposal, Register, Started, StartEpoch, Submit, UpdateCluster
from spillover.core.records.jobs import Placed
from spillover.core.state import State
from spillover.deciding.cycle import cycle
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
NEW: Final = (1, 100, 2000)
SHAPES: Final = 20
"""Different requests of the due jobs, none of which fits on machines that are there."""
AT_ONCE: Final = Choice("zero")
BREAK_EVEN: Final = Choice("break_even", {"coefficient": 0.5})
MOST_MS: Final = 20
"""The most CPU milliseconds of a plan or a decision for one job. Every job that comes may wait for one."""
MOST_TIMES: Final = 2
"""How many times as long as with 10 offers it may take with 100, while 1,000 machines boot."""

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

    def __init__(
        self,
        machines: int,
        due: int,
        kind: str,
        wait: Choice = AT_ONCE,
        offers: Sequence[Offer] | None = None,
    ) -> None:
        self._jobs = self._agents = 0
        self.engine = Engine(State(), load, now=START)
        policies, offers = PolicySet(wait=wait, depth=max(DUE)), offers or tuple(_offers())
        self._step(StartEpoch(1, (_cloud(offers, machines, least=machines),), policies))
        self._boot(machines, join=kind != BOOTING)
        if kind == BUSY:
            self._submit([_job(NODE, HOUR * (number + 1) // machines) for number in range(machines)])
        self._step(UpdateCluster(_cloud(offers, machines), "ada"))
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

    def _new(self, specs: Sequence[JobSpec]) -> Submit:
        jobs = [NewJob(JobId(f"j{self._jobs + at:011d}"), spec, b"spec") for at, spec in enumerate(specs)]
        self._jobs += len(jobs)
        return Submit(tuple(jobs), "ada")

    def _submit(self, specs: Sequence[JobSpec]) -> None:
        """Submit jobs, and start those that get a place."""
        new = self._new(specs)
        self._step(new)
        book = [self.engine.state.jobs[each.job] for each in new.jobs]
        self._step(*[Started(job.phase.key, job.lease, 0) for job in book if isinstance(job.phase, Placed)])

    def plan(self) -> tuple[float, int]:
        """Plan machines, carry nothing out, and return the CPU milliseconds and how many machines were ordered."""
        engine = self.engine
        draft = Draft(engine.state, START, 1)
        before = time.process_time()
        events, *_ = rent(draft, engine.index, engine.policies)
        took = time.process_time() - before
        return took * 1000, sum(len(each.wishes) for each in events if isinstance(each, MachinesWanted))

    def add(self, specs: Sequence[JobSpec]) -> None:
        """Let new jobs wait for the first decision about them."""
        new, engine = self._new(specs), self.engine
        events, _ = DECIDERS[Submit](engine.state, new, START)
        for each in events:
            engine.apply(each)

    def decide(self) -> tuple[float, int, int]:
        """Decide about all new jobs, carry nothing out, and return CPU milliseconds, jobs placed and machines ordered."""
        engine = self.engine
        before = time.process_time()
        plan = cycle.run(engine.state, engine.index, engine.policies, START, 1).plan
        took = time.process_time() - before
        ordered = sum(len(each.wishes) for each in plan.machines if isinstance(each, MachinesWanted))
        return took * 1000, len(plan.placements), ordered

    def floor(self) -> float:
        """Return the CPU milliseconds of one look at each machine and its node."""
        state = self.engine.state
        before = time.process_time()
        for each in state.machines.values():
            node = state.nodes.get(each.key)
            if each.state is MachineState.READY and node is not None and not node.held:
                continue
        return (time.process_time() - before) * 1000


def _cloud(offers: Sequence[Offer], machines: int, least: int = 0) -> ClusterSpec:
    pool = Pool("process", tuple(offers), min=least, max=2 * machines)
    return ClusterSpec(CLOUD, "agents", Role.RENTED, pool_price(pool), gangs=True, pool=pool)


def _offers() -> Iterator[Offer]:
    """Yield all types in all zones, on demand and spot."""
    for number, (cpus, memory) in enumerate(TYPES):
        for at, zone in enumerate(ZONES):
            for spot in (False, True):
                hour = round((50_000 * cpus + 2000 * memory) * (1 + at / 50) * (0.4 if spot else 1))
                yield Offer(f"type{number}", Resources(cpus * 1000, memory * GIB), hour, zone, spot)


def _few() -> list[Offer]:
    """Return ten of these offers, spot ones too, with machines for all jobs."""
    return [
        each
        for each in _offers()
        if each.zone == "a" and each.type in {f"type{number}" for number in range(5)}
    ]


def _job(asked: Resources, runs: int, burst: Burst = Burst.ALWAYS) -> JobSpec:
    """Return a job that may be rented at once, unless it says otherwise."""
    shape = Shape(asked, burst=burst)
    return JobSpec(Shell("true"), "job", "default", "default", shape, Terms(estimate=runs))


def _due(number: int) -> JobSpec:
    """Return a job that is too large for the machines that are there."""
    kind = number % SHAPES
    return _job(Resources(5000 + 500 * kind, (4 + kind) * GIB), (5 + kind) * MINUTE)


def _fresh(number: int) -> JobSpec:
    """Return a new job; every second one would fit on the machines that are there."""
    kind = number // 2 % SHAPES
    asked = (
        Resources(1000 + 100 * kind, GIB) if number % 2 else Resources(5000 + 500 * kind, (4 + kind) * GIB)
    )
    return _job(asked, (5 + kind) * MINUTE, Burst.AUTO)


def measure(options: Options) -> Report:
    """Measure plans, then decisions, then costs, then real machines."""
    report = Report("Pools")
    _plans(report, options)
    _decisions(report, options)
    _by_offers(report, options)
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
            if due == 1:
                report.goals.append(
                    Goal(f"ms a plan, {name} machines, 1 due job", p50, MOST_MS, at_most=True)
                )
            tell(f"{due:,} due jobs, {name} machines: {p50:.2f} ms a plan")
    report.tables.append(table)
    report.notes.append(
        "CPU milliseconds of the plan of machines alone, in a process that does nothing else. Due jobs fit on no machine "
        "that is there. The floor is one look at each machine and its node. A plan orders at most 256 machines."
    )


def _decisions(report: Report, options: Options) -> None:
    """Measure whole decisions about new jobs, while machines boot, are empty, or are busy."""
    machines, rounds = (100, 10) if options.quick else (1000, 50)
    table = Table(
        f"One decision with wait=break_even(0.5): {len(tuple(_offers()))} offers, {machines:,} machines",
        ("machines", "new jobs", "p50 ms", "p99 ms", "placed", "ordered"),
    )
    for name in (BOOTING, EMPTY, BUSY):
        for new in NEW:
            site = Site(machines, 0, name, BREAK_EVEN)
            site.add([_fresh(number) for number in range(new)])
            found = [site.decide() for _ in range(rounds if new < max(NEW) else rounds // 5)]
            took = sorted([each for each, _, _ in found])
            p50, p99 = statistics.median(took), took[len(took) * 99 // 100]
            table.add(name, new, p50, p99, *found[-1][1:])
            report.figures[f"decision {name} {new} p50 ms"] = p50
            report.figures[f"decision {name} {new} p99 ms"] = p99
            if new == 1:
                report.goals.append(
                    Goal(f"ms a decision, {name} machines, 1 new job", p50, MOST_MS, at_most=True)
                )
            tell(f"{new:,} new jobs, {name} machines: {p50:.2f} ms a decision")
    report.tables.append(table)
    report.notes.append(
        "A decision is a whole cycle: it admits new jobs, asks the wait policy, places jobs and plans machines. Every second "
        "job would fit on the machines that are there. One with 2,000 new jobs admits 1,000 of them."
    )


def _by_offers(report: Report, options: Options) -> None:
    """Compare plans and decisions of many offers with those of few, while machines boot: they must not look at all of both."""
    machines, rounds = (100, 10) if options.quick else (1000, 50)
    few, many = _few(), tuple(_offers())
    plans = [Site(machines, 1, BOOTING, offers=each) for each in (few, many)]
    decisions = [Site(machines, 0, BOOTING, BREAK_EVEN, each) for each in (few, many)]
    for site in decisions:
        site.add([_fresh(0)])
    for what, sites in (("a plan", plans), ("a decision", decisions)):
        took = [
            statistics.median([(site.plan() if sites is plans else site.decide())[0] for _ in range(rounds)])
            for site in sites
        ]
        times = took[1] / took[0]
        text = f"time of {what} for 1 job while {machines:,} machines boot, {len(many)} offers / {len(few)}"
        report.figures[f"{what} by offers"] = times
        report.goals.append(Goal(text, times, MOST_TIMES, at_most=True))
        tell(f"{text}: {times:.2f}")


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
