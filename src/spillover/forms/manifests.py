"""Kubernetes `batch/v1` Job manifests as container jobs.

Read is what deciding needs: the first container's image, command, literal variables and resources, the time limit, and the
estimate and project that annotations and labels name. Everything else (volumes, several containers, completions) stays in the
manifest, which is kept whole for whoever runs it.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from spillover.forms.meaning import JobForm, understand
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.work import check_plain
from spillover.model.units import UnitError, parse_duration, parse_memory
from spillover.wire.jobfile import ContainerDoc, Metadata, Quantity, ResourcesDoc, SpecDoc

GPU = "nvidia.com/gpu"
ESTIMATES = ("spillover.dev/estimate", "estimated_runtime")
"""Annotations with the expected time to run, the first that is there counts."""
PROJECT = "spillover.dev/project"

_Amounts = dict[str, Quantity]


class _Env(Struct, frozen=True):
    """A variable of a container."""

    name: str
    value: str | None = None
    """None if it comes from elsewhere: only a Kubernetes cluster can fill it in."""


class _Resources(Struct, frozen=True):
    """What a container asks for."""

    requests: _Amounts | None = None
    limits: _Amounts | None = None


class _Container(Struct, frozen=True):
    """A container of the pod."""

    image: Annotated[str, Meta(min_length=1)]
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Env] | None = None
    resources: _Resources | None = None


class _Pod(Struct, frozen=True):
    """The pod of a job."""

    containers: list[_Container]


class _Meta(Struct, frozen=True, rename="camel"):
    """Names, labels and annotations."""

    name: str | None = None
    generate_name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Struct, frozen=True):
    """What pods of the job are made from."""

    spec: _Pod
    metadata: _Meta | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    """The job itself."""

    template: _Template
    active_deadline_seconds: Annotated[int, Meta(ge=1)] | None = None


class _Manifest(Struct, frozen=True, rename="camel"):
    """As much of a manifest as is read."""

    api_version: str
    kind: str
    spec: _Spec
    metadata: _Meta = field(default_factory=_Meta)


def understand_manifest(value: Any, found: Findings) -> JobForm | None:
    """The job of a manifest; None with everything noted that is wrong with it."""
    if value.get("apiVersion") != "batch/v1":
        found.add(("apiVersion",), f"{shown(value.get('apiVersion'))} is not batch/v1")
    if value.get("kind") != "Job":
        found.add(("kind",), f"{shown(value.get('kind'))} of batch/v1 is not read; write a Job")
    check_plain(value, (), found)
    try:
        manifest = msgspec.convert(value, _Manifest)
    except (msgspec.ValidationError, RecursionError):
        from spillover.forms.checking import check  # noqa: PLC0415 - slow to load, only needed for what is wrong

        check(_Manifest, value, found)
        return None
    if not manifest.spec.template.spec.containers:
        found.add(("spec", "template", "spec", "containers"), "is empty; write at least one container")
    if found.found:
        return None
    meaning = Findings()
    form = understand(_metadata(manifest), _spec(manifest, value, meaning), meaning)
    for path, message in meaning.found:
        found.add(_place(path), message)
    return form if not meaning.found else None


def _metadata(manifest: _Manifest) -> Metadata:
    """What the job is called and whom it belongs to."""
    meta = manifest.metadata
    name = meta.name or (meta.generate_name or "").rstrip("-.") or None
    labels = meta.labels or {}
    return Metadata(name, labels.get(PROJECT, "default"), labels)


def _spec(manifest: _Manifest, value: dict[str, Any], found: Findings) -> SpecDoc:
    """The container job that stands for a manifest."""
    first = manifest.spec.template.spec.containers[0]
    # Arguments alone go to the image's own entry point, which only the manifest can say.
    command = [*first.command, *(first.args or [])] if first.command else []
    limit = manifest.spec.active_deadline_seconds
    return SpecDoc(
        container=ContainerDoc(first.image, command, value),
        env={one.name: one.value for one in first.env or () if one.value is not None},
        resources=_resources(first.resources or _Resources(), found),
        walltime=None if limit is None else f"{limit}s",
        estimate=_estimate(manifest, found),
    )


def _resources(asked: _Resources, found: Findings) -> ResourcesDoc:
    """Requests, or limits where nothing is requested."""
    amounts = {**(asked.limits or {}), **(asked.requests or {})}
    memory: Quantity | None = amounts.get("memory")
    try:
        if memory is not None and parse_memory(str(memory)) == 0:
            memory = None
    except UnitError:
        pass  # noted with the other quantities
    gpu = str(amounts.get(GPU, 0))
    if not (gpu.isascii() and gpu.isdigit() and len(gpu) <= 6 and int(gpu) <= 100_000):
        found.add(("spec", "resources", "gpu"), f"{shown(gpu)} is not a number of GPUs")
        gpu = "0"
    return ResourcesDoc(amounts.get("cpu", 1), memory, int(gpu))


def _estimate(manifest: _Manifest, found: Findings) -> str | None:
    """The expected time to run, from the job's annotations or from its pod's."""
    inner = manifest.spec.template.metadata or _Meta()
    notes = {**(inner.annotations or {}), **(manifest.metadata.annotations or {})}
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


def _place(path: Path) -> Path:
    """Where in a manifest it stands what is wrong with the job made of it."""
    container: Path = ("spec", "template", "spec", "containers", 0)
    match path:
        case ("spec", "container", *rest):
            return (*container, *rest)
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
