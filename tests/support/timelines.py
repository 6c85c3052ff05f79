"""Random stories of a timeline beside a naive calendar, which writes down every machine at every moment.

`python -m tests.support.timelines` plays many of them, and prints the first seed that fails.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity.amounts import CPU, GPU, MEMORY
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Group, HeldCapacity
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.capacity.spans import Ask, Booking, Release, Share
from spillover.deciding.capacity.timeline import Timeline
from spillover.deciding.capacity.windows import NO_ACCESS, Requester
from spillover.deciding.protocols import Place
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName, task_key
from spillover.model.inside import Domain, Inside, cpu_mask
from spillover.model.job import Shape, TaskGroup, largest_first
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.topology import NODE, Level, Topology
from spillover.policies.place import BestFit, FirstFit, SpreadOut

STEPS = 12
RUNS = 12
"""The longest that anything runs."""
PLACES: list[Place] = [FirstFit(), BestFit(), SpreadOut()]
NAMED = "example.com/fpga"
CORES = 3
"""Of each of the two sockets of a machine that reports its inside."""
GPUS = 2
"""Likewise."""
RACK = Level("rack", "example.com/rack")


class Use(NamedTuple):
    """What somebody holds on a machine for a span."""

    machine: Machine
    held: Resources
    tasks: int
    start: int
    end: int
    parts: tuple[tuple[int, int, int], ...] = ()
    """What it holds inside of the machine: the socket; cores, GPUs or memory (0, 1, 2); and how much."""


class Calendar:
    """The naive answer: all uses in a list, and each question tried at every moment of the span."""

    def __init__(self, nodes: Sequence[Node], uses: list[Use]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.uses = uses
        self.requester = NO_ACCESS
        """For whom it answers: windows of other projects are closed."""

    def is_closed(self, machine: Machine, at: int) -> bool:
        """Whether an advance reservation keeps a machine from the requester at a moment."""
        return any(
            window.start <= at < window.end and window.project != self.requester.project
            for window in machine.windows
        )

    def free(self, machine: Machine, at: int) -> tuple[Resources, int]:
        """What is free at a moment, and how many more tasks the machine takes."""
        node = self.nodes[machine.name]
        left, places = node.capacity - (node.foreign or Resources()), node.tasks if node.tasks >= 0 else 10**6
        for use in self.uses:
            if use.machine is machine and use.start <= at < use.end:
                left, places = left - use.held, places - use.tasks
        return left, places

    def free_inside(self, machine: Machine, at: int, socket: int) -> tuple[int, int, int]:
        """Return what nobody has in a socket at a moment: cores, GPUs, and memory of those with cores there."""
        domain = _sockets(self.nodes[machine.name])[socket]
        left = [cpu_mask(domain.cpus[0]).bit_count(), len(domain.gpus), domain.memory or 10**6]
        for use in self.uses:
            if use.machine is machine and use.start <= at < use.end:
                for where, what, amount in use.parts:
                    left[what] -= amount if where == socket else 0
        return left[0], left[1], left[2]

    def _in_sockets(self, machine: Machine, asked: Resources, moments: range) -> int:
        """Return how many tasks fit that have cores and GPUs of one socket for themselves, and stay there."""
        total = 0
        for socket in range(len(_sockets(self.nodes[machine.name]))):
            least = 10**6
            for moment in moments:
                cores, *others = self.free_inside(machine, moment, socket)
                left, fitting = Resources(cores * 1000, others[1], others[0]), 0
                while replace(asked, other=()).times(fitting + 1).fits(left):
                    fitting += 1
                least = min(least, fitting)
            total += least
        return total

    def _is_empty(self, machine: Machine, moments: range) -> bool:
        """Whether no job of ours is there; others may be."""
        return not any(
            use.machine is machine and use.start < moments.stop and use.end > moments.start
            for use in self.uses
        )

    def last(self) -> int:
        """The moment from which on nothing changes."""
        return max((use.end for use in self.uses), default=0)

    def changes(self, clusters: Sequence[Capacity]) -> list[int]:
        """The moments at which a job could first fit: now, when somebody leaves, and when a window ends."""
        machines = [machine for cluster in clusters for machine in cluster.machines]
        windows = [window.end for machine in machines for window in machine.windows]
        return sorted({0, *(use.end for use in self.uses), *windows})

    def tasks(
        self, machine: Machine, asked: Resources, at: int, duration: int, topology: Topology | None = None
    ) -> int:
        """How many tasks fit during all moments of a span."""
        least, topology = 10**6, topology or Topology()
        closing = max([window.end for window in machine.windows], default=0)
        moments = range(at, min(at + duration, max(at, self.last(), closing) + 1))
        if topology.exclusive and not self._is_empty(machine, moments):
            return 0
        if topology.pin and self.nodes[machine.name].inside is None:
            return 0
        if topology.pin == "socket":
            least = self._in_sockets(machine, asked, moments)
        for moment in moments:
            if self.is_closed(machine, moment):
                return 0
            left, places = self.free(machine, moment)
            fitting = 0
            while fitting < 10 and fitting < places and asked.fits(left) and left.cpu >= 0:
                left, fitting = left - asked, fitting + 1
            least = min(least, fitting)
        return least

    def fits(self, cluster: Capacity, shape: Shape, at: int, duration: int) -> bool:
        """Whether all tasks fit on one cluster during a span."""
        usable = [
            machine
            for machine in cluster.machines
            if self.nodes[machine.name].status == "ready"
            and set(shape.needs) <= set(self.nodes[machine.name].offers)
        ]
        counts = {
            machine: self.tasks(machine, shape.resources, at, duration, shape.topology) for machine in usable
        }
        if shape.topology is not None:
            return self._fits_together(counts, shape, shape.topology)
        wanted = shape.tasks - (shape.rest is not None)
        if shape.rest is None or sum(counts.values()) != wanted:
            return sum(counts.values()) >= wanted + (shape.rest is not None)
        for machine in usable:  # every place of the others is needed, so the rest must fit beside them
            here = Use(machine, shape.resources.times(counts[machine]), counts[machine], at, at + duration)
            beside = Calendar(list(self.nodes.values()), [*self.uses, here])
            beside.requester = self.requester
            if beside.tasks(machine, shape.rest, at, duration):
                return True
        return False

    def _fits_together(self, counts: dict[Machine, int], shape: Shape, topology: Topology) -> bool:
        """Whether all tasks fit in one rack, or on a node each."""
        if topology.spread:
            counts = {machine: min(topology.most, many) for machine, many in counts.items()}
        if not topology.within:
            return sum(counts.values()) >= shape.tasks
        racks: dict[str, int] = {}
        for machine, many in counts.items():
            if (rack := self.nodes[machine.name].labels.get(RACK.label)) is not None:
                racks[rack] = racks.get(rack, 0) + many
        return max(racks.values(), default=0) >= shape.tasks

    def earliest(self, clusters: Sequence[Capacity], shape: Shape, duration: int) -> int | None:
        """The first moment at which a job fits: now, or when somebody leaves."""
        for at in self.changes(clusters):
            if any(self.fits(cluster, shape, at, duration) for cluster in clusters):
                return at
        return None


def play(seed: int, steps: int = STEPS) -> None:
    """Book, start and give back at random; every answer must be the calendar's."""
    dice = Random(seed)
    place = dice.choice(PLACES)
    story = dice.choice(["loose", "loose", "alone", "inside"])
    nodes, uses, clusters = [], [], []
    for number in range(dice.randint(1, 2)):
        spec = ClusterSpec(
            ClusterName(f"c{number}"),
            "agents" if story == "inside" else dice.choice(["agents", "kubernetes"]),
            Role.OWNED,
            gangs=True,
            levels=(RACK,),
        )
        own = [_node(dice, spec, each, story) for each in range(dice.randint(1, 4))]
        running = _runs(dice, own, story)
        cluster = Capacity(spec, 0)
        for node in own:
            cluster.refresh(node)
        cluster.reserve(_windows(dice, own))
        nodes += own
        clusters.append(cluster)
        uses += [Use(cluster.by_name[name], held, tasks, 0, until) for name, held, tasks, until in running]
    by_machine = {machine: cluster for cluster in clusters for machine in cluster.machines}
    # Nodes of both clusters may have equal names; the calendar keeps machines apart by them.
    calendar = Calendar(nodes, uses)
    releases = [
        Release(
            use.end,
            Group(by_machine[use.machine], (use.machine,), use.machine.layout.held(use.held, use.tasks)),
        )
        for use in sorted(uses, key=lambda use: use.end)
    ]
    base = list(uses)
    timeline = Timeline(
        0,
        releases,
        lambda machine: [
            (use.end, machine.layout.held(use.held, use.tasks)) for use in base if use.machine is machine
        ],
    )
    timeline.reserve(clusters)
    # Few kinds of jobs, so that a search meets what earlier ones found.
    questions = [
        [
            Ask(
                Candidates(cluster, shape.parts[0].shape),
                tuple(Candidates(cluster, part) for _, part in shape.parts[1:]),
                shape,
            )
            for cluster in clusters
        ]
        for shape in [_shape(dice, story) for _ in range(dice.randint(1, 5))]
    ]
    booked: list[tuple[Booking, list[Use]]] = []
    for _ in range(steps):
        if booked and dice.random() < 0.2:
            booking, gone = booked.pop(dice.randrange(len(booked)))
            timeline.undo(booking)
            for use in gone:
                calendar.uses.remove(use)
            continue
        asks, duration = dice.choice(questions), dice.randint(1, RUNS)
        shape = asks[0].shape
        timeline.requester = calendar.requester = dice.choice([Requester("physics"), Requester("chemistry")])
        if shape.groups:
            # A search may overlook a way to pack them, but never starts before each part alone could.
            found = timeline.earliest(asks, duration, place, 0)
            alone = [calendar.earliest(clusters, part, duration) for _, part in shape.parts]
            assert found is None or all(at is not None and at <= found.start for at in alone), shape
        else:
            wanted = calendar.earliest(clusters, shape, duration)
            since = dice.randint(0, RUNS if wanted is None else wanted)
            found = timeline.earliest(asks, duration, place, since)
            assert (None if found is None else found.start) == wanted, f"{shape} for {duration} from {since}"
        if found is None:
            continue
        if shape.most:
            found, shape = _largest(timeline, calendar, asks, duration, place, found)
        held = [_use(share, found) for share in found.shares]
        for number, (_, part) in enumerate(shape.parts):
            assert sum(share.tasks for share in found.shares if share.number == number) == part.tasks
        _check_together(found, shape)
        # What tasks get inside of a machine is granted by name when they start, which a timeline does not do.
        if found.start == 0 and story != "inside" and dice.random() < 0.5:
            _start(timeline, found)
        else:
            timeline.take(found)
            booked.append((found, list(held)))
        calendar.uses = [*calendar.uses, *held]
        _check_nothing_twice(calendar)


