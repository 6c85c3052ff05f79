"""Where tasks fit on a cluster of many machines that are alike, compared with a look at each machine."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity import candidates, counts
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.counts import counts_in, opened
from spillover.deciding.capacity.machine import Before, Machine
from spillover.deciding.protocols import MachineView, Place
from spillover.model.cluster import Taint
from spillover.model.ids import JobId, NodeName, task_key
from spillover.model.inside import Domain, Inside
from spillover.model.job import Shape
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.topology import Level, Topology
from spillover.model.where import Rules
from spillover.policies.place import BestFit, FirstFit, High, Low, Pack, SpreadOut, WorstFit
from spillover.testing.world import OWNED
from tests.support.tiers import examples

FEW: Final = 8
LAB = replace(OWNED, gangs=True, levels=(Level("rack", "rack"),))
TWO_SOCKETS: Final = Inside((Domain(0, ("0-1",), ("0",)), Domain(1, ("2-3",), ("1",))), ("0", "1"))


@pytest.fixture(scope="module", autouse=True)
def _few() -> Iterator[None]:
    """Let small clusters count as large ones, so that odd stories are short."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (candidates, counts):
            patch.setattr(module, "FEW", FEW)
        yield


class ByLength:
    """Scores that no amount decides, as those of installed policies."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        del shape
        return len(machine.name) - len(machine.labels)


PLACES: Final[tuple[Place, ...]] = (
    FirstFit(),
    BestFit(),
    WorstFit(),
    SpreadOut(),
    Pack(),
    Low(),
    High(),
    ByLength(),
)
SHAPES: Final = (
    Shape(Resources(1000)),
    Shape(Resources(2000, 1)),
    Shape(Resources(4000, 2, 2)),
    Shape(Resources(1000, 0, 1)),
    Shape(Resources()),
    Shape(Resources(0, 1)),
    Shape(Resources(1000, other=(("fpga", 1),))),
    Shape(Resources(1000), needs=("word",)),
    Shape(Resources(1000), rules=Rules(selector=(("zone", "a"),))),
    Shape(Resources(1000), topology=Topology(within="rack")),
    Shape(Resources(1000), topology=Topology(exclusive=True)),
    Shape(Resources(2000, 0, 1), topology=Topology(pin="socket")),
    Shape(Resources(1000), reservation="night"),
    Shape(Resources(1000), tasks=3),
    Shape(Resources(1000), tasks=4, topology=Topology(spread="node", most=2)),
)


class Story:
    """A cluster to which things happen at random, and those who look for places on it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cluster = Capacity(LAB, 0)
        self.nodes: list[Node] = []
        self.joined = 0
        self.taken: list[tuple[Machine, Before]] = []
        """Trial placements, to be undone in reverse."""
        self.known: dict[tuple[Shape, Place], Candidates] = {}
        for _ in range(random.choice((FEW - 1, FEW + 1, 3 * FEW, 6 * FEW))):
            self.join()

    def happen(self) -> None:
        """Let something happen."""
        often: list[Callable[[], None]] = [self.use, self.use, self.use, self.take, self.take, self.undo]
        seldom: list[Callable[[], None]] = [
            self.join,
            self.drop,
            self.describe,
            self.change_status,
            self.prefetch,
            self.reserve,
            self.forget,
            self.copy,
        ]
        what = self.random.choice(often * 3 + seldom)
        if what not in (self.take, self.forget):
            self.undo()  # as a cycle does before the state changes
        what()

    def join(self) -> None:
        dice, self.joined = self.random, self.joined + 1
        capacity = dice.choice(3 * [Resources(4000, 4, 2)] + [Resources(2000, 4), Resources(4000, 1)])
        if dice.random() < 0.02:
            capacity = Resources(4000, 4, other=(("fpga", 2),))
        labels = {"rack": f"r{self.joined % 3}"} if dice.random() < 0.8 else {}
        name = NodeName(f"n{self.joined}")
        node = Node(LAB.name, name, 1, capacity, (), labels, 0, number=self.joined)
        if capacity.gpu and dice.random() < 0.7:
            node.inside = TWO_SOCKETS
        self.nodes.append(node)
        self.cluster.refresh(node)

    def drop(self) -> None:
        for node in self.random.sample(self.nodes, min(len(self.nodes) - 1, self.random.choice((1, 1, FEW)))):
            self.nodes.remove(node)
            self.cluster.drop([node.name])

    def one(self) -> Node:
        return self.random.choice(self.nodes)

    def use(self) -> None:
        """Let a task start on a node, or all of them end."""
        for _ in range(self.random.choice((1, 1, 5))):
            node = self.one()
            if self.random.random() < 0.3:
                node.holding, node.granted, node.used, node.alone = {}, {}, Resources(), False
            else:
                self.start(node)
            self.cluster.refresh(node)

    def start(self, node: Node) -> None:
        shape, machine = self.random.choice(SHAPES), self.cluster.by_name[node.name]
        if machine.fits(shape):
            key = task_key(JobId("j"), 1, len(node.holding))
            before = machine.before
            self.cluster.take(machine, machine.asks(shape, self.cluster.layout.wants(shape.resources)))
            granted = self.cluster.grant(machine, shape, shape.resources)
            self.cluster.set(machine, before)
            node.used, node.holding[key] = node.used + shape.resources, shape.resources
            node.alone = shape.topology is not None and shape.topology.exclusive
            if granted is not None:
                node.granted[key] = granted

    def take(self) -> None:
        """Take places for some tasks of a shape on trial, as a cycle does."""
        shape, place = self.random.choice(SHAPES), self.random.choice(PLACES)
        finder = self.candidates(shape, place)
        for _ in range(self.random.choice((1, 3, 10))):
            machine = finder.best(place)
            if machine is None:
                return
            self.taken.append((machine, machine.before))
            if finder.alone:
                self.cluster.take_whole(machine)
            else:
                self.cluster.take(machine, finder.taken(machine))
                self.cluster.grant(machine, shape, shape.resources)

    def undo(self) -> None:
        while self.taken:
            self.cluster.set(*self.taken.pop())

    def describe(self) -> None:
        """Change the labels, the words or the taints of a node."""
        node = self.one()
        match self.random.randint(0, 2):
            case 0:
                node.labels = {**node.labels, "zone": self.random.choice("ab")}
            case 1:
                node.offers = () if node.offers else ("word",)
            case _:
                node.taints = () if node.taints else (Taint("gpu", "", "NoSchedule"),)
        self.cluster.refresh(node)

    def change_status(self) -> None:
        node = self.one()
        node.status = "ready" if node.status == "lost" else "lost"
        self.cluster.refresh(node)

    def prefetch(self) -> None:
        """Let a node get a prefetched lease, which closes it, or let go of it."""
        node = self.one()
        node.ahead = {} if node.ahead else {task_key(JobId("a"), 1, 0): Resources(1000)}
        self.cluster.refresh(node)

    def reserve(self) -> None:
        nodes = tuple([node.name for node in self.random.sample(self.nodes, min(3, len(self.nodes)))])
        night = AdvanceReservation("night", LAB.name, nodes, 10, 20, "p")
        self.cluster.reserve([night] if self.random.random() < 0.7 else [])

    def forget(self) -> None:
        self.cluster._forget()

    def copy(self) -> None:
        """Go on with a copy; those who looked at the original look at it no more."""
        self.cluster = self.cluster.copy()
        self.known.clear()

    # --- looking

    def candidates(self, shape: Shape, place: Place) -> Candidates:
        known = self.known.get((shape, place))
        if known is None or self.random.random() < 0.05:
            known = self.known[shape, place] = Candidates(self.cluster, shape)
        return known

    def look(self) -> None:
        """Compare what some find with what a look at each machine does."""
        for _ in range(4):
            shape, place = self.random.choice(SHAPES), self.random.choice(PLACES)
            fitting = [each for each in self.cluster.machines if each.fits(shape)]
            ranked = sorted(fitting, key=lambda each: (place.score(each, shape), each.index))
            finder = self.candidates(shape, place)
            self.ask(finder, place, ranked)
            if self.random.random() < 0.2:
                found = finder.fitting(place)
                assert sorted([each.index for each in found]) == sorted([each.index for each in fitting])
                assert finder.scores == {each.index: place.score(each, shape) for each in fitting}
                self.ask(finder, place, ranked)
            if self.random.random() < 0.2:
                self.count(shape)

    def ask(self, finder: Candidates, place: Place, ranked: list[Machine]) -> None:
        """Ask for the best machine, also without some of the best, and then for all of them in turn."""
        barred: set[int] = set()
        passed: list[tuple[int, int]] = []
        best = finder.best(place)
        assert best is (ranked[0] if ranked else None)
        assert not finder.fits_only_on(barred) or not ranked
        closed = {each.index for each in ranked[:3]} | {self.random.choice(self.cluster.machines).index}
        others = [each for each in ranked if each.index not in closed]
        assert finder.best(place, closed) is (others[0] if others else None)
        for machine in ranked[: self.random.choice((0, 2, 100))]:
            assert finder.best(place, barred, passed) is machine
            barred.add(machine.index)
        finder.put_back(passed)
        assert finder.best(place) is best

    def count(self, shape: Shape) -> None:
        """Compare how many tasks fit on each machine."""
        wants = self.cluster.layout.wants(shape.resources)
        found = {
            each: each.tasks_of(shape, wants, opened(each))
            for each in self.cluster.machines
            if each.ready and each.admits(shape)
        }
        assert counts_in(self.cluster, shape).tasks == {each: many for each, many in found.items() if many}


@given(st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_who_reads_states_finds_what_a_look_at_each_machine_does(seed: int) -> None:
    story = Story(Random(seed))
    for _ in range(40):
        story.happen()
        story.look()


@given(st.integers(0, 2**32))
@settings(max_examples=examples(20), deadline=None)
def test_every_machine_is_in_its_state(seed: int) -> None:
    story = Story(Random(seed))
    for _ in range(60):
        story.happen()
        if story.random.random() < 0.5:
            states: dict[tuple[int, ...], list[int]] = {}
            for machine in story.cluster.slots:
                state = (machine.kind, False, machine.cpu, *machine.free[2:])
                states.setdefault(state, []).append(machine.index)
            assert story.cluster.states.now() == states
