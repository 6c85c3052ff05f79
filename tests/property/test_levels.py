"""Where gangs go in a cluster of zones and racks, compared with a plain search over all nodes."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.records.jobs import Placed, Running
from spillover.core.records.nodes import Node
from spillover.deciding.capacity.amounts import TASKS, times
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Future
from spillover.deciding.capacity.gangs import GangCandidates, Part
from spillover.deciding.capacity.matching import most_ever
from spillover.deciding.protocols import Place
from spillover.model.ids import JobId, NodeName, job_of_task, task_key
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Level, Topology
from spillover.policies.loading import load
from spillover.policies.place import BestFit, FirstFit, High, Pack, SpreadOut
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World
from tests.support.tiers import examples

LEVELLED = replace(OWNED, gangs=True, levels=(Level("zone", "zone"), Level("rack", "example.com/rack")))
PLACES: list[Place] = [FirstFit(), BestFit(), SpreadOut(), Pack(), High()]


class Found(NamedTuple):
    """A node as the plain search sees it."""

    node: Node
    free: Resources


def path(node: Node, level: str) -> tuple[str, ...] | None:
    """The vertex of a node, as its labels from the top down; None if it is in none."""
    zone, rack = node.labels.get("zone", ""), node.labels.get("example.com/rack", "")
    match level:
        case "zone":
            return (zone,) if zone else None
        case "rack":
            return (zone, rack) if rack else None
    return (node.name,)


def tasks_on(node: Node, shape: Shape, free: Resources) -> int:
    """How many tasks fit on one node, tried one by one."""
    topology = shape.topology or Topology()
    if topology.exclusive and (node.holding or free != node.capacity):
        return 0
    most = shape.tasks if topology.spread != NODE else min(shape.tasks, topology.most)
    many = 0
    while many < most and shape.resources.fits(free):
        free, many = free - shape.resources, many + 1
    return many if many == topology.most or not topology.exact else 0


def most_in(nodes: list[Found], shape: Shape) -> int:
    """How many tasks fit on some nodes together."""
    topology = shape.topology or Topology()
    each: dict[tuple[str, ...], int] = {}
    for node, free in nodes:
        if topology.spread and (at := path(node, topology.spread)) is not None:
            each[at] = each.get(at, 0) + tasks_on(node, shape, free)
        elif not topology.spread:
            each[node.name,] = tasks_on(node, shape, free)
    return sum(min(topology.most, many) if topology.spread else many for many in each.values())


def most_anywhere(nodes: list[Found], shape: Shape) -> int:
    """How many tasks fit where the topology allows."""
    topology = shape.topology or Topology()
    if not topology.within or topology.preferred:
        return most_in(nodes, shape)
    places = {at for each in nodes if (at := path(each.node, topology.within)) is not None}
    return max(
        [most_in([each for each in nodes if path(each.node, topology.within) == at], shape) for at in places],
        default=0,
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    nodes = []
    for number in range(draw(st.integers(1, 7))):
        labels = {
            "zone": draw(st.sampled_from(["", "a", "b"])),
            "example.com/rack": draw(st.sampled_from(["", "r1", "r2"])),
        }
        node = Node(
            OWNED.name,
            NodeName(f"n{number}"),
            1,
            Resources(draw(st.integers(1, 4)) * 1000, draw(st.integers(0, 4)), draw(st.integers(0, 2))),
            (),
            {name: value for name, value in labels.items() if value},
            0,
            number=number + 1,
        )
        for at in range(draw(st.integers(0, 2))):
            held = Resources(draw(st.integers(1, 2)) * 1000, draw(st.integers(0, 1)))
            if held.fits(node.capacity - node.used):
                node.used = node.used + held
                node.holding[task_key(JobId(f"j{number}x{at}"), 1, 0)] = held
        nodes.append(node)
    return nodes


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    spread = draw(st.sampled_from(["", "", NODE, "rack", "zone"]))
    return Topology(
        within=draw(st.sampled_from(["", "zone", "rack", "rack"]))
        if spread
        else draw(st.sampled_from(["zone", "rack", NODE])),
        preferred=draw(st.booleans()),
        spread=spread,
        most=draw(st.integers(1, 3)),
        exact=spread == NODE and draw(st.booleans()),
        exclusive=draw(st.booleans()),
    )


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    topology = draw(topologies())
    tasks = draw(st.integers(2, 6))
    if topology.exact:
        tasks = topology.most * draw(st.integers(1, 3))
    asked = Resources(draw(st.integers(1, 2)) * 500, draw(st.integers(0, 1)), draw(st.integers(0, 1)))
    return Shape(asked, tasks=max(tasks, 1), topology=topology)


def cluster_of(nodes: list[Node]) -> Capacity:
    cluster = Capacity(LEVELLED, 0)
    for node in nodes:
        cluster.refresh(node)
    return cluster


def check_places(parts: list[tuple[str, int]], nodes: list[Node], shape: Shape, *, fell_back: bool) -> None:
    """Check each promise of the topology for the places that were found."""
    topology, by_name = shape.topology or Topology(), {node.name: node for node in nodes}
    assert sum(tasks for _, tasks in parts) == shape.tasks
    assert len({name for name, _ in parts}) == len(parts)
    if topology.within and not fell_back:
        assert len({path(by_name[NodeName(name)], topology.within) for name, _ in parts}) == 1
    if topology.spread:
        each: dict[tuple[str, ...] | None, int] = {}
        for name, tasks in parts:
            at = path(by_name[NodeName(name)], topology.spread)
            each[at] = each.get(at, 0) + tasks
        assert None not in each
        assert all(many <= topology.most for many in each.values())
        assert not topology.exact or set(each.values()) == {topology.most}
    if topology.exclusive:
        assert not any(by_name[NodeName(name)].holding for name, _ in parts)


def vectors(cluster: Capacity) -> list[object]:
    levels = cluster.levels
    assert levels is not None
    vertices = [
        (vertex.key, vertex.free[:TASKS]) for level in ("zone", "rack") for vertex in levels.at(level)
    ]
    return [cluster.sum[:TASKS], vertices, *[machine.free.copy() for machine in cluster.machines]]


def sums(cluster: Capacity) -> None:
    """Check that each vertex counts what is free below it."""
    levels = cluster.levels
    assert levels is not None
    for level in ("zone", "rack"):
        for vertex in levels.at(level):
            for position in range(TASKS):
                below = [max(0, machine.free[position]) for machine in vertex.machines]
                assert vertex.free[position] == sum(below)


@given(clusters(), st.lists(shapes(), min_size=1, max_size=4), st.sampled_from(PLACES))
@settings(max_examples=examples(500))
def test_a_gang_finds_a_place_exactly_when_a_plain_search_does(
    nodes: list[Node], asked: list[Shape], place: Place
) -> None:
    cluster = cluster_of(nodes)
    before = vectors(cluster)
    free = [Found(node, node.capacity - node.used) for node in nodes]
    for shape in asked:
        topology = shape.topology or Topology()
        wanted = most_anywhere(free, shape) >= shape.tasks
        required = Topology(
            topology.within, False, topology.spread, topology.most, topology.exact, topology.exclusive
        )
        together = most_anywhere(free, replace(shape, topology=required)) >= shape.tasks
        assert cluster.fits(shape) == wanted
        gangs = GangCandidates(cluster, shape)
        for _ in range(2):  # the second time from what it counted before
            parts = gangs.take(place)
            assert bool(parts) == wanted
            if parts:
                check_places([(p.machine.name, p.tasks) for p in parts], nodes, shape, fell_back=not together)
                check_taken(parts, shape)
                sums(cluster)
            for part in reversed(parts):
                cluster.set(part.machine, part.before)
            assert vectors(cluster) == before


def check_taken(parts: list[Part], shape: Shape) -> None:
    """Check that a whole machine has nothing left, and that others have what the tasks leave."""
    for part in parts:
        left = part.machine.free
        if shape.topology is not None and shape.topology.exclusive:
            assert max(left[:TASKS]) <= 0
            assert not part.machine.fits(Shape(Resources()))
        else:
            taken = dict(times(part.wants, part.tasks))
            assert all(left[at] == part.before[0][at] - taken.get(at, 0) for at in range(TASKS))


@given(clusters(), shapes(), st.sampled_from(PLACES))
@settings(max_examples=examples(300))
def test_barred_machines_get_no_task(nodes: list[Node], shape: Shape, place: Place) -> None:
    cluster = cluster_of(nodes)
    barred = {0, 1}
    left = [Found(node, node.capacity - node.used) for node in nodes[2:]]
    parts = GangCandidates(cluster, shape).take(place, barred)
    assert not any(part.machine.index in barred for part in parts)
    assert bool(parts) == (most_anywhere(left, shape) >= shape.tasks)


@given(clusters(), shapes(), st.sampled_from(PLACES))
@settings(max_examples=examples(300))
def test_the_future_places_a_gang_where_a_plain_search_does(
    nodes: list[Node], shape: Shape, place: Place
) -> None:
    cluster = cluster_of(nodes)
    before, future = vectors(cluster), Future()
    free = [Found(node, node.capacity - node.used) for node in nodes]
    held = (
        future.place_gang(shape, cluster, future.fitting(cluster, shape), place) if shape.tasks > 1 else None
    )
    if shape.tasks > 1:
        assert (held is not None) == (most_anywhere(free, shape) >= shape.tasks)
    for machine in [machine for each in held or () for machine in each.machines]:
        assert min(future.free(machine)) >= 0
        if shape.topology is not None and shape.topology.exclusive:
            assert max(future.free(machine)[:TASKS]) == 0
    assert vectors(cluster) == before


@given(clusters(), shapes())
@settings(max_examples=examples(300))
def test_the_most_that_could_ever_fit_is_that_of_empty_nodes(nodes: list[Node], shape: Shape) -> None:
    cluster = cluster_of(nodes)
    empty = [Found(replace(node, holding={}, used=Resources()), node.capacity) for node in nodes]
    many = replace(shape, tasks=1000)
    assert most_ever(cluster, many) == most_anywhere(empty, many)


@given(clusters(), st.booleans(), st.sampled_from(PLACES))
@settings(max_examples=examples(200))
def test_a_single_task_that_wants_a_node_for_itself_gets_an_empty_one(
    nodes: list[Node], alone: bool, place: Place
) -> None:
    cluster = cluster_of(nodes)
    shape = Shape(Resources(1000), topology=Topology(within="rack", exclusive=alone))
    suitable = [
        node
        for node in nodes
        if path(node, "rack") is not None
        and (not node.holding if alone else Resources(1000).fits(node.capacity - node.used))
    ]
    found = Candidates(cluster, shape).best(place)
    assert (found is not None) == bool(suitable) == cluster.fits(shape)
    assert found is None or found.name in {node.name for node in suitable}


@given(
    clusters(),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["move", "drop", "use", "grow"])), max_size=8),
)
@settings(max_examples=examples(300))
def test_vertices_count_what_is_free_while_nodes_come_and_go(
    nodes: list[Node], story: list[tuple[int, str]]
) -> None:
    cluster = cluster_of(nodes)
    for at, what in story:
        node = nodes[at % len(nodes)]
        match what:
            case "move":
                node.labels = {"zone": "c", "example.com/rack": node.labels.get("zone", "r9") or "r9"}
            case "use":
                node.used = node.capacity
            case "grow":
                node.capacity = node.capacity + Resources(1000, 1, 0, (("fpga", 1),))
            case "drop":
                cluster.drop([node.name])
        if what != "drop":
            cluster.refresh(node)
        sums(cluster)
    rebuilt = Capacity(LEVELLED, 0)
    for node in nodes:
        if node.name in cluster.by_name:
            rebuilt.refresh(node)
    levels, again, copied = cluster.levels, rebuilt.levels, cluster.copy().levels
    assert levels is not None
    assert again is not None
    assert copied is not None
    for level in ("zone", "rack"):
        seen = {each.key: (each.free[:TASKS], each.total) for each in levels.at(level)}
        assert seen == {each.key: (each.free[:TASKS], each.total) for each in again.at(level)}
        assert seen == {each.key: (each.free[:TASKS], each.total) for each in copied.at(level)}


BACKFILLS = [
    Choice("out_of_order"),
    Choice("easy"),
    Choice("strict"),
    Choice("conservative"),
    Choice("hybrid", {"depth": 3}),
]


@st.composite
def submissions(draw: st.DrawFn) -> JobBuilder:
    job = a_job().cpus(draw(st.integers(1, 3))).expected(seconds=draw(st.integers(1, 20)))
    tasks = draw(st.sampled_from([1, 1, 1, 2, 3]))
    asked = draw(
        st.sampled_from(
            [None, None, Topology(exclusive=True), Topology(within="rack"), Topology(spread="node")]
        )
    )
    return job.tasks(tasks) if asked is None else job.tasks(tasks).together(asked)


@given(
    st.lists(st.one_of(submissions(), st.integers(0, 30)), max_size=25),
    st.sampled_from(BACKFILLS),
    st.integers(0, 3),
)
@settings(max_examples=examples(250), deadline=None)
def test_no_job_ever_shares_a_node_with_an_exclusive_one(
    story: list[JobBuilder | int], backfill: Choice, queue: int
) -> None:
    world = World(load, PolicySet(wait=Choice("never"), backfill=backfill), (LEVELLED,))
    for number in range(4):
        world.agent(
            f"n{number}", cpus=4, queue=queue, labels={"zone": "a", "example.com/rack": f"r{number // 2}"}
        )
    for number, act in enumerate(story):
        if isinstance(act, JobBuilder):
            world.submit(act.called(f"j{number}"))
        elif placed := world.placed():
            job = world.job(placed[act % len(placed)])
            if isinstance(job.phase, Placed):
                world.start(job.id)
            elif isinstance(job.phase, Running):
                world.finish(job.id)
        world.wait(seconds=1)
        for node in world.state.nodes.values():
            alone = {job_of_task(each) for each in node.held if is_exclusive(world, job_of_task(each))}
            assert not alone or {job_of_task(each) for each in node.held} == alone
            assert len(alone) <= 1
            assert node.alone == bool(alone)
        for each in world.placed():
            check_together(world, each)


def check_together(world: World, name: str) -> None:
    """The tasks of a placed job are where its topology allows."""
    job = world.job(name)
    topology, nodes = job.kind.shape.topology, [task.node for task in job.tasks]
    if topology is None or len(nodes) < 2:
        return
    racks = {world.state.nodes[f"{LEVELLED.name}/{node}"].labels["example.com/rack"] for node in nodes}
    if topology.within == "rack":
        assert len(racks) == 1, nodes
    if topology.spread == "node":
        assert len(set(nodes)) == len(nodes), nodes


def is_exclusive(world: World, job: JobId) -> bool:
    topology = world.job(job).kind.shape.topology
    return topology is not None and topology.exclusive
