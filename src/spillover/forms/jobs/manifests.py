"""Converts Kubernetes `batch/v1` Job manifests to container jobs.

Reads what scheduling needs: the total requests of a pod, how many pods run at a time, their node constraints, the first
container's image, command and literal variables, the time limit, annotations and labels. Everything else (volumes,
further containers, policies) stays in the manifest, which the job keeps in full.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from spillover.forms.jobs.meaning import JobForm, understand
from spillover.forms.jobs.pods import GPU, POD, Totals, read_manifest, resources_of, totals_of
from spillover.forms.jobs.work import check_plain
from spillover.forms.oneline import Piece
from spillover.forms.problems import Findings, Path, shown
from spillover.model.units import UnitError, parse_duration
from spillover.wire.jobfile import ContainerDoc, Metadata, Quantity, ResourcesDoc, SpecDoc
from spillover.wire.manifest import ManifestDoc, ManifestMetaDoc, PodJobDoc

OURS: Final = "spillover.dev/"
"""Prefix of all our labels and annotations."""
ESTIMATES: Final = (f"{OURS}estimate", "estimated_runtime")
"""Annotations with the expected runtime; the first that exists counts."""
PROJECT: Final = f"{OURS}project"
MOST_PODS: Final = 100_000
"""Most pods that run at a time."""
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
"""Fields of a job file by annotation, without our prefix."""
_MARKS: Final = frozenset(
    {"estimate", "project", "owner", "job", "attempt", "seq", "name", "user", "cluster"}
)
"""Our other annotations: read elsewhere, or set on Jobs that we create."""


def understand_manifest(value: Any, found: Findings) -> JobForm | None:
    """Convert a manifest to a job; None and problems in `found` if it is invalid."""
    if value.get("apiVersion") != "batch/v1":
        found.add(("apiVersion",), f"{shown(value.get('apiVersion'))} must be batch/v1")
    if value.get("kind") != "Job":
        found.add(("kind",), f"{shown(value.get('kind'))} of batch/v1 is not supported; write a Job")
    check_plain(value, (), found)
    manifest = read_manifest(value, (), found)
    if manifest is not None and not manifest.spec.pod.containers:
        found.add((*POD, "containers"), "is empty; add a container")
    if manifest is None or found.found:
        return None
    meaning = Findings()
    spec = _spec(manifest, value, meaning)
    form = understand(_metadata(manifest), spec, meaning) if spec is not None else None
    for path, message in meaning.found:
        found.add(_place(path), message)
    return form if not meaning.found else None


def _metadata(manifest: ManifestDoc) -> Metadata:
    """Return name, project and labels of the job."""
    meta = manifest.metadata or ManifestMetaDoc()
    name = meta.name or (meta.generate_name or "").rstrip("-.") or None
    labels = meta.labels or {}
    return Metadata(name, labels.get(PROJECT, "default"), labels)


def _spec(manifest: ManifestDoc, value: dict[str, Any], found: Findings) -> SpecDoc | None:
    """Return the spec of a manifest; None and problems in `found` if an annotation is invalid."""
    first = manifest.spec.pod.containers[0]
    # Arguments without a command go to the image's entry point, which only the image knows.
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
    """Return how many pods run at a time."""
    pods = 1 if spec.parallelism is None else spec.parallelism
    if pods == 0:
        found.add(("spec", "parallelism"), "is 0, so the job would never run; submit it and use `spill hold`")
    if spec.completions:
        pods = min(pods, spec.completions)
    if pods > MOST_PODS:
        found.add(("spec", "parallelism"), f"{pods} is too large; the maximum is {MOST_PODS}")
        return 1
    return max(1, pods)


def _resources(total: Totals, found: Findings) -> ResourcesDoc:
    """Return the requests of each pod; a pod without a CPU request counts as one CPU."""
    asked = resources_of(total, 1000)
    if asked.gpu > MOST_GPUS:
        found.add(
            ("spec", "resources", "gpu"), f"{asked.gpu} is not a number of GPUs; the maximum is {MOST_GPUS}"
        )
    cpu: Quantity = asked.cpu // 1000 if asked.cpu % 1000 == 0 and asked.cpu else f"{asked.cpu}m"
    return ResourcesDoc(cpu, asked.memory or None, min(asked.gpu, MOST_GPUS), dict(asked.other))


def _notes(manifest: ManifestDoc) -> dict[str, str]:
    """Return the annotations of the pod template, overridden by those of the Job."""
    inner, outer = (
        each or ManifestMetaDoc() for each in (manifest.spec.template.metadata, manifest.metadata)
    )
    return {**(inner.annotations or {}), **(outer.annotations or {})}


def _estimate(manifest: ManifestDoc, found: Findings) -> str | None:
    """Return the expected runtime."""
    notes = _notes(manifest)
    text = next((notes[name] for name in ESTIMATES if name in notes), None)
    if text is None:
        return None
    text = text.strip()
    seconds = f"{text}s" if text.replace(".", "", 1).isdigit() else text
    try:
        parse_duration(seconds)
    except UnitError:
        found.add(("spec", "estimate"), f"{shown(text)} is not a duration; write seconds, or 45m")
        return None
    return seconds


def _annotated(doc: SpecDoc, manifest: ManifestDoc, found: Findings) -> SpecDoc | None:
    """Set the fields that our annotations name; None and problems in `found` if one is invalid."""
    said: dict[str, Any] = {}
    for name, text in _notes(manifest).items():
        word = name.removeprefix(OURS)
        if not name.startswith(OURS) or word in _MARKS:
            continue
        if word not in _PLACES:
            from spillover.forms.checking import nearest  # noqa: PLC0415 - slow to load, and only needed for problems

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
        from spillover.forms.checking import check  # noqa: PLC0415 - as above

        check(SpecDoc, said, found, ("spec",))
        return None


def _list(text: str) -> list[str]:
    """Split words at commas."""
    return [word for part in Piece(text).split() if (word := part.strip().text)]


def _pairs(text: str) -> dict[str, str] | str:
    """Split `NAME=VALUE` pairs at commas; return the text itself if it is not pairs."""
    said: dict[str, str] = {}
    for name, value in [Piece(word).pair() for word in _list(text)]:
        if value is None:
            return text
        said[name.strip().text] = value.strip().text
    return said


def _whole(text: str) -> int | str:
    """Convert a whole number; return the text itself if it is none."""
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


def _place(path: Path) -> Path:  # noqa: PLR0911 - one answer for each place
    """Map a path in the job to the place in the manifest that it came from."""
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
