"""The manifest of a Kubernetes Job (`batch/v1`) as people write it: as much of it as anything here reads.

One model for all who read manifests: `forms` finds out what a Job means, agents what an engine for containers is to do, and the driver of
Kubernetes clusters whether it is a Job at all. The manifest itself is kept whole, with everything that is not named here. As in Kubernetes,
null is the same as nothing.

Objects that are watched on a cluster are another thing, in `clusters/kubernetes/objects.py`. They come from an API server, which has filled in
what people leave out; they have a status; and nobody is there to be told what is wrong with one, so that its faults cost as little of it as
they can. What people wrote is refused, with a line for each problem.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity

Amounts: TypeAlias = dict[str, Quantity]
"""By the names of resources."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding may raise, whatever was written."""
Number: TypeAlias = Annotated[int, Meta(ge=0)]


class AskedDoc(Struct, frozen=True):
    """What a container asks for, or a pod as a whole."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class MountDoc(Struct, frozen=True, rename="camel"):
    """Where a container sees a volume."""

    name: str
    mount_path: str | None = None
    """Kubernetes takes none without it, and no engine does."""
    read_only: bool | None = None
    sub_path: str | None = None


class HostPathDoc(Struct, frozen=True):
    """A folder of the machine."""

    path: str | None = None


class VolumeDoc(Struct, frozen=True, rename="camel"):
    """A volume of a pod; one of another kind has neither field."""

    name: str
    empty_dir: dict[str, Any] | None = None
    host_path: HostPathDoc | None = None


class EnvDoc(Struct, frozen=True, rename="camel"):
    """A variable of a container."""

    name: str
    value: str | None = None
    """None if it comes from elsewhere: only a Kubernetes cluster can fill it in."""
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
    """`Always` makes a sidecar of an init container: it runs beside all that come after it."""


class WantedDoc(Struct, frozen=True):
    """What a term asks of one label or field."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class TermDoc(Struct, frozen=True, rename="camel"):
    """One of several choices of nodes."""

    match_expressions: list[WantedDoc] | None = None
    match_fields: list[WantedDoc] | None = None


class RequiredDoc(Struct, frozen=True, rename="camel"):
    """Nodes of which it must be one."""

    node_selector_terms: Annotated[list[TermDoc], Meta(min_length=1)]


class NodeAffinityDoc(Struct, frozen=True):
    """Which nodes are asked for; those that are only preferred are the cluster's affair."""

    required: RequiredDoc | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class AffinityDoc(Struct, frozen=True, rename="camel"):
    """Of which only what is said of nodes is read."""

    node_affinity: NodeAffinityDoc | None = None


class TolerationDoc(Struct, frozen=True):
    """Taints that do not matter to a pod."""

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
    """Of the pod as a whole, which counts before what its containers say."""
    node_selector: dict[str, str] | None = None
    affinity: AffinityDoc | None = None
    tolerations: list[TolerationDoc] | None = None
    volumes: list[VolumeDoc] | None = None
    node_name: str | None = None


class ManifestMetaDoc(Struct, frozen=True, rename="camel"):
    """What a Job, or its pods, are called and marked with."""

    name: str | None = None
    generate_name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[Any] | None = None
    """Who has to let it go before it is gone."""
    owner_references: list[Any] | None = None


class TemplateDoc(Struct, frozen=True):
    """What pods of the Job are made from."""

    spec: PodDoc
    metadata: ManifestMetaDoc | None = None


class PodJobDoc(Struct, frozen=True, rename="camel"):
    """How a Job runs its pods."""

    template: TemplateDoc
    active_deadline_seconds: Annotated[int, Meta(ge=1)] | None = None
    parallelism: Number | None = None
    completions: Number | None = None

    @property
    def pod(self) -> PodDoc:
        """What each of them is."""
        return self.template.spec


class ManifestDoc(Struct, frozen=True, rename="camel"):
    """The whole of it."""

    spec: PodJobDoc
    metadata: ManifestMetaDoc | None = None
    api_version: str | None = None
    """Not checked here: a manifest within a job file says `Job` already."""
    kind: str | None = None
