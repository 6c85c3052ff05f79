"""Writes into pods where they may be: on which nodes, and relative to each other and to pods of other jobs.

The scheduler of the cluster binds pods one by one. So it must know what ours knows: which nodes the job asks for, and
which rack has room for all of its tasks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any, Final, TypeAlias

from spillover.clusters.kubernetes.attempts.naming import ATTEMPT, JOB, MANAGED_BY, MANAGER
from spillover.clusters.kubernetes.words import ANY_NODE, GPU_LABELS, GPU_WORD, LABEL_OF, gpu_labels
from spillover.model.admission import CONSTRAINTS
from spillover.model.topology import NODE
from spillover.model.where import NODE_NAME, PROPERTY, NodeTerm, Requirement
from spillover.ports.cluster import Start

HOSTNAME: Final = "kubernetes.io/hostname"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MOST_TERMS: Final = 2000
"""Most alternatives for the node of a pod. A name of a node is an alternative of its own."""
_KEY: Final = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
"""What Kubernetes accepts as the name of a label."""

Term: TypeAlias = dict[str, list[dict[str, Any]]]
"""A node selector term. Here, an empty one means every node; in Kubernetes it would mean none."""
Labels: TypeAlias = Mapping[str, str]


class TooManyTerms(ValueError):
    """Constraints of a job that have too many alternatives in the form of Kubernetes."""


def placed(pod: dict[str, Any], start: Start, labels: Labels, nodes: Iterable[Labels] = ()) -> dict[str, Any]:
    """Return a pod with the affinity that its job asks for; raise TooManyTerms.

    `labels` are those that we give to the pod, and `nodes` the labels of the nodes of the cluster.
    """
    affinity: dict[str, Any] = dict(pod.get("affinity") or {})
    _choose_nodes(affinity, start, nodes)
    _keep_together(affinity, start, labels)
    return pod | {"affinity": affinity} if affinity else pod


# --- nodes


def _choose_nodes(affinity: dict[str, Any], start: Start, nodes: Iterable[Labels]) -> None:
    """Add node affinity: the constraints of the job, the words that it needs, and the vertex that was chosen for it."""
    shape, chosen = start.spec.shape, start.vertex
    wanted: list[Sequence[NodeTerm]] = []
    if CONSTRAINTS in shape.runs and shape.rules is not None and shape.rules.affinity is not None:
        wanted.append(shape.rules.affinity)
    if shape.needs:
        wanted.append([NodeTerm((), tuple([Requirement(PROPERTY, "In", (word,)) for word in shape.needs]))])
    preferred = shape.topology is not None and shape.topology.preferred
    if chosen is not None and not preferred:
        wanted.append([chosen])
    found: dict[str, Any] = dict(affinity.get("nodeAffinity") or {})
    terms = _required([_terms(each, nodes) for each in wanted], found.get(REQUIRED))
    if terms:
        found[REQUIRED] = {"nodeSelectorTerms": terms}
    if chosen is not None and preferred:
        wishes = [{"weight": 100, "preference": term} for term in _terms([chosen], nodes)]
        found[PREFERRED] = [*(found.get(PREFERRED) or []), *wishes]
    if found:
        affinity["nodeAffinity"] = found


def _required(wanted: Sequence[list[Term]], had: dict[str, Any] | None) -> list[Term]:
    """Return the terms of which one must hold, so that each of these holds and what a manifest has; empty if all do."""
    wanted = [terms for terms in wanted if {} not in terms]
    if not wanted:
        return []
    if had is not None:  # its empty terms match no node
        wanted = [[term for term in had.get("nodeSelectorTerms") or () if any(term.values())], *wanted]
    found: dict[str, Term] = {}
    for parts in product(*wanted):
        term: Term = {}
        for part, kind in product(parts, ("matchExpressions", "matchFields")):
            more = [each for each in part.get(kind) or () if each not in term.get(kind, ())]
            if more:
                term[kind] = [*term.get(kind, ()), *more]
        found[repr(term)] = term
        if len(found) > MOST_TERMS:
            raise TooManyTerms(
                f"`constraints` have more than {MOST_TERMS:,} alternatives on Kubernetes, where each name of a host is one; "
                "use a property instead"
            )
    return list(found.values())


def _terms(alternatives: Sequence[NodeTerm], nodes: Iterable[Labels]) -> list[Term]:
    """Return alternatives as terms of Kubernetes."""
    return list(chain.from_iterable(_written(term, nodes) for term in alternatives))


def _written(term: NodeTerm, nodes: Iterable[Labels]) -> Iterator[Term]:
    """Yield the terms of Kubernetes of which one must hold if this one must."""
    each: list[list[Term]] = [[_expression(one.key, one.operator, one.values)] for one in term.labels]
    for one in term.fields:
        if one.key == PROPERTY:
            (word,) = one.values
            each.append(_property(word, nodes) if one.operator == "In" else _without(word, nodes))
        elif one.operator == "In":
            each.append([{"matchFields": [_field("In", name)]} for name in one.values])
        else:
            each.append([{"matchFields": [_field(one.operator, name) for name in one.values]}])
    for parts in product(*each):
        joined: Term = {}
        for part in parts:
            for kind, more in part.items():
                joined[kind] = [*joined.get(kind, ()), *more]
        yield joined


def _property(word: str, nodes: Iterable[Labels]) -> list[Term]:
    """Return the terms of which one holds on nodes that have a property."""
    if word == ANY_NODE:
        return [{}]
    kind, _, value = word.partition(":")
    if kind in LABEL_OF:
        return [_expression(LABEL_OF[kind], "In", (value,))]
    if word.startswith(GPU_WORD):
        known = [_expression(label, "In", values) for label, values in gpu_labels(word, nodes)]
        # No node has it now, so the pods wait for one.
        return known or [_expression(GPU_LABELS[0], "In", (word.removeprefix(GPU_WORD),))]
    return [_expression(word, "Exists")] if _KEY.fullmatch(word) else [{}]


def _without(word: str, nodes: Iterable[Labels]) -> list[Term]:
    """Return the terms of which one holds on nodes that do not have a property."""
    kind, _, value = word.partition(":")
    if kind in LABEL_OF:
        return [_expression(LABEL_OF[kind], "NotIn", (value,))]
    if word.startswith(GPU_WORD):
        has = [_expression(label, "NotIn", values) for label, values in gpu_labels(word, nodes)]
        return (
            [{"matchExpressions": [each for term in has for each in term["matchExpressions"]]}]
            if has
            else [{}]
        )
    return [_expression(word, "DoesNotExist")] if _KEY.fullmatch(word) else [{}]


def _expression(key: str, operator: str, values: Sequence[str] = ()) -> Term:
    return {
        "matchExpressions": [
            {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
        ]
    }


def _field(operator: str, name: str) -> dict[str, Any]:
    return {"key": NODE_NAME, "operator": operator, "values": [name]}


# --- other pods


def _keep_together(affinity: dict[str, Any], start: Start, labels: Labels) -> None:
    """Add that a job is within one vertex of a level, spread over one, or alone on its nodes."""
    topology = start.spec.shape.topology
    if topology is None:
        return
    keys = {level.name: level.label for level in start.levels} | {NODE: HOSTNAME}
    gang = start.spec.shape.tasks > 1
    alike = {"matchLabels": {JOB: labels[JOB], ATTEMPT: labels[ATTEMPT]}}
    # Node affinity says it all if a vertex was chosen; pod affinity would only cost the scheduler time.
    if gang and topology.within in keys and (topology.preferred or start.vertex is None):
        term = {"topologyKey": keys[topology.within], "labelSelector": alike}
        wish = {"weight": 100, "podAffinityTerm": term}
        asked = (PREFERRED, wish) if topology.preferred else (REQUIRED, term)
        affinity["podAffinity"] = _with_term(affinity.get("podAffinity"), *asked)
    if gang and topology.spread in keys:
        term = {"topologyKey": keys[topology.spread], "labelSelector": alike}
        affinity["podAntiAffinity"] = _with_term(affinity.get("podAntiAffinity"), REQUIRED, term)
    if topology.exclusive:
        others = [
            {"key": MANAGED_BY, "operator": "In", "values": [MANAGER]},
            {"key": JOB, "operator": "NotIn", "values": [labels[JOB]]},
        ]
        # Kubernetes also keeps later pods off a node if those that are there repel them.
        term = {
            "topologyKey": HOSTNAME,
            "labelSelector": {"matchExpressions": others},
            "namespaceSelector": {},
        }
        affinity["podAntiAffinity"] = _with_term(affinity.get("podAntiAffinity"), REQUIRED, term)


def _with_term(had: dict[str, Any] | None, when: str, term: dict[str, Any]) -> dict[str, Any]:
    """Add a term to those that a manifest has."""
    terms = dict(had or {})
    return terms | {when: [*(terms.get(when) or []), term]}
