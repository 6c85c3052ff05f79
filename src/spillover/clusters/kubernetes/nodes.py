"""The nodes of a cluster, with what pods of others use of them."""

from collections.abc import Iterable

from msgspec import Struct

from spillover.clusters.kubernetes.accounting import is_ready, seen_node, used_by
from spillover.clusters.kubernetes.objects import KubeNode, Pod
from spillover.core.events import SeenNode
from spillover.forms.pods import GPU
from spillover.model.ids import NodeName
from spillover.model.resources import Resources

_Key = tuple[str, str]


class _Use(Struct, frozen=True, gc=False):
    """A pod that is bound to a node."""

    node: str
    used: Resources


class _Load(Struct):
    """What pods use of a node."""

    used: Resources = Resources()
    pods: int = 0


class KubernetesNodes:
    """What was heard of nodes, and what of that was not told yet."""

    def __init__(self, gpu: str = GPU) -> None:
        self._gpu = gpu
        self._nodes: dict[str, KubeNode] = {}
        self._uses: dict[_Key, _Use] = {}
        """By namespace and name of the pod."""
        self._loads: dict[str, _Load] = {}
        """By node; also of nodes that were not heard of yet."""
        self._told: dict[str, SeenNode] = {}
        self._changed: dict[str, None] = {}

    # --- nodes

    def replace(self, nodes: Iterable[KubeNode]) -> list[str]:
        """These are all; returns those that answer and did not, or the other way round."""
        there = {node.metadata.name: node for node in nodes}
        gone = [name for name in self._nodes if name not in there]
        for name in gone:
            self.drop(name)
        return gone + [name for name, node in there.items() if self.put(node)]

    def put(self, node: KubeNode) -> bool:
        """One is there, or is not as it was; returns whether it answers and did not, or the other way round."""
        name = node.metadata.name
        before = self._nodes.get(name)
        self._nodes[name] = node
        if before is None:
            self._changed[name] = None
            return True
        turned = is_ready(before) != is_ready(node)
        # A node says every few minutes that it lives: most of what is heard changes nothing.
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
        """One is gone."""
        if self._nodes.pop(name, None) is not None:
            self._changed[name] = None

    def answers(self, name: str) -> bool:
        """Whether a node is there and ready."""
        node = self._nodes.get(name)
        return node is not None and is_ready(node)

    # --- pods of others

    def use_only(self, pods: Iterable[Pod]) -> None:
        """These are all the pods."""
        there = {_key(pod): pod for pod in pods}
        for key in [key for key in self._uses if key not in there]:
            self._unload(key)
        for pod in there.values():
            self.use(pod)

    def use(self, pod: Pod) -> None:
        """A pod is there, or is not as it was."""
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
        """A pod is gone."""
        if _key(pod) in self._uses:
            self._unload(_key(pod))

    def _unload(self, key: _Key) -> None:
        use = self._uses.pop(key)
        load = self._loads[use.node]
        load.used, load.pods = load.used - use.used, load.pods - 1
        if not load.pods:
            del self._loads[use.node]
        self._changed[use.node] = None

    # --- what is told

    @property
    def has_news(self) -> bool:
        """Whether something may have changed."""
        return bool(self._changed)

    def take(self, *, whole: bool) -> tuple[tuple[SeenNode, ...], tuple[NodeName, ...]]:
        """Those that changed, or all, and those that are gone."""
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
