"""Decides whether a cluster or node matches what a job asks for.

Nodes are matched exactly as the Kubernetes scheduler does it.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

from spillover.model.cluster import ClusterSpec, Role, Taint
from spillover.model.job import Shape
from spillover.model.where import NODE_NAME, PROPERTY, NodeTerm, Requirement, Rules, Toleration, Where

REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep tasks off. Any other effect only makes other nodes preferable."""
FOR_NOW: Final = "node.kubernetes.io/"
"""Prefix of taints that Kubernetes itself sets while a node is cordoned or has a problem."""
KUBERNETES: Final = "kubernetes"
"""The kind of clusters that run pods."""
PODS: Final = "pods"
"""Work that only Kubernetes clusters support, and all of them do: several pods, or pods beyond one plain container."""
TASK_RULES: Final = "task_rules"
"""Work of gangs for which the job says what the end of one task means. A cluster that ends tasks itself cannot do it."""
EXCLUSIVE: Final = "exclusive"
"""Work that has its nodes for itself."""
GROUPS: Final = "groups"
"""Gangs with groups of unlike tasks; only agents support it."""
PIN: Final = "pin"
"""Work that asks for cores of its own or for linked GPUs; only agents support it."""
SPREAD: Final = "spread"
"""Work with a bound other than one on its tasks in a vertex of a level; only agents support it."""
SIGNALS: Final = "signals"
"""Work that wants a signal before its walltime; only agents support it."""
STATE: Final = "state"
"""Work with a folder that outlives attempts; only agents support it."""
SECRETS: Final = "secrets"
"""Work that gets secrets; only agents support it. Also the ability of agents that do."""
STREAMS: Final = "streams"
"""Work whose output goes to files of its machine; only agents support it."""
STDIN: Final = "stdin"
"""Work that reads a file as standard input; only agents support it. Also the ability of agents that do."""
SRUN: Final = "srun"
"""Work that calls `srun` in its script; only agents support it. Also the ability of agents that have the program."""
SRUN_VARIABLE: Final = "SPILL_SRUN"
"""The variable of a job that may call `srun`; its value says whether it must. Agents set it to the path of the program."""
SRUN_NEEDED: Final = "needed"
ON_FIRST_NODE: Final = ("/bin/sh", "-c", 'exec "$SPILL_RSH" --serve -- "$@"', "sh")
"""Words before those of a script that only the first task of a gang runs, while the others wait to be used by it."""
TERMINAL: Final = "terminal"
"""Work in a terminal; only agents support it."""
SESSIONS: Final = "sessions"
"""The ability of agents to give tasks terminals, and to connect people with tasks."""
WALLTIMES: Final = "walltimes"
"""The ability of agents to take a new walltime of a task that runs."""
CONSTRAINTS: Final = "constraints"
"""Work with constraints on nodes. A manifest has rules of its own instead."""
PYTHON: Final = "python"
"""The word for Python calls. `python:3.12` and the like are the words for those of one version."""
ENVIRONMENT: Final = "environment:"
"""What words for named environments of agents begin with."""
REQUIREMENTS: Final = "requirements"
"""The word of agents that build environments."""
CONTAINER_CALLS: Final = "container:python"
"""The word of agents that make Python calls in containers."""
_PYTHONS: Final = frozenset(f"{PYTHON}:3.{minor}" for minor in range(8, 50))
MOST_DIGITS: Final = 64
"""Longest number that labels are compared with; no label is longer."""


@lru_cache(maxsize=256)
def offered(words: tuple[str, ...]) -> frozenset[str]:
    """Return all words that a node offers; one that does not tell its version of Python may have any.

    Agents of earlier releases do not, and no machine does that has not joined yet.
    """
    unknown = PYTHON in words and not any(word.startswith(f"{PYTHON}:") for word in words)
    return frozenset(words) | _PYTHONS if unknown else frozenset(words)


