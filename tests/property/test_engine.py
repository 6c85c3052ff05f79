"""Whatever people, agents and clocks do: the book stays right, and following it gives what building it anew gives."""

from itertools import count
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from msgspec import structs

from spillover.core.apply import apply
from spillover.core.decide import decide
from spillover.core.deciders.changes import pending_member
from spillover.core.deciders.endings import may_queue
from spillover.core.events import (
    AnyEvent,
    JobEnded,
    JobState,
    Lease,
    MemberPlaced,
    NodesSeen,
    SeenNode,
    Usage,
)
from spillover.core.proposals import (
    DRIVER,
    Act,
    AgentGone,
    Archived,
    AskSteal,
    Change,
    ChangeJob,
    Dependency,
    Drain,
    Forget,
    HandBack,
    Interrupt,
    Jump,
    NewJob,
    Outcome,
    Proposal,
    Reclaim,
    Register,
    Result,
    Resume,
    SeeBound,
    SeeCluster,
    SeeNodes,
    SetPolicies,
    SetPriority,
    Started,
    StartEpoch,
    Submit,
    Yield,
    Yielded,
)
from spillover.core.records.jobs import Ended, Placed, Queued, Running, Waiting
from spillover.core.state import State
from spillover.core.transitions import JOB, TERMINAL
from spillover.deciding.cycle import cycle
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.replay import Replay
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import Billing, ClusterHealth, ClusterSpec, Price, Role, Taint
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, job_id, node_key, split_task
from spillover.model.job import Burst, JobSpec, On, OnFailure, Range, Retry, Shape, Shell, Terms
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.world import OWNED, RENTED, World
from spillover.wire.journal import decode_event, encode_event
from tests.support.sameness import Checkpoints, said_by
from tests.support.tiers import examples

OTHER = ClusterSpec(ClusterName("lab"), "agents", Role.OWNED)
CHEAP = ClusterSpec(ClusterName("spot"), "agents", Role.RENTED, Price(1, 1, 1), Billing(60 * SECOND))
GANGS = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True)
RENTED_GANGS = structs.replace(RENTED, gangs=True)
CLUSTERS = (OWNED, RENTED, OTHER, CHEAP)
KUBE = ClusterSpec(ClusterName("kube"), "kubernetes", Role.OWNED, gangs=True)
RENTED_KUBE = ClusterSpec(ClusterName("gke"), "kubernetes", Role.RENTED, Price(2_000_000), gangs=True)
WATCHED = (KUBE, OWNED, RENTED_KUBE)
"""Some that others run."""
TOGETHER = (GANGS, RENTED_GANGS, OTHER)
"""Where gangs find room on some of them."""
BUDGET = Budget(Of.PROJECT, "p", Per.DAY, 200_000)
"""Some 200 seconds of a CPU."""
NODES = [NodeName("n1"), NodeName("n2"), NodeName("n3")]

