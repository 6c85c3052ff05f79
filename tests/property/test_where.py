"""Whatever is placed is where it may be, and whatever could be placed is not left waiting; judged by a checker of its own."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.events import AnyEvent, GangPlaced, JobPlaced, MemberPlaced, SeenNode
from spillover.core.proposals import Proposal, SeeCluster, SeeNodes
from spillover.core.records.jobs import Job, Placed, Queued, Running
from spillover.core.records.nodes import Node
from spillover.deciding.engine import Engine, Step
from spillover.deciding.explain.explain import explain
from spillover.model.cluster import ClusterHealth, ClusterSpec, Price, Role, Taint
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import MINUTE
from spillover.model.where import NodeTerm, Requirement, Rules, Toleration, Where
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints
from tests.support.tiers import examples

NAMES = ("lab", "kube", "cloud", "far")
words = st.sampled_from(("a", "b"))
few = st.integers(0, 3)

clusters = st.builds(
    lambda kind, role, region, disk, runs, cpu, jobs, startup, price: ClusterSpec(
        ClusterName("?"),
        kind,
        role,
        Price(price),
        gangs=True,
        region=region,
        labels={"disk": disk},
        runs=runs,
        most=Resources(cpu * 1000) if cpu else None,
        most_jobs=jobs or None,
        startup=startup * MINUTE,
    ),
    st.sampled_from(("agents", "kubernetes")),
    st.sampled_from((Role.OWNED, Role.RENTED)),
    words,
    words,
    st.sampled_from((None, (), ("command",))),
    st.integers(0, 6),
    st.integers(0, 4),
    few,
    few,
)
taints = st.lists(
    st.builds(Taint, words, words, st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))),
    max_size=1,
)
nodes = st.builds(
    lambda cpu, fpga, foreign, zone, bad: SeenNode(
        NodeName("?"),
        Resources(cpu * 1000, 2**40, 0, (("fpga", fpga),) if fpga else ()),
        Resources(foreign * 1000),
        labels={"zone": zone} if zone else {},
        taints=tuple(bad),
    ),
    st.integers(1, 4),
    few,
    st.integers(0, 1),
    st.sampled_from(("a", "b", "")),
    taints,
)
wheres = st.builds(
    Where,
    kinds=st.sampled_from(((), ("agents",), ("kubernetes",))),
    clusters=st.sampled_from(((), ("lab", "cloud"), ("kube",), ("nowhere",))),
    regions=st.sampled_from(((), ("a",))),
    labels=st.sampled_from(((), (("disk", "a"),))),
    avoid=st.sampled_from(((), ("cloud",))),
)
terms = st.builds(
    lambda operator, value: NodeTerm(
        (Requirement("zone", operator, () if "Exist" in operator else (value,)),)
    ),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
    words,
)
rules = st.builds(
    Rules,
    st.sampled_from(((), (("zone", "a"),))),
    st.one_of(st.none(), st.tuples(terms)),
    st.lists(st.builds(Toleration, words, st.sampled_from(("Exists", "Equal")), words), max_size=1).map(
        tuple
    ),
)


def _job(
    where: Where | None,
    asked: Rules | None,
    cpu: int,
    fpga: int,
    tasks: int,
    runs: tuple[str, ...],
    due: int,
    burst: Burst,
) -> JobBuilder:
    """A job that asks for some of it all; it is named when it is submitted."""
    job = a_job("?").cpus(cpu).tasks(tasks).doing(*runs).burst(burst).expected(minutes=2)
    job = job.others(fpga=fpga) if fpga else job
    job = job if where is None else job.where(where)
    job = job if asked is None else job.on_nodes(asked)
    return job if not due else job.between(deadline=due * MINUTE)  # from the start, see `_submit`


jobs = st.builds(
    _job,
    st.one_of(st.none(), wheres),
    st.one_of(st.none(), rules),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from((1, 1, 1, 2)),
    st.sampled_from(((), ("command",), ("files",))),
    st.sampled_from((0, 0, 1, 3, 6)),
    st.sampled_from((Burst.AUTO, Burst.AUTO, Burst.NEVER, Burst.ALWAYS)),
)
steps = st.lists(st.one_of(jobs, st.integers(0, 100)), min_size=1, max_size=30)


# --- the checker


def _wants(job: Job, spec: ClusterSpec, now: int) -> bool:
    """Whether a cluster is one that a job asks for."""
    shape, where = job.kind.shape, job.kind.shape.where or Where()
    return all(
        (
            not where.kinds or spec.kind in where.kinds,
            not where.clusters or spec.name in where.clusters,
            not where.regions or spec.region in where.regions,
            {*where.labels} <= {*spec.labels.items()},
            spec.name not in where.avoid,
            spec.runs is None or {*shape.runs} <= {*spec.runs},
            shape.burst is not (Burst.NEVER if spec.role is Role.RENTED else Burst.ALWAYS),
        )
    ) and (job.extra.deadline is None or now + spec.startup + 2 * MINUTE <= job.extra.deadline)


def _is_asked_for(job: Job, node: Node) -> bool:
    """Whether a node is one that a job asks for."""
    asked, zone = job.kind.shape.rules or Rules(), node.labels.get("zone")
    met = {
        "In": lambda values: zone in values,
        "NotIn": lambda values: zone not in values,
        "Exists": lambda values: zone is not None,
        "DoesNotExist": lambda values: zone is None,
    }
    if any(node.labels.get(key) != value for key, value in asked.selector):
        return False
    if asked.affinity is not None and not any(
        met[one.operator](one.values) for term in asked.affinity for one in term.labels
    ):
        return False
    return all(
        taint.effect == "PreferNoSchedule"
        or any(
            each.key == taint.key and (each.operator == "Exists" or each.value == taint.value)
            for each in asked.tolerations
        )
        for taint in node.taints
    )


def _use(world: World, cluster: ClusterName) -> tuple[int, int]:
    """Jobs on a cluster, and thousandths of a CPU that they ask for."""
    there = [
        job
        for job in world.state.jobs.values()
        if isinstance(job.phase, Placed | Running) and job.phase.cluster == cluster
    ]
    return len(there), sum(job.kind.shape.resources.cpu * job.kind.shape.tasks for job in there)


def _within(world: World, spec: ClusterSpec, more: Job | None = None) -> bool:
    """Whether what is on a cluster, with one job more, is within its limits."""
    count, cpu = _use(world, spec.name)
    if more is not None:
        count, cpu = count + 1, cpu + more.kind.shape.resources.cpu * more.kind.shape.tasks
    most = spec.most.cpu if spec.most is not None else cpu
    return count <= (spec.most_jobs or count) and cpu <= most


def _left(node: Node) -> Resources:
    """What is free on a node."""
    return node.capacity - node.used - (node.foreign or Resources())


def _could_start(world: World, job: Job, spec: ClusterSpec) -> bool:
    """Whether a queued job of one task could start on a cluster now."""
    return (
        _wants(job, spec, world.now)
        and _within(world, spec, job)
        and any(
            job.kind.shape.resources.fits(_left(node)) and _is_asked_for(job, node)
            for node in world.state.nodes.values()
            if node.cluster == spec.name
        )
    )


def _check_placed(world: World, specs: dict[str, ClusterSpec], events: list[AnyEvent]) -> None:
    """What was placed just now may be there, and nothing is used beyond what there is."""
    for event in events:
        if not isinstance(event, JobPlaced | GangPlaced | MemberPlaced):
            continue
        assert not isinstance(event, MemberPlaced)
        job, spec = world.state.jobs[event.job], specs[event.cluster]
        assert _wants(job, spec, event.at)
        names = event.nodes if isinstance(event, GangPlaced) else (event.node,)
        for name in Counter(names):
            assert _is_asked_for(job, world.state.nodes[f"{event.cluster}/{name}"])
    for spec in specs.values():
        assert _within(world, spec)
    for node in world.state.nodes.values():
        if node.holding:
            assert Resources().fits(_left(node))


def _check_waiting(world: World, specs: dict[str, ClusterSpec]) -> None:
    """Nothing that could start waits, and each cluster that is not wanted says so."""
    for job in world.state.jobs.values():
        if not isinstance(job.phase, Queued):
            continue
        could = [spec for spec in specs.values() if job.due is not None or spec.role is Role.OWNED]
        if job.kind.shape.tasks == 1:
            assert not any(_could_start(world, job, spec) for spec in could), job
        said = {each.cluster: each.reason for each in explain(world.engine, job).verdicts}
        for spec in specs.values():
            if not _wants(job, spec, world.now):
                assert (reason := said[spec.name]) is not None
                assert reason.never


class Twins(World):
    """Before every step a server starts anew from a checkpoint, and must decide as the one that went on."""

    _checkpoints: Checkpoints | None = None

    def step(self, *proposals: Proposal) -> Step:
        if self._checkpoints is None:  # there is no book before the first step
            self._checkpoints = Checkpoints()
            return super().step(*proposals)
        self._checkpoints.write(self.state)
        twin = Engine(self._checkpoints.load(), load, now=self.engine.now)
        expected = twin.step(self.now, proposals).events
        step = super().step(*proposals)
        assert step.events == expected
        return step


def _world(
    specs: list[ClusterSpec], seen: list[SeenNode], backfill: str
) -> tuple[World, dict[str, ClusterSpec]]:
    named = {name: replace(spec, name=ClusterName(name)) for name, spec in zip(NAMES, specs, strict=False)}
    policies = PolicySet(wait=Choice("zero"), backfill=Choice(backfill))
    world = Twins(load, policies, tuple(named.values()))
    for name, spec in named.items():
        mine = tuple(replace(node, name=NodeName(f"n{at}")) for at, node in enumerate(seen))
        if spec.kind == "agents":
            for node in mine:
                world.agent(node.name, cpus=node.capacity.cpu / 1000, cluster=name)
        else:
            world.step(SeeNodes(spec.name, mine, whole=True), SeeCluster(spec.name, ClusterHealth.READY))
    return world, named


def _submit(world: World, job: JobBuilder, number: int) -> None:
    new = job.build()
    due = None if new.spec.deadline is None else world.now + new.spec.deadline
    world.submit(job.called(f"j{number}").between(deadline=due))


@settings(max_examples=examples(150))
@given(
    specs=st.lists(clusters, min_size=1, max_size=4),
    seen=st.lists(nodes, min_size=1, max_size=3),
    steps=steps,
    backfill=st.sampled_from(("out_of_order", "out_of_order", "easy", "strict")),
)
def test_jobs_are_where_they_may_be_and_wait_only_for_what_they_need(
    specs: list[ClusterSpec], seen: list[SeenNode], steps: list[JobBuilder | int], backfill: str
) -> None:
    world, named = _world(specs, seen, backfill)
    for number, step in enumerate(steps):
        before = len(world.events)
        if isinstance(step, JobBuilder):
            _submit(world, step, number)
        elif step % 4 == 0:
            world.wait(seconds=60)
        elif placed := world.placed():
            world.finish(placed[step % len(placed)])
        _check_placed(world, named, world.events[before:])
        if backfill == "out_of_order":  # with the others some wait for those ahead of them
            _check_waiting(world, named)
