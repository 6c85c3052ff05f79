"""What pods use of a node, and what a node has to give, counted as the scheduler of Kubernetes counts."""

import re
from collections.abc import Mapping
from typing import Final

from spillover.clusters.kubernetes.objects import Node, Pod
from spillover.clusters.kubernetes.quantities import thousandths, whole
from spillover.core.events import SeenNode
from spillover.forms.pods import GPU, POD_LEVEL
from spillover.model.cluster import Taint
from spillover.model.ids import NodeName
from spillover.model.resources import Resources

_GPU_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
)
_MODEL: Final = re.compile(r"[a-z]{1,2}\d{1,4}[a-z]?", re.ASCII)
"""What models of GPUs are called, as `a100` or `mi300x`; `sxm4` and `40gb` are no such names."""
_NOT_IN_WORDS: Final = re.compile(r"[^a-z0-9._-]+", re.ASCII)

_Amounts = dict[str, int]


def used_by(pod: Pod, gpu: str = GPU) -> Resources:
    """What a pod takes of the node that it is bound to.

    The largest of what its containers take together and what each init container takes while it runs; init containers that go
    on running count with all that comes after them. While a container is resized the larger of old and new counts.
    """
    spec, status = pod.spec, pod.status
    real = {one.name: one.resources.requests for one in status.container_statuses if one.resources.requests}
    total: _Amounts = {}
    for container in spec.containers:
        _add(total, _larger(container.resources.requests, real.get(container.name)))
    if spec.init_containers:
        _count_init(total, pod)
    for name, text in spec.resources.requests.items():
        if name.startswith(POD_LEVEL):
            total[name] = _amount(name, text)
    if spec.overhead:
        _add(total, _amounts(spec.overhead))
    return _resources(total, gpu)


def _count_init(total: _Amounts, pod: Pod) -> None:
    """Raise what containers take together to what is needed before they run."""
    real = {
        one.name: one.resources.requests
        for one in pod.status.init_container_statuses
        if one.resources.requests
    }
    beside: _Amounts = {}
    most: _Amounts = {}
    for container in pod.spec.init_containers:
        asked = _larger(container.resources.requests, real.get(container.name))
        if container.restart_policy == "Always":
            _add(total, asked)
            _add(beside, asked)
            _raise(most, beside)
        else:
            _add(asked, beside)
            _raise(most, asked)
    _raise(total, most)


def seen_node(node: Node, foreign: Resources, foreign_pods: int, gpu: str = GPU) -> SeenNode:
    """A node, with what pods of others use of it."""
    meta, spec, status = node.metadata, node.spec, node.status
    capacity = _resources(
        {name: _amount(name, text) for name, text in status.allocatable.items() if name != "pods"}, gpu
    )
    pods = status.allocatable.get("pods")
    return SeenNode(
        NodeName(meta.name),
        capacity,
        foreign,
        -1 if pods is None else max(0, whole(pods) - foreign_pods),
        _offers(meta.labels, capacity),
        meta.labels,
        tuple([Taint(taint.key, taint.value, taint.effect) for taint in spec.taints]),
        is_ready(node) and not spec.unschedulable and meta.deletion_timestamp is None,
    )


def is_ready(node: Node) -> bool:
    """Whether a node answers and can run pods."""
    return any(one.type == "Ready" and one.holds for one in node.status.conditions)


def _offers(labels: Mapping[str, str], capacity: Resources) -> tuple[str, ...]:
    """Words that jobs may need of a node."""
    words = {"container"}
    for word, label in (("arch", "kubernetes.io/arch"), ("os", "kubernetes.io/os")):
        if label in labels:
            words.add(f"{word}:{labels[label]}")
    if capacity.gpu:
        for label in _GPU_LABELS:
            name = _NOT_IN_WORDS.sub("-", labels.get(label, "").lower()).strip("-")
            words.update([f"gpu:{name}"] if name else [])
            words.update([f"gpu:{part}" for part in name.split("-") if _MODEL.fullmatch(part)][:1])
    return tuple(sorted(words))


def _resources(amounts: _Amounts, gpu: str) -> Resources:
    other = [
        (name, amount) for name, amount in amounts.items() if amount and name not in {"cpu", "memory", gpu}
    ]
    return Resources(
        amounts.get("cpu", 0), amounts.get("memory", 0), amounts.get(gpu, 0), tuple(sorted(other))
    )


def _amount(name: str, text: str) -> int:
    return thousandths(text) if name == "cpu" else whole(text)


def _amounts(written: Mapping[str, str]) -> _Amounts:
    return {name: _amount(name, text) for name, text in written.items()}


def _larger(written: Mapping[str, str], real: Mapping[str, str] | None) -> _Amounts:
    """The larger of what is asked for and what is there, of each resource."""
    amounts = _amounts(written)
    if real is not None and real != written:
        _raise(amounts, _amounts(real))
    return amounts


def _add(total: _Amounts, more: _Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: _Amounts, least: _Amounts) -> None:
    for name, amount in least.items():
        if amount > total.get(name, 0):
            total[name] = amount
