"""What pods use of a node, and what a node has to give, counted as the scheduler of Kubernetes counts."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import structlog

from spillover.clusters.kubernetes.objects import KubeNode, NodeTaint, Pod
from spillover.clusters.kubernetes.quantities import thousandths, whole
from spillover.core.events import SeenNode
from spillover.forms.pods import GPU, POD_LEVEL
from spillover.forms.quantities import is_word
from spillover.model.bounds import MOST_AMOUNT, is_plain, plain
from spillover.model.cluster import Taint
from spillover.model.ids import NodeName
from spillover.model.resources import Resources

log = structlog.get_logger()

MOST_KEY: Final = 317
"""Characters of a label, its value, or a name of a resource: no key that Kubernetes takes is longer."""
MOST_LABELS: Final = 1000
MOST_TAINTS: Final = 100
MOST_OTHERS: Final = 100
"""Resources of a node or a pod, beside CPUs, memory and GPUs."""
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
    """What a pod takes of the node that it is bound to; an amount that cannot be read counts as nothing.

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


def seen_node(node: KubeNode, foreign: Resources, foreign_pods: int, gpu: str = GPU) -> SeenNode:
    """A node, with what pods of others use of it."""
    meta, spec, status = node.metadata, node.spec, node.status
    capacity = _resources(
        {name: _amount(name, text) for name, text in status.allocatable.items() if name != "pods"}, gpu
    )
    pods = status.allocatable.get("pods")
    labels = _labels(meta.labels)
    return SeenNode(
        NodeName(meta.name),
        capacity,
        foreign.within(MOST_AMOUNT),
        -1 if pods is None else max(0, _amount("pods", pods) - foreign_pods),
        _offers(labels, capacity),
        labels,
        tuple([_taint(taint) for taint in spec.taints[:MOST_TAINTS]]),
        is_ready(node) and not spec.unschedulable and meta.deletion_timestamp is None,
    )


def is_ready(node: KubeNode) -> bool:
    """Whether a node answers and can run pods."""
    return any(one.type == "Ready" and one.holds for one in node.status.conditions)


def _labels(labels: dict[str, str]) -> dict[str, str]:
    """The labels of a node, without those that Kubernetes would not take."""
    if len(labels) <= MOST_LABELS and all(map(_is_label, labels.items())):
        return labels  # as nearly always
    return dict(list(filter(_is_label, labels.items()))[:MOST_LABELS])


def _is_label(label: tuple[str, str]) -> bool:
    return is_plain(label[0], MOST_KEY) and is_plain(label[1], MOST_KEY)


def _taint(taint: NodeTaint) -> Taint:
    return Taint(plain(taint.key, MOST_KEY), plain(taint.value, MOST_KEY), plain(taint.effect, MOST_KEY))


def _offers(labels: Mapping[str, str], capacity: Resources) -> tuple[str, ...]:
    """Words that jobs may need of a node."""
    words = {"container"}
    for word, label in (("arch", "kubernetes.io/arch"), ("os", "kubernetes.io/os")):
        if label in labels and is_word(f"{word}:{labels[label]}"):
            words.add(f"{word}:{labels[label]}")
    if capacity.gpu:
        for label in _GPU_LABELS:
            name = _NOT_IN_WORDS.sub("-", labels.get(label, "").lower()).strip("-")
            words.update([f"gpu:{name}"] if name and is_word(f"gpu:{name}") else [])
            words.update([f"gpu:{part}" for part in name.split("-") if _MODEL.fullmatch(part)][:1])
    return tuple(sorted(words))


def _resources(amounts: _Amounts, gpu: str) -> Resources:
    other = [
        (name, amount)
        for name, amount in amounts.items()
        if amount and name not in {"cpu", "memory", gpu} and is_plain(name, MOST_KEY)
    ]
    found = Resources(
        amounts.get("cpu", 0),
        amounts.get("memory", 0),
        amounts.get(gpu, 0),
        tuple(sorted(other)[:MOST_OTHERS]),
    )
    return found.within(MOST_AMOUNT)


def _amount(name: str, text: str) -> int:
    return _read(text, cpu=name == "cpu")


@lru_cache(maxsize=8192)
def _read(text: str, *, cpu: bool) -> int:
    """An amount; 0 for what is none, which is said once."""
    try:
        return thousandths(text) if cpu else whole(text)
    except ValueError as error:
        log.warning("an amount of a node or a pod cannot be read, and counts as nothing", error=str(error))
        return 0


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
