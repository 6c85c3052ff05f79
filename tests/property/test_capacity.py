"""What is free, now and later, as a plain calendar has it: over random clusters, jobs and times."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity.amounts import TASKS, Wants, count
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Future, Group, HeldCapacity, grouped
from spillover.deciding.capacity.gangs import GangCandidates
from spillover.deciding.forecast.ends import End, reserve
from spillover.deciding.protocols import Place
from spillover.model.cluster import Taint
from spillover.model.ids import JobId, NodeName, task_key
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.policies.place import BestFit, FirstFit, Low, Pack, SpreadOut
from spillover.testing.world import OWNED
from tests.support.tiers import examples

WATCHED = replace(OWNED, kind="kubernetes")
PLACES: list[Place] = [FirstFit(), BestFit(), SpreadOut(), Pack(), Low()]


class Run(NamedTuple):
    """Some tasks of a job on one node, until a time."""

    node: int
    held: Resources
    tasks: int
    until: int


class Calendar(NamedTuple):
    """The naive answer: what every node has, and who is there until when."""

    nodes: list[Node]
    runs: list[Run]

    def free(self, node: int, at: int) -> tuple[Resources, int]:
        """What is free on a node at a time, and how many more tasks it takes."""
        here = [run for run in self.runs if run.node == node and run.until > at]
        one = self.nodes[node]
        left, tasks = one.capacity - (one.foreign or Resources()), sum(run.tasks for run in here)
        for run in here:
            left = left - run.held
        return left, one.tasks - tasks if one.tasks >= 0 else 1_000_000

    def fits(self, shape: Shape, at: int) -> bool:
        """Whether all tasks of a job fit at a time, tried one by one on every node."""
        wanted = shape.tasks - (shape.rest is not None)
        spare = False
        for number, node in enumerate(self.nodes):
            if node.status != "ready" or node.taints or not set(shape.needs) <= set(node.offers):
                continue
            left, tasks = self.free(number, at)
            while tasks > 0 and shape.resources.fits(left) and left.cpu >= 0 and wanted > -1:
                left, tasks, wanted = left - shape.resources, tasks - 1, wanted - 1
            spare = spare or (
                shape.rest is not None and tasks > 0 and shape.rest.fits(left) and left.cpu >= 0
            )
        return wanted < 0 or (wanted == 0 and (shape.rest is None or spare))


few = st.integers(0, 4)
amounts = st.builds(
    lambda cpu, memory, gpu, fpga, disk: Resources(
        cpu * 1000, memory, gpu, tuple((name, one) for name, one in (("disk", disk), ("fpga", fpga)) if one)
    ),
    few,
    few,
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([0, 0, 0, 5]),
)


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    nodes = []
    for number in range(draw(st.integers(1, 4))):
        watched = draw(st.booleans())
        nodes.append(
            Node(
                OWNED.name,
                NodeName(f"n{number}"),
                1,
                draw(amounts),
                draw(st.sampled_from([(), ("ssd",)])),
                {},
                0,
                draw(st.sampled_from(["ready", "ready", "ready", "draining"])),
                number=number + 1,
                foreign=draw(st.sampled_from([Resources(), Resources(1000)])) if watched else None,
                tasks=draw(st.integers(-1, 3)) if watched else -1,
                taints=(Taint("sick", "", "NoSchedule"),) if draw(st.integers(0, 9)) == 0 else (),
            )
        )
    runs: list[Run] = []
    for number in range(draw(st.integers(0, 6))):
        calendar = Calendar(nodes, runs)
        node, held, tasks = draw(st.integers(0, len(nodes) - 1)), draw(amounts), draw(st.integers(1, 2))
        left, places = calendar.free(node, 0)
        if held.times(tasks).fits(left) and tasks <= places:
            run = Run(node, held.times(tasks), tasks, draw(st.integers(1, 5)))
            runs.append(run)
            nodes[node].used = nodes[node].used + run.held
            for rank in range(tasks):
                nodes[node].holding[task_key(JobId(f"j{number}"), 1, rank)] = held
    return Calendar(nodes, runs)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    one, tasks = draw(amounts), draw(st.integers(1, 4))
    rest = None
    if tasks > 1 and draw(st.booleans()):
        rest = Resources(one.cpu // 2, one.memory // 2, one.gpu, one.other)
    return Shape(one, draw(st.sampled_from([(), (), ("ssd",)])), tasks, rest=rest)


def cluster_of(calendar: Calendar) -> Capacity:
    cluster = Capacity(WATCHED, 0)
    for node in calendar.nodes:
        cluster.refresh(node)
    return cluster


def held_by(cluster: Capacity, run: Run) -> HeldCapacity:
    return HeldCapacity(cluster, cluster.slots[run.node], cluster.layout.held(run.held, run.tasks))


def an_end(number: int, run: Run, cluster: Capacity) -> End:
    held = (held_by(cluster, run),)
    return End(run.until, number, JobId(f"j{number}"), 0, held, grouped(held))


def vectors(cluster: Capacity) -> list[list[int]]:
    return [cluster.sum[:TASKS], *[machine.free.copy() for machine in cluster.machines]]


@given(calendars(), st.lists(shapes(), min_size=1, max_size=4), st.sampled_from(PLACES))
@settings(max_examples=examples(400))
def test_a_job_fits_now_where_the_calendar_says_so(
    calendar: Calendar, asked: list[Shape], place: Place
) -> None:
    cluster = cluster_of(calendar)
    before = vectors(cluster)
    for shape in asked:
        wanted = calendar.fits(shape, 0)
        assert cluster.fits(shape) == wanted
        if shape.tasks == 1:
            assert (Candidates(cluster, shape).best(place) is not None) == wanted
        gang = GangCandidates(cluster, shape)
        parts = gang.take(place)
        assert bool(parts) == wanted
        assert all(min(machine.free) >= 0 for machine in [part.machine for part in parts])
        for part in reversed(parts):
            cluster.set(part.machine, part.before)
        assert vectors(cluster) == before


@given(calendars(), shapes(), st.sampled_from(PLACES))
@settings(max_examples=examples(400))
def test_a_job_that_does_not_fit_is_promised_the_first_time_at_which_it_does(
    calendar: Calendar, shape: Shape, place: Place
) -> None:
    if calendar.fits(shape, 0):
        return
    cluster = cluster_of(calendar)
    before = vectors(cluster)
    runs = sorted(calendar.runs, key=lambda run: run.until)
    coming = [(run.until, an_end(number, run, cluster)) for number, run in enumerate(runs)]
    found = reserve(shape, [cluster], coming, place)
    times = [run.until for run in runs if calendar.fits(shape, run.until)]
    assert (None if found is None else found.at) == min(times, default=None)
    assert vectors(cluster) == before
    if found is not None:
        assert all(min(spare) >= 0 for spare in found.spare.values())


@given(calendars(), st.lists(shapes(), min_size=1, max_size=4), st.integers(0, 5), st.sampled_from(PLACES))
@settings(max_examples=examples(400))
def test_what_starts_later_fits_then_and_changes_nothing_now(
    calendar: Calendar, asked: list[Shape], at: int, place: Place
) -> None:
    cluster = cluster_of(calendar)
    before, future = vectors(cluster), Future()
    for run in calendar.runs:
        if run.until <= at:
            future.release(grouped([held_by(cluster, run)]))
    runs = [run for run in calendar.runs if run.until > at]
    for shape in asked:
        wanted = Calendar(calendar.nodes, runs).fits(shape, 0)
        if shape.tasks == 1:
            held = future.place_one(shape, dict.fromkeys(cluster.machines, cluster), place)
        else:
            held = future.place_gang(shape, cluster, future.fitting(cluster, shape), place)
        assert (held is not None) == wanted
        for wants, machine in [(each.wants, machine) for each in held or () for machine in each.machines]:
            amounts_held = dict(wants)
            names = [name for name, _ in calendar.nodes[machine.index].capacity.other]
            other = tuple(
                (name, amounts_held.get(position, 0))
                for name in names
                if (position := cluster.layout.position(name)) is not None and amounts_held.get(position)
            )
            resources = Resources(amounts_held[0], amounts_held.get(1, 0), amounts_held.get(2, 0), other)
            runs = [*runs, Run(machine.index, resources, amounts_held[TASKS], at + 1)]
    assert vectors(cluster) == before


class ByName:
    """Asks for the score of every machine: a policy of which nothing is known."""

    def __init__(self, place: Place) -> None:
        self.score = place.score


@given(
    st.integers(2, 9),
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 6), st.booleans()), min_size=1, max_size=12
    ),
    st.sampled_from(PLACES),
)
@settings(max_examples=examples(400))
def test_a_look_ahead_that_changes_machines_together_finds_what_a_look_at_each_machine_does(
    nodes: int, steps: list[tuple[int, int, bool]], place: Place
) -> None:
    four = Resources(4000)
    cluster = Capacity(OWNED, 0)
    for number in range(nodes):
        cluster.refresh(Node(OWNED.name, NodeName(f"n{number}"), 1, four, (), {}, 0, number=number + 1))
    together, one_by_one = Future([cluster]), Future([cluster])
    started: list[list[Group]] = []
    for cpus, tasks, ends in steps:
        shape = Shape(Resources(cpus * 1000), tasks=tasks)
        if ends and started:
            held = started.pop(0)
            together.release(held)
            one_by_one.release([each._replace(machines=(one,)) for each in held for one in each.machines])
        else:
            found = together.place_gang(shape, cluster, together.fitting(cluster, shape), place)
            fitting = dict(sorted(one_by_one.fitting(cluster, shape).items(), key=lambda one: -one[0].index))
            other = one_by_one.place_gang(shape, cluster, fitting, ByName(place))
            assert holds(found) == holds(other)
            if found is not None:
                started.append(found)
        for size in (1, 2, 3, 4):
            one = Shape(Resources(size * 1000))
            wants = cluster.layout.wants(one.resources)
            counted = {each: count(wants, together.free(each)) for each in cluster.machines}
            assert together.fitting(cluster, one) == {each: many for each, many in counted.items() if many}
            assert one_by_one.fitting(cluster, one) == together.fitting(cluster, one)
            assert together.may_hold(cluster, Resources(sum(counted.values()) * size * 1000))


def holds(groups: list[Group] | None) -> list[tuple[int, Wants]] | None:
    """What a job holds on each machine."""
    if groups is None:
        return None
    return sorted([(machine.index, each.wants) for each in groups for machine in each.machines])
