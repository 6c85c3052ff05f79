"""The nodes of one cluster as a driver sees them, with what others use of them."""

from collections.abc import Callable

from msgspec.structs import replace

from spillover.core.events import Lease, SeenNode
from spillover.core.proposals import SeeNodes
from spillover.model.bounds import MOST_AMOUNT
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.ports.driver import Changes, Seen


class Nodes:
    """What to tell the core of nodes: our own attempts count by the book, all others as they are seen."""

    def __init__(self, cluster: ClusterName, in_book: Callable[[Lease], bool]) -> None:
        self._cluster = cluster
        self._in_book = in_book
        self._nodes: dict[NodeName, SeenNode] = {}
        self._uses: dict[NodeName, dict[Lease, Resources]] = {}
        """What attempts of ours use of each node."""
        self._places: dict[Lease, tuple[NodeName, ...]] = {}
        """Where each of them is."""
        self._changed: dict[NodeName, None] = {}
        self._gone: dict[NodeName, None] = {}
        self._whole = False
        """Whether the core is to be told of all of them."""

    def take(self, changes: Changes) -> None:
        """Take in nodes that came, went or changed."""
        if changes.whole:
            self._nodes.clear()
            self._whole = True
        for node in changes.nodes:
            self._nodes[node.name] = node
            self._changed[node.name] = None
            self._gone.pop(node.name, None)
        for name in changes.gone_nodes:
            if self._nodes.pop(name, None) is not None:
                self._changed.pop(name, None)
                self._gone[name] = None

    def use(self, seen: Seen) -> None:
        """Take in where an attempt is and what it uses there."""
        self.forget(seen.lease)
        for name, resources in seen.uses:
            self._uses.setdefault(name, {})[seen.lease] = resources
        if seen.uses:
            self._places[seen.lease] = tuple(name for name, _ in seen.uses)
        self.look_at(seen.lease)

    def forget(self, lease: Lease) -> None:
        """An attempt uses nothing any more."""
        self.look_at(lease)
        for name in self._places.pop(lease, ()):
            uses = self._uses.get(name, {})
            uses.pop(lease, None)
            if not uses:
                self._uses.pop(name, None)

    def look_at(self, lease: Lease) -> None:
        """The book has an attempt there, or has it no more: it counts otherwise than before."""
        for name in self._places.get(lease, ()):
            self._changed[name] = None

    def proposal(self) -> SeeNodes | None:
        """What to tell the core, once; None if there is nothing."""
        if not (self._whole or self._changed or self._gone):
            return None
        whole, self._whole = self._whole, False
        names = self._nodes if whole else [name for name in self._changed if name in self._nodes]
        nodes = tuple(self._counted(self._nodes[name]) for name in names)
        gone = tuple(self._gone)
        self._changed, self._gone = {}, {}
        return SeeNodes(self._cluster, nodes, gone, whole) if nodes or gone or whole else None

    def tell_again(self) -> None:
        """What was to be told could not be: tell all of it."""
        self._whole = True

    def _counted(self, node: SeenNode) -> SeenNode:
        """A node with what attempts of ours use that the book has not, or not any more."""
        strays = [uses for lease, uses in self._uses.get(node.name, {}).items() if not self._in_book(lease)]
        if not strays:
            return node
        foreign = sum(strays, node.foreign).within(MOST_AMOUNT)
        tasks = node.tasks if node.tasks < 0 else max(0, node.tasks - len(strays))
        return replace(node, foreign=foreign, tasks=tasks)
