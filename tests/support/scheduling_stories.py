"""Generates random stories of one server, with changing jobs, agents, policies and configurations."""

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from spillover.core.events import JobState, SeenNode, Usage
from spillover.core.proposals import (
    Act,
    AddCluster,
    AgentGone,
    CancelReservation,
    Change,
    ClearedCluster,
    Drain,
    DrainCluster,
    Forget,
    HandBack,
    Jump,
    OpenedCluster,
    Outcome,
    Proposal,
    Register,
    RemoveCluster,
    Reserve,
    Result,
    ResumeCluster,
    SeeCluster,
    SeeNodes,
    SetPolicies,
    SetPriority,
    Started,
    StartEpoch,
    Submit,
    UpdateCluster,
)
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.nodes import Node
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterHealth, ClusterSpec, Leave, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeName, split_task
from spillover.model.job import Burst, OnTaskFailure, Retry
from spillover.model.policy import Choice, PolicySet
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, MINUTE, SECOND
from spillover.model.where import Where
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, RENTED, World

ORDERS = ["fifo", "lifo", "priority", "sjf", "ljf", "fair_share", "edf", "slack"]
BACKFILLS = ["easy", "strict", "out_of_order"]
PLACES = ["best_fit", "first_fit", "high", "locality", "low", "pack", "spread", "worst_fit"]
WAITS = [
    Choice("break_even", {"coefficient": 0.3}),
    Choice("compute", {"coefficient": 0.3, "max_queue": 4}),
    Choice("budget", {"b": 0.3}),
    Choice("star", {"coefficient": 10 * MINUTE, "h": 5 * MINUTE, "k": 2.0}),
    Choice("constant", {"wait": 5 * MINUTE}),
    Choice("never"),
    Choice("zero"),
]
BUDGETS: list[tuple[Budget, ...]] = [
    (),
    (Budget(Of.PROJECT, "*", Per.DAY, 5_000_000_000),),
    (Budget(Of.PROJECT, "a", Per.EVER, 2_000_000_000), Budget(Of.USER, "ada", Per.DAY, 20_000_000_000)),
]
TOGETHER = ClusterSpec(ClusterName("o2"), "agents", Role.OWNED, gangs=True)
CLUSTERS = (OWNED, TOGETHER, RENTED)
OTHERS = (
    CLUSTERS,
    (OWNED, TOGETHER),
    (RENTED, TOGETHER, OWNED),
    (OWNED, replace(RENTED, price=Price(cpu_hour=7_200_000), gangs=True)),
)
"""Sets of clusters that a restarted server may have."""


