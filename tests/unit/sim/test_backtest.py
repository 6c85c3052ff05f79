"""Back-tests of histories that the simulator made itself: what it did once, it does again."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from spillover.control.controllers.archiving import finished_of
from spillover.control.views.past import past_job
from spillover.control.views.queues import queue_views
from spillover.core.apply import apply
from spillover.core.events import AnyEvent, JobEnded, QueuesConfigured
from spillover.core.state import State
from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.inside import Domain, Inside
from spillover.model.job import Burst, Shape
from spillover.model.policy_options import write_policies
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.topology import Level
from spillover.model.units import DAY, MINUTE, MONEY, SECOND, format_time
from spillover.sim.estimates import Told
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.runner import simulate
from spillover.sim.setting import FleetMachine, Scene, Setting, Site
from spillover.sim.studies.backtest import fields, run
from spillover.sim.studies.past import PastJobs, for_all, from_journal, from_slurm
from spillover.sim.studies.served import Ruling, budgets_from, queues_from, ruling_from, site_from
from spillover.sim.trace import Happened, Own, Trace, TraceJob
from spillover.sim.traces.opening import read_trace
from spillover.wire.api import (
    AgentView,
    BudgetView,
    ClusterView,
    DomainView,
    InsideView,
    PastJob,
    PolicyRecord,
)

BEGIN = 20_000 * DAY + 7
"""Of histories: some day in 2024, and a few nanoseconds."""
COMPUTE = read_policies("wait=compute(0.05),backfill=easy")
ZERO = read_policies("wait=zero")
ONPREM, CLOUD = ClusterName("onprem"), ClusterName("cloud")
SITE = Site(
    (
        ClusterSpec(ONPREM, "agents", Role.OWNED),
        ClusterSpec(
            CLOUD, "agents", Role.RENTED, Price(40_000, 0, 2_500_000), Billing(60 * SECOND, 60 * SECOND)
        ),
    ),
    (
        FleetMachine(ONPREM, NodeName("a1"), Resources(8000, 2**36, 2)),
        FleetMachine(ONPREM, NodeName("a2"), Resources(16_000, 2**36)),
        FleetMachine(CLOUD, NodeName("v1"), Resources(32_000, 2**37, 4), ("arch:x",)),
        FleetMachine(CLOUD, NodeName("v2"), Resources(8000, 2**36), ()),
    ),
)


def some_jobs(count: int = 400, seed: int = 1) -> list[TraceJob]:
    """Jobs of all kinds, at times that no clock shows to the nanosecond."""
    dice = random.Random(seed)
    jobs, now = [], BEGIN
    for at in range(count):
        now += round(dice.expovariate(1 / (40 * SECOND)))
        runs = round(dice.lognormvariate(1, 1) * MINUTE) + 1
        gpus = dice.choice([0, 0, 0, 1, 2])
        shape = Shape(
            Resources(dice.choice([1000, 2500, 4000]), 2**30, gpus),
            ("arch:x",) if at % 50 == 3 else (),
            burst=dice.choice([Burst.AUTO, Burst.AUTO, Burst.AUTO, Burst.NEVER])
            if at % 50 != 3
            else Burst.AUTO,
        )
        estimate = round(runs * dice.uniform(0.3, 3)) if at % 3 else None
        walltime = runs * 2 if at % 4 == 1 else None
        own = Own(shape, "train", "default", dice.choice([0, 0, 5]), max_cost=MONEY if at % 7 == 0 else None)
        total = shape.total
        jobs.append(
            TraceJob(
                str(at),
                now,
                runs,
                total.gpu,
                total.cpu,
                0,
                total.memory,
                f"u{at % 5}",
                f"p{at % 3}",
                walltime,
                estimate,
                own,
            )
        )
    return jobs


class Recorder:
    """What a server would keep of a simulation, as it would tell it: newest first, as lines of JSON."""

    def __init__(self) -> None:
        self.state = State()
        self.told: list[PastJob] = []

    def __call__(self, _: int, events: Sequence[AnyEvent]) -> None:
        for event in events:
            apply(self.state, event)
            if isinstance(event, JobEnded) and (row := finished_of(self.state.jobs[event.job])) is not None:
                self.told.append(past_job(row))

    def past(self) -> list[PastJob]:
        self.told.sort(key=lambda job: -int(job.id))
        lines = [msgspec.json.encode(job) for job in self.told]
        return [msgspec.json.decode(line, type=PastJob) for line in lines]


def queues_in(history: PastJobs, queues: tuple[QueueSpec, ...]) -> PastJobs:
    """The same history without deadlines, with the queues that a server has now."""
    replace = msgspec.structs.replace
    jobs = [replace(job, own=replace(job.own, deadline=None)) for job in history.jobs if job.own is not None]
    history = replace(history, jobs=tuple(jobs))
    return msgspec.structs.replace(history, queues=for_all(queues, history.jobs))


def recorded(scene: Scene, jobs: Sequence[TraceJob]) -> PastJobs:
    recorder = Recorder()
    simulate(jobs, scene, recorder)
    views = [
        BudgetView(
            each.of, "vision", each.per, "", None, each.limit / MONEY, 0.0, 0.0, 0.0, 0.0, each.name == "*"
        )
        for each in scene.budgets
    ]
    return from_journal(recorder.past(), scene.site, budgets_from(views), queues=scene.queues)


@pytest.mark.parametrize(
    "line", ["wait=compute(0.05),backfill=easy", "wait=zero", "order=sjf,place=worst_fit"]
)
def test_a_history_that_the_scheduler_made_is_simulated_without_any_error(line: str) -> None:
    policies = read_policies(line)
    jobs = some_jobs()
    history = recorded(Scene(SITE, policies, begin=BEGIN), jobs)
    found = run(history, Ruling(policies), [], Told.THEN)
    assert found.happened.statistics == found.really.statistics
    assert found.happened.statistics.rented_cost > 0
    assert found.error == msgspec.structs.replace(
        found.error,
        jobs=len(history.jobs),
        mean_wait_s=0.0,
        cost=0.0,
        mean_start_s=0.0,
        p90_start_s=0.0,
        elsewhere_jobs=0,
        elsewhere=0.0,
    )
    lives = zip(found.happened.outcomes, found.really.outcomes, strict=True)
    assert all(
        (a.start, a.end, a.cluster, a.node, a.cost) == (b.start, b.end, b.cluster, b.node, b.cost)
        for a, b in lives
    )


def test_policies_that_changed_meanwhile_change_in_the_simulation_too() -> None:
    jobs = some_jobs()
    middle = jobs[200].submit - 1
    changes = ((middle, ZERO),)
    history = recorded(Scene(SITE, COMPUTE, begin=BEGIN, changes=changes), jobs)
    assert not run(history, Ruling(COMPUTE, changes), [], Told.THEN).error.mean_start_s
    assert run(history, Ruling(COMPUTE), [], Told.THEN).error.mean_start_s


def test_budgets_hold_in_the_simulation_as_they_did() -> None:
    budgets = (Budget(Of.PROJECT, "*", Per.DAY, 4 * MONEY),)
    capped = recorded(Scene(SITE, ZERO, begin=BEGIN, budgets=budgets), some_jobs())
    free = recorded(Scene(SITE, ZERO, begin=BEGIN), some_jobs())
    assert capped.budgets == budgets
    spent = run(capped, Ruling(ZERO), [], Told.THEN)
    assert not spent.error.mean_start_s
    assert (
        spent.happened.statistics.rented_cost
        < run(free, Ruling(ZERO), [], Told.THEN).happened.statistics.rented_cost
    )


def test_another_policy_is_told_against_what_happened_by_project() -> None:
    patient = read_policies("wait=constant(1h)")
    history = recorded(Scene(SITE, patient, begin=BEGIN), some_jobs())
    heard: list[str] = []
    found = run(history, Ruling(patient), [("wait=zero", ZERO)], Told.THEN, 10, heard.append)
    assert heard == ["what really ran", "wait=zero"]
    (zero,) = found.policies
    assert zero.policy == write_policies(ZERO)
    assert zero.statistics.jobs == len(history.jobs) - 20
    assert zero.statistics.mean_wait_s < found.happened.statistics.mean_wait_s
    assert zero.statistics.rented_cost > found.happened.statistics.rented_cost
    assert [one.project for one in zero.projects] != []
    assert sum(one.jobs for one in zero.projects) == zero.statistics.jobs
    cost = sum(one.cost_then for one in zero.projects)
    assert cost == pytest.approx(zero.statistics.rented_cost)
    told = fields(found, history, Ruling(patient), Told.THEN, 10)
    assert msgspec.json.decode(msgspec.json.encode(told))["policies"][0]["projects"][0]["verdict"] == "wins"


def test_what_policies_were_told_then_is_not_how_long_jobs_really_ran() -> None:
    history = recorded(Scene(SITE, COMPUTE, begin=BEGIN), some_jobs())
    assert run(history, Ruling(COMPUTE), [], Told.RUNTIME).error.mean_start_s > 0


def test_a_warmup_that_leaves_nothing_and_a_span_without_jobs_are_refused() -> None:
    history = recorded(Scene(SITE, COMPUTE, begin=BEGIN), some_jobs(20))
    with pytest.raises(BadForm, match="leaves none of the 20 jobs; the maximum is 9"):
        run(history, Ruling(COMPUTE), [], Told.THEN, 10)
    with pytest.raises(BadForm, match="no job ran in this time range"):
        run(from_journal([], SITE), Ruling(COMPUTE), [], Told.THEN)


def a_past_job(**changes: object) -> PastJob:
    values = {
        "id": "a",
        "name": "train",
        "user": "ada",
        "project": "vision",
        "queue": "default",
        "priority": 0,
        "state": "SUCCEEDED",
        "submitted_ns": 10 * SECOND,
        "ready_ns": 10 * SECOND,
        "started_ns": 20 * SECOND,
        "finished_ns": 30 * SECOND,
        "ran_ns": 9 * SECOND,
        "attempt": 1,
        "cluster": "onprem",
        "node": "a1",
        "cost": 0.0,
        "cpu_milli": 1000,
        "memory": 0,
        "gpu": 0,
        "tasks": 1,
        "needs": [],
        "burst": "auto",
        "walltime_ns": None,
        "estimate_ns": None,
        "predicted_ns": None,
        "deadline_ns": None,
        "max_cost": None,
        "data": 0,
    }
    return msgspec.convert(values | changes, PastJob)


def test_jobs_wait_from_when_they_could_have_been_placed() -> None:
    early = a_past_job(id="early", submitted_ns=1, ready_ns=15 * SECOND)
    history = from_journal([a_past_job(), early], SITE)
    assert [job.id for job in history.jobs] == ["a", "early"]
    assert [one.start - one.submit for one in history.happened] == [10 * SECOND, 5 * SECOND]


def test_members_of_an_array_come_in_their_order() -> None:
    past = [a_past_job(id="b")] + [a_past_job(id=f"a.{number}") for number in (1, 10, 2)]
    assert [job.id for job in from_journal(past, SITE).jobs] == ["a.1", "a.2", "a.10", "b"]


def test_what_cannot_be_simulated_as_it_was_is_remarked() -> None:
    past = [
        a_past_job(id="never", started_ns=None, cluster=None, node=None),
        a_past_job(id="again", attempt=3),
        a_past_job(id="gone", node="old"),
    ]
    site = Site((*SITE.clusters, ClusterSpec(ClusterName("new"), "agents", Role.OWNED)), SITE.machines)
    history = from_journal(past, site)
    assert (len(history.jobs), history.never_ran) == (2, 1)
    again, gone, empty = history.remarks
    assert again == "1 job ran more than once; the simulation uses the last attempt of each"
    assert "1 job ran on machines that no longer exist" in gone
    assert empty == "clusters without machines now, and so without machines in the simulation: new"


def test_an_estimate_is_the_owners_else_the_walltime_else_what_was_predicted() -> None:
    def told(**changes: object) -> tuple[int | None, int | None]:
        (job,) = from_journal([a_past_job(**changes)], SITE).jobs
        return job.estimate, job.walltime

    assert told(estimate_ns=5, walltime_ns=7, predicted_ns=9) == (5, 7)
    assert told(walltime_ns=7, predicted_ns=9) == (None, 7)
    assert told(predicted_ns=9) == (9, None)
    assert told() == (None, None)


def test_machines_and_prices_are_those_of_the_server() -> None:
    amounts = {"cpu": 8.0, "memory": 2.0**36, "gpu": 2.0}
    price = {"cpu_hour": 0.04, "memory_gib_hour": 0.0, "gpu_hour": 2.5, "node_hour": 9.99, "egress_gb": 0.1}
    clusters = [
        ClusterView(
            "onprem",
            "agents",
            "owned",
            "READY",
            1,
            amounts,
            {},
            0,
            {},
            billing={"step_s": 1.0},
            levels={"rack": "in"},
        ),
        ClusterView(
            "cloud",
            "agents",
            "rented",
            "READY",
            1,
            amounts,
            {},
            0,
            price,
            90.0,
            {"step_s": 60.0, "minimum_s": 0.5},
            amounts,
            gangs=True,
        ),
    ]
    agents = [
        AgentView(
            "a1",
            "onprem",
            "ready",
            amounts,
            {},
            0,
            0,
            ["b", "a"],
            {"in": "r1"},
            None,
            inside=InsideView([DomainView(0, ["0-7"], [], 0)], [], []),
        ),
        AgentView("a2", "onprem", "lost", amounts, {}, 0, 0, [], {}, None),
    ]
    site = site_from(clusters, agents)
    inside = Inside((Domain(0, ("0-7",)),))
    machine = FleetMachine(
        ONPREM, NodeName("a1"), Resources(8000, 2**36, 2), ("a", "b"), (("in", "r1"),), inside
    )
    assert site.machines == (machine,)
    assert site.clusters[0].levels == (Level("rack", "in"),)
    owned, cloud = site.clusters
    assert (owned.role, owned.price, owned.billing) == (Role.OWNED, Price(), Billing())
    assert (cloud.role, cloud.startup, cloud.gangs) == (Role.RENTED, 90 * SECOND, True)
    assert cloud.billing == Billing(60 * SECOND, SECOND // 2)
    assert cloud.price.node is not None
    assert (cloud.price.node.hour, cloud.price.egress_gb) == (9_990_000, 100_000)
    assert cloud.price.node.resources == Resources(8000, 2**36, 2)


def test_what_decided_is_found_in_the_changes() -> None:
    lines = [write_policies(read_policies(f"wait=constant({hours}h)")) for hours in range(4)]
    records = [
        PolicyRecord(format_time(at * DAY), "ada", "set", lines[at - 1], lines[at], [], None)
        for at in (3, 2, 1)
    ]

    def ruled(begin: float, end: float) -> tuple[str, list[str]]:
        ruling = ruling_from(lines[3], records, int(begin * DAY), int(end * DAY))
        return write_policies(ruling.first), [write_policies(one) for _, one in ruling.changes]

    assert ruled(3.5, 4) == (lines[3], [])
    assert ruled(0.5, 0.7) == (lines[0], [])
    assert ruled(0.5, 2.5) == (lines[0], [lines[1], lines[2]])
    assert ruled(1, 9) == (lines[1], [lines[2], lines[3]])
    with pytest.raises(BadForm, match="--really"):
        ruling_from("wait=of_our_own", [], 0, 1)


def test_a_slurm_history_that_the_scheduler_made_is_simulated_without_any_error(tmp_path: object) -> None:
    dice = random.Random(3)
    jobs, now = [], 0
    for at in range(300):
        now += round(dice.expovariate(1 / 300)) * SECOND
        runs = round(dice.lognormvariate(7, 1) + 1) * SECOND
        gpus = dice.choice([1, 2, 8])
        limit = (runs // MINUTE + 1 + at % 9) * MINUTE
        jobs.append(TraceJob(str(at), now, runs, gpus, gpus * 4000, 1, 0, "ada", "vision", limit))
    policies = read_policies("wait=never,backfill=easy,place=first_fit")
    fleet, rent = read_owned("2x8gpu,64cpu"), read_rented("gpu=2.5")
    lines = ["JobID|User|Account|Submit|Eligible|Start|End|State|AllocTRES|TimelimitRaw|NNodes"]
    for one in simulate(jobs, Setting(fleet, rent, policies)):
        job = jobs[one.job]
        # Submitted an hour before they may run: that hour is none of the scheduler's.
        times = [
            format_time(BEGIN + at)[:19]
            for at in (job.submit - 3600 * SECOND, job.submit, one.start, one.end)
        ]
        tres = f"cpu={job.cpus // 1000},gres/gpu={job.gpus},node=1"
        limit = (job.walltime or 0) // MINUTE
        lines.append("|".join([job.id, job.user, job.project, *times, "COMPLETED", tres, str(limit), "1"]))
    path = f"{tmp_path}/sacct.txt"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - as good here
        file.write("\n".join(lines) + "\n")
    trace = read_trace(path)
    history = from_slurm(trace, fleet, rent, None, None)
    found = run(history, Ruling(policies), [("wait=zero", ZERO)], Told.THEN)
    assert not found.error.mean_start_s
    assert not found.error.elsewhere
    assert found.happened.statistics == found.really.statistics
    assert found.happened.statistics.rented_cost == 0 < found.policies[0].statistics.rented_cost
    middle = trace.zero + trace.jobs[100].submit
    early, late = (from_slurm(trace, fleet, rent, *span) for span in ((None, middle), (middle, None)))
    assert (len(early.jobs), early.standing) == (100, 0)
    lives = [(job, past) for job, past in zip(trace.jobs, trace.happened, strict=True) if past is not None]
    there = [past.ready is None or past.ready <= trace.jobs[100].submit < past.end for _, past in lives[:100]]
    later = [past.ready is not None and past.ready > trace.jobs[100].submit for _, past in lives[:100]]
    assert (late.standing, len(late.counted())) == (sum(there), 200 + sum(later))
    assert sum(there) > 0 < sum(later)


def test_what_ran_and_waited_when_a_span_begins_takes_its_room_and_counts_nowhere() -> None:
    scene = Scene(SITE, read_policies("wait=constant(10m)"), begin=BEGIN)
    recorder = Recorder()
    simulate(some_jobs(), scene, recorder)
    past = recorder.past()
    middle = next(job.submitted_ns for job in past if job.id == "200")
    inside = [job for job in past if job.submitted_ns >= middle]
    before = [job for job in past if job.submitted_ns < middle <= job.finished_ns]
    full = from_journal(inside, SITE, [], before, middle)
    empty = from_journal(inside, SITE)
    assert full.standing == len(before) > 10
    assert len(full.counted()) == len(empty.counted()) == len(inside)
    ruling = Ruling(scene.policies)
    found, naive = (run(each, ruling, [("zero", ZERO)], Told.THEN) for each in (full, empty))
    assert found.happened.statistics.jobs == found.really.statistics.jobs == len(inside)
    assert found.happened.statistics.mean_wait_s == naive.happened.statistics.mean_wait_s
    assert found.error.mean_start_s < naive.error.mean_start_s / 3
    assert sum(one.jobs for one in found.policies[0].projects) == len(inside)
    with pytest.raises(BadForm, match="no job ran in this time range"):
        run(from_journal([], SITE, [], before, middle), ruling, [], Told.THEN)


def busy_history(rented: str) -> PastJobs:
    """Jobs of an hour that waited for each other on one machine, for many hours."""
    count = 24
    jobs = tuple([TraceJob(str(at), at * MINUTE, 60 * MINUTE, 4, 1000) for at in range(count)])
    starts = [at // 2 * 60 * MINUTE + MINUTE for at in range(count)]
    happened = tuple([Happened(start, start + 60 * MINUTE) for start in starts])
    trace = Trace(jobs, BEGIN, happened, 0, 0)
    return from_slurm(trace, read_owned("1x8gpu"), read_rented(rented), None, None)


def test_jobs_of_the_past_are_tried_on_machines_of_a_pool() -> None:
    history = busy_history("pool:8gpu,hour=20,boot=90s,step=1h")
    fifo = read_policies("wait=never,backfill=strict")
    found = run(history, Ruling(fifo), [("wait=zero", ZERO)], Told.THEN, swept=[("also", ZERO)])
    assert found.happened.statistics.pool is None
    assert found.really.statistics.pool is not None
    assert found.really.statistics.pool.machines == found.really.statistics.rented_cost == 0
    for one in (found.policies[0], found.swept[0]):
        pool = one.statistics.pool
        assert pool is not None
        assert pool.machines > 0
        parts = pool.useful_hours + pool.boot_hours + pool.idle_hours + pool.interrupted_hours
        assert parts == pytest.approx(pool.paid_hours)
        # Machines cost more than the shares that jobs pay: boots, idle time, and whole hours.
        assert one.statistics.rented_cost == pytest.approx(20 * pool.paid_hours)
        assert one.statistics.rented_cost > sum(job.cost for job in found.policies[0].outcomes) / MONEY
        assert one.statistics.never_ran == 0
    told = fields(found, history, Ruling(fifo), Told.THEN, 0)
    assert told["policies"][0]["pool"] == found.policies[0].statistics.pool
    assert told["happened"]["pool"] is None


def test_a_pool_costs_more_than_its_ideal_and_jobs_wait_for_its_boots() -> None:
    answers = []
    for rented in ("gpu=2.5", "pool:8gpu,hour=20,boot=5m,step=1h"):
        found = run(busy_history(rented), Ruling(ZERO), [], Told.THEN)
        answers.append(found.really.statistics)
    ideal, real = answers
    assert ideal.rented_cost < real.rented_cost
    assert ideal.mean_wait_s < real.mean_wait_s


def test_machines_that_are_fewer_than_ran_jobs_at_a_time_are_remarked() -> None:
    jobs = tuple(TraceJob(str(at), 0, 10 * SECOND, 4, 8000) for at in range(3))
    trace = Trace(jobs, 0, (Happened(0, 10 * SECOND),) * 2 + (Happened(10 * SECOND, 20 * SECOND),))
    rent = read_rented("gpu=1")
    assert from_slurm(trace, read_owned("1x8gpu,16cpu"), rent, None, None).remarks == ()
    (gpus,) = from_slurm(trace, read_owned("1x4gpu"), rent, None, None).remarks
    assert gpus.startswith("jobs used up to 8 GPUs at a time, but --owned has 4; ")
    (cpus,) = from_slurm(trace, read_owned("1x8cpu"), rent, None, None).remarks
    assert cpus.startswith("jobs used up to 16 CPUs at a time, but --owned has 8; ")


def test_jobs_that_never_ran_count_within_the_span_only() -> None:
    jobs = tuple(TraceJob(str(at), at * SECOND, SECOND, 1) for at in range(3))
    happened = tuple(Happened(at * SECOND, (at + 1) * SECOND) for at in range(3))
    asked = (0, SECOND, 2 * SECOND)
    trace = Trace(jobs, 100 * SECOND, happened, 0, 4, asked)  # of one nobody knows when
    fleet, rent = read_owned("1x1gpu"), read_rented("gpu=1")
    spans = [(None, None), (101 * SECOND, None), (None, 101 * SECOND), (101 * SECOND, 102 * SECOND)]
    assert [from_slurm(trace, fleet, rent, *span).never_ran for span in spans] == [4, 3, 2, 2]


def test_limits_of_queues_hold_in_the_simulation_as_they_did() -> None:
    queues = (QueueSpec("default", total=QueueLimits(running=6)),)
    limited = recorded(Scene(SITE, ZERO, begin=BEGIN, queues=queues), some_jobs())
    free = recorded(Scene(SITE, ZERO, begin=BEGIN), some_jobs())
    assert limited.queues == queues
    again = run(limited, Ruling(ZERO), [], Told.THEN)
    assert not again.error.mean_start_s
    assert (
        again.happened.statistics.rented_cost
        < run(free, Ruling(ZERO), [], Told.THEN).happened.statistics.rented_cost
    )


def test_jobs_that_a_queue_would_not_take_any_more_run_in_the_simulation() -> None:
    free = recorded(Scene(SITE, ZERO, begin=BEGIN), some_jobs())
    queues = (
        QueueSpec("other", default=True),
        QueueSpec("default", each=QueueLimits(resources=Resources(1))),
    )
    found = queues_in(free, queues)
    largest = max(job.own.shape.total.cpu for job in free.jobs if job.own is not None)
    assert [each.each.resources.cpu for each in found.queues] == [0, largest]
    assert len(run(found, Ruling(ZERO), [], Told.THEN).really.outcomes) == len(free.jobs)


def test_queues_of_a_server_keep_what_decides_when_jobs_start() -> None:
    limits = QueueLimits(3, Resources(4000, 2**30, 1))
    (spec,) = queues = (QueueSpec("q", total=limits, each=limits, priority=5, clusters=("onprem",)),)
    state = State()
    apply(state, QueuesConfigured(queues))
    (found,) = queues_from(queue_views(state))
    assert found == msgspec.structs.replace(spec, default=True)
