"""Whether tasks fit inside of a machine, and what they get, compared with trying everything."""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.nodes import Node
from spillover.deciding.capacity.amounts import Wants
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Group
from spillover.deciding.capacity.inside import Structure
from spillover.deciding.capacity.spans import Ask, Release
from spillover.deciding.capacity.timeline import Timeline
from spillover.deciding.explain.feasibility import too_large
from spillover.model.ids import NodeName, TaskKey, split_task
from spillover.model.inside import (
    Domain,
    Granted,
    Inside,
    Link,
    cpu_list,
    cpu_mask,
    cpu_numbers,
    wrong_inside,
)
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.policies.loading import load
from spillover.policies.place import FirstFit
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World
from tests.support.tiers import examples

LAB = replace(OWNED, gangs=True)


@st.composite
def insides(draw: st.DrawFn) -> Inside:
    threads, cpu, known = draw(st.integers(1, 2)), 0, draw(st.booleans())
    gpus: list[str] = []
    domains: list[Domain] = []
    for socket in range(draw(st.integers(1, 2))):
        for _ in range(draw(st.integers(1, 2))):
            lanes, cores = [], draw(st.integers(1, 3))
            for _ in range(threads):
                lanes.append(cpu_list(((1 << cores) - 1) << cpu))
                cpu += cores
            near = [str(len(gpus) + number) for number in range(draw(st.integers(0, 2)))]
            gpus += near
            memory = draw(st.sampled_from([0, 2, 3, 5])) if known else 0
            domains.append(Domain(socket, tuple(lanes), tuple(near), memory))
    cut = draw(st.integers(0, len(gpus)))
    parts = [tuple(part) for part in (gpus[:cut], gpus[cut:]) if len(part) > 1]
    links = tuple(Link("nvlink", part) for part in parts) if draw(st.booleans()) else ()
    inside = Inside(tuple(domains), tuple(gpus), links)
    assert wrong_inside(inside) is None
    return inside


@st.composite
def requests(draw: st.DrawFn) -> tuple[Resources, Topology]:
    pin, link = (
        draw(st.sampled_from(["", "core", "numa", "socket"])),
        draw(st.sampled_from(["", "nvlink", "any"])),
    )
    gpus = draw(st.integers(2, 3) if link else st.integers(0, 2))
    memory = draw(st.sampled_from([0, 0, 1, 2, 4]))
    return Resources(draw(st.integers(1, 4)) * 1000, memory, gpus), Topology(pin=pin, link=link)


def cores_of(inside: Inside) -> list[tuple[int, int, int]]:
    """Number of the NUMA node, socket and CPUs of each core."""
    found = []
    for number, domain in enumerate(inside.domains):
        lanes = [cpu_numbers(cpu_mask(lane)) for lane in domain.cpus]
        found += [(number, domain.socket, sum(1 << cpu for cpu in core)) for core in zip(*lanes, strict=True)]
    return found


def memories(inside: Inside) -> dict[int, int]:
    """The memory of NUMA nodes, if it is counted: where several report it."""
    known = {number: each.memory for number, each in enumerate(inside.domains) if each.memory}
    return known if len(known) > 1 else {}


def home(inside: Inside, cpus: int) -> int | None:
    """The NUMA node of which all these CPUs are, if its memory is counted."""
    at = {number for number, _, core in cores_of(inside) if core & cpus}
    return next(iter(at & memories(inside).keys()), None) if len(at) == 1 else None


def must_fit(inside: Inside, topology: Topology, number: int) -> bool:
    """Whether memory must fit into a NUMA node: if the task asked for it, or for a socket that is one."""
    socket = inside.domains[number].socket
    alone = sum(each.socket == socket for each in inside.domains) == 1
    return topology.pin == "numa" or (topology.pin == "socket" and alone)