class Story:
    """Draws random events for a world."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = Random(seed)
        self.returns = seed % 2 == 1
        """Whether jobs may return from rented capacity; if not, they may have deadlines."""
        self.waits = [wait for wait in WAITS if self.returns or wait.name != "star"]
        policies = PolicySet(
            order=Choice(dice.choice(ORDERS)),
            backfill=Choice(dice.choice(BACKFILLS)),
            wait=dice.choice(self.waits),
            place=Choice(dice.choice(PLACES)),
            depth=dice.choice([2, 5, 1000]),
        )
        self.budgets = dice.choice(BUDGETS)
        self.world = World(load, policies, CLUSTERS, self.budgets)
        self.world.engine.debug = not self.returns
        for name in ("n0", "n1"):
            self.world.agent(name, cpus=dice.choice([2, 4]), queue=dice.choice([0, 2]))
        for name in ("m0", "m1"):
            self.world.agent(name, cpus=4, cluster="o2", gpus=dice.choice([0, 2]))
        self.world.agent("v1", cpus=dice.choice([3, 20]), cluster="cloud", gpus=4)
        self._submitted = 0

    def next(self) -> list[Proposal]:
        """Return the next proposals, and advance the clock."""
        happens = list(self._happens(self.dice.random()))
        self.world.now += self.dice.choice([0, 1, 30, 300, 1800]) * SECOND
        return happens

    def _happens(self, which: float) -> Iterator[Proposal]:
        dice, state = self.dice, self.world.state
        placed = [job for job in state.jobs.values() if isinstance(job.phase, Placed | Running)]
        if which < 0.45:
            yield Submit(tuple([self._job().build() for _ in range(dice.choice([1, 1, 3]))]), "ada")
        elif which < 0.6 and placed:
            job = dice.choice(placed)
            task = dice.choice([task for task in job.tasks if task.lives])
            yield Started(self.world.speaker(job, task.rank), job.lease_of(task.rank), 0)
        elif which < 0.85 and placed:
            yield self._result(dice.choice(placed))
        elif which < 0.9:
            if jobs := self._in(JobState.QUEUED, JobState.HELD):
                yield Change(dice.choice([Act.HOLD, Act.RELEASE, Act.CANCEL]), (dice.choice(jobs),), "x")
        elif which < 0.92:
            yield Jump(dice.choice([0, 10]) * MINUTE)
        elif which < 0.93:
            yield SetPolicies(replace(state.facts.policies, wait=dice.choice(self.waits)), "x")
        elif which < 0.97 and (jobs := self._in(JobState.QUEUED)):
            yield SetPriority(dice.choice(jobs), dice.choice([0, 1, 2]), "x")

    def _in(self, *states: JobState) -> list[JobId]:
        return [job.id for job in self.world.state.jobs.values() if job.state in states]

    def _job(self) -> JobBuilder:
        """Draw a job of any kind."""
        dice = self.dice
        self._submitted += 1
        job = a_job("j" + "".join("abcdefghij"[int(digit)] for digit in str(self._submitted)))
        job.cpus(dice.choice([0.5, 1, 2, 4])).project(dice.choice("abc")).priority(dice.choice([0, 0, 1]))
        known = dice.random()
        if known < 0.4:
            job.expected(minutes=dice.choice([1, 10, 60]))
        elif known < 0.7:
            job.terms(walltime=dice.choice([5, 50]) * MINUTE)
        if dice.random() < 0.2:
            job.gpus(1)
        if dice.random() < 0.15:
            job.burst(dice.choice([Burst.NEVER, Burst.ALWAYS]))
        if dice.random() < 0.2:
            job.array(1, dice.choice([3, 8]))
            if self._submitted % 2:  # without a draw, so that seeds keep their stories
                job.at_a_time(2)
        elif dice.random() < 0.2:
            job.tasks(dice.choice([2, 3]))
            if dice.random() < 0.3:
                job.on_task(failure=OnTaskFailure.RESTART).terms(retry=Retry(2, 3))
        elif dice.random() < 0.1:
            job.tasks(dice.choice([1, 2]), most=dice.choice([3, 5]))
        elif dice.random() < 0.1:
            job.group("first").cpus(dice.choice([0.5, 2, 4])).group("others", dice.choice([1, 3]))
        if dice.random() < 0.2:
            job.max_cost(dice.choice([10**8, 10**9]))
        if self._submitted % 11 == 0:
            job.held()
        project = job.spec().project
        own = [each for each in self.world.state.reservations.values() if each.project == project]
        if own and dice.random() < 0.3:
            job.reservation(dice.choice(own).name)
        if not self.returns and dice.random() < 0.2:
            job.between(deadline=self.world.now + dice.choice([10, 100]) * MINUTE)
        return job

    def _result(self, job: Job) -> Result:
        """Draw the end of a task."""
        dice, phase = self.dice, job.phase
        assert isinstance(phase, Placed | Running)
        outcome = dice.choice([*[Outcome.EXITED] * 4, Outcome.LOST, Outcome.STOPPED, Outcome.NOT_STARTED])
        ran = 0
        if isinstance(phase, Running):
            ran = min(self.world.now - phase.since, job.walltime or FOREVER)
        code = dice.choice([0, 0, 1]) if outcome is Outcome.EXITED else None
        task = dice.choice([task for task in job.tasks if task.lives])
        node, lease = self.world.speaker(job, task.rank), job.lease_of(task.rank)
        waits = lease.task > 0 or dice.random() < 0.5
        return Result(node, lease, outcome, code, None, Usage(ran), 0, run=task.run, waits=waits)


class SharingStory(Story):
    """A story in which many gangs are elastic, run on all clusters, and share what is free."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        old, dice = self.world, self.dice
        chosen = replace(
            old.state.facts.policies,
            size=Choice("share"),
            backfill=Choice(dice.choice(["easy", "out_of_order", "conservative"])),
        )
        clusters = tuple([replace(each, gangs=True) for each in CLUSTERS])
        self.world = World(load, chosen, clusters, self.budgets)
        self.world.engine.debug = old.engine.debug
        for name in ("n0", "n1"):
            self.world.agent(name, cpus=4)
        for name in ("m0", "m1"):
            self.world.agent(name, cpus=4, cluster="o2", gpus=2)
        self.world.agent("v1", cpus=dice.choice([3, 20]), cluster="cloud", gpus=4)

    def _job(self) -> JobBuilder:
        if self.dice.random() < 0.5:
            return super()._job()
        self._submitted += 1
        job = a_job("j" + "".join("abcdefghij"[int(digit)] for digit in str(self._submitted)))
        least = self.dice.choice([1, 2, 3])
        job.tasks(least, most=least + self.dice.choice([1, 4, 9])).gpus(self.dice.choice([0, 0, 1]))
        return job.cpus(self.dice.choice([0.5, 1])).expected(minutes=self.dice.choice([1, 10, 60]))


