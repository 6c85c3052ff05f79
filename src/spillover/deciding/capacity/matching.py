"""Matches a gang to the levels of a cluster: all tasks in one vertex, spread over vertices, or on whole machines.

Everything here works on how many tasks fit on each machine, so it answers alike for now, for later, and for a cluster
on which nothing runs. The parts of a gang with unlike tasks are placed one after the other, each on what those before
it leave.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from spillover.deciding.capacity import amounts
from spillover.deciding.capacity.amounts import Vector, Wants, change, times
from spillover.deciding.capacity.machine import Machine
from spillover.model.job import Shape
from spillover.model.topology import NODE, Topology

if TYPE_CHECKING:
    from spillover.deciding.capacity.cluster import Capacity
    from spillover.deciding.capacity.levels import Vertex

Fitting: TypeAlias = Mapping[Machine, int]
"""Machines that admit a gang, each with the number of its tasks that fit there."""
Chosen: TypeAlias = list[tuple[Machine, int]]
"""Machines with the number of tasks that each gets."""
Given: TypeAlias = "dict[Vertex | Machine | None, int]"
"""How many tasks of a gang each vertex of `spread` has."""
Free: TypeAlias = Callable[[Machine], Sequence[int]]
"""Returns how much a machine has free."""


class Assigned(NamedTuple):
    """Some tasks of a gang on one machine."""

    part: int
    """Which part of the gang they are of, as a position in `Shape.parts`."""
    machine: Machine
    wants: Wants
    """The resources of one task."""
    tasks: int


class Room(Protocol):
    """What is free on the machines of a cluster, at one time or during a span."""

    def count(self, machine: Machine, shape: Shape, wants: Wants) -> int:
        """Return how many tasks fit on a machine that admits them."""
        ...

    def rank(self, fitting: Fitting, shape: Shape) -> list[tuple[int, int, int]]:
        """Return score, index and number of tasks of each machine, best first."""
        ...

    def take(self, machine: Machine, shape: Shape, wants: Wants, tasks: int) -> None:
        """Take capacity for some tasks on trial, with what they need inside of the machine."""
        ...

    def undo(self) -> None:
        """Give back all that was taken on trial."""
        ...


def count_tasks(machines: Iterable[Machine], shape: Shape, wants: Wants, free: Free) -> dict[Machine, int]:
    """Return machines that admit a gang and have room for some of its tasks; `free` says how much a machine has."""
    found: dict[Machine, int] = {}
    for machine in machines:
        many = machine.tasks_of(shape, wants, free(machine))
        if many and machine.admits(shape):
            found[machine] = many
    return found


def room(fitting: Fitting, topology: Topology) -> int:
    """Return how many tasks fit on these machines together."""
    if topology.spread in {"", NODE}:
        return sum(fitting.values())
    each: dict[Vertex | None, int] = {}
    for machine, many in fitting.items():
        vertex = machine.vertex(topology.spread)
        each[vertex] = each.get(vertex, 0) + many
    return sum([min(topology.most, many) for many in each.values()])


def assign(
    ordered: Iterable[tuple[Machine, int]], tasks: int, topology: Topology, given: "Given | None" = None
) -> Chosen | None:
    """Give tasks to machines in this order, as many to each vertex as `spread` allows; None if not all get a place.

    `given` has what other parts of the gang got, and gets what this one does.
    """
    chosen: Chosen = []
    level = topology.spread
    given = {} if given is None else given
    for machine, fitting in ordered:
        many = min(tasks, fitting)
        if level:
            vertex = machine if level == NODE else machine.vertex(level)
            many = min(many, topology.most - given.get(vertex, 0))
            given[vertex] = given.get(vertex, 0) + many
        if many:
            chosen.append((machine, many))
            tasks -= many
            if not tasks:
                return chosen
    return None


def group(fitting: Fitting, level: str) -> "dict[Vertex | Machine | None, dict[Machine, int]]":
    """Group machines by their vertex at a level. At the level of nodes, each machine is a group."""
    groups: dict[Vertex | Machine | None, dict[Machine, int]] = {}
    for machine, many in fitting.items():
        key = machine if level == NODE else machine.vertex(level)
        groups.setdefault(key, {})[machine] = many
    return groups


def choose(
    fitting: Fitting, shape: Shape, cluster: "Capacity", there: Room, tasks: int = 0
) -> list[Assigned] | None:
    """Choose machines for all tasks of a gang; None if there is no such choice.

    `fitting` has all machines that admit the gang, with the number of tasks of its first part that fit. `tasks` is the
    size of a gang of elastic size; 0 is its least.
    """
    topology, (_, first) = shape.topology or Topology(), shape.parts[0]
    needed = tasks or first.tasks
    if shape.topology is None and len(shape.parts) == 1:
        return _take_best(fitting, first, cluster, there, needed)
    everywhere: list[Fitting] = [fitting]
    tries = [everywhere]
    if topology.within:
        together: list[Fitting] = [
            each for key, each in group(fitting, topology.within).items() if key is not None
        ]
        tries = [together, everywhere] if topology.preferred else [together]
    for groups in tries:
        large = [each for each in groups if room(each, topology) >= needed]
        if len(large) > 1:
            ranked = [(there.rank(_some(each), first), number) for number, each in enumerate(large)]
            large = [large[number] for _, number in sorted(ranked)]
        for each in large:
            if (found := fill(each, shape, cluster, there, tasks)) is not None:
                return found
    return None


def _take_best(
    fitting: Fitting, shape: Shape, cluster: "Capacity", there: Room, tasks: int
) -> list[Assigned] | None:
    """Do the same as `fill` for tasks that are alike and may run anywhere. Most gangs are such, and it saves three lists."""
    if sum(fitting.values()) < tasks:
        return None
    wants, slots = cluster.layout.wants(shape.resources), cluster.slots
    found: list[Assigned] = []
    for _, at, many in there.rank(_some(fitting), shape):
        found.append(Assigned(0, slots[at], wants, min(many, tasks)))
        tasks -= many
        if tasks <= 0:
            break
    return found


def fill(
    fitting: Fitting, shape: Shape, cluster: "Capacity", there: Room, tasks: int = 0
) -> list[Assigned] | None:
    """Give all tasks of a gang to some of these machines, the best first; None if they do not fit. See `choose`."""
    topology, parts = shape.topology or Topology(), shape.parts
    given: Given = {}
    found: list[Assigned] = []
    machines, full = tuple(fitting), True
    for number, (_, part) in enumerate(parts):
        wants = cluster.layout.wants(part.resources)
        if number:  # on what the parts before it leave
            fitting = {machine: there.count(machine, part, wants) for machine in machines}
        ordered = [(cluster.slots[at], many) for _, at, many in there.rank(_some(fitting), part)]
        chosen = assign(ordered, tasks or part.tasks, topology, given)
        if chosen is None:
            full = False
            break
        found += [Assigned(number, machine, wants, many) for machine, many in chosen]
        for machine, many in chosen if len(parts) > 1 else ():
            there.take(machine, part, wants, many)
    if len(parts) > 1:
        there.undo()
    return found if full else None


def _some(fitting: Fitting) -> Fitting:
    """Return the machines where at least one task fits."""
    return {machine: many for machine, many in fitting.items() if many}


class _Amounts:
    """Room by free amounts alone, without the rank of a policy."""

    def __init__(self, free: Free) -> None:
        self._free = free
        self._left: dict[Machine, Vector] = {}
        """What is left on machines of which some was taken."""

    def count(self, machine: Machine, shape: Shape, wants: Wants) -> int:
        """Return how many tasks fit on a machine that admits them."""
        return machine.tasks_of(shape, wants, self._left.get(machine) or self._free(machine))

    @staticmethod
    def rank(fitting: Fitting, shape: Shape) -> list[tuple[int, int, int]]:
        """Return machines by index."""
        del shape
        return sorted([(0, machine.index, many) for machine, many in fitting.items()])

    def take(self, machine: Machine, shape: Shape, wants: Wants, tasks: int) -> None:
        """Take capacity for some tasks on trial, with what they need inside of the machine."""
        left = self._left.get(machine)
        if left is None:
            left = self._left[machine] = list(self._free(machine))
        change(left, machine.share(shape, wants, tasks, left), -1)

    def undo(self) -> None:
        """Give back all that was taken on trial."""
        self._left.clear()


def fits(cluster: "Capacity", shape: Shape) -> bool:
    """Return whether all tasks of a gang can start in a cluster now."""
    topology, parts = shape.topology or Topology(), shape.parts
    wants = cluster.layout.wants(parts[0].shape.resources)
    if not wants:
        return False
    within = "" if topology.preferred else topology.within
    if len(parts) > 1:
        fitting = _admitting(cluster, shape, parts[0].shape, _free_now)
        return choose(fitting, shape, cluster, _Amounts(_free_now)) is not None
    if within in {"", NODE}:
        return most_together(count_tasks(cluster.machines, shape, wants, _free_now), topology) >= shape.tasks
    if cluster.levels is None:
        return False
    for vertex in cluster.levels.holding(within, times(wants, shape.tasks)):
        if room(count_tasks(vertex.machines, shape, wants, _free_now), topology) >= shape.tasks:
            return True
    return False


def machines_now(cluster: "Capacity", shape: Shape) -> list[Machine] | None:
    """Return machines on which all tasks of a gang can start now, the first ones that can; None if there are none."""
    fitting = _admitting(cluster, shape, shape.parts[0].shape, _free_now)
    found = choose(fitting, shape, cluster, _Amounts(_free_now))
    return None if found is None else list(dict.fromkeys([each.machine for each in found]))


def fits_beside(cluster: "Capacity", shape: Shape, closed: Collection[int]) -> bool:
    """Return whether a job that fits into a cluster now also does without the machines that are closed to it, by index."""
    if not closed:
        return True
    others = [machine for machine in cluster.machines if machine.index not in closed]
    if not shape.is_gang:
        return any(machine.fits(shape) for machine in others)
    first = shape.parts[0].shape
    wants = cluster.layout.wants(first.resources)
    return (
        most_together(count_tasks(others, first, wants, _free_now), shape.topology or Topology())
        >= first.tasks
    )


def _admitting(
    cluster: "Capacity", shape: Shape, part: Shape, free: Free, *, upgraded: bool = False
) -> dict[Machine, int]:
    """Return all machines that admit a gang, with the number of tasks of a part that fit there."""
    wants = cluster.layout.wants(part.resources)
    return {
        machine: machine.tasks_of(part, wants, free(machine))
        for machine in cluster.machines
        if machine.admits(shape, upgraded=upgraded)
    }


def most_now(cluster: "Capacity", shape: Shape) -> int:
    """Return how many tasks of a gang fit into a cluster now, where `within` requires them to be together."""
    return _most(cluster, shape, _free_now)


def most_ever(cluster: "Capacity", shape: Shape, *, upgraded: bool = False) -> int:
    """Return how many tasks of a gang a cluster could hold if nothing else ran there, whatever state its nodes are in.

    With `upgraded`, machines count whose agents cannot run gangs before they are upgraded.
    """
    if len(shape.parts) > 1:
        # Another order of placement might find room, so only what no order can hold is too large.
        return (
            shape.tasks
            if _might_hold(cluster, shape, upgraded=upgraded)
            else min(shape.tasks - 1, _most(cluster, shape, _free_when_idle, upgraded=upgraded))
        )
    return _most(cluster, shape, _free_when_idle, upgraded=upgraded)


def _most(cluster: "Capacity", shape: Shape, free: Free, *, upgraded: bool = False) -> int:
    """Return how many tasks of a gang fit together, part by part."""
    topology, parts = shape.topology or Topology(), shape.parts
    fitting = _admitting(cluster, shape, parts[0].shape, free, upgraded=upgraded)
    if len(parts) == 1:
        return most_together(fitting, topology)
    there, most = _Amounts(free), 0
    for each in _together(fitting, topology):
        found = 0
        for _, part in parts:
            wants = cluster.layout.wants(part.resources)
            left = part.tasks
            for machine in each:
                many = min(left, there.count(machine, part, wants))
                if many:
                    there.take(machine, part, wants, many)
                    left -= many
            found += part.tasks - left
        there.undo()
        most = max(most, found)
    return most


def _might_hold(cluster: "Capacity", shape: Shape, *, upgraded: bool) -> bool:
    """Return whether an idle cluster has enough for each part of a gang alone, and for the sum of all."""
    topology, total = shape.topology or Topology(), cluster.layout.wants(shape.total)
    alone = [_admitting(cluster, shape, part, _free_when_idle, upgraded=upgraded) for _, part in shape.parts]
    for each in _together(alone[0], topology):
        free = [sum(one) for one in zip(*[_free_when_idle(machine) for machine in each], strict=True)]
        if not free or not amounts.fits(total, free):
            continue
        if all(
            room({machine: fitting[machine] for machine in each}, topology) >= part.tasks
            for fitting, (_, part) in zip(alone, shape.parts, strict=True)
        ):
            return True
    return False


def most_together(fitting: Fitting, topology: Topology) -> int:
    """Return the most tasks that fit where `within` requires them to be together."""
    return max([room(each, topology) for each in _together(fitting, topology)], default=0)


def _together(fitting: Fitting, topology: Topology) -> list[Fitting]:
    """Return machines in groups of which one must hold all tasks."""
    if not topology.within or topology.preferred:
        return [fitting]
    return [each for key, each in group(fitting, topology.within).items() if key is not None]


def _free_now(machine: Machine) -> Sequence[int]:
    return machine.free


def _free_when_idle(machine: Machine) -> Sequence[int]:
    return machine.when_idle
