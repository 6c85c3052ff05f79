"""A cluster as others run it, without one: objects that come, are given nodes, run, end and are deleted, in virtual time."""

from random import Random
from typing import Final

from msgspec import Struct

from spillover.core.events import Lease, SeenNode, Usage
from spillover.core.proposals import Outcome
from spillover.model.ids import NodeName
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.driver import Ending, Hindrance, Pending, Seen, Stage

WORK: Final = Resources(1000)
"""What each attempt takes of its node."""


class Object(Struct):
    """One attempt, as the cluster has it."""

    lease: Lease
    made: int
    node: NodeName | None = None
    started: int | None = None
    ends: int | None = None
    ending: Ending | None = None
    going: int | None = None
    """When it will be gone, while it is being deleted."""


class Cluster:
    """What is really there."""

    def __init__(self, nodes: int, slots: int, dice: Random) -> None:
        self._dice = dice
        self._slots = slots
        self.foreign: dict[NodeName, int] = {NodeName(f"n{each}"): 0 for each in range(nodes)}
        """Slots that others use of each node."""
        self.objects: dict[Lease, Object] = {}
        self.runs: list[tuple[Lease, int, int | None]] = []
        """Each run of anything: when it began and when it was over."""
        self.revision = 0
        """Rises with every change."""
        self.changed: dict[Lease, int] = {}
        """The revision at which each object changed, also of those that are gone."""
        self.nodes_changed: dict[NodeName, int] = {}

    # --- what others ask

    def make(self, lease: Lease, now: int) -> None:
        """Have an attempt; one that is there stays as it is."""
        if lease not in self.objects:
            self.objects[lease] = Object(lease, now)
            self._touch(lease)

    def delete(self, lease: Lease, now: int) -> None:
        """Have one gone, soon."""
        found = self.objects.get(lease)
        if found is not None and found.going is None:
            found.going = now + self._dice.randrange(SECOND)
            self._touch(lease)

    def occupy(self, node: NodeName, slots: int) -> None:
        """Others use so much of a node."""
        self.foreign[node] = slots
        self.revision += 1
        self.nodes_changed[node] = self.revision

    # --- what it does by itself

    def tick(self, now: int) -> None:
        """Go on: delete, end, give nodes, start."""
        for lease, each in list(self.objects.items()):
            if each.going is not None and each.going <= now:
                self._stop(each, now)
                del self.objects[lease]
                self._touch(lease)
            elif each.ends is not None and each.ends <= now and each.ending is None:
                self._stop(each, each.ends)
                code = 0 if self._dice.random() < 0.9 else 1
                ran = each.ends - (each.started or each.ends)
                each.ending = Ending(Outcome.EXITED, code, None, Usage(ran), each.ends)
                self._touch(lease)
        for each in self.objects.values():
            if each.node is None and each.going is None and (node := self._room()) is not None:
                each.node = node
                self._touch(each.lease)
            elif each.node is not None and each.started is None and each.going is None:
                each.started = now
                each.ends = (
                    now
                    + self._dice.choice([self._dice.randrange(1, 10), self._dice.randrange(10, 90)]) * SECOND
                )
                self.runs.append((each.lease, now, None))
                self._touch(each.lease)

    def _stop(self, each: Object, at: int) -> None:
        """What ran of it runs no more."""
        for place, (lease, began, over) in enumerate(self.runs):
            if lease == each.lease and over is None:
                self.runs[place] = (lease, began, at)

    def _room(self) -> NodeName | None:
        """A node with a slot, not necessarily the one that anybody had in mind."""
        free = [node for node in self.foreign if self.taken(node) < self._slots]
        return self._dice.choice(free) if free else None

    def taken(self, node: NodeName) -> int:
        """Slots of a node that are used."""
        ours = sum(each.node == node and each.ending is None for each in self.objects.values())
        return ours + self.foreign[node]

    def _touch(self, lease: Lease) -> None:
        self.revision += 1
        self.changed[lease] = self.revision

    # --- what is to be seen

    def see(self, lease: Lease) -> Seen | None:
        """One object; None if it is not there."""
        each = self.objects.get(lease)
        if each is None:
            return None
        stage = Stage.ENDED if each.ending else Stage.RUNNING if each.started is not None else Stage.PENDING
        pending = None
        if each.node is None:
            pending = Pending(Hindrance.UNSCHEDULABLE, "no node has room", each.made)
        nodes = () if each.node is None else (each.node,)
        uses = () if each.node is None or each.ending is not None else ((each.node, WORK),)
        return Seen(lease, stage, each.going is not None, each.started, nodes, uses, pending, each.ending)

    def see_node(self, node: NodeName) -> SeenNode:
        """One node, with what others use of it."""
        return SeenNode(node, Resources(1000 * self._slots), Resources(1000 * self.foreign[node]))
