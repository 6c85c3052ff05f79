"""Computes the capacity of nodes and its use by pods, in the same way as the Kubernetes scheduler."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import structlog

from spillover.clusters.kubernetes.api.objects import KubeNode, NodeTaint, Pod
from spillover.clusters.kubernetes.api.quantities import thousandths, whole
from spillover.clusters.kubernetes.words import offered
from spillover.core.events import SeenNode
from spillover.forms.jobs.pods import GPU, POD_LEVEL
from spillover.model.bounds import MOST_AMOUNT, is_plain, plain
from spillover.model.cluster import Taint
from spillover.model.ids import NodeName
from spillover.model.resources import Resources

log = structlog.get_logger()

MOST_KEY: Final = 317
"""Characters of a label, a label value or a resource name; Kubernetes allows no longer ones."""
MOST_LABELS: Final = 1000
MOST_TAINTS: Final = 100
MOST_OTHERS: Final = 100
"""Most resources of a node or pod besides CPUs, memory and GPUs."""
_Amounts = dict[str, int]


def used_by(pod: Pod, gpu: str = GPU) -> Resources:
    """Return what a pod uses of its node; an unreadable amount counts as 0.

    The larger of the sum of its containers and the most that its init containers need. Init containers with restart
    policy Always keep running, so they count together with everything that starts after them. During a resize, the
    larger of the old and the new request counts.
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
    """Add init containers that keep running, and raise the total to the peak before the main containers start."""
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
    """Convert a node, with what foreign pods use of it."""
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
        offered(labels, gpus=capacity.gpu > 0),
        labels,
        tuple([_taint(taint) for taint in spec.taints[:MOST_TAINTS]]),
        is_ready(node) and not spec.unschedulable and meta.deletion_timestamp is None,
    )


def is_ready(node: KubeNode) -> bool:
    """Return whether a node is ready to run pods."""
    return any(one.type == "Ready" and one.holds for one in node.status.conditions)


def _labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of a node that Kubernetes would accept."""
    if len(labels) <= MOST_LABELS and all(map(_is_label, labels.items())):
        return labels  # the usual case, without a copy
    return dict(list(filter(_is_label, labels.items()))[:MOST_LABELS])


def _is_label(label: tuple[str, str]) -> bool:
    return is_plain(label[0], MOST_KEY) and is_plain(label[1], MOST_KEY)


def _taint(taint: NodeTaint) -> Taint:
    return Taint(plain(taint.key, MOST_KEY), plain(taint.value, MOST_KEY), plain(taint.effect, MOST_KEY))


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
    """Parse an amount; log an unreadable one (once, as results are cached) and return 0."""
    try:
        return thousandths(text) if cpu else whole(text)
    except ValueError as error:
        log.warning("cannot read a quantity of a node or pod; counting it as 0", error=str(error))
        return 0


def _amounts(written: Mapping[str, str]) -> _Amounts:
    return {name: _amount(name, text) for name, text in written.items()}


def _larger(written: Mapping[str, str], real: Mapping[str, str] | None) -> _Amounts:
    """Return the larger of the requested and the actual amount of each resource."""
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
