"""Simulates an external cluster in virtual time: objects are created, bound to nodes, run, end and are deleted."""

from collections import Counter
from random import Random
from typing import Final

from msgspec import Struct

from spillover.core.events import Lease, SeenNode, Usage
from spillover.core.proposals import Outcome
from spillover.model.ids import NodeName
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.driver import Ending, Gap, Hindrance, Pending, Seen, Stage

WORK: Final = Resources(1000)
"""Resources that each pod takes on its node."""


class Pod(Struct):
    """One task of an attempt."""

    node: NodeName | None = None
    after: int = 0
    """When it can start at the earliest, once it is bound: its image takes so long."""
    started: int | None = None


class Object(Struct):
    """One attempt, as an object of the cluster. Its pods are bound and start one by one."""

    lease: Lease
    made: int
    pods: list[Pod]
    """By rank."""
    ends: int | None = None
    ending: Ending | None = None
    going: int | None = None
    """When it disappears, if it is being deleted; else None."""

    @property
    def started(self) -> int | None:
        """When its first pod started; None if none did."""
        return min((pod.started for pod in self.pods if pod.started is not None), default=None)

    @property
    def bound(self) -> list[NodeName]:
        """The nodes of its pods that have one."""
        return [pod.node for pod in self.pods if pod.node is not None]

    @property
    def running(self) -> list[int]:
        """The ranks of its pods that have started."""
        return [rank for rank, pod in enumerate(self.pods) if pod.started is not None]

    @property
    def in_part(self) -> bool:
        """Whether some of its pods hold room, and not all of them run."""
        return self.ending is None and len(self.bound) > 0 and len(self.running) < len(self.pods)


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

    @property
    def slots(self) -> int:
        """How many pods it can hold."""
        return len(self.foreign) * self._slots

    # --- requests

    def make(self, lease: Lease, tasks: int, now: int) -> None:
        """Create the object of an attempt, unless it exists."""
        if lease not in self.objects:
            self.objects[lease] = Object(lease, now, [Pod() for _ in range(tasks)])
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

    def lose(self, node: NodeName, now: int) -> None:
        """Let a node fail: every attempt with a pod there ends, and the node is there again at once."""
        for each in self.objects.values():
            if each.ending is None and node in each.bound:
                self._stop(each, now)
                ran = 0 if each.started is None else now - each.started
                each.ending = Ending(Outcome.LOST, None, None, Usage(ran), now, "its node is gone")
                self._touch(each.lease)

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
            if each.going is None and each.ending is None:
                for pod in each.pods:
                    self._advance(each, pod, now)

    def _advance(self, each: Object, pod: Pod, now: int) -> None:
        """Bind a pod, or start it. The whole attempt ends a while after its last pod started."""
        dice = self._dice
        if pod.node is None and (node := self._room()) is not None:
            slow = len(each.pods) > 1 and dice.random() < 0.1
            pod.node, pod.after = node, now + (dice.randrange(60) * SECOND if slow else 0)
            self._touch(each.lease)
        elif pod.node is not None and pod.started is None and pod.after <= now:
            if each.started is None:
                self.runs.append((each.lease, now, None))
            pod.started = now
            if len(each.running) == len(each.pods):
                each.ends = now + dice.choice([dice.randrange(1, 10), dice.randrange(10, 90)]) * SECOND
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
        ours = sum(each.bound.count(node) for each in self.objects.values() if each.ending is None)
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
        size, bound, running = len(each.pods), each.bound, each.running
        pending, gap = None, None
        if size > 1 and len(running) < size and each.ending is None:
            gap = Gap(size, len(bound), len(running), each.made, each.made)
        if len(bound) < size and each.ending is None:
            pending = Pending(Hindrance.UNSCHEDULABLE, "no node has room", each.made)
        uses = {} if each.ending is not None else Counter(bound)
        return Seen(
            lease,
            stage,
            each.going is not None,
            each.started,
            tuple(bound),
            tuple((node, Resources(WORK.cpu * count)) for node, count in uses.items()),
            pending if stage is Stage.PENDING or gap is not None else None,
            each.ending,
            began=tuple(running) if size > 1 else (),
            gap=gap,
        )

    def see_node(self, node: NodeName) -> SeenNode:
        """Return one node with its usage by others."""
        return SeenNode(node, Resources(1000 * self._slots), Resources(1000 * self.foreign[node]))
