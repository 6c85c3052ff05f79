"""Pods as far as deciding looks at them.

That is what they ask of a node in all, counted as the scheduler of Kubernetes does, which nodes they ask for, and whether an engine for
containers could run them. All of it is read out of a manifest whenever it is needed: nothing of a pod is kept twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spillover.forms.problems import Findings, Path, shown
from spillover.model.admission import NAME, whole
from spillover.model.resources import IN_BYTES, Resources
from spillover.model.units import UnitError, parse_cpu, parse_memory
from spillover.model.where import NodeTerm, Requirement, Rules, Toleration
from spillover.wire.manifest import (
    UNREADABLE,
    Amounts,
    AskedDoc,
    ManifestDoc,
    PodDoc,
    PodJobDoc,
    TermDoc,
    TolerationDoc,
    WantedDoc,
)

GPU: Final = "nvidia.com/gpu"
"""The resource that is counted as GPUs."""
POD: Final[Path] = ("spec", "template", "spec")
"""Where a Job has its pod."""
POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
"""How names begin of what a pod may ask for as a whole."""
_UNABLE: Final = "an engine for containers cannot do that; run it on a Kubernetes cluster"

Totals = dict[str, int]
"""Thousandths of a CPU, bytes or whole ones, by the names of resources."""


def read_manifest(value: Mapping[str, Any], path: Path, found: Findings) -> ManifestDoc | None:
    """A manifest; None with everything noted that is wrong with its form."""
    try:
        return msgspec.convert(value, ManifestDoc)
    except UNREADABLE as error:
        from spillover.forms.checking import check  # noqa: PLC0415 - slow to load, only needed for what is wrong

        before = len(found.found)
        check(ManifestDoc, value, found, path)
        if len(found.found) == before:
            found.add(path, f"is no Job that can be read: {error}")
        return None


def check_metadata(manifest: ManifestDoc, path: Path, found: Findings) -> None:
    """Note what would keep the objects made of a manifest from going away, or give them to somebody else.

    A Job that another object owns is fine: its owner is left out.
    """
    job, pods = manifest.metadata, manifest.spec.template.metadata
    if job is not None and job.finalizers:
        why = "keep a Job from being deleted, so that its room would never be free again"
        found.add((*path, "metadata", "finalizers"), f"{why}; leave it out")
    inner: Path = (*path, "spec", "template", "metadata")
    if pods is not None and pods.finalizers:
        why = "keep pods from being deleted, so that their room would never be free again"
        found.add((*inner, "finalizers"), f"{why}; leave it out")
    if pods is not None and pods.owner_references:
        why = "give pods to somebody else, who may delete or adopt them"
        found.add((*inner, "ownerReferences"), f"{why}; leave it out")


def beyond_engines(job: PodJobDoc) -> str:
    """What a Job asks for that only Kubernetes can do; empty if an engine for containers can do all of it."""
    pod = job.pod
    if len(pod.containers) != 1:
        return f"has {len(pod.containers)} containers; {_UNABLE}"
    if pod.init_containers:
        return f"has initContainers; {_UNABLE}"
    if (job.parallelism or 1) > 1 or (job.completions or 1) > 1:
        return f"asks for several pods; write an array instead, as {_UNABLE}"
    (one,) = pod.containers
    if one.env_from or any(each.value_from is not None for each in one.env or ()):
        return f"takes variables from elsewhere (envFrom, valueFrom); {_UNABLE}"
    volumes = {each.name: each for each in pod.volumes or ()}
    for mount in one.volume_mounts or ():
        volume = volumes.get(mount.name)
        if volume is None:
            return f"mounts a volume {shown(mount.name)} that it does not have"
        if volume.empty_dir is None and volume.host_path is None:
            return f"mounts a volume {shown(mount.name)} that is neither emptyDir nor hostPath; {_UNABLE}"
        if mount.sub_path:
            return f"mounts a part of a volume (subPath of {shown(mount.name)}); {_UNABLE}"
    return ""


# --- what it asks of a node in all


def totals_of(pod: PodDoc, path: Path, found: Findings) -> Totals:
    """What a pod asks for in all: its containers together, or the most that its init containers need at a time, and its overhead."""
    total: Totals = {}
    for at, one in enumerate(pod.containers):
        _add(total, _requests(one.resources, (*path, "containers", at, "resources"), found))
    beside: Totals = {}
    most: Totals = {}
    for at, one in enumerate(pod.init_containers or ()):
        asked = _requests(one.resources, (*path, "initContainers", at, "resources"), found)
        if one.restart_policy == "Always":
            _add(beside, asked)
            _raise(most, beside)
        else:
            _raise(most, _sum(asked, beside))
    _add(total, beside)
    _raise(total, most)
    if pod.resources is not None:
        _put_whole(total, pod.resources, (*path, "resources"), found)
    _add(total, _amounts(pod.overhead or {}, (*path, "overhead"), found))
    return total


def resources_of(total: Totals, least_cpu: int = 0) -> Resources:
    """Amounts by their names as resources; a pod that asks for no CPU is counted as one of `least_cpu` thousandths."""
    others = tuple(
        sorted((name, one) for name, one in total.items() if one and name not in {"cpu", "memory", GPU})
    )
    return Resources(total.get("cpu", least_cpu), total.get("memory", 0), total.get(GPU, 0), others)


def _requests(asked: AskedDoc | None, path: Path, found: Findings) -> Totals:
    """Requests, or limits where nothing is requested."""
    if asked is None:
        return {}
    limits = _amounts(asked.limits or {}, (*path, "limits"), found)
    return limits | _amounts(asked.requests or {}, (*path, "requests"), found)


def _put_whole(total: Totals, asked: AskedDoc, path: Path, found: Findings) -> None:
    """Let what a pod asks for as a whole count before what its containers ask for."""
    for name, amount in _amounts(asked.limits or {}, (*path, "limits"), found).items():
        if name.startswith(POD_LEVEL):
            total.setdefault(name, amount)
    for name, amount in _amounts(asked.requests or {}, (*path, "requests"), found).items():
        if name.startswith(POD_LEVEL):
            total[name] = amount


def _amounts(amounts: Amounts, path: Path, found: Findings) -> Totals:
    """Amounts as whole numbers; what is none is noted."""
    total: Totals = {}
    for name, written in amounts.items():
        try:
            total[name] = amount_of(name, str(written))
        except UnitError as error:
            found.add((*path, name), str(error))
    return total


def amount_of(name: str, text: str) -> int:
    """How much of a resource a text means: thousandths of a CPU, bytes or whole ones; raises UnitError."""
    if name == "cpu":
        return parse_cpu(text)
    if name == "memory" or name.startswith(IN_BYTES):
        return parse_memory(text)
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        what = "GPUs" if name == GPU else name
        raise UnitError(f"{shown(text)} is not a number of {what}; write a whole one")
    return int(text)


MOST_DIGITS: Final = 15
"""Of a number of things."""


def _add(total: Totals, more: Totals) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(one: Totals, more: Totals) -> Totals:
    total = dict(one)
    _add(total, more)
    return total


def _raise(total: Totals, least: Totals) -> None:
    """Let there be at least this much of each."""
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


# --- which nodes it asks for


def rules_of(pod: PodDoc, path: Path, found: Findings) -> Rules | None:
    """Which nodes a pod asks for; None if any will do that has no taints."""
    selector = tuple(sorted((pod.node_selector or {}).items()))
    tolerations = tuple([_toleration(each) for each in pod.tolerations or ()])
    terms: tuple[NodeTerm, ...] | None = None
    affinity = pod.affinity.node_affinity if pod.affinity is not None else None
    if affinity is not None and affinity.required is not None:
        inside: Path = (
            *path,
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        )
        wanted = affinity.required.node_selector_terms
        terms = tuple([_term(each, (*inside, at), found) for at, each in enumerate(wanted)])
    if pod.node_name:  # which no scheduler is asked about: taints do not matter
        named = Requirement(NAME, "In", (pod.node_name,))
        terms = tuple([NodeTerm(each.labels, (*each.fields, named)) for each in terms or (NodeTerm(),)])
        tolerations = (*tolerations, Toleration(operator="Exists"))
    if not selector and terms is None and not tolerations:
        return None
    return Rules(selector, terms, tolerations)


def _toleration(one: TolerationDoc) -> Toleration:
    return Toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "")


def _term(term: TermDoc, path: Path, found: Findings) -> NodeTerm:
    return NodeTerm(
        _requirements(term.match_expressions or (), (*path, "matchExpressions"), found),
        _requirements(term.match_fields or (), (*path, "matchFields"), found),
    )


def _requirements(
    wanted: Sequence[WantedDoc] | Iterable[WantedDoc], path: Path, found: Findings
) -> tuple[Requirement, ...]:
    """What is asked of labels or fields; what could never be met is noted."""
    made: list[Requirement] = []
    for at, each in enumerate(wanted):
        values = tuple(each.values or ())
        match each.operator:
            case "In" | "NotIn":
                if not values:
                    found.add((*path, at), f"{each.operator} needs `values`")
            case "Exists" | "DoesNotExist":
                if values:
                    found.add((*path, at), f"{each.operator} takes no `values`")
            case "Gt" | "Lt":
                if len(values) != 1 or whole(values[0]) is None:
                    found.add((*path, at), f"{each.operator} needs one whole number in `values`")
        made.append(Requirement(each.key, each.operator, values))
    return tuple(made)