def ways(
    inside: Inside, asked: Resources, topology: Topology, cpus: int, gpus: int, free_memory: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """Everything that one task could get of what is free, by trying all."""
    cores = [core for core in cores_of(inside) if core[2] & cpus == core[2]]
    needed = -(-asked.cpu // 1000 // inside.threads) if topology.pin else 0
    bits = {gpu: 1 << at for at, gpu in enumerate(inside.gpus)}
    free = [gpu for gpu in inside.gpus if bits[gpu] & gpus]
    near = {
        gpu: (number, domain.socket) for number, domain in enumerate(inside.domains) for gpu in domain.gpus
    }
    groups = [set(link.gpus) for link in inside.links]
    for some in combinations(cores, needed):
        number = home(inside, sum(core[2] for core in some))
        if number is not None and must_fit(inside, topology, number) and free_memory[number] < asked.memory:
            continue
        for few in combinations(free, asked.gpu):
            if topology.link and not any(group >= set(few) for group in groups):
                continue
            at = {"numa": 0, "socket": 1}.get(topology.pin)
            if at is not None and len({*[core[at] for core in some], *[near[gpu][at] for gpu in few]}) > 1:
                continue
            yield sum(core[2] for core in some), sum(bits[gpu] for gpu in few)


def most(
    inside: Inside,
    asked: Resources,
    topology: Topology,
    left: tuple[int, int, dict[int, int]],
    room: int,
) -> int:
    """How many tasks fit at most, by trying all."""
    if not room:
        return 0
    best, (cpus, gpus, memory) = 0, left
    for some, few in ways(inside, asked, topology, cpus, gpus, memory):
        number, after = home(inside, some), memory.copy()
        if number is not None:
            after[number] -= asked.memory
        best = max(best, 1 + most(inside, asked, topology, (cpus & ~some, gpus & ~few, after), room - 1))
        if best >= min(room, 3):
            break
    return best


@given(insides(), st.lists(requests(), min_size=1, max_size=6), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_what_fits_and_what_is_granted_is_what_trying_everything_finds(
    inside: Inside, asked: list[tuple[Resources, Topology]], data: st.DataObject
) -> None:
    structure = Structure(inside)
    total = Resources(structure.cpus.bit_count() * 1000, 1000, len(inside.gpus))
    node = Node(LAB.name, NodeName("n"), 1, total, (), {}, 0, inside=inside)
    cluster = Capacity(LAB, 0)
    for number, (resources, topology) in enumerate(asked):
        cluster.refresh(node)
        (machine,) = cluster.machines
        shape = Shape(resources, topology=topology)
        left = structure.left([(each, node.holding[key].memory) for key, each in node.granted.items()])
        cpus_and_gpus = left[:2]
        memory = memories(inside)
        for key, each in node.granted.items():
            if (near := home(inside, cpu_mask(each.cpus))) is not None:
                memory[near] -= node.holding[key].memory
        assert list(left[2]) == list(memory.values())
        room = (total - node.used).cpu // (structure.rounded(topology, resources.cpu))
        fitting = most(inside, resources, topology, (*cpus_and_gpus, memory), min(room, 3))
        wants = cluster.layout.wants(resources)
        known = machine.tasks_of(shape, wants, machine.free) if machine.admits(shape) else 0
        assert min(known, 3) == fitting
        assert machine.fits(shape) == (fitting > 0)
        if not fitting:
            continue
        before = machine.before
        cluster.take(machine, machine.asks(shape, wants))
        granted = cluster.grant(machine, shape, resources)
        free = machine.free.copy()
        cluster.set(machine, before)
        if granted is not None:
            chosen = cpu_mask(granted.cpus), sum(1 << inside.gpus.index(gpu) for gpu in granted.gpus)
            assert chosen in set(ways(inside, resources, topology, *cpus_and_gpus, memory))
            near = home(inside, chosen[0])
            bound = topology.pin in {"numa", "socket"} and near is not None
            assert structure.binds(topology, granted) == (bound and must_fit(inside, topology, near or 0))
            key = TaskKey(f"j{number}")
            held = resources if not topology.pin else replace(resources, cpu=chosen[0].bit_count() * 1000)
            node.granted[key], node.holding[key] = granted, held
            node.used = node.used + held
            cluster.refresh(node)
            assert machine.free == free  # a trial and the state count alike
        if data.draw(st.booleans()) and node.granted:
            gone = data.draw(st.sampled_from(list(node.granted)))
            node.used = node.used - node.holding.pop(gone)
            del node.granted[gone]


@given(insides(), requests(), st.integers(1, 3))
@settings(max_examples=examples(80), deadline=None)
def test_never_is_what_an_empty_machine_cannot_hold(
    inside: Inside, asked: tuple[Resources, Topology], tasks: int
) -> None:
    resources, topology = asked
    world = World(load, PolicySet(wait=Choice("never")), (LAB,))
    cpus = sum(cpu_mask(lane).bit_count() for domain in inside.domains for lane in domain.cpus)
    world.agent("n", cpus=cpus, gpus=len(inside.gpus), inside=inside)
    shape = Shape(resources, tasks=tasks, topology=topology if topology != Topology() else None)
    never = too_large(world.engine.index.capacity.values(), shape)
    builder = a_job("j").cpus(resources.cpu / 1000).gpus(resources.gpu).memory(resources.memory).tasks(tasks)
    world.submit(builder.together(topology) if topology != Topology() else builder)
    placed = isinstance(world.job("j").phase, Placed)
    assert placed == (never is None)


@given(
    insides(),
    st.lists(st.tuples(requests(), st.integers(1, 2), st.integers(1, 20)), min_size=1, max_size=12),
    st.sampled_from(["out_of_order", "easy", "conservative"]),
    st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_nothing_inside_is_given_twice_whatever_starts_and_ends(
    inside: Inside,
    asked: list[tuple[tuple[Resources, Topology], int, int]],
    backfill: str,
    data: st.DataObject,
) -> None:
    world = World(load, PolicySet(wait=Choice("never"), backfill=Choice(backfill)), (LAB,))
    cpus = sum(cpu_mask(lane).bit_count() for domain in inside.domains for lane in domain.cpus)
    for name in ("n1", "n2"):
        world.agent(name, cpus=cpus, gpus=len(inside.gpus), queue=2, inside=inside)
    for number, ((resources, topology), tasks, minutes) in enumerate(asked):
        job = (
            a_job(f"j{number}")
            .cpus(resources.cpu / 1000)
            .gpus(resources.gpu)
            .memory(resources.memory)
            .tasks(tasks)
        )
        job.expected(minutes=minutes)
        world.submit(job.together(topology) if topology != Topology() else job)
        check_memory(world)
        live = [job.id for job in world.state.jobs.values() if isinstance(job.phase, Placed | Running)]
        if data.draw(st.booleans()) and live:
            world.finish(data.draw(st.sampled_from(live)))
        world.wait(seconds=data.draw(st.integers(0, 300)))
    # The world checks after every step that no core and no GPU is given twice. In the end, all that can run has run.
    for _ in range(len(asked) + 1):
        live = [job.id for job in world.state.jobs.values() if isinstance(job.phase, Placed | Running)]
        for each in live:
            if isinstance(world.job(each).phase, Placed | Running):
                world.finish(each)
    left = [job for job in world.state.jobs.values() if isinstance(job.phase, Placed | Running)]
    assert not left
    clusters = list(world.engine.index.capacity.values())
    waiting = [job for job in world.state.jobs.values() if job.state == "QUEUED"]
    assert all(too_large(clusters, job.kind.shape) is not None for job in waiting)
    assert Granted() not in [each for node in world.state.nodes.values() for each in node.granted.values()]


def check_memory(world: World) -> None:
    """Memory that must be of one NUMA node is there: what is bound to it is never more than it has."""
    for node in world.state.nodes.values():
        if node.inside is None:
            continue
        bound = dict.fromkeys(memories(node.inside), 0)
        for task, granted in node.granted.items():
            job, _, _ = split_task(task)
            topology = world.job(job).kind.shape.topology
            near = home(node.inside, cpu_mask(granted.cpus))
            if topology is not None and near is not None and must_fit(node.inside, topology, near):
                bound[near] += node.holding[task].memory
        assert all(bound[number] <= memory for number, memory in memories(node.inside).items())


def a_gang(name: str, groups: list[tuple[tuple[Resources, Topology], int]]) -> JobBuilder:
    """A gang with groups of unlike tasks."""
    job = a_job(name)
    for number, ((resources, topology), tasks) in enumerate(groups):
        job.cpus(resources.cpu / 1000).gpus(resources.gpu).memory(resources.memory)
        job.group(f"g{number}", tasks, pin=topology.pin, link=topology.link)
    return job


@given(
    insides(),
    st.lists(
        st.tuples(
            st.lists(st.tuples(requests(), st.integers(1, 2)), min_size=2, max_size=3), st.integers(1, 20)
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(["out_of_order", "easy", "conservative"]),
    st.sampled_from(
        [None, Topology(within="node"), Topology(exclusive=True), Topology(spread="node", most=2)]
    ),
    st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_tasks_of_unlike_groups_get_what_they_ask_for_whatever_starts_and_ends(
    inside: Inside,
    asked: list[tuple[list[tuple[tuple[Resources, Topology], int]], int]],
    backfill: str,
    topology: Topology | None,
    data: st.DataObject,
) -> None:
    cpus = sum(cpu_mask(lane).bit_count() for domain in inside.domains for lane in domain.cpus)

    def lab(backfill: str) -> World:
        world = World(load, PolicySet(wait=Choice("never"), backfill=Choice(backfill)), (LAB,))
        for name in ("n1", "n2"):
            world.agent(name, cpus=cpus, gpus=len(inside.gpus), inside=inside)
        return world

    def finish(world: World, job: Job) -> None:
        asked = [group for group in job.kind.shape.groups for _ in range(group.tasks)]
        for each, task in zip(asked, job.tasks, strict=True):
            own = job.granted(task.rank)
            granted = own or Granted()
            assert len(granted.gpus) == each.resources.gpu
            cores = -(-each.resources.cpu // 1000 // inside.threads) * inside.threads if each.pin else 0
            assert cpu_mask(granted.cpus).bit_count() == cores
        world.finish(job.id)

    def live(world: World) -> list[Job]:
        return [job for job in world.state.jobs.values() if isinstance(job.phase, Placed | Running)]

    world = lab(backfill)
    for number, (groups, minutes) in enumerate(asked):
        job = a_gang(f"j{number}", groups).expected(minutes=minutes)
        world.submit(job if topology is None else job.together(topology))
        if data.draw(st.booleans()) and (some := live(world)):
            finish(world, data.draw(st.sampled_from(some)))
        world.wait(seconds=data.draw(st.integers(0, 300)))
    while some := live(world):
        finish(world, some[0])
    for waiting in [job for job in world.state.jobs.values() if job.state == "QUEUED"]:
        groups, _ = asked[int(waiting.id[1:])]
        alone, again = lab("out_of_order"), a_gang("alone", groups)
        alone.submit(again if topology is None else again.together(topology))
        assert not live(alone), "what fits into an empty cluster does not wait for ever"


class Span(NamedTuple):
    """What somebody has of each socket for a span."""

    start: int
    end: int
    cores: tuple[int, int]
    shared: int
    """CPUs that are not those of a socket."""


def has_room(spans: list[Span], asked: Span, socket: int | None, cores: int) -> bool:
    """Whether a request fits at every moment of a span: in a socket, or anywhere if it shares CPUs."""
    for moment in range(asked.start, asked.end):
        there = [span for span in spans if span.start <= moment < span.end]
        used = sum(sum(span.cores) + span.shared for span in there)
        if used + cores > 8:
            return False
        if socket is not None and sum(span.cores[socket] for span in there) + cores > 4:
            return False
    return True


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6), st.booleans()), max_size=5),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6), st.booleans()), min_size=1, max_size=8),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_socket_is_booked_when_a_naive_calendar_first_has_room(
    running: list[tuple[int, int, bool]], asked: list[tuple[int, int, bool]]
) -> None:
    inside = Inside((Domain(0, ("0-3",)), Domain(1, ("4-7",))))
    node = Node(LAB.name, NodeName("n"), 1, Resources(8000, 10), (), {}, 0, inside=inside)
    cluster = Capacity(LAB, 0)
    cluster.refresh(node)
    (machine,) = cluster.machines
    spans: list[Span] = []
    held: list[tuple[int, Wants]] = []

    def shape_of(cores: int, *, pinned: bool) -> Shape:
        return Shape(Resources(cores * 1000), topology=Topology(pin="socket") if pinned else None)

    def span(start: int, end: int, cores: int, inner: Wants) -> Span:
        taken = dict(inner)
        own = tuple(taken.get(position, 0) for position in cluster.layout.localities[:2])
        return Span(start, end, (own[0], own[1]), cores - sum(own))

    for cores, end, pinned in running:
        shape = shape_of(cores, pinned=pinned)
        if not machine.fits(shape):
            continue
        wants = machine.asks(shape, cluster.layout.wants(shape.resources))
        cluster.take(machine, wants)
        granted = cluster.grant(machine, shape, shape.resources)
        whole = machine.with_granted(wants, ((granted, 0),))
        spans.append(span(0, end, cores, whole))
        held.append((end, whole))
    releases = [Release(end, Group(cluster, (machine,), wants)) for end, wants in sorted(held)]
    timeline = Timeline(0, releases, lambda _: held)
    for cores, duration, pinned in asked:
        candidates = Candidates(cluster, shape_of(cores, pinned=pinned))
        booking = timeline.earliest([Ask(candidates)], duration, FirstFit(), 0)
        sockets = (0, 1) if pinned else (None,)
        first = next(
            at
            for at in sorted({0, *(each.end for each in spans)})
            if any(has_room(spans, Span(at, at + duration, (0, 0), 0), one, cores) for one in sockets)
        )
        assert booking is not None
        assert booking.start == first
        timeline.take(booking)
        spans.append(span(booking.start, booking.end, cores, booking.shares[0].inside))
        assert sum(spans[-1].cores) == (cores if pinned else 0)
        # What is booked is there at every moment, in the socket that the booking names.
        for moment in range(booking.start, booking.end):
            there = [each for each in spans if each.start <= moment < each.end]
            assert all(sum(each.cores[socket] for each in there) <= 4 for socket in (0, 1))
            assert sum(sum(each.cores) + each.shared for each in there) <= 8
