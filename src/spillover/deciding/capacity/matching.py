"""Matches a gang to the levels of a cluster: all tasks in one vertex, spread over vertices, or on whole machines.

Everything here works on how many tasks fit on each machine, so it answers alike for now, for later, and for a cluster
on which nothing runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from spillover.deciding.capacity.amounts import Wants, times
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


def count_tasks(
    machines: Iterable[Machine], shape: Shape, wants: Wants, free: Callable[[Machine], Sequence[int]]
) -> dict[Machine, int]:
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


def assign(ordered: Iterable[tuple[Machine, int]], tasks: int, topology: Topology) -> Chosen | None:
    """Give tasks to machines in this order, as many to each vertex as `spread` allows; None if not all get a place."""
    chosen: Chosen = []
    quota = topology.spread not in {"", NODE}
    given: dict[Vertex | None, int] = {}
    for machine, fitting in ordered:
        many = min(tasks, fitting)
        if quota:
            vertex = machine.vertex(topology.spread)
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
    fitting: Fitting,
    shape: Shape,
    slots: Sequence[Machine],
    rank: "Callable[[Fitting], list[tuple[int, int, int]]]",
) -> Chosen | None:
    """Choose machines for all tasks of a gang with a topology; None if there is no such choice.

    `rank` returns score, index and number of tasks of each machine, best first.
    """
    topology = shape.topology or Topology()
    some = {machine: many for machine, many in fitting.items() if many}
    groups: list[Fitting] = [some]
    if topology.within:
        together = [each for key, each in group(some, topology.within).items() if key is not None]
        large: list[Fitting] = [each for each in together if room(each, topology) >= shape.tasks]
        groups = large or (groups if topology.preferred else [])
    best = min([rank(each) for each in groups], default=[])
    return assign([(slots[at], many) for _, at, many in best], shape.tasks, topology)


def fits(cluster: "Capacity", shape: Shape) -> bool:
    """Return whether all tasks of a gang with a topology can start in a cluster now."""
    topology, wants = shape.topology, cluster.layout.wants(shape.resources)
    if topology is None or not wants:
        return False
    within = "" if topology.preferred else topology.within
    if within in {"", NODE}:
        fitting = count_tasks(cluster.machines, shape, wants, _free_now)
        return most_together(fitting, topology) >= shape.tasks
    if cluster.levels is None:
        return False
    for vertex in cluster.levels.holding(within, times(wants, shape.tasks)):
        if room(count_tasks(vertex.machines, shape, wants, _free_now), topology) >= shape.tasks:
            return True
    return False


def most_ever(cluster: "Capacity", shape: Shape) -> int:
    """Return how many tasks of a gang a cluster could hold if nothing else ran there, whatever state its nodes are in."""
    wants = cluster.layout.wants(shape.resources)
    if not wants:
        return 0
    fitting = count_tasks(cluster.machines, shape, wants, _free_when_idle)
    return most_together(fitting, shape.topology or Topology())


def most_together(fitting: Fitting, topology: Topology) -> int:
    """Return the most tasks that fit where `within` requires them to be together."""
    if not topology.within or topology.preferred:
        return room(fitting, topology)
    groups = group(fitting, topology.within)
    return max([room(each, topology) for key, each in groups.items() if key is not None], default=0)


def _free_now(machine: Machine) -> Sequence[int]:
    return machine.free


def _free_when_idle(machine: Machine) -> Sequence[int]:
    idle, missing = machine.idle, machine.layout.size - len(machine.idle)
    return [*idle, *[0] * missing] if missing else idle
