"""Reads the parts of pods that scheduling needs.

These are the total requests, computed as the Kubernetes scheduler does, the node constraints, and whether a container
engine could run the pod. They are computed from the manifest whenever needed, so nothing of a pod is stored twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spillover.forms.problems import Findings, Path, shown
from spillover.model.admission import whole
from spillover.model.resources import IN_BYTES, Resources
from spillover.model.units import UnitError, parse_cpu, parse_memory
from spillover.model.where import NODE_NAME, NodeTerm, Requirement, Rules, Toleration
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
"""The resource that counts as GPUs."""
POD: Final[Path] = ("spec", "template", "spec")
"""Path of the pod in a Job."""
POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
"""Prefixes of resources that a pod can request as a whole."""
_UNABLE: Final = "container engines cannot do this; run the job on a Kubernetes cluster"

Totals = dict[str, int]
"""Thousandths of a CPU, bytes or whole units, by resource name."""


def read_manifest(value: Mapping[str, Any], path: Path, found: Findings) -> ManifestDoc | None:
    """Decode a manifest; None and problems in `found` if its form is invalid."""
    try:
        return msgspec.convert(value, ManifestDoc)
    except UNREADABLE as error:
        from spillover.forms.checking import check  # noqa: PLC0415 - slow to load, and only needed for problems

        before = len(found.found)
        check(ManifestDoc, value, found, path)
        if len(found.found) == before:
            found.add(path, f"is not a valid Job: {error}")
        return None


def check_metadata(manifest: ManifestDoc, path: Path, found: Findings) -> None:
    """Add a problem for metadata that would block the deletion of objects, or let others control them.

    A Job with an owner is fine, because we leave the owner out.
    """
    job, pods = manifest.metadata, manifest.spec.template.metadata
    if job is not None and job.finalizers:
        why = "would keep the Job from being deleted, so its capacity would never be freed"
        found.add((*path, "metadata", "finalizers"), f"{why}; remove it")
    inner: Path = (*path, "spec", "template", "metadata")
    if pods is not None and pods.finalizers:
        why = "would keep pods from being deleted, so their capacity would never be freed"
        found.add((*inner, "finalizers"), f"{why}; remove it")
    if pods is not None and pods.owner_references:
        why = "would let another controller delete or adopt the pods"
        found.add((*inner, "ownerReferences"), f"{why}; remove it")


def beyond_engines(job: PodJobDoc) -> str:
    """Return what only Kubernetes can run; empty if a container engine can run all of it."""
    pod = job.pod
    if len(pod.containers) != 1:
        return f"has {len(pod.containers)} containers; {_UNABLE}"
    if pod.init_containers:
        return f"has initContainers; {_UNABLE}"
    if (job.parallelism or 1) > 1 or (job.completions or 1) > 1:
        return "asks for several pods; use an array, or a Kubernetes cluster"
    (one,) = pod.containers
    if one.env_from or any(each.value_from is not None for each in one.env or ()):
        return f"takes variables from other objects (envFrom, valueFrom); {_UNABLE}"
    volumes = {each.name: each for each in pod.volumes or ()}
    for mount in one.volume_mounts or ():
        volume = volumes.get(mount.name)
        if volume is None:
            return f"mounts the volume {shown(mount.name)}, which it does not define"
        if volume.empty_dir is None and volume.host_path is None:
            return f"mounts the volume {shown(mount.name)}, which is neither emptyDir nor hostPath; {_UNABLE}"
        if mount.sub_path:
            return f"mounts a subPath of the volume {shown(mount.name)}; {_UNABLE}"
    return ""


# --- total requests


def totals_of(pod: PodDoc, path: Path, found: Findings) -> Totals:
    """Return the total of a pod: its containers, or the peak of its init containers if larger, plus overhead."""
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
    """Convert amounts to resources; `least_cpu` thousandths count if the pod requests no CPU."""
    others = tuple(
        sorted((name, one) for name, one in total.items() if one and name not in {"cpu", "memory", GPU})
    )
    return Resources(total.get("cpu", least_cpu), total.get("memory", 0), total.get(GPU, 0), others)


def _requests(asked: AskedDoc | None, path: Path, found: Findings) -> Totals:
    """Return the requests, or the limits where there is no request."""
    if asked is None:
        return {}
    limits = _amounts(asked.limits or {}, (*path, "limits"), found)
    return limits | _amounts(asked.requests or {}, (*path, "requests"), found)


def _put_whole(total: Totals, asked: AskedDoc, path: Path, found: Findings) -> None:
    """Let pod-level requests override those of containers."""
    for name, amount in _amounts(asked.limits or {}, (*path, "limits"), found).items():
        if name.startswith(POD_LEVEL):
            total.setdefault(name, amount)
    for name, amount in _amounts(asked.requests or {}, (*path, "requests"), found).items():
        if name.startswith(POD_LEVEL):
            total[name] = amount


def _amounts(amounts: Amounts, path: Path, found: Findings) -> Totals:
    """Parse amounts; add problems to `found`."""
    total: Totals = {}
    for name, written in amounts.items():
        try:
            total[name] = amount_of(name, str(written))
        except UnitError as error:
            found.add((*path, name), str(error))
    return total


def amount_of(name: str, text: str) -> int:
    """Parse an amount: thousandths of a CPU, bytes or whole units; raise UnitError."""
    if name == "cpu":
        return parse_cpu(text)
    if name == "memory" or name.startswith(IN_BYTES):
        return parse_memory(text)
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        what = "GPUs" if name == GPU else name
        raise UnitError(f"{shown(text)} is not a number of {what}; write a whole number")
    return int(text)


MOST_DIGITS: Final = 15
"""Most digits of a count."""


def _add(total: Totals, more: Totals) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(one: Totals, more: Totals) -> Totals:
    total = dict(one)
    _add(total, more)
    return total


def _raise(total: Totals, least: Totals) -> None:
    """Raise each amount to at least this."""
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


# --- node constraints


def rules_of(pod: PodDoc, path: Path, found: Findings) -> Rules | None:
    """Return the node constraints of a pod; None if it fits on any node without taints."""
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
    if pod.node_name:  # no scheduler places such a pod, so taints do not apply
        named = Requirement(NODE_NAME, "In", (pod.node_name,))
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
    """Read requirements on labels or fields; add impossible ones to `found`."""
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