def refused_by(where: Where, spec: ClusterSpec) -> str:
    """Return what `where` asks for and a cluster is not, in the words of a job file; empty if the cluster matches."""
    if where.role and where.role != spec.role:
        return f"role: {where.role}"
    if where.clusters and spec.name not in where.clusters and spec.made_by not in where.clusters:
        return f"cluster: {_listed(where.clusters)}"
    if spec.name in where.avoid or spec.made_by in where.avoid:
        return f"avoid: {spec.name if spec.name in where.avoid else spec.made_by}"
    if where.kinds and spec.kind not in where.kinds:
        return f"kind: {_listed(where.kinds)}"
    if where.regions and spec.region not in where.regions:
        return f"region: {_listed(where.regions)}"
    for name, value in where.labels:
        if spec.labels.get(name) != value:
            return f"labels: {name}={value}"
    return ""


def only_rented(where: Where, specs: Iterable[ClusterSpec]) -> bool:
    """Return whether all clusters that `where` allows are rented, so that there is no owned one to wait for."""
    return {spec.role for spec in specs if not refused_by(where, spec)} == {Role.RENTED}


def cannot_run(runs: Iterable[str], spec: ClusterSpec) -> str:
    """Return the kind of work that a job needs and a cluster does not support; empty if it supports all."""
    able, pods = spec.runs, spec.kind == KUBERNETES
    if able is None:
        return PODS if PODS in runs and not pods else ""
    return next((word for word in runs if word not in able and not (word == PODS and pods)), "")


def may_run(shape: Shape, spec: ClusterSpec) -> bool:
    """Return whether `where` allows a cluster and the cluster supports the work of a shape."""
    if shape.runs and cannot_run(shape.runs, spec):
        return False
    return shape.where is None or not refused_by(shape.where, spec)


def matches(rules: Rules, name: str, labels: Mapping[str, str], offers: Collection[str] = ()) -> bool:
    """Return whether a node has the labels, the name and the properties that a job asks for."""
    if any(labels.get(key) != value for key, value in rules.selector):
        return False
    return rules.affinity is None or any(_holds(term, name, labels, offers) for term in rules.affinity)


def repelled_by(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps a pod off a node; None if none does."""
    for taint in taints:
        if taint.effect in REPELLING and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def missing_of(rules: Rules, nodes: Iterable[Mapping[str, str]]) -> str:
    """Describe what pods ask for and none of these nodes has; everything if each is there, but not together."""
    have = {pair for labels in nodes for pair in labels.items()}
    pairs = [pair for pair in rules.selector if pair not in have]
    asked = [f"{key}={value}" for key, value in pairs or rules.selector]
    if not pairs and rules.affinity is not None:
        asked.append(
            " or ".join(_written(term) for term in rules.affinity) or "nothing that any node could be"
        )
    return ", ".join(asked)


_PROPERTY_IS: Final = {"In": "the property", "NotIn": "not the property"}


def _written(term: NodeTerm) -> str:
    """Format a term."""
    wanted = [
        f"{_PROPERTY_IS[each.operator]} {_listed(each.values)}"
        if each.key == PROPERTY
        else f"{each.key} {each.operator} {_listed(each.values)}".rstrip()
        for each in (*term.labels, *term.fields)
    ]
    return " and ".join(wanted) or "nothing"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration covers a taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


def _holds(term: NodeTerm, name: str, labels: Mapping[str, str], offers: Collection[str]) -> bool:
    """Return whether a node satisfies a term; an empty term matches no node."""
    if not term.labels and not term.fields:
        return False
    return all(_met(each, labels) for each in term.labels) and all(
        _has(each, labels, offers) if each.key == PROPERTY else _met(each, {NODE_NAME: name})
        for each in term.fields
    )


def _has(wanted: Requirement, labels: Mapping[str, str], offers: Collection[str]) -> bool:
    """Return whether a node has a property, or lacks it if it must not have it."""
    (word,) = wanted.values
    return (word in offers or word in labels) == (wanted.operator == "In")


def _met(wanted: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether a label satisfies a requirement."""
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
    """Return whether a label is a number that is greater, or less, than the required one."""
    have, than = whole(value), whole(wanted.values[0] if len(wanted.values) == 1 else None)
    if have is None or than is None:
        return False
    return have > than if wanted.operator == "Gt" else have < than


def whole(text: str | None) -> int | None:
    """Parse a 64-bit integer as Go does; None if the text is not one."""
    if text is None or len(text) > MOST_DIGITS:
        return None
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)