sizes = st.builds(
    Resources,
    st.sampled_from([500, 1000, 1000, 2000, 3000]),
    st.sampled_from([0, 1, 1, 5]),
    st.sampled_from([0, 0, 0, 1]),
)
capacities = st.builds(
    Resources, st.sampled_from([1000, 2000, 4000]), st.sampled_from([1, 10]), st.sampled_from([0, 1, 2])
)
words = st.sampled_from([("container",), (), ("container", "gpu:a")])
needs = st.sampled_from([(), (), (), ("container",), ("container", "gpu:a")])
bursts = st.sampled_from([Burst.AUTO, Burst.AUTO, Burst.AUTO, *Burst])
shapes = st.one_of(
    *[st.builds(Shape, sizes, needs, burst=bursts)] * 4,
    st.builds(
        Shape,
        sizes,
        needs,
        st.sampled_from([2, 2, 3]),
        bursts,
        st.sampled_from([None, None, Resources(500), Resources(500, 1)]),
    ),
    st.builds(
        Shape, sizes, tasks=st.sampled_from([1, 2]), burst=bursts, topology=st.just(Topology(exclusive=True))
    ),
)
terms = st.builds(
    Terms,
    walltime=st.sampled_from([None, None, 5 * SECOND]),
    estimate=st.sampled_from([None, SECOND, 60 * SECOND]),
    retry=st.builds(Retry, st.integers(0, 1), st.integers(0, 1)),
    max_cost=st.sampled_from([None, None, None, 10_000, 100_000]),
    on_cluster_failure=st.sampled_from(OnFailure),
)
seen_nodes = st.builds(
    SeenNode,
    st.sampled_from(NODES),
    capacities,
    st.sampled_from([Resources(), Resources(), Resources(500), Resources(1000, 1), Resources(9000, 0, 1)]),
    st.sampled_from([-1, -1, 0, 1, 2, 3]),
    words,
    st.sampled_from([{}, {}, {"zone": "a"}]),
    st.sampled_from([(), (), (), (Taint("dedicated", "", "NoSchedule"),)]),
    st.sampled_from([True, True, True, False]),
)
arrays = st.sampled_from([(), (), (), (Range(0, 2),), (Range(1, 1), Range(3, 6))])
waits = st.sampled_from(
    [
        Choice("never"),
        Choice("zero"),
        Choice("constant", {"wait": 5 * SECOND}),
        Choice("constant", {"wait": 5 * SECOND, "max_queue": 2}),
        Choice("compute", {"coefficient": 0.1, "max_queue": 1, "min_wait": SECOND}),
        Choice("runtime", {"coefficient": 0.5, "short_job_threshold": 2 * SECOND}),
        Choice("star", {"coefficient": 10 * SECOND, "h": 2 * SECOND, "k": 2}),
        Choice("budget", {"b": 0.1}),
        Choice("break_even", {"coefficient": 0.5}),
        Choice("resource", {"coefficient": SECOND, "max_wait": 3 * SECOND, "rent_cpu_only": True}),
    ]
)
SHORT: dict[str, int | float | str | bool] = {"half_life": 64, "shares": "p=3;q=0.5"}
"""So short that the clock of what projects use is set back now and then."""
orders = st.sampled_from(
    [
        *[Choice(name) for name in ("fifo", "lifo", "priority", "sjf", "ljf", "edf", "slack")],
        *[Choice("fair_share", {"half_life": 90 * SECOND, "shares": "p=2"})] * 3,
        Choice("fair_share", SHORT),
    ]
)
policy_sets = st.builds(
    PolicySet,
    order=orders,
    backfill=st.sampled_from(
        [
            Choice("strict"),
            Choice("out_of_order"),
            Choice("out_of_order"),
            Choice("easy"),
            Choice("easy"),
            Choice("conservative"),
            Choice("hybrid", {"depth": 2}),
        ]
    ),
    wait=waits,
    place=st.sampled_from(
        [
            Choice(name)
            for name in ("first_fit", "best_fit", "worst_fit", "spread", "pack", "low", "high", "locality")
        ]
    ),
    depth=st.sampled_from([1, 2, 1000]),
    route=st.sampled_from(
        [
            *[Choice(name) for name in ("least_loaded", "round_robin", "power_of_two", "biased")],
            Choice("biased", {"share": 0.5}),
        ]
    ),
)
RARELY = st.sampled_from([True, *([False] * 5)])
spans = st.sampled_from([0, 1, SECOND, 3 * SECOND, 7 * SECOND, 100 * SECOND])
TIMES = [*([None] * 7), -SECOND, 2 * SECOND, 20 * SECOND]


