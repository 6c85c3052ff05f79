"""Kubernetes `batch/v1` Job manifests as container jobs.

Read is what deciding needs: what the pods ask for in all and how many run at a time, which nodes they ask for, the first
container's image, command and literal variables, the time limit, and what annotations and labels say. Everything else (volumes,
several containers, policies) stays in the manifest, which is kept whole for whoever runs it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from spillover.forms.meaning import JobForm, understand
from spillover.forms.oneline import Piece
from spillover.forms.pods import GPU, POD, Totals, read_manifest, resources_of, totals_of
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.work import check_plain
from spillover.model.units import UnitError, parse_duration
from spillover.wire.jobfile import ContainerDoc, Metadata, Quantity, ResourcesDoc, SpecDoc
from spillover.wire.manifest import ManifestDoc, ManifestMetaDoc, PodJobDoc

OURS: Final = "spillover.dev/"
"""What all our labels and annotations begin with."""
ESTIMATES: Final = (f"{OURS}estimate", "estimated_runtime")
"""Annotations with the expected time to run, the first that is there counts."""
PROJECT: Final = f"{OURS}project"
MOST_PODS: Final = 100_000
"""That run at a time."""
MOST_GPUS: Final = 100_000

_PLACES: Final[dict[str, tuple[str, ...]]] = {
    "queue": ("spec", "queue"),
    "priority": ("spec", "priority"),
    "burst": ("spec", "burst"),
    "deadline": ("spec", "deadline"),
    "not-before": ("spec", "not_before"),
    "max-cost": ("spec", "max_cost"),
    "data": ("spec", "data"),
    "needs": ("spec", "needs"),
    "on-cluster-failure": ("spec", "on_cluster_failure"),
    "where.role": ("spec", "where", "role"),
    "where.kind": ("spec", "where", "kind"),
    "where.cluster": ("spec", "where", "cluster"),
    "where.region": ("spec", "where", "region"),
    "where.labels": ("spec", "where", "labels"),
    "where.avoid": ("spec", "where", "avoid"),
}
"""Annotations of ours, without what they begin with, and the field of a job file that each stands for."""
_MARKS: Final = frozenset(
    {"estimate", "project", "owner", "job", "attempt", "seq", "name", "user", "cluster"}
)
"""Others of ours, that are read elsewhere or written onto what runs."""


def understand_manifest(value: Any, found: Findings) -> JobForm | None:
    """The job of a manifest; None with everything noted that is wrong with it."""
    if value.get("apiVersion") != "batch/v1":
        found.add(("apiVersion",), f"{shown(value.get('apiVersion'))} is not batch/v1")
    if value.get("kind") != "Job":
        found.add(("kind",), f"{shown(value.get('kind'))} of batch/v1 is not read; write a Job")
    check_plain(value, (), found)
    manifest = read_manifest(value, (), found)
    if manifest is not None and not manifest.spec.pod.containers:
        found.add((*POD, "containers"), "is empty; write at least one container")
    if manifest is None or found.found:
        return None
    meaning = Findings()
    spec = _spec(manifest, value, meaning)
    form = understand(_metadata(manifest), spec, meaning) if spec is not None else None
    for path, message in meaning.found:
        found.add(_place(path), message)
    return form if not meaning.found else None


def _metadata(manifest: ManifestDoc) -> Metadata:
    """What the job is called and whom it belongs to."""
    meta = manifest.metadata or ManifestMetaDoc()
    name = meta.name or (meta.generate_name or "").rstrip("-.") or None
    labels = meta.labels or {}
    return Metadata(name, labels.get(PROJECT, "default"), labels)


def _spec(manifest: ManifestDoc, value: dict[str, Any], found: Findings) -> SpecDoc | None:
    """The container job that stands for a manifest; None with everything noted that is wrong with its annotations."""
    first = manifest.spec.pod.containers[0]
    # Arguments alone go to the image's own entry point, which only the manifest can say.
    command = [*first.command, *(first.args or [])] if first.command else []
    limit = manifest.spec.active_deadline_seconds
    doc = SpecDoc(
        container=ContainerDoc(first.image, command, value),
        env={one.name: one.value for one in first.env or () if one.value is not None},
        tasks=_tasks(manifest.spec, found),
        resources=_resources(totals_of(manifest.spec.pod, POD, found), found),
        walltime=None if limit is None else f"{limit}s",
        estimate=_estimate(manifest, found),
    )
    return _annotated(doc, manifest, found)


def _tasks(spec: PodJobDoc, found: Findings) -> int:
    """How many pods run at a time."""
    pods = 1 if spec.parallelism is None else spec.parallelism
    if pods == 0:
        found.add(("spec", "parallelism"), "is 0, with which nothing ever runs; hold the job instead")
    if spec.completions:
        pods = min(pods, spec.completions)
    if pods > MOST_PODS:
        found.add(("spec", "parallelism"), f"{pods} is too large; the most is {MOST_PODS}")
        return 1
    return max(1, pods)


def _resources(total: Totals, found: Findings) -> ResourcesDoc:
    """What each pod asks for; one that says nothing of CPUs is taken to need one."""
    asked = resources_of(total, 1000)
    if asked.gpu > MOST_GPUS:
        found.add(
            ("spec", "resources", "gpu"), f"{asked.gpu} is not a number of GPUs; the most is {MOST_GPUS}"
        )
    cpu: Quantity = asked.cpu // 1000 if asked.cpu % 1000 == 0 and asked.cpu else f"{asked.cpu}m"
    return ResourcesDoc(cpu, asked.memory or None, min(asked.gpu, MOST_GPUS), dict(asked.other))


def _notes(manifest: ManifestDoc) -> dict[str, str]:
    """Annotations of the job, and those of its pod where the job has none of the name."""
    inner, outer = (
        each or ManifestMetaDoc() for each in (manifest.spec.template.metadata, manifest.metadata)
    )
    return {**(inner.annotations or {}), **(outer.annotations or {})}


def _estimate(manifest: ManifestDoc, found: Findings) -> str | None:
    """The expected time to run."""
    notes = _notes(manifest)
    text = next((notes[name] for name in ESTIMATES if name in notes), None)
    if text is None:
        return None
    text = text.strip()
    seconds = f"{text}s" if text.replace(".", "", 1).isdigit() else text
    try:
        parse_duration(seconds)
    except UnitError:
        found.add(("spec", "estimate"), f"{shown(text)} is not an estimate; write seconds, or 45m")
        return None
    return seconds


def _annotated(doc: SpecDoc, manifest: ManifestDoc, found: Findings) -> SpecDoc | None:
    """A job with what our annotations say of it; None with everything noted that is wrong with them."""
    said: dict[str, Any] = {}
    for name, text in _notes(manifest).items():
        word = name.removeprefix(OURS)
        if not name.startswith(OURS) or word in _MARKS:
            continue
        if word not in _PLACES:
            from spillover.forms.checking import nearest  # noqa: PLC0415 - slow to load, only needed for what is wrong

            hint = nearest(word, ("estimate", *_PLACES))
            found.add(("metadata", "annotations", name), f"unknown annotation of {OURS.rstrip('/')}{hint}")
            continue
        *outer, last = _PLACES[word][1:]
        inside = said.setdefault(outer[0], {}) if outer else said
        inside[last] = _READ.get(word, str)(text.strip())
    if not said:
        return doc
    try:
        return msgspec.convert(msgspec.to_builtins(doc) | said, SpecDoc)
    except msgspec.ValidationError:
        from spillover.forms.checking import check  # noqa: PLC0415 - likewise

        check(SpecDoc, said, found, ("spec",))
        return None


def _list(text: str) -> list[str]:
    """Words between commas."""
    return [word for part in Piece(text).split() if (word := part.strip().text)]


def _pairs(text: str) -> dict[str, str] | str:
    """`NAME=VALUE` between commas, or what was written in its place."""
    said: dict[str, str] = {}
    for name, value in [Piece(word).pair() for word in _list(text)]:
        if value is None:
            return text
        said[name.strip().text] = value.strip().text
    return said


def _whole(text: str) -> int | str:
    """A whole number, or what was written in its place."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 18 else text


_READ: Final[Mapping[str, Callable[[str], object]]] = {
    "priority": _whole,
    "needs": _list,
    "where.kind": _list,
    "where.cluster": _list,
    "where.region": _list,
    "where.labels": _pairs,
    "where.avoid": _list,
}


def _place(path: Path) -> Path:
    """Where in a manifest it stands what is wrong with the job made of it."""
    container: Path = (*POD, "containers", 0)
    for word, place in _PLACES.items():
        if path[: len(place)] == place:
            return ("metadata", "annotations", f"{OURS}{word}")
    match path:
        case ("spec", "container", "manifest", *rest):
            return tuple(rest)
        case ("spec", "container", *rest):
            return (*container, *rest)
        case ("spec", "resources", "gpu"):
            return (*container, "resources", GPU)
        case ("spec", "resources", *rest):
            return (*container, "resources", *rest)
        case ("spec", "env", *_):
            return (*container, "env")
        case ("spec", "walltime"):
            return ("spec", "activeDeadlineSeconds")
        case ("spec", "estimate"):
            return ("metadata", "annotations")
        case ("metadata", "project"):
            return ("metadata", "labels", PROJECT)
    return path
