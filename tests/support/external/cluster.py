"""Simulates an external cluster in virtual time: objects are created, bound to nodes, run, end and are deleted."""

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
"""Resources that each attempt takes on its node."""


class Object(Struct):
    """One attempt, as an object of the cluster."""

    lease: Lease
    made: int
    node: NodeName | None = None
    started: int | None = None
    ends: int | None = None
    ending: Ending | None = None
    going: int | None = None
    """When it disappears, if it is being deleted; else None."""


class Cluster:
    """The true state of a cluster."""

    def __init__(self, nodes: int, slots: int, dice: Random) -> None:
        self._dice = dice
        self._slots = slots
        self.foreign: dict[NodeName, int] = {NodeName(f"n{each}"): 0 for each in range(nodes)}
        """Slots of each node that others use."""
        self.objects: dict[Lease, Object] = {}
        self.runs: list[tuple[Lease, int, int | None]] = []
        """Each run of an attempt, with its start and end."""
        self.revision = 0
        """Rises with every change."""
        self.changed: dict[Lease, int] = {}
        """The revision of the last change of each object, including deleted ones."""
        self.nodes_changed: dict[NodeName, int] = {}

    # --- requests

    def make(self, lease: Lease, now: int) -> None:
        """Create the object of an attempt, unless it exists."""
        if lease not in self.objects:
            self.objects[lease] = Object(lease, now)
            self._touch(lease)

    def delete(self, lease: Lease, now: int) -> None:
        """Delete an object, soon."""
        found = self.objects.get(lease)
        if found is not None and found.going is None:
            found.going = now + self._dice.randrange(SECOND)
            self._touch(lease)

    def occupy(self, node: NodeName, slots: int) -> None:
        """Set how many slots of a node others use."""
        self.foreign[node] = slots
        self.revision += 1
        self.nodes_changed[node] = self.revision

    # --- own behaviour

    def tick(self, now: int) -> None:
        """Advance: delete, end, bind and start objects."""
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
        """Record the end of its run."""
        for place, (lease, began, over) in enumerate(self.runs):
            if lease == each.lease and over is None:
                self.runs[place] = (lease, began, at)

    def _room(self) -> NodeName | None:
        """Return a node with a free slot, not necessarily the one that the server planned."""
        free = [node for node in self.foreign if self.taken(node) < self._slots]
        return self._dice.choice(free) if free else None

    def taken(self, node: NodeName) -> int:
        """Return the used slots of a node."""
        ours = sum(each.node == node and each.ending is None for each in self.objects.values())
        return ours + self.foreign[node]

    def _touch(self, lease: Lease) -> None:
        self.revision += 1
        self.changed[lease] = self.revision

    # --- observation

    def see(self, lease: Lease) -> Seen | None:
        """Return one object as a driver sees it; None if it does not exist."""
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
        """Return one node with its usage by others."""
        return SeenNode(node, Resources(1000 * self._slots), Resources(1000 * self.foreign[node]))