def _largest(
    timeline: Timeline, calendar: Calendar, asks: list[Ask], duration: int, place: Place, found: Booking
) -> tuple[Booking, Shape]:
    """Return what a gang of elastic size gets: the largest size that fits now, or its least later."""
    shape = asks[0].shape
    best = found, shape
    for size in range(shape.tasks, shape.most + 1):
        sized = replace(shape, tasks=size, most=0)
        for ask in asks:
            now = timeline.now_on(ask, duration, place, size)
            fits = calendar.fits(ask.candidates.cluster, sized, 0, duration)
            assert (now is not None) == fits, f"{size} tasks of {shape} for {duration} now"
            best = best if now is None else (now, sized)
    return best


def _windows(dice: Random, nodes: Sequence[Node]) -> list[AdvanceReservation]:
    """Advance reservations of some nodes, one after the other; most clusters have none."""
    made: list[AdvanceReservation] = []
    at = 0
    for number in range(dice.choice([0, 0, 1, 2])):
        start = at + dice.randint(0, RUNS)
        at = start + dice.randint(1, RUNS)
        chosen = tuple(node.name for node in nodes if dice.random() < 0.6)
        project = dice.choice(["", "physics"])
        made.append(AdvanceReservation(f"r{number}", nodes[0].cluster, chosen, start, at, project))
    return made