class Life(RuleBasedStateMachine):
    """Random lives of a server's book."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count(1)
        self.checkpoints = Checkpoints()
        self.old_leases: list[tuple[NodeKey, Lease]] = []
        self.ended: dict[JobId, Any] = {}

    @initialize(
        policies=policy_sets,
        clusters=st.sampled_from(
            [CLUSTERS, (OWNED,), (OWNED, RENTED), TOGETHER, WATCHED, (KUBE, RENTED_KUBE)]
        ),
        budgets=st.sampled_from([(), (BUDGET,)]),
    )
    def begin(
        self, policies: PolicySet, clusters: tuple[ClusterSpec, ...], budgets: tuple[Budget, ...]
    ) -> None:
        self.world = World(load, policies, clusters, budgets=budgets)
        self.clusters, self.budgets = clusters, budgets
        self.epochs = 1
        for cluster in [each for each in clusters[:3] if each.external]:
            self.see(cluster.name, [SeenNode(NODES[0], Resources(2000, 10, 1), Resources())], [], whole=True)
            self.change_health(cluster.name, ClusterHealth.READY, 0)
        for cluster in [each for each in clusters[:3] if not each.external]:
            self.world.agent("n1", cpus=2, gpus=1, cluster=cluster.name, queue=2, offers=("container",))

    # --- how things are proposed

    def propose(self, *proposals: Proposal) -> None:
        """Decide proposals one by one; before the cycle runs, see that a index built anew would plan the same."""
        world, engine = self.world, self.world.engine
        for proposal in proposals:
            events, _ = decide(world.state, proposal, world.now)
            for event in events:
                engine.apply(event)
            world.events += events
        self.same_plan()
        world.step()

    def same_plan(self) -> None:
        state, engine, now = self.world.state, self.world.engine, self.world.now
        anew = cycle.run(state, SchedulingIndex(state, engine.policies), engine.policies, now, 0).plan
        if engine.index.may_decide(now):
            assert cycle.run(state, engine.index, engine.policies, now, 0).plan == anew
        else:
            assert not anew, anew

    def placed(self) -> list[Any]:
        return [job for job in self.world.state.jobs.values() if isinstance(job.phase, Placed | Running)]

    # --- people

    @rule(
        target=jobs,
        specs=st.lists(
            st.tuples(
                shapes, terms, arrays, st.integers(-1, 2), st.sampled_from(TIMES), st.sampled_from(TIMES)
            ),
            min_size=1,
            max_size=4,
        ),
        data=st.data(),
        together=st.booleans(),
    )
    def submit(self, specs: list[Any], data: st.DataObject, together: bool) -> Any:
        ids = [job_id(next(self.numbers)) for _ in specs]
        known = [*self.world.state.jobs, JobId("nosuchjobxyz")]
        new = []
        for at, (shape, term, array, priority, not_before, deadline) in enumerate(specs):
            others = [each for each in ids if each != ids[at]]
            wanted = data.draw(
                st.lists(st.sampled_from([*known, *others, *others]), max_size=2), label="after"
            )
            after = tuple(
                Dependency(
                    each,
                    data.draw(st.sampled_from(On)),
                    data.draw(st.sampled_from([None, True, False])),
                    bool(array) and data.draw(st.booleans()),
                )
                for each in (wanted if data.draw(RARELY) else ())
            )
            now = self.world.now
            spec = JobSpec(
                Shell("true"),
                f"name-{at % 2}",
                data.draw(st.sampled_from(["p", "q"])),
                "default",
                shape,
                term,
                priority=priority,
                not_before=None if not_before is None else now + not_before,
                deadline=None if deadline is None else now + deadline,
                array=array,
            )
            key = data.draw(st.sampled_from([None, None, None, "k1", "k2"]), label="key")
            body = data.draw(st.sampled_from([b"1", b"1", b"2"])) if key else b""
            new.append(NewJob(ids[at], spec, b"spec", after, key, body))
        if together:
            self.propose(Submit(tuple(new), "ada", data.draw(st.sampled_from([None, 0]))))
        else:
            self.propose(*(Submit((each,), "ada") for each in new))
        return multiple(*(each for each in ids if each in self.world.state.jobs))

    @rule(act=st.sampled_from(Act), some=st.lists(jobs, min_size=1, max_size=3), index=st.integers(0, 6))
    def change(self, act: Act, some: list[JobId], index: int) -> None:
        member = JobId(f"{some[0]}.{index}")
        state = self.world.state
        if member in state.jobs:
            some = [*some, member]
        elif pending_member(state, member) is not None:
            some = [*some[1:], member]
        self.propose(Change(act, tuple(some), "bob"))

    @rule(job=jobs, priority=st.integers(-2, 2))
    def set_priority(self, job: JobId, priority: int) -> None:
        self.propose(SetPriority(job, priority, "bob"))

    @rule(
        job=jobs,
        cpus=st.sampled_from([None, 1, 2]),
        walltime=st.sampled_from([None, 20, 900]),
        queue=st.sampled_from([None, "default", "other"]),
        name=st.sampled_from([None, "renamed"]),
        deadline=st.sampled_from([None, 3600]),
        after=st.none() | jobs,
        throttle=st.sampled_from([None, 0, 1, 2]),
        index=st.integers(0, 6),
    )
    def change_job(
        self,
        job: JobId,
        cpus: int | None,
        walltime: int | None,
        queue: str | None,
        name: str | None,
        deadline: int | None,
        after: JobId | None,
        throttle: int | None,
        index: int,
    ) -> None:
        if (member := JobId(f"{job}.{index}")) in self.world.state.jobs:
            job = member
        found = self.world.state.jobs.get(job)
        if found is None:
            return
        wanted = {
            "name": name,
            "queue": queue,
            "resources": cpus,
            "walltime": walltime,
            "deadline": deadline,
            "after": after,
            "throttle": throttle,
        }
        shape = found.kind.shape
        if cpus is not None:
            shape = structs.replace(shape, resources=structs.replace(shape.resources, cpu=cpus * 1000))
        terms = found.terms
        if walltime is not None:
            terms = structs.replace(terms, walltime=walltime * SECOND)
        spec = JobSpec(
            Shell("true"), name or found.name, found.kind.project, queue or found.kind.queue, shape, terms
        )
        spec = structs.replace(
            spec,
            priority=found.priority,
            deadline=None if deadline is None else self.world.now + deadline * SECOND,
            throttle=throttle or 0,
        )
        changed = tuple([each for each, value in wanted.items() if value is not None])
        same = found.extra.members is not None and index % 2 == 0
        waits = () if after is None else (Dependency(after, same=same),)
        self.propose(ChangeJob(job, found.spec, spec, b"changed", changed, "bob", waits))

    @rule(policies=policy_sets, really=RARELY)
    def set_policies(self, policies: PolicySet, really: bool) -> None:
        if not really:
            return
        self.propose(SetPolicies(policies, "bob"))

    def leases(self) -> list[tuple[NodeKey, Lease]]:
        """Leases of all tasks that go on, each with its node."""
        return [
            (node_key(job.phase.cluster, task.node), job.lease_of(task.rank))
            for job in self.placed()
            for task in job.tasks
            if task.lives
        ]

    def speakers(self) -> list[tuple[NodeKey, Lease]]:
        """The same, each with who may say what becomes of it."""
        return [
            (self.world.speaker(job, task.rank), job.lease_of(task.rank))
            for job in self.placed()
            for task in job.tasks
            if task.lives
        ]

    # --- agents

    @rule(
        cluster=st.sampled_from([cluster.name for cluster in CLUSTERS]),
        node=st.sampled_from(NODES),
        capacity=capacities,
        offers=words,
        queue=st.sampled_from([0, 0, 1, 3]),
        keeps=st.sampled_from(["all", "none", "some"]),
    )
    def register(
        self, cluster: ClusterName, node: NodeName, capacity: Resources, offers: Any, queue: int, keeps: str
    ) -> None:
        held = [lease for key, lease in self.leases() if key == f"{cluster}/{node}"]
        named = {"all": held, "none": [], "some": held[::2] + [lease for _, lease in self.old_leases[-2:]]}[
            keeps
        ]
        incarnation = self.world.state.facts.incarnations + 1
        waiting = tuple(
            job.lease_of(task.rank)
            for job in self.placed()
            for task in job.tasks
            if task.state is JobState.PLACED
        )
        register = Register(
            cluster, node, incarnation, capacity, offers, {}, queue, tuple(named), waiting=waiting
        )
        self.propose(register)
        if (known := self.world.state.nodes.get(f"{cluster}/{node}")) is not None:
            assert len(known.ahead) <= known.queue

    @rule(most=st.integers(1, 4), ran=st.sampled_from([SECOND // 100, SECOND]))
    def run_some(self, most: int, ran: int) -> None:
        """The usual life: what was placed starts and ends well."""
        for node, lease in self.speakers()[:most]:
            self.propose(Started(node, lease, 0))
            self.propose(Result(node, lease, Outcome.EXITED, 0, None, Usage(ran, ran, 1), 0))

    @rule(pick=st.integers(0, 50), age=spans)
    def start(self, pick: int, age: int) -> None:
        if speakers := self.speakers():
            node, lease = speakers[pick % len(speakers)]
            self.propose(Started(node, lease, age))

    @rule(
        pick=st.integers(0, 50),
        outcome=st.sampled_from([Outcome.EXITED, Outcome.EXITED, *Outcome]),
        code=st.sampled_from([0, 0, 1]),
        ran=st.sampled_from([0, SECOND // 100, SECOND, 9 * SECOND]),
        age=spans,
    )
    def result(self, pick: int, outcome: Outcome, code: int, ran: int, age: int) -> None:
        if speakers := self.speakers():
            node, lease = speakers[pick % len(speakers)]
            exit_code = code if outcome is Outcome.EXITED else None
            result = Result(node, lease, outcome, exit_code, None, Usage(ran, ran, 1), age)
            self.old_leases.append((node, lease))
            self.propose(result, result)

    @rule(pick=st.integers(0, 50), outcome=st.sampled_from(Outcome))
    def say_something_stale(self, pick: int, outcome: Outcome) -> None:
        if self.old_leases:
            node, lease = self.old_leases[pick % len(self.old_leases)]
            self.propose(
                Started(node, lease, 0),
                Result(node, lease, outcome, 0, None, Usage(), 0),
                HandBack(node, (lease,)),
                Yielded(node, lease, Yield.RELEASED),
                Reclaim(node, (lease, lease)),
            )

    @rule(node=st.sampled_from(NODES), back=st.booleans(), most=st.integers(1, 4))
    def give_up_leases(self, node: NodeName, back: bool, most: int) -> None:
        held = [(key, lease) for key, lease in self.leases() if key.endswith(f"/{node}")][:most]
        for key in dict.fromkeys(key for key, _ in held):
            leases = tuple(lease for of, lease in held if of == key)
            self.old_leases += [(key, lease) for lease in leases]
            self.propose(HandBack(key, leases) if back else Reclaim(key, leases))

    @rule(pick=st.integers(0, 50), drain=st.booleans(), old=st.booleans())
    def lose_agent(self, pick: int, drain: bool, old: bool) -> None:
        nodes = list(self.world.state.nodes.values())
        if nodes:
            node = nodes[pick % len(nodes)]
            gone = AgentGone(node.cluster, node.name, node.incarnation - old)
            self.propose(Drain(node.cluster, node.name) if drain else gone)

    @rule(pick=st.integers(0, 50))
    def take_back_machine(self, pick: int) -> None:
        nodes = list(self.world.state.agents.values())
        if nodes:
            node = nodes[pick % len(nodes)]
            taken = Interrupt(node.cluster, node.name, self.world.now)
            self.propose(taken, taken)
            phases = [self.world.state.jobs[split_task(each)[0]].phase for each in node.held]
            assert all(getattr(phase, "stopping", None) is not None for phase in phases)

    @rule(pick=st.integers(0, 50), node=st.sampled_from(NODES), many=st.integers(1, 3))
    def ask_for_leases(self, pick: int, node: NodeName, many: int) -> None:
        placed = [job for job in self.placed() if type(job.phase) is Placed]
        for job in placed[pick % len(placed) :][:many] if placed else ():
            asked = AskSteal(job.phase.cluster, job.phase.node, job.lease, node)
            self.propose(asked, asked)

    @rule(
        answer=st.sampled_from([Yield.RELEASED, *Yield]),
        wanted=st.sampled_from([True, True, False]),
        pick=st.integers(0, 50),
        many=st.integers(1, 3),
    )
    def answer_for_leases(self, answer: Yield, wanted: bool, pick: int, many: int) -> None:
        """Those that somebody wants, as a rule; said twice, and once more when it is too late."""
        placed = [job for job in self.placed() if not wanted or getattr(job.phase, "thief", None)]
        for job in placed[pick % len(placed) :][:many] if placed else ():
            said = Yielded(job.phase.key, job.lease, answer)
            self.old_leases.append((job.phase.key, job.lease))
            self.propose(said, said)

    @rule(pick=st.integers(0, 50), what=st.sampled_from([Drain, Resume, Forget]))
    def tell_agent(self, pick: int, what: type[Drain | Resume | Forget]) -> None:
        nodes = list(self.world.state.nodes.values())
        if nodes:
            node = nodes[pick % len(nodes)]
            self.propose(what(node.cluster, node.name, "bob"))

    # --- external clusters

    @rule(
        cluster=st.sampled_from([KUBE.name, KUBE.name, RENTED_KUBE.name]),
        nodes=st.lists(seen_nodes, max_size=3),
        gone=st.lists(st.sampled_from(NODES), max_size=1),
        whole=st.booleans(),
    )
    def see(self, cluster: ClusterName, nodes: list[SeenNode], gone: list[NodeName], whole: bool) -> None:
        seen = SeeNodes(cluster, tuple(nodes), tuple(gone), whole)
        self.propose(seen)
        before = len(self.world.events)
        self.propose(seen)
        assert not [event for event in self.world.events[before:] if type(event) is NodesSeen]

    @rule(
        cluster=st.sampled_from([KUBE.name, KUBE.name, RENTED_KUBE.name]),
        health=st.sampled_from([ClusterHealth.READY, ClusterHealth.READY, *ClusterHealth]),
        sent=st.integers(0, 3),
    )
    def change_health(self, cluster: ClusterName, health: ClusterHealth, sent: int) -> None:
        placed = [job.lease for job in self.placed() if job.phase.cluster == cluster]
        self.propose(SeeCluster(cluster, health, "so it was seen", tuple(placed[sent:])))
        condition = self.world.state.conditions.get(cluster)
        if condition is not None and condition.health is ClusterHealth.FAILED:
            left = [job for job in self.placed() if job.phase.cluster == cluster]
            assert all(job.terms.on_cluster_failure is OnFailure.WAIT for job in left)

    @rule(pick=st.integers(0, 50), nodes=st.lists(st.sampled_from(NODES), min_size=1, max_size=3))
    def bind(self, pick: int, nodes: list[NodeName]) -> None:
        placed = [job for job in self.placed() if self.world.state.health(job.phase.cluster) is not None]
        if placed:
            job = placed[pick % len(placed)]
            bound = SeeBound(job.phase.cluster, (job.lease,), (tuple(nodes),))
            self.propose(bound, bound)

    @rule(pick=st.integers(0, 50), shun=spans)
    def give_back(self, pick: int, shun: int) -> None:
        """A driver gives a job back, which is not tried there for a while."""
        placed = [job for job in self.placed() if self.world.state.health(job.phase.cluster) is not None]
        if placed:
            job = placed[pick % len(placed)]
            self.old_leases.append((DRIVER, job.lease))
            self.propose(HandBack(DRIVER, (job.lease,), "no node takes it", shun))

    # --- time and servers

    @rule(span=spans)
    def wait(self, span: int) -> None:
        self.world.wait(seconds=span / SECOND)

    @rule(span=spans, really=RARELY)
    def jump(self, span: int, really: bool) -> None:
        if not really:
            return
        self.world.now += span
        self.propose(Jump(span))

    @rule(
        clusters=st.sampled_from([None, None, CLUSTERS, (OWNED,), (RENTED, OWNED), TOGETHER, WATCHED]),
        gap=spans,
        policies=policy_sets,
        really=RARELY,
        back=st.booleans(),
        ahead=st.sampled_from([SECOND // 10, SECOND // 10, 0, 5 * SECOND]),
    )
    def start_epoch(
        self,
        clusters: tuple[ClusterSpec, ...] | None,
        gap: int,
        policies: PolicySet,
        really: bool,
        back: bool,
        ahead: int,
    ) -> None:
        if not really:
            return
        self.epochs += 1
        self.clusters = clusters or self.clusters
        self.propose(StartEpoch(self.epochs, self.clusters, policies, gap, self.budgets, ahead))
        for node in list(self.world.state.agents.values()) if back else ():
            self.register(node.cluster, node.name, node.capacity, node.offers, node.queue, "all")

    @rule()
    def checkpoint(self) -> None:
        self.checkpoints.write(self.world.state)

    @rule(most=st.integers(1, 5))
    def archive(self, most: int) -> None:
        ended = [job.id for job in self.world.state.jobs.values() if type(job.phase) is Ended][:most]
        live = [job.id for job in self.placed()][:1]
        self.propose(Archived((*ended, *live)))

    # --- what must hold

    @invariant()
    def terminal_states_absorb(self) -> None:
        if not hasattr(self, "world"):
            return
        for job in self.world.state.jobs.values():
            if type(job.phase) is Ended:
                assert self.ended.setdefault(job.id, job.phase) == job.phase

    @invariant()
    def members_that_came_back_wait_for_their_array(self) -> None:
        if not hasattr(self, "world"):
            return
        state, now = self.world.state, self.world.now
        for array, own in state.members.items():
            found = state.jobs[array]
            assert found.extra.members is not None
            most = found.extra.members.most
            held = type(found.phase) is Waiting and found.phase.by is not None
            jobs = [state.jobs[each] for each in own]
            active = sum(type(each.phase) is not Waiting for each in jobs)
            for each in jobs:
                if type(each.phase) is Queued:
                    assert not held
                    assert not most or active <= most
                elif type(each.phase) is Waiting and each.phase.by is None and may_queue(each, now):
                    assert each.extra.after or 0 < most <= active

    @invariant()
    def a_restart_plans_the_same(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        dirty = world.state.dirty.copy()
        latest = Checkpoints()
        latest._records = dict(self.checkpoints._records)
        latest.write(world.state)
        world.state.dirty = dirty
        loaded = latest.load()
        assert said_by(loaded) == said_by(world.state)
        policies = world.engine.policies
        live = cycle.run(world.state, world.engine.index, policies, world.now, 0).plan
        anew = cycle.run(loaded, SchedulingIndex(loaded, policies), policies, world.now, 0).plan
        assert live == anew
        assert not live, live  # the step that led here has done all that could be done

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        events = self.world.events
        ends = [event.job for event in events if isinstance(event, JobEnded)]
        assert len(ends) == len(set(ends))
        assert said_by(replayed(events)) == said_by(self.world.state)
        replay = Replay(load)
        for revision, event in enumerate(events, 1):
            replay.take(revision, event)
        replay.end(len(events))
        assert replay.difference is None


def replayed(events: list[AnyEvent]) -> State:
    """The state that a journal leads to, with every step looked up in the table of lives."""
    state = State()
    for each in events:
        event = decode_event(encode_event(each))
        assert event == each
        job = getattr(event, "array" if isinstance(event, MemberPlaced) else "job", None)
        before = state.jobs[job].state if job in state.jobs else None
        apply(state, event)
        if before is not None and (before, type(event)) in JOB:
            assert state.jobs[JobId(str(job))].state in JOB[before, type(event)]
        elif before in TERMINAL:
            raise AssertionError(f"{event} happened to a job that was {before}")
    return state


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=examples(60), stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
assert JobState.HELD not in TERMINAL
