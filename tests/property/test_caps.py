"""Whatever the order of events: no cap is passed, by what is spent and held together, at any time."""

from itertools import count
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spillover.core.events import CostHeld, JobEnded, JobRequeued, MemberPlaced, Usage
from spillover.core.proposals import (
    Act,
    Archived,
    Change,
    HandBack,
    Jump,
    NewJob,
    Outcome,
    Proposal,
    Reclaim,
    Register,
    Result,
    Started,
    StartEpoch,
    Submit,
)
from spillover.core.records.jobs import Ended, Job, Placed, Running
from spillover.core.records.tasks import JobTask
from spillover.deciding.cycle import cycle
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.budget import Budget, Caps, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeName, job_id
from spillover.model.job import WALLTIME_SLACK, Burst, JobSpec, Range, Retry, Shape, Shell, Terms
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import DAY, HOUR, MINUTE, MONEY, SECOND
from spillover.policies.loading import load
from spillover.testing.world import OWNED, World
from tests.support.sameness import Checkpoints, said_by
from tests.support.tiers import examples

NAME = ClusterName
CLOUD = ClusterSpec(
    NAME("cloud"), "agents", Role.RENTED, Price(cpu_hour=MONEY, egress_gb=MONEY // 10), gangs=True
)
SPOT = ClusterSpec(NAME("spot"), "agents", Role.RENTED, Price(MONEY // 3), Billing(7 * MINUTE, HOUR))
WHOLE = ClusterSpec(
    NAME("whole"), "agents", Role.RENTED, Price(node=NodeClass("m", Resources(1000), MONEY)), Billing(MINUTE)
)
FREE = ClusterSpec(NAME("free"), "agents", Role.RENTED, Price(egress_gb=MONEY))
RENTED = [(CLOUD,), (SPOT,), (WHOLE,), (SPOT, CLOUD), (CLOUD, WHOLE, SPOT), (CLOUD, FREE)]
HELD = PolicySet(wait=Choice("zero"))
LATER = PolicySet(wait=Choice("constant", {"wait": MINUTE}))

amounts = st.sampled_from([0, MONEY // 100, MONEY // 5, MONEY, 3 * MONEY, 20 * MONEY, 20 * MONEY])
RARELY = st.sampled_from([True, *([False] * 5)])
budgets = st.lists(
    st.builds(
        Budget,
        st.sampled_from([Of.PROJECT, Of.PROJECT, Of.USER]),
        st.sampled_from(["*", "p", "q", "ada"]),
        st.sampled_from(Per),
        amounts,
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda budget: (budget.of, budget.name, budget.per),
)
shapes = st.builds(
    Shape,
    st.builds(Resources, st.sampled_from([500, 1000, 2000])),
    tasks=st.sampled_from([1, 1, 1, 3]),
    burst=st.sampled_from([Burst.AUTO, Burst.ALWAYS]),
)
terms = st.builds(
    Terms,
    walltime=st.sampled_from([None, None, SECOND, 10 * MINUTE, 3 * HOUR]),
    estimate=st.sampled_from([None, None, SECOND, HOUR]),
    grace=st.sampled_from([0, 10 * SECOND]),
    retry=st.builds(Retry, st.integers(0, 2), st.integers(0, 2)),
    max_cost=st.one_of(st.none(), amounts),
    data=st.sampled_from([0, 0, 0, 1, 10**10]),
)
spans = st.sampled_from([0, SECOND, MINUTE, HOUR, 5 * HOUR, DAY, 40 * DAY])
PARTS = st.sampled_from([0.0, 0.3, 1.0, 1.0])


def living(job: Job) -> list[JobTask]:
    """The tasks of a placed job that go on."""
    return [task for task in job.tasks if task.lives]


class Spending(RuleBasedStateMachine):
    """Random lives of jobs that cost money, run by agents that keep to the walltimes they are given."""

    @initialize(
        budgets=budgets,
        clusters=st.sampled_from(RENTED),
        policies=st.sampled_from([HELD, HELD, LATER]),
    )
    def begin(self, budgets: list[Budget], clusters: tuple[ClusterSpec, ...], policies: PolicySet) -> None:
        self.clusters = (OWNED, *clusters)
        self.policies, self.budgets, self.caps = policies, tuple(budgets), Caps(budgets)
        self.world = World(load, policies, self.clusters, budgets=self.budgets)
        self.numbers, self.epochs, self.seen = count(1), 1, 0
        self.spent: dict[str, int] = {}
        """Counted anew from events alone, also of periods that the state has forgotten."""
        self.limits: dict[str, int] = {}
        self.holds: dict[JobId, CostHeld] = {}
        self.costs: dict[JobId, int] = {}
        for cluster in self.clusters:
            cpus = 1 if cluster is OWNED else 8
            self.world.agent("n1", cpus=cpus, cluster=cluster.name, queue=2)

    def propose(self, *proposals: Proposal) -> None:
        self.world.step(*proposals)

    def placed(self) -> list[Job]:
        return [job for job in self.world.state.jobs.values() if isinstance(job.phase, Placed | Running)]

    def pick(self, number: int) -> Any:
        placed = self.placed()
        return placed[number % len(placed)] if placed else None

    def task(self, job: Job, number: int) -> JobTask:
        """One of the tasks of a placed job that go on."""
        tasks = living(job)
        return tasks[number % len(tasks)]

    # --- what happens

    @rule(
        specs=st.lists(
            st.tuples(
                shapes, terms, st.sampled_from(["p", "q"]), st.sampled_from([(), (), (), (Range(0, 3),)])
            ),
            min_size=2,
            max_size=6,
        ),
        user=st.sampled_from(["ada", "bob"]),
        part=st.one_of(st.none(), PARTS),
    )
    def submit(self, specs: list[Any], user: str, part: float | None) -> None:
        """Jobs come, and often they run at once."""
        new = [
            NewJob(
                job_id(next(self.numbers)),
                JobSpec(
                    Shell("true"),
                    "name",
                    project,
                    "default",
                    shape,
                    term,
                    array=array if shape.tasks == 1 else (),
                ),
                b"spec",
            )
            for shape, term, project, array in specs
        ]
        self.propose(Submit(tuple(new), user))
        if part is not None:
            self.run_some(9, part, 0)

    @rule(pick=st.integers(0, 50), age=st.sampled_from([0, SECOND, HOUR]))
    def start(self, pick: int, age: int) -> None:
        if (job := self.pick(pick)) is not None:
            task = self.task(job, pick)
            self.propose(Started(self.world.speaker(job, task.rank), job.lease_of(task.rank), age))

    @rule(
        pick=st.integers(0, 50),
        outcome=st.sampled_from([Outcome.EXITED, Outcome.EXITED, *Outcome]),
        code=st.sampled_from([0, 1]),
        part=PARTS,
        age=st.sampled_from([0, MINUTE, DAY]),
    )
    def end(self, pick: int, outcome: Outcome, code: int, part: float, age: int) -> None:
        """Under its walltime, at it, or as late as an agent may be."""
        if (job := self.pick(pick)) is not None:
            self.finish(job, self.task(job, pick), outcome, code, part, age)

    def finish(self, job: Job, task: JobTask, outcome: Outcome, code: int, part: float, age: int) -> None:
        most = 100 * HOUR if job.walltime is None else job.walltime + job.terms.grace + WALLTIME_SLACK
        ran = int(most * part) if part < 1 else most
        exit_code = code if outcome is Outcome.EXITED else None
        node, lease = self.world.speaker(job, task.rank), job.lease_of(task.rank)
        self.propose(Result(node, lease, outcome, exit_code, None, Usage(ran, ran, 1), age))

    @rule(most=st.integers(1, 5), part=PARTS, code=st.sampled_from([0, 1]))
    def run_some(self, most: int, part: float, code: int) -> None:
        """The usual life: what was placed starts and ends, mostly as late as it may."""
        for job in self.placed()[-most:]:
            for task in living(job):
                if task in job.tasks:  # else its job began anew
                    self.propose(Started(self.world.speaker(job, task.rank), job.lease_of(task.rank), 0))
                    self.finish(job, task, Outcome.EXITED, code, part, 0)

    @rule(pick=st.integers(0, 50), back=st.booleans())
    def give_up(self, pick: int, back: bool) -> None:
        if (job := self.pick(pick)) is not None:
            rank = self.task(job, pick).rank
            node, leases = self.world.speaker(job, rank), (job.lease_of(rank),)
            self.propose(HandBack(node, leases) if back else Reclaim(node, leases))

    @rule(pick=st.integers(0, 50), act=st.sampled_from([Act.CANCEL, Act.REQUEUE, Act.HOLD, Act.RELEASE]))
    def act(self, pick: int, act: Act) -> None:
        jobs = [job.id for job in self.world.state.jobs.values() if type(job.phase) is not Ended]
        if jobs:
            self.propose(Change(act, (jobs[pick % len(jobs)],), "bob"))

    @rule(pick=st.integers(0, 9), keeps=st.booleans(), cpus=st.sampled_from([1, 4, 4, 8]), really=RARELY)
    def come_back(self, pick: int, keeps: bool, cpus: int, really: bool) -> None:
        if not really:
            return
        cluster = self.clusters[pick % len(self.clusters)].name
        there = [job for job in self.placed() if job.phase.cluster == cluster] if keeps else []  # type: ignore[union-attr]
        held = tuple(job.lease_of(task.rank) for job in there for task in living(job))
        incarnation = self.world.state.facts.incarnations + 1
        room = Resources(cpus * 1000, 2**40)
        self.propose(Register(cluster, NodeName("n1"), incarnation, room, (), {}, 2, held))

    @rule(span=spans)
    def wait(self, span: int) -> None:
        self.world.wait(seconds=span / SECOND)

    @rule(span=spans, really=RARELY)
    def jump(self, span: int, really: bool) -> None:
        if not really:
            return
        self.world.now += span
        self.propose(Jump(span))

    @rule(gap=spans, really=RARELY)
    def restart(self, gap: int, really: bool) -> None:
        if not really:
            return
        self.epochs += 1
        self.world.now += gap
        self.propose(StartEpoch(self.epochs, self.clusters, self.policies, gap, self.budgets))
        for at in range(len(self.clusters)):
            self.come_back(at, True, 4, True)

    @rule()
    def archive(self) -> None:
        self.propose(
            Archived(tuple(job.id for job in self.world.state.jobs.values() if type(job.phase) is Ended))
        )

    # --- what must hold

    def take_in(self) -> None:
        """Count what the events since the last look say."""
        arrays = {event.array for event in self.world.happened(MemberPlaced)}
        for event in self.world.events[self.seen :]:
            if isinstance(event, CostHeld):
                self.holds[event.job] = event
            elif isinstance(event, JobRequeued | JobEnded) and event.job not in arrays:
                paid = event.cost - self.costs.get(event.job, 0)
                self.costs[event.job] = event.cost
                hold = self.holds.pop(event.job, None)
                for period in hold.periods if hold is not None else ():
                    self.spent[period.key] = self.spent.get(period.key, 0) + paid
        self.seen = len(self.world.events)

    @invariant()
    def no_cap_is_passed(self) -> None:
        if not hasattr(self, "world"):
            return
        self.take_in()
        state = self.world.state
        assert state.facts.overruns == 0
        used = dict(self.spent)
        for hold in self.holds.values():
            assert hold.amount >= 0
            for period in hold.periods:
                used[period.key] = used.get(period.key, 0) + hold.amount
        for key, amount in used.items():
            assert amount <= self.limit(key), key
        for key, counted in state.budget_periods.items():
            assert counted.spent + counted.held == used[key]
        for job in state.jobs.values():
            own, most = job.extra.hold, job.terms.max_cost
            if most is not None and job.extra.members is None:
                assert job.cost + (own.amount if own is not None else 0) <= most
            assert (own is None) == (job.id not in self.holds)

    def limit(self, key: str) -> int:
        of, name, per, _ = key.split("/")
        own = [each for each in self.budgets if (each.of, each.per) == (of, per)]
        named = [each for each in own if each.name == name] or [each for each in own if each.name == "*"]
        (budget,) = named
        return budget.limit

    @invariant()
    def what_costs_is_held_for(self) -> None:
        """No job that a cap concerns runs where it costs something without a hold."""
        if not hasattr(self, "world"):
            return
        state = self.world.state
        for job in self.placed():
            assert isinstance(job.phase, Placed | Running)
            spec = state.clusters[job.phase.cluster]
            capped = job.terms.max_cost is not None or self.caps.on(job.kind.project, job.user, 0)
            if capped and spec.role is Role.RENTED and spec is not FREE:
                assert job.extra.hold is not None
                assert job.walltime is not None
            if spec.role is Role.OWNED:
                assert job.extra.hold is None

    @invariant()
    def a_restart_plans_the_same(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        dirty, records = world.state.dirty.copy(), Checkpoints()
        for job in world.state.jobs:
            world.state.touch_job(job)
        for node in world.state.nodes:
            world.state.dirty["node"][node] = None
        for period in world.state.budget_periods:
            world.state.touch_budget_period(period)
        world.state.touch_facts()
        records.write(world.state)
        world.state.dirty = dirty
        loaded = records.load()
        assert said_by(loaded) == said_by(world.state)
        policies = world.engine.policies
        anew = cycle.run(loaded, SchedulingIndex(loaded, policies), policies, world.now, 0).plan
        assert not anew, anew  # the step that led here has done all that could be done

    def teardown(self) -> None:
        """When all jobs have ended nothing is held any more."""
        if not hasattr(self, "world"):
            return
        self.propose(*(Change(Act.CANCEL, (job,), "bob") for job in list(self.world.state.jobs)))
        for job in self.placed():
            for task in living(job):
                node, lease = self.world.speaker(job, task.rank), job.lease_of(task.rank)
                self.propose(Result(node, lease, Outcome.STOPPED, None, 15, Usage(SECOND), 0))
        assert not self.placed()
        self.no_cap_is_passed()
        assert not self.holds
        assert all(job.extra.hold is None for job in self.world.state.jobs.values())
        assert all(period.held == 0 for period in self.world.state.budget_periods.values())


TestSpending = Spending.TestCase
TestSpending.settings = settings(
    max_examples=examples(120),
    stateful_step_count=40,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