def _check_together(found: Booking, shape: Shape) -> None:
    """The machines of a booking are where its topology allows."""
    topology = shape.topology or Topology()
    if topology.exclusive:
        assert all(share.whole for share in found.shares), found
    if topology.within:
        assert len({share.machine.labels[RACK.label] for share in found.shares}) == 1, found
    if topology.spread:
        on_node = Counter[Machine]()
        for share in found.shares:
            on_node[share.machine] += share.tasks
        assert max(on_node.values()) <= topology.most, found


def _start(timeline: Timeline, found: Booking) -> None:
    for share in found.shares:
        wants, tasks = (share.held, 1) if share.whole else (share.wants, share.tasks)
        found.cluster.take(share.machine, wants, tasks)
        timeline.begin(HeldCapacity(found.cluster, share.machine, share.held), found.end)


def _check_nothing_twice(calendar: Calendar) -> None:
    machines = {use.machine for use in calendar.uses}
    for at in range(calendar.last() + 1):
        for machine in machines:
            left, places = calendar.free(machine, at)
            assert min(left.cpu, left.memory, left.gpu, places) >= 0, f"{machine.name} is given twice at {at}"
            assert all(amount >= 0 for _, amount in left.other), f"{machine.name} is given twice at {at}"
            for socket in range(len(_sockets(calendar.nodes[machine.name]))):
                inside = calendar.free_inside(machine, at, socket)
                assert min(inside) >= 0, f"socket {socket} of {machine.name} is given twice at {at}"