class WilderStory(Story):
    """A story in which policies of all axes, agents and the configuration change too."""

    def _happens(self, which: float) -> Iterator[Proposal]:
        dice, state = self.dice, self.world.state
        yield from super()._happens(which)
        match dice.randrange(40):
            case 0:
                yield SetPolicies(
                    PolicySet(
                        order=Choice(dice.choice(ORDERS)),
                        backfill=Choice(dice.choice(BACKFILLS)),
                        wait=dice.choice(self.waits),
                        place=Choice(dice.choice(PLACES)),
                        depth=dice.choice([2, 5, 1000]),
                    ),
                    "x",
                )
            case 1:
                node = dice.choice(list(state.nodes.values()))
                if dice.random() < 0.5:
                    yield Drain(node.cluster, node.name)
                else:
                    yield AgentGone(node.cluster, node.name, node.incarnation)
            case 2 | 3:
                node = dice.choice(list(state.nodes.values()))
                yield self._back(node, state.facts.incarnations + 1)
            case 4:
                clusters = dice.choice(OTHERS)
                gap = dice.choice([0, 5]) * MINUTE
                configured = state.policies.configured
                yield StartEpoch(state.facts.epoch + 1, clusters, configured, gap, self.budgets)
                names = [spec.name for spec in clusters]
                there = [node for node in state.nodes.values() if node.cluster in names]
                for number, node in enumerate(there, state.facts.incarnations + 1):
                    yield self._back(node, number)
            case 5 | 6:
                placed = [job for job in state.jobs.values() if isinstance(job.phase, Placed)]
                if placed and isinstance(phase := (job := dice.choice(placed)).phase, Placed):
                    yield HandBack(phase.key, (job.lease,))
            case 7:
                if jobs := self._in(JobState.PLACED, JobState.RUNNING):
                    yield Change(Act.REQUEUE, (dice.choice(jobs),), "x")
            case 8 | 9 if len(state.nodes) > 3:
                node = dice.choice(list(state.nodes.values()))
                yield AgentGone(node.cluster, node.name, node.incarnation)
                yield Forget(node.cluster, node.name, "x")
            case 10 | 11 | 12 | 13:
                yield self._reserve()
            case 14 if state.reservations:
                yield CancelReservation(dice.choice(list(state.reservations)), "x")

    def _reserve(self) -> Reserve:
        """Reserve some nodes for a project or for maintenance, whether they are free or not."""
        dice = self.dice
        cluster = dice.choice(list(self.world.state.nodes.values())).cluster
        there = [node.name for node in self.world.state.nodes.values() if node.cluster == cluster]
        nodes = tuple(name for name in there if dice.random() < 0.7) or (there[0],)
        start = self.world.now + dice.choice([0, 5, 60]) * MINUTE
        end = start + dice.choice([5, 60]) * MINUTE
        name, project = f"r{dice.randrange(5)}", dice.choice(["", "a", "b"])
        return Reserve(AdvanceReservation(name, cluster, nodes, start, end, project, who="x"))

    def _back(self, node: Node, incarnation: int) -> Register:
        """Register an agent again, with all or none of its leases."""
        jobs = self.world.state.jobs
        tasks = [split_task(each) for each in node.held] if self.dice.random() < 0.7 else []
        held = [jobs[job].lease_of(rank) for job, _, rank in tasks]
        capacity = node.capacity if self.dice.random() < 0.7 else replace(node.capacity, cpu=5000)
        return Register(
            node.cluster, node.name, incarnation, capacity, node.offers, node.labels, node.queue, tuple(held)
        )


