"""The provider `clusterapi` as a plugin: its options, and how it reaches its management cluster."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, Struct, field

from spillover.clusters.kubernetes.api.kubeconfig import NoAccess
from spillover.forms.problems import Findings, shown
from spillover.model.pools import Offer
from spillover.ports.kinds import CannotOpen, Flaw
from spillover.ports.provider import ClusterMaker, ProviderKind, ProviderOpening
from spillover.providers.kubernetes.kind import AccessForm, access, check_access, named

_VERSION: Final = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+([-+][A-Za-z0-9.+-]+)?", re.ASCII)
OURS: Final = ("type_variable", "zone_variable", "spot_variable")
"""Options that name a variable which follows from the offer."""


class ClusterApiForm(AccessForm, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `clusterapi`."""

    cluster_class: Annotated[
        str, Meta(description="[NAMESPACE/]NAME of the ClusterClass of new clusters.")
    ] = ""
    version: Annotated[str, Meta(description="Version of Kubernetes of new clusters, such as v1.33.1.")] = ""
    worker_class: Annotated[
        str,
        Meta(min_length=1, description="Class of the MachineDeployment with the nodes, in the ClusterClass."),
    ] = "default-worker"
    control_plane_replicas: Annotated[
        Annotated[int, Meta(ge=1, le=9)] | None,
        Meta(description="Machines of the control plane; null if its provider counts them."),
    ] = 1
    variables: Annotated[
        dict[str, Any], Meta(description="Values for variables of the ClusterClass, by name.")
    ] = field(default_factory=dict)
    type_variable: Annotated[str, Meta(description="Variable that gets the type of the offer.")] = ""
    zone_variable: Annotated[
        str, Meta(description="Variable that gets the zone of the offer; default: it is the failure domain.")
    ] = ""
    spot_variable: Annotated[str, Meta(description="Variable that is true for spot offers, else false.")] = ""
    network: Annotated[dict[str, Any], Meta(description="The field clusterNetwork of new clusters.")] = field(
        default_factory=dict
    )
    kubeconfig_secret: Annotated[
        str,
        Meta(pattern=r"^[a-z0-9-]+$", description="The kubeconfig of a cluster is in the Secret NAME-this."),
    ] = "kubeconfig"  # noqa: S105 - the end of a name
    labels: Annotated[
        dict[str, str], Meta(description="More labels of new clusters, such as those that add-ons select.")
    ] = field(default_factory=dict)


class ClusterApiKind(ProviderKind):
    """The provider `clusterapi`."""

    name: ClassVar[str] = "clusterapi"
    form: ClassVar[type[Struct]] = ClusterApiForm
    requires: ClassVar[Mapping[str, str]] = {"aiohttp": "spillover[kubernetes]"}

    def makes_clusters(self, form: ClusterApiForm) -> bool:
        """See ProviderKind."""
        del form
        return True

    def check(self, form: ClusterApiForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return what is missing, contradictions and invalid values."""
        found = Findings()
        check_access(form, found)
        if not form.cluster_class:
            found.add(
                ("cluster_class",),
                "is missing; name a ClusterClass, such as one of `kubectl get clusterclasses -A`",
            )
        elif named(form.cluster_class, "default") is None:
            found.add(("cluster_class",), f"{shown(form.cluster_class)} is not NAME or NAMESPACE/NAME")
        if not form.version:
            found.add(("version",), "is missing; write a version of Kubernetes, such as v1.33.1")
        elif _VERSION.fullmatch(form.version) is None:
            found.add(("version",), f"{shown(form.version)} is not a version; write one such as v1.33.1")
        for option in OURS:
            if (variable := getattr(form, option)) and variable in form.variables:
                found.add(("variables", variable), f"is set from the offer, as {option} says; leave it out")
        for at, offer in enumerate(offers):
            if offer.spot and not form.spot_variable:
                found.add(
                    ("offers", at),
                    "is a spot offer; set spot_variable to the variable that asks for such nodes",
                )
        return [Flaw(path, message) for path, message in found.found]

    def missing(self, form: ClusterApiForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return what is missing to connect to the management cluster."""
        lacking = list(super().missing(form, environ, home))
        try:
            access(form, environ, home)
        except NoAccess as error:
            lacking.append(str(error))
        return lacking

    def open(self, form: ClusterApiForm, opening: ProviderOpening) -> ClusterMaker:
        """Open the provider; raise CannotOpen."""
        try:
            to = access(form, opening.environ, opening.home)
            from spillover.providers.clusterapi.provider import Clusters  # noqa: PLC0415 - needs an optional package
        except NoAccess as error:
            raise CannotOpen(str(error)) from None
        except ModuleNotFoundError:
            raise CannotOpen(super().missing(form, {}, opening.home)[0]) from None
        return Clusters(form, opening, to)