def _sockets(node: Node) -> tuple[Domain, ...]:
    return () if node.inside is None else node.inside.domains


def _use(share: Share, found: Booking) -> Use:
    machine = share.machine
    amounts, position = dict(share.held if share.whole else share.wants), machine.layout.position(NAMED)
    fpgas = 0 if position is None else amounts.get(position, 0)
    one = Resources(
        amounts[CPU], amounts.get(MEMORY, 0), amounts.get(GPU, 0), ((NAMED, fpgas),) if fpgas else ()
    )
    if share.whole:
        return Use(machine, one, 0, found.start, found.end)
    return Use(machine, one.times(share.tasks), share.tasks, found.start, found.end, _parts(share))


def _parts(share: Share) -> tuple[tuple[int, int, int], ...]:
    """Return what a booking says that it takes of each socket."""
    inside, at = share.machine.inside, share.machine.layout.localities
    found = []
    for position, amount in share.inside:
        assert inside is not None, share
        number = at.index(position)
        if number >= len(inside.localities):
            found.append((number - len(inside.localities), 2, amount))
            continue
        of_gpus, mask = inside.localities[number]
        socket = (mask & -mask).bit_length() > (GPUS if of_gpus else CORES)
        found.append((int(socket), int(of_gpus), amount))
    return tuple(found)


def _amounts(dice: Random, least: int = 0) -> Resources:
    fpgas = dice.choice([0, 0, 0, 1])
    return Resources(
        dice.randint(least, 4) * 1000,
        dice.randint(0, 4),
        dice.randint(0, 2),
        ((NAMED, fpgas),) if fpgas else (),
    )


def _inside(memory: int) -> Inside:
    """Return two sockets, each with cores and GPUs, and with so much memory; 0 is unknown."""
    cores = (f"0-{CORES - 1}", f"{CORES}-{2 * CORES - 1}")
    gpus = tuple([str(gpu) for gpu in range(2 * GPUS)])
    domains = Domain(0, cores[:1], gpus[:GPUS], memory), Domain(1, cores[1:], gpus[GPUS:], memory)
    return Inside(domains, gpus)


