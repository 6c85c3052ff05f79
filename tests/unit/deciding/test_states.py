"""On a cluster of many machines, a shape that is new reads each state once; see `capacity/states.py`."""

import pytest
from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity.candidates import SPARE, Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.states import FEW, scores_states
from spillover.deciding.protocols import MachineView, Place
from spillover.model.ids import NodeName
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.policies import place
from spillover.policies.place import BestFit, FirstFit, Low, SpreadOut
from spillover.testing.world import OWNED

GIB = 2**30
BUILT_IN: list[type[Place]] = [
    each
    for each in vars(place).values()
    if isinstance(each, type) and hasattr(each, "score") and each is not MachineView
]


class Counted(BestFit):
    """Best fit that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def score(self, machine: MachineView, shape: Shape) -> int:
        self.asked += 1
        return super().score(machine, shape)


def a_node(number: int, *, cpus: int = 8, memory: int = 8) -> Node:
    capacity = Resources(cpus * 1000, memory * GIB, 2)
    return Node(
        OWNED.name, NodeName(f"n{number}"), 1, capacity, (), {"at": str(number)}, 0, number=number + 1
    )


def a_cluster(machines: int) -> Capacity:
    """Every third machine has half of its CPUs in use, and each one another amount of memory."""
    cluster = Capacity(OWNED, 0)
    for number in range(machines):
        node = a_node(number)
        node.used = Resources(4000 if number % 3 == 0 else 0, number)
        cluster.refresh(node)
    return cluster


def test_a_new_shape_reads_each_state_once_however_many_machines_there_are() -> None:
    cluster, best_fit = a_cluster(10 * FEW), Counted()
    machine = Candidates(cluster, Shape(Resources(2000, GIB))).best(best_fit)
    assert machine is cluster.machines[0]
    assert best_fit.asked == 2, "half used, and empty"


def test_on_a_small_cluster_it_reads_each_machine() -> None:
    cluster, best_fit = a_cluster(FEW), Counted()
    assert Candidates(cluster, Shape(Resources(2000))).best(best_fit) is cluster.machines[0]
    assert best_fit.asked == FEW


def test_a_machine_of_the_best_state_with_too_little_memory_is_passed_over() -> None:
    cluster = a_cluster(2 * FEW)
    asked = Shape(
        Resources(2000, 8 * GIB - 5)
    )  # number 6 has 6 bytes in use, and is the first with half of its CPUs but 0 and 3
    finder, best_fit = Candidates(cluster, asked), BestFit()
    found = []
    for _ in range(6):
        machine = finder.best(best_fit)
        assert machine is not None
        found.append(machine.index)
        cluster.take(machine, finder.taken(machine))
    assert found == [0, 3, 1, 2, 4, 5]
    assert finder.best(best_fit) is None


def test_old_entries_of_the_heap_do_not_pile_up() -> None:
    cluster = a_cluster(3)
    finder, spread = Candidates(cluster, Shape(Resources(1000))), SpreadOut()
    machine = cluster.machines[0]
    for _ in range(10 * SPARE):
        finder.best(spread)
        before = machine.before
        cluster.take(machine, finder.wants)
        cluster.take(cluster.machines[1], ())
        finder.best(spread)
        cluster.set(machine, before)
        cluster.take(cluster.machines[1], ())
    assert len(finder.heap) <= 2 * 3 + SPARE


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_policy_that_scores_states_looks_at_nothing_else(policy: type[Place]) -> None:
    if not scores_states(policy()):
        return
    one, other = Capacity(OWNED, 0), Capacity(OWNED, 0)
    node = a_node(77)
    one.refresh(a_node(1))
    other.refresh(replace(node, used=Resources(0, GIB), labels={}))
    for shape in (Shape(Resources(1000)), Shape(Resources(1000, 5, 1))):
        assert policy().score(one.machines[0], shape) == policy().score(other.machines[0], shape)


def test_the_policies_that_most_use_score_states_and_names_do_not() -> None:
    assert [scores_states(each()) for each in (FirstFit, BestFit, SpreadOut, Low)] == [
        True,
        True,
        True,
        False,
    ]
