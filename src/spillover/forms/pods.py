"""Pods as far as deciding looks at them: what they ask of a node in all, counted as the scheduler of Kubernetes does, and which nodes they ask for.

Both are read out of a manifest whenever it is: nothing of a pod is kept twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from spillover.forms.problems import Findings, Path, shown
from spillover.model.admission import NAME, whole
from spillover.model.resources import IN_BYTES, Resources
from spillover.model.units import UnitError, parse_cpu, parse_memory
from spillover.model.where import NodeTerm, Requirement, Rules, Toleration
from spillover.wire.jobfile import Quantity

GPU: Final = "nvidia.com/gpu"
"""The resource that is counted as GPUs."""
POD: Final[Path] = ("spec", "template", "spec")
"""Where a Job has its pod."""
POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
"""How names begin of what a pod may ask for as a whole."""

Amounts = dict[str, Quantity]
Totals = dict[str, int]
"""Thousandths of a CPU, bytes or whole ones, by the names of resources."""


class Asked(Struct, frozen=True):
    """What a container asks for, or a pod as a whole."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Mount(Struct, frozen=True, rename="camel"):
    """Where a container sees a volume."""

    name: str
    sub_path: str | None = None


class Volume(Struct, frozen=True, rename="camel"):
    """A volume of a pod."""

    name: str
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class Env(Struct, frozen=True, rename="camel"):
    """A variable of a container."""

    name: str
    value: str | None = None
    """None if it comes from elsewhere: only a Kubernetes cluster can fill it in."""
    value_from: dict[str, Any] | None = None


class PodContainer(Struct, frozen=True, rename="camel"):
    """A container of a pod."""

    image: Annotated[str, Meta(min_length=1)]
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Env] | None = None
    env_from: list[Any] | None = None
    volume_mounts: list[Mount] | None = None
    resources: Asked | None = None
    restart_policy: str | None = None
    """`Always` makes a sidecar of an init container: it runs beside all that come after it."""


class Wanted(Struct, frozen=True):
    """What a term asks of one label or field."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class Term(Struct, frozen=True, rename="camel"):
    """One of several choices of nodes."""

    match_expressions: list[Wanted] | None = None
    match_fields: list[Wanted] | None = None


class Required(Struct, frozen=True, rename="camel"):
    """Nodes of which it must be one."""

    node_selector_terms: Annotated[list[Term], Meta(min_length=1)]


class NodeAffinity(Struct, frozen=True):
    """Which nodes are asked for; those that are only preferred are the cluster's affair."""

    required: Required | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Struct, frozen=True, rename="camel"):
    """Of which only what is said of nodes is read."""

    node_affinity: NodeAffinity | None = None


class Tolerated(Struct, frozen=True):
    """Taints that do not matter to a pod."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Pod(Struct, frozen=True, rename="camel"):
    """The pod of a Job."""

    containers: list[PodContainer]
    init_containers: list[PodContainer] | None = None
    overhead: Amounts | None = None
    resources: Asked | None = None
    """Of the pod as a whole, which counts before what its containers say."""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Tolerated] | None = None
    volumes: list[Volume] | None = None
    node_name: str | None = None


class _Template(Struct, frozen=True):
    spec: Pod


class PodJob(Struct, frozen=True):
    """How a Job runs its pods."""

    template: _Template
    parallelism: int | None = None
    completions: int | None = None

    @property
    def pod(self) -> Pod:
        """What each of them is."""
        return self.template.spec


class _Manifest(Struct, frozen=True):
    spec: PodJob


def pods_of(manifest: Mapping[str, Any], path: Path, found: Findings) -> PodJob | None:
    """How a Job runs its pods; None with what is wrong noted."""
    try:
        return msgspec.convert(manifest, _Manifest).spec
    except (msgspec.ValidationError, RecursionError) as error:
        found.add(path, f"is no Job that can be read: {error}")
        return None


_REFUSED: Final[tuple[tuple[Path, str, str], ...]] = (
    (
        ("metadata",),
        "finalizers",
        "keep a Job from being deleted, so that its room would never be free again",
    ),
    (
        ("spec", "template", "metadata"),
        "finalizers",
        "keep pods from being deleted, so that their room would never be free again",
    ),
    (
        ("spec", "template", "metadata"),
        "ownerReferences",
        "give pods to somebody else, who may delete or adopt them",
    ),
)
"""What metadata must not have: where, which field, and what it would do. That of a Job which another object owns is left out."""


def check_metadata(manifest: Mapping[str, Any], path: Path, found: Findings) -> None:
    """Note what would keep the objects made of a manifest from going away, or give them to somebody else."""
    for outer, name, why in _REFUSED:
        inside: Any = manifest
        for part in outer:
            inside = inside.get(part) if isinstance(inside, Mapping) else None
        if isinstance(inside, Mapping) and inside.get(name):
            found.add((*path, *outer, name), f"{why}; leave it out")


def is_plain(job: PodJob) -> bool:
    """Whether an engine for containers can do all that a Job asks for; if not, only Kubernetes can."""
    pod = job.pod
    if (job.parallelism or 1) > 1 or (job.completions or 1) > 1:
        return False
    if len(pod.containers) != 1 or pod.init_containers:
        return False
    (one,) = pod.containers
    if one.env_from or any(each.value_from is not None for each in one.env or ()):
        return False
    local = {
        each.name for each in pod.volumes or () if each.empty_dir is not None or each.host_path is not None
    }
    return all(mount.name in local and not mount.sub_path for mount in one.volume_mounts or ())


# --- what it asks of a node in all


def totals_of(pod: Pod, path: Path, found: Findings) -> Totals:
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


def _requests(asked: Asked | None, path: Path, found: Findings) -> Totals:
    """Requests, or limits where nothing is requested."""
    if asked is None:
        return {}
    limits = _amounts(asked.limits or {}, (*path, "limits"), found)
    return limits | _amounts(asked.requests or {}, (*path, "requests"), found)


def _put_whole(total: Totals, asked: Asked, path: Path, found: Findings) -> None:
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


def rules_of(pod: Pod, path: Path, found: Findings) -> Rules | None:
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


def _toleration(one: Tolerated) -> Toleration:
    return Toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "")


def _term(term: Term, path: Path, found: Findings) -> NodeTerm:
    return NodeTerm(
        _requirements(term.match_expressions or (), (*path, "matchExpressions"), found),
        _requirements(term.match_fields or (), (*path, "matchFields"), found),
    )


def _requirements(
    wanted: Sequence[Wanted] | Iterable[Wanted], path: Path, found: Findings
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
