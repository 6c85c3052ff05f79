"""Tracks the nodes of a cluster and what foreign pods use of them."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from spillover.clusters.kubernetes.accounting import is_ready, seen_node, used_by
from spillover.clusters.kubernetes.api.objects import KubeNode, Pod
from spillover.core.events import SeenNode
from spillover.forms.jobs.pods import GPU
from spillover.model.ids import NodeName
from spillover.model.resources import Resources

_Key = tuple[str, str]


class _Use(Struct, frozen=True, gc=False):
    """The use of a node by one pod."""

    node: str
    used: Resources


class _Load(Struct):
    """What foreign pods use of a node."""

    used: Resources = Resources()
    pods: int = 0


class KubernetesNodes:
    """The known nodes, and which of them changed since the last report."""

    def __init__(self, gpu: str = GPU) -> None:
        self._gpu = gpu
        self._nodes: dict[str, KubeNode] = {}
        self._uses: dict[_Key, _Use] = {}
        """By namespace and name of the pod."""
        self._loads: dict[str, _Load] = {}
        """By node, including nodes that are not known yet."""
        self._told: dict[str, SeenNode] = {}
        self._changed: dict[str, None] = {}

    # --- nodes

    def replace(self, nodes: Iterable[KubeNode]) -> list[str]:
        """Replace all nodes; return those that became ready, or stopped being ready."""
        there = {node.metadata.name: node for node in nodes}
        gone = [name for name in self._nodes if name not in there]
        for name in gone:
            self.drop(name)
        return gone + [name for name, node in there.items() if self.put(node)]

    def put(self, node: KubeNode) -> bool:
        """Add or update a node; return whether it became ready, or stopped being ready."""
        name = node.metadata.name
        before = self._nodes.get(name)
        self._nodes[name] = node
        if before is None:
            self._changed[name] = None
            return True
        turned = is_ready(before) != is_ready(node)
        # Nodes update their heartbeat every few minutes, so most updates change nothing that matters here.
        if (
            turned
            or before.spec != node.spec
            or before.status.allocatable != node.status.allocatable
            or before.metadata.labels != node.metadata.labels
            or before.metadata.deletion_timestamp != node.metadata.deletion_timestamp
        ):
            self._changed[name] = None
        return turned

    def drop(self, name: str) -> None:
        """Remove a node."""
        if self._nodes.pop(name, None) is not None:
            self._changed[name] = None

    def answers(self, name: str) -> bool:
        """Return whether a node exists and is ready."""
        node = self._nodes.get(name)
        return node is not None and is_ready(node)

    @property
    def labels(self) -> Iterable[Mapping[str, str]]:
        """The labels of all nodes."""
        return [node.metadata.labels for node in self._nodes.values()]

    # --- foreign pods

    def use_only(self, pods: Iterable[Pod]) -> None:
        """Replace all pods."""
        there = {_key(pod): pod for pod in pods}
        for key in [key for key in self._uses if key not in there]:
            self._unload(key)
        for pod in there.values():
            self.use(pod)

    def use(self, pod: Pod) -> None:
        """Add or update a pod."""
        key = _key(pod)
        before = self._uses.get(key)
        if pod.is_over or not pod.spec.node_name:
            if before is not None:
                self._unload(key)
            return
        use = _Use(pod.spec.node_name, used_by(pod, self._gpu))
        if use == before:
            return
        if before is not None:
            self._unload(key)
        self._uses[key] = use
        load = self._loads.setdefault(use.node, _Load())
        load.used, load.pods = load.used + use.used, load.pods + 1
        self._changed[use.node] = None

    def leave(self, pod: Pod) -> None:
        """Remove a pod."""
        if _key(pod) in self._uses:
            self._unload(_key(pod))

    def _unload(self, key: _Key) -> None:
        use = self._uses.pop(key)
        load = self._loads[use.node]
        load.used, load.pods = load.used - use.used, load.pods - 1
        if not load.pods:
            del self._loads[use.node]
        self._changed[use.node] = None

    # --- reports

    @property
    def has_news(self) -> bool:
        """Whether a node may have changed."""
        return bool(self._changed)

    def take(self, *, whole: bool) -> tuple[tuple[SeenNode, ...], tuple[NodeName, ...]]:
        """Return changed nodes (all, if `whole`) and the names of removed ones."""
        seen, gone = [], []
        for name in self._nodes if whole else self._changed:
            node = self._nodes.get(name)
            if node is None:
                if self._told.pop(name, None) is not None:
                    gone.append(NodeName(name))
                continue
            load = self._loads.get(name) or _Load()
            now = seen_node(node, load.used, load.pods, self._gpu)
            if whole or self._told.get(name) != now:
                self._told[name] = now
                seen.append(now)
        if whole:
            self._told = {node.name: node for node in seen}
        self._changed = {}
        return tuple(seen), tuple(gone)


def _key(pod: Pod) -> _Key:
    return pod.metadata.namespace, pod.metadata.name
