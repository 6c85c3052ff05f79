"""The provider `kubernetes` as a plugin: its options, and how it reaches its cluster."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from spillover.clusters.kubernetes.api.kubeconfig import Access, NoAccess, access_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import duration
from spillover.model.ids import ClusterName
from spillover.model.pools import Offer
from spillover.model.units import DAY, SECOND
from spillover.ports.kinds import CannotOpen, Flaw
from spillover.ports.provider import Provider, ProviderKind, ProviderOpening
from spillover.wire.jobfile import Quantity

_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
WITHOUT: Final = "5s"
WITH_GROUP: Final = "15m"
"""Defaults of `bind_within`: without a MachineDeployment, and with one, whose nodes boot first."""
OURS: Final = ("containers", "restartPolicy")
"""Fields of the spec of a pod that `pod` cannot set."""


class AccessForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Options that say which cluster is used, and which part of it."""

    kubeconfig: Annotated[str | None, Meta(description="Path of a kubeconfig; default: as kubectl does.")] = (
        None
    )
    context: Annotated[
        str | None, Meta(description="Context of the kubeconfig; default: the current one.")
    ] = None
    in_cluster: Annotated[
        bool, Meta(description="Use the service account of the pod in which the server runs.")
    ] = False
    namespace: Annotated[
        str | None, Meta(description="Where the objects are; default: that of the context.")
    ] = None


class KubernetesForm(AccessForm, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `kubernetes`."""

    image: Annotated[str, Meta(description="Image of the pods, with Spillover in it.")] = ""
    bind_within: Annotated[
        Quantity | None,
        Meta(
            description="A machine for which no node has room for this time is given back; default 5s, and 15m with machine_deployment."
        ),
    ] = None
    pod: Annotated[
        dict[str, Any],
        Meta(
            description="Fields of the spec of pods, such as nodeSelector, tolerations or imagePullSecrets."
        ),
    ] = field(default_factory=dict)
    annotations: Annotated[dict[str, str], Meta(description="Annotations of pods.")] = field(
        default_factory=dict
    )
    program: Annotated[str, Meta(min_length=1, description="The program spill in the image.")] = "spill"
    machine_deployment: Annotated[
        str,
        Meta(
            description="[NAMESPACE/]NAME of a MachineDeployment of Cluster API with a node for each machine."
        ),
    ] = ""
    management_kubeconfig: Annotated[
        str | None, Meta(description="Kubeconfig of the cluster with that; default: as for pods.")
    ] = None
    management_context: Annotated[
        str | None, Meta(description="Context of the cluster with that; default: as for pods.")
    ] = None


class KubernetesPodsKind(ProviderKind):
    """The provider `kubernetes`."""

    name: ClassVar[str] = "kubernetes"
    form: ClassVar[type[Struct]] = KubernetesForm
    requires: ClassVar[Mapping[str, str]] = {"aiohttp": "spillover[kubernetes]"}

    def check(self, form: KubernetesForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return a missing image, contradictions and invalid values."""
        found = Findings()
        if not form.image:
            found.add(
                ("image",), "is missing; name an image with Spillover, such as one of deploy/Dockerfile"
            )
        check_access(form, found)
        for name in OURS:
            if name in form.pod:
                found.add(("pod", name), "is set by Spillover; leave it out")
        for at, offer in enumerate(offers):
            if not offer.resources.cpu or not offer.resources.memory:
                found.add(("offers", at), "needs cpu and memory, which the pod requests")
        if form.machine_deployment and named(form.machine_deployment, "default") is None:
            found.add(
                ("machine_deployment",), f"{shown(form.machine_deployment)} is not NAME or NAMESPACE/NAME"
            )
        for name in ("management_kubeconfig", "management_context"):
            if getattr(form, name) is not None and not form.machine_deployment:
                found.add((name,), "is only used with machine_deployment; set that too, or leave it out")
        patience(form, found)
        return [Flaw(path, message) for path, message in found.found]

    def missing(self, form: KubernetesForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return what is missing to connect to the cluster."""
        lacking = list(super().missing(form, environ, home))
        try:
            access(form, environ, home)
            management(form, environ, home)
        except NoAccess as error:
            lacking.append(str(error))
        return lacking

    def open(self, form: KubernetesForm, opening: ProviderOpening) -> Provider:
        """Open the provider; raise CannotOpen."""
        try:
            to = access(form, opening.environ, opening.home)
            manager = management(form, opening.environ, opening.home)
            from spillover.providers.kubernetes.provider import Pods  # noqa: PLC0415 - needs an optional package
        except NoAccess as error:
            raise CannotOpen(str(error)) from None
        except ModuleNotFoundError:
            raise CannotOpen(super().missing(form, {}, opening.home)[0]) from None
        return Pods(form, opening, to, manager)


def check_access(form: AccessForm, found: Findings) -> None:
    """Add contradictions and invalid names to `found`."""
    if form.in_cluster and (form.kubeconfig is not None or form.context is not None):
        found.add(("in_cluster",), "cannot be combined with kubeconfig or context; leave one of them out")
    if form.namespace is not None and _NAMESPACE.fullmatch(form.namespace) is None:
        found.add(("namespace",), f"{shown(form.namespace)} is not the name of a namespace")


def access(form: AccessForm, environ: Mapping[str, str], home: Path) -> Access:
    """Return how to connect to the cluster; raise NoAccess."""
    options = KubernetesOptions(
        cluster=ClusterName(""),
        owner="",
        kubeconfig=form.kubeconfig,
        context=form.context,
        in_cluster=form.in_cluster,
    )
    return access_of(options, environ, home)


def management(form: KubernetesForm, environ: Mapping[str, str], home: Path) -> Access:
    """Return how to connect to the cluster with the MachineDeployment; raise NoAccess."""
    if form.management_kubeconfig is None and form.management_context is None:
        return access(form, environ, home)
    there = replace(
        form,
        kubeconfig=form.management_kubeconfig or form.kubeconfig,
        context=form.management_context,
        in_cluster=False,
    )
    return access(there, environ, home)


def named(text: str, namespace: str) -> tuple[str, str] | None:
    """Return the namespace and name in [NAMESPACE/]NAME; None if these are not names."""
    before, _, name = text.rpartition("/")
    found = (before or namespace, name)
    return found if all(_NAMESPACE.fullmatch(each) for each in found) else None


def patience(form: KubernetesForm, found: Findings) -> int:
    """Return `bind_within` in nanoseconds; add problems to `found`."""
    usual = WITH_GROUP if form.machine_deployment else WITHOUT
    value = usual if form.bind_within is None else form.bind_within
    return duration(value, ("bind_within",), found, least=SECOND, most=DAY) or 0