def _node(dice: Random, spec: ClusterSpec, number: int, story: str) -> Node:
    inside = story == "inside" and dice.random() < 0.8
    if inside:
        capacity = Resources(2000 * CORES, dice.randint(1, 8), 2 * GPUS)
    else:
        capacity = _amounts(dice) + Resources(1000, 1)
    return Node(
        spec.name,
        NodeName(f"{spec.name}n{number}"),
        1,
        capacity,
        dice.choice([(), ("ssd",)]),
        dice.choice([{}, {RACK.label: "r1"}, {RACK.label: "r1"}, {RACK.label: "r2"}]),
        0,
        dice.choice(["ready", "ready", "ready", "draining"]),
        number=number + 1,
        foreign=dice.choice([Resources(), Resources(1000)]) if spec.external else None,
        tasks=dice.randint(-1, 3) if spec.external else -1,
        # Some report the memory of their NUMA nodes. That is no draw, so seeds keep their stories.
        inside=_inside((capacity.memory + number) // 2) if inside else None,
    )


def _runs(dice: Random, nodes: Sequence[Node], story: str) -> list[tuple[NodeName, Resources, int, int]]:
    """Let jobs run on nodes already."""
    found = []
    for number in range(dice.randint(0, 6)):
        node, held, tasks = dice.choice(nodes), _amounts(dice, story == "alone"), dice.randint(1, 2)
        if story == "inside":
            held = replace(held, gpu=0)
        left = node.capacity - node.used - (node.foreign or Resources())
        places = node.tasks - len(node.holding) if node.tasks >= 0 else tasks
        if held.times(tasks).fits(left) and tasks <= places:
            node.used = node.used + held.times(tasks)
            for rank in range(tasks):
                node.holding[task_key(JobId(f"j{number}"), 1, rank)] = held
            found.append((node.name, held.times(tasks), tasks, dice.randint(1, RUNS)))
    return found


def _shape(dice: Random, story: str) -> Shape:
    one, tasks = _amounts(dice, story != "loose"), dice.choice([1, 1, 2, 3, 4])
    rest = None
    if story != "loose" and dice.random() < 0.5:
        special = [Topology(exclusive=True), Topology(exclusive=True, within=RACK.name)]
        if story == "inside":
            special = [Topology(pin="socket"), Topology(pin="core"), Topology(pin="socket", spread=NODE)]
        return Shape(one, (), tasks, topology=dice.choice(special))
    if dice.random() < 0.2:
        least = dice.randint(1, 3)
        return Shape(one, (), least, most=least + dice.randint(1, 3))
    if tasks > 1 and dice.random() < 0.5:
        rest = Resources(one.cpu // 2, one.memory // 2, one.gpu, one.other)
    asked = [
        None,
        Topology(within=RACK.name),
        Topology(spread=NODE),
        Topology(RACK.name, spread=NODE, most=2),
    ]
    topology = dice.choice(asked) if tasks > 1 and rest is None else None
    needs: tuple[str, ...] = dice.choice([(), (), ("ssd",)])
    if tasks > 1 and rest is None and dice.random() < 0.4:
        groups = (TaskGroup("a", tasks - 1, one), TaskGroup("b", dice.randint(1, 2), _amounts(dice)))
        first = min([group.resources for group in groups], key=largest_first)
        return Shape(first, needs, sum(each.tasks for each in groups), topology=topology, groups=groups)
    return Shape(one, needs, tasks, rest=rest, topology=topology)


def main(words: Sequence[str] | None = None) -> int:
    """Play seeds until one fails or all are done; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="timelines", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="number of stories")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each story")
    options = parser.parse_args(words)
    for seed in range(options.first, options.first + options.seeds):
        try:
            play(seed, options.steps)
        except AssertionError as broken:
            again = f"python -m tests.support.timelines --first {seed} --seeds 1 --steps {options.steps}"
            print(f"seed {seed}: {broken}\n{again}")  # noqa: T201
            return 1
    print(f"{options.seeds} stories of {options.steps} steps: nothing is given twice")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
