"""Tracks the nodes of one cluster, and what other users use of them."""

from collections.abc import Callable

from msgspec.structs import replace

from spillover.core.events import Lease, SeenNode
from spillover.core.proposals import SeeNodes
from spillover.model.bounds import MOST_AMOUNT
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.ports.driver import Changes, Seen


class Nodes:
    """Counts attempts of the state by the state, and everything else on a node as the driver sees it."""

    def __init__(self, cluster: ClusterName, in_book: Callable[[Lease], bool]) -> None:
        self._cluster = cluster
        self._in_book = in_book
        self._nodes: dict[NodeName, SeenNode] = {}
        self._uses: dict[NodeName, dict[Lease, Resources]] = {}
        """What our attempts use of each node."""
        self._places: dict[Lease, tuple[NodeName, ...]] = {}
        """Nodes of each of our attempts."""
        self._changed: dict[NodeName, None] = {}
        self._gone: dict[NodeName, None] = {}
        self._whole = False
        """Whether the next proposal must list all nodes."""

    def take(self, changes: Changes) -> None:
        """Take in nodes that were added, removed or changed."""
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
        """Record where an attempt runs and what it uses there."""
        self.forget(seen.lease)
        for name, resources in seen.uses:
            self._uses.setdefault(name, {})[seen.lease] = resources
        if seen.uses:
            self._places[seen.lease] = tuple(name for name, _ in seen.uses)
        self.look_at(seen.lease)

    def forget(self, lease: Lease) -> None:
        """Record that an attempt no longer uses anything."""
        self.look_at(lease)
        for name in self._places.pop(lease, ()):
            uses = self._uses.get(name, {})
            uses.pop(lease, None)
            if not uses:
                self._uses.pop(name, None)

    def look_at(self, lease: Lease) -> None:
        """Count the nodes of an attempt again, as it entered or left the state."""
        for name in self._places.get(lease, ()):
            self._changed[name] = None

    def proposal(self) -> SeeNodes | None:
        """Return the changes since the last call as a proposal; None if there are none."""
        if not (self._whole or self._changed or self._gone):
            return None
        whole, self._whole = self._whole, False
        names = self._nodes if whole else [name for name in self._changed if name in self._nodes]
        nodes = tuple(self._counted(self._nodes[name]) for name in names)
        gone = tuple(self._gone)
        self._changed, self._gone = {}, {}
        return SeeNodes(self._cluster, nodes, gone, whole) if nodes or gone or whole else None

    def propose_all_again(self) -> None:
        """Propose all nodes next time, as the last proposal failed."""
        self._whole = True

    def _counted(self, node: SeenNode) -> SeenNode:
        """Add to a node's foreign usage the usage of our attempts that are not in the state."""
        strays = [uses for lease, uses in self._uses.get(node.name, {}).items() if not self._in_book(lease)]
        if not strays:
            return node
        foreign = sum(strays, node.foreign).within(MOST_AMOUNT)
        tasks = node.tasks if node.tasks < 0 else max(0, node.tasks - len(strays))
        return replace(node, foreign=foreign, tasks=tasks)
