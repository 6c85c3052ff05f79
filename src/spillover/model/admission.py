"""Whether a cluster or a node is one that a job asks for. Nodes are judged exactly as the scheduler of Kubernetes judges them."""

from collections.abc import Iterable, Mapping
from typing import Final

from spillover.model.cluster import ClusterSpec, Role, Taint
from spillover.model.job import Shape
from spillover.model.where import NodeTerm, Requirement, Rules, Toleration, Where

REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep tasks off; any other only asks for other nodes to be tried first."""
FOR_NOW: Final = "node.kubernetes.io/"
"""What taints begin with that Kubernetes itself gives nodes, for as long as they are cordoned or something is wrong with them."""
KUBERNETES: Final = "kubernetes"
"""The kind of clusters that run pods."""
PODS: Final = "pods"
"""What only clusters of Kubernetes do, and they always: several pods, or such of more than one plain container."""
NAME: Final = "metadata.name"
"""The one field of a node that rules may ask for."""
MOST_DIGITS: Final = 64
"""Of a number that labels are compared with; no label is longer."""


def refused_by(where: Where, spec: ClusterSpec) -> str:
    """What a job asks for that a cluster is not, as a job file would say it; empty if it is all of it."""
    if where.role and where.role != spec.role:
        return f"role: {where.role}"
    if where.clusters and spec.name not in where.clusters:
        return f"cluster: {_listed(where.clusters)}"
    if spec.name in where.avoid:
        return f"avoid: {spec.name}"
    if where.kinds and spec.kind not in where.kinds:
        return f"kind: {_listed(where.kinds)}"
    if where.regions and spec.region not in where.regions:
        return f"region: {_listed(where.regions)}"
    for name, value in where.labels:
        if spec.labels.get(name) != value:
            return f"labels: {name}={value}"
    return ""


def only_rented(where: Where, specs: Iterable[ClusterSpec]) -> bool:
    """Whether all clusters that a job asks for are rented, so that there is no owned one to wait for."""
    return {spec.role for spec in specs if not refused_by(where, spec)} == {Role.RENTED}


def cannot_run(runs: Iterable[str], spec: ClusterSpec) -> str:
    """What a job needs that a cluster cannot do; empty if it can do everything."""
    able, pods = spec.runs, spec.kind == KUBERNETES
    if able is None:
        return PODS if PODS in runs and not pods else ""
    return next((word for word in runs if word not in able and not (word == PODS and pods)), "")


def may_run(shape: Shape, spec: ClusterSpec) -> bool:
    """Whether a cluster is one that jobs of a shape ask for, and can do what they do."""
    if shape.runs and cannot_run(shape.runs, spec):
        return False
    return shape.where is None or not refused_by(shape.where, spec)


def matches(rules: Rules, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node has the labels and the name that a pod asks for."""
    if any(labels.get(key) != value for key, value in rules.selector):
        return False
    return rules.affinity is None or any(_holds(term, name, labels) for term in rules.affinity)


def repelled_by(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """The first taint of a node that keeps a pod off it; None if none does."""
    for taint in taints:
        if taint.effect in REPELLING and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def missing_of(rules: Rules, nodes: Iterable[Mapping[str, str]]) -> str:
    """What pods ask for that none of these nodes has, for people; all of it if each is there, but not together."""
    have = {pair for labels in nodes for pair in labels.items()}
    pairs = [pair for pair in rules.selector if pair not in have]
    asked = [f"{key}={value}" for key, value in pairs or rules.selector]
    if not pairs and rules.affinity is not None:
        asked.append(
            " or ".join(_written(term) for term in rules.affinity) or "nothing that any node could be"
        )
    return ", ".join(asked)


def _written(term: NodeTerm) -> str:
    """A term for people."""
    wanted = [
        f"{each.key} {each.operator} {_listed(each.values)}".rstrip() for each in (*term.labels, *term.fields)
    ]
    return " and ".join(wanted) or "nothing"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a taint keeps nothing off that has this toleration."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


def _holds(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Whether all that a term asks for is so; one that asks for nothing holds nowhere."""
    if not term.labels and not term.fields:
        return False
    return all(_met(each, labels) for each in term.labels) and all(
        _met(each, {NAME: name}) for each in term.fields
    )


def _met(wanted: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether a label is what it has to be."""
    value = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return value is not None and value in wanted.values
        case "NotIn":
            return value is None or value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compared(wanted, value)
    return False


def _compared(wanted: Requirement, value: str | None) -> bool:
    """Whether a label is a number that is greater, or less, than the one that is named."""
    have, than = whole(value), whole(wanted.values[0] if len(wanted.values) == 1 else None)
    if have is None or than is None:
        return False
    return have > than if wanted.operator == "Gt" else have < than


def whole(text: str | None) -> int | None:
    """The whole number of 64 bits that a text is, as Go reads it; None if it is none."""
    if text is None or len(text) > MOST_DIGITS:
        return None
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)