class ClustersStory(Story):
    """A story in which clusters are added, changed, drained, resumed and removed."""

    def _happens(self, which: float) -> Iterator[Proposal]:
        dice, state = self.dice, self.world.state
        yield from super()._happens(which)
        names = list(state.lives) or [ClusterName("x0")]
        match dice.randrange(14):
            case 0 | 1:
                yield AddCluster(self._spec(), "x", form="{}")
            case 2 | 13:
                yield OpenedCluster(dice.choice(names))
            case 3:
                yield DrainCluster(dice.choice(names), "x")
            case 4:
                yield ResumeCluster(dice.choice(names), "x")
            case 5:
                how = dice.choice(list(Leave))
                yield RemoveCluster(dice.choice(names), "x", how, form=dice.choice(["", "{}"]))
            case 6:
                for name in names:
                    yield ClearedCluster(name)
            case 7:
                spec = self._spec(dice.choice(names))
                known = state.clusters.get(spec.name, spec)
                yield UpdateCluster(replace(spec, kind=known.kind), "x", form="{}")
            case 8 | 9:
                number = state.facts.incarnations + 1
                agents = [each.name for each in state.facts.clusters if not each.external]
                if agents:
                    yield self._register(dice.choice(agents), number)
            case 10 | 11:
                external = [each.name for each in state.facts.clusters if each.external]
                if external:
                    yield from self._seen(dice.choice(external))
            case 12 if which < 0.3:
                configured = state.policies.configured
                yield StartEpoch(state.facts.epoch + 1, CLUSTERS, configured, budgets=self.budgets)

    def _spec(self, name: ClusterName | None = None) -> ClusterSpec:
        dice = self.dice
        role = dice.choice(list(Role))
        return ClusterSpec(
            name or ClusterName(f"x{dice.randrange(3)}"),
            dice.choice(["agents", "kubernetes"]),
            role,
            Price(cpu_hour=dice.choice([1_000_000, 9_000_000])) if role is Role.RENTED else Price(),
            gangs=dice.random() < 0.5,
            most_jobs=dice.choice([None, 1, 3]),
            labels={"tier": "spot"} if dice.random() < 0.5 else {},
        )

    def _register(self, cluster: ClusterName, number: int) -> Register:
        name = NodeName(f"{cluster}-{self.dice.randrange(2)}")
        known = self.world.state.nodes.get(f"{cluster}/{name}")
        jobs = self.world.state.jobs
        held = [jobs[each].lease for each in known.jobs] if known is not None else []
        capacity = Resources(self.dice.choice([2000, 4000]), 2**40, self.dice.choice([0, 2]))
        return Register(cluster, name, number, capacity, (), {}, self.dice.choice([0, 2]), tuple(held))

    def _seen(self, cluster: ClusterName) -> Iterator[Proposal]:
        dice = self.dice
        yield SeeNodes(cluster, (SeenNode(NodeName("e"), Resources(4000, 2**40), Resources()),), whole=True)
        yield SeeCluster(
            cluster, dice.choice([ClusterHealth.READY, ClusterHealth.READY, ClusterHealth.DEGRADED]), "x"
        )

    def _job(self) -> JobBuilder:
        job = super()._job()
        if self.dice.random() < 0.1:
            job.where(Where(labels=(("tier", "spot"),)))
        return job


class TightStory(Story):
    """A story with few kinds of jobs, most of which caps and deadlines keep from starting."""

    def _job(self) -> JobBuilder:
        dice = self.dice
        self._submitted += 1
        job = a_job("j" + "".join("abcdefghij"[int(digit)] for digit in str(self._submitted)))
        job.cpus(dice.choice([1, 1, 2])).project(dice.choice("ab")).priority(dice.choice([0, 0, 1]))
        job.terms(walltime=dice.choice([5, 50, 500]) * MINUTE)
        if dice.random() < 0.5:
            job.max_cost(dice.choice([1, 10**8, 10**9]))
        if dice.random() < 0.5:
            job.expected(minutes=dice.choice([10, 60]))
            if not self.returns:
                job.between(deadline=self.world.now + dice.choice([10, 70, 100]) * MINUTE)
        return job
