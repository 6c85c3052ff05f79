"""The manifest of a Kubernetes Job (`batch/v1`) as users write it, with only the fields that we read.

All readers share this model: `forms` derives the job, agents derive what a container engine must do, and the driver of
Kubernetes clusters checks that it is a Job. The manifest itself is stored in full. As in Kubernetes, null means unset.

Objects that we watch on a cluster have another model, in `clusters/kubernetes/api/objects.py`. The API server has
filled in their defaults, and they have a status. Nobody can be told what is wrong with them, so an invalid one is used
as far as possible. An invalid manifest is refused, with one line for each problem.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity

Amounts: TypeAlias = dict[str, Quantity]
"""By resource name."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoding may raise, whatever the input is."""
Number: TypeAlias = Annotated[int, Meta(ge=0)]


class AskedDoc(Struct, frozen=True):
    """Requests and limits of a container or a pod."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class MountDoc(Struct, frozen=True, rename="camel"):
    """The mount of a volume in a container."""

    name: str
    mount_path: str | None = None
    """Required by Kubernetes and by container engines."""
    read_only: bool | None = None
    sub_path: str | None = None


class HostPathDoc(Struct, frozen=True):
    """A folder of the machine."""

    path: str | None = None


class VolumeDoc(Struct, frozen=True, rename="camel"):
    """A volume of a pod; volumes of other kinds have neither field."""

    name: str
    empty_dir: dict[str, Any] | None = None
    host_path: HostPathDoc | None = None


class EnvDoc(Struct, frozen=True, rename="camel"):
    """An environment variable of a container."""

    name: str
    value: str | None = None
    """None if it comes from another object, which only a Kubernetes cluster can read."""
    value_from: dict[str, Any] | None = None


class PodContainerDoc(Struct, frozen=True, rename="camel"):
    """A container of a pod."""

    image: Annotated[str, Meta(min_length=1)]
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[EnvDoc] | None = None
    env_from: list[Any] | None = None
    volume_mounts: list[MountDoc] | None = None
    resources: AskedDoc | None = None
    restart_policy: str | None = None
    """`Always` makes an init container a sidecar, which keeps running beside all later containers."""


class WantedDoc(Struct, frozen=True):
    """A requirement on one label or field."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class TermDoc(Struct, frozen=True, rename="camel"):
    """One of several alternatives for nodes."""

    match_expressions: list[WantedDoc] | None = None
    match_fields: list[WantedDoc] | None = None


class RequiredDoc(Struct, frozen=True, rename="camel"):
    """Nodes that a pod requires."""

    node_selector_terms: Annotated[list[TermDoc], Meta(min_length=1)]


class NodeAffinityDoc(Struct, frozen=True):
    """The required nodes of a pod. Preferences are left to the cluster."""

    required: RequiredDoc | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class AffinityDoc(Struct, frozen=True, rename="camel"):
    """The affinity of a pod; we read only the part about nodes."""

    node_affinity: NodeAffinityDoc | None = None


class TolerationDoc(Struct, frozen=True):
    """A taint that a pod tolerates."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class PodDoc(Struct, frozen=True, rename="camel"):
    """The pod of a Job."""

    containers: list[PodContainerDoc]
    init_containers: list[PodContainerDoc] | None = None
    overhead: Amounts | None = None
    resources: AskedDoc | None = None
    """Requests of the pod as a whole, which override those of its containers."""
    node_selector: dict[str, str] | None = None
    affinity: AffinityDoc | None = None
    tolerations: list[TolerationDoc] | None = None
    volumes: list[VolumeDoc] | None = None
    node_name: str | None = None


class ManifestMetaDoc(Struct, frozen=True, rename="camel"):
    """Metadata of a Job or its pods."""

    name: str | None = None
    generate_name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[Any] | None = None
    """Must be removed before the object can be deleted."""
    owner_references: list[Any] | None = None


class TemplateDoc(Struct, frozen=True):
    """The template of a Job's pods."""

    spec: PodDoc
    metadata: ManifestMetaDoc | None = None


class PodJobDoc(Struct, frozen=True, rename="camel"):
    """The spec of a Job."""

    template: TemplateDoc
    active_deadline_seconds: Annotated[int, Meta(ge=1)] | None = None
    parallelism: Number | None = None
    completions: Number | None = None

    @property
    def pod(self) -> PodDoc:
        """The spec of each pod."""
        return self.template.spec


class ManifestDoc(Struct, frozen=True, rename="camel"):
    """The whole manifest."""

    spec: PodJobDoc
    metadata: ManifestMetaDoc | None = None
    api_version: str | None = None
    """Not checked here: a manifest inside a job file is always a Job."""
    kind: str | None = None
