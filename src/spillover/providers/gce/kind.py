"""The provider `gce` as a plugin: its options, its project and its credentials."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct, field

from spillover.model.pools import Offer
from spillover.ports.kinds import Flaw
from spillover.ports.provider import Provider, ProviderKind, ProviderOpening
from spillover.providers.options import setup_flaws, url_flaws

ENDPOINT: Final = "https://compute.googleapis.com/compute/v1"
PROJECTS: Final = ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
"""Environment variables with the project, as Google's own tools have them."""


_ZONE: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


class GceForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `gce`."""

    project: Annotated[
        str,
        Meta(description=f"Id of the project; default: {' or '.join(PROJECTS)}, or that of the key file."),
    ] = ""
    credentials: Annotated[
        str,
        Meta(
            description="Key file of a service account, `metadata` for the one of this machine, or `gcloud`; "
            "default: where Google's libraries look."
        ),
    ] = ""
    image: Annotated[str, Meta(min_length=1, description="Image, or family of images.")] = (
        "projects/debian-cloud/global/images/family/debian-13"
    )
    disk_gb: Annotated[int, Meta(ge=10, le=65536, description="Size of the boot disk, in GB.")] = 20
    disk_type: Annotated[str, Meta(min_length=1, description="Type of the boot disk.")] = "pd-balanced"
    network: Annotated[str, Meta(description="Network; default: that of the subnetwork, or `default`.")] = ""
    subnetwork: Annotated[str, Meta(description="Subnetwork, such as regions/REGION/subnetworks/NAME.")] = ""
    public_ip: Annotated[bool, Meta(description="Whether machines have a public address.")] = True
    tags: Annotated[list[str], Meta(description="Network tags, for firewall rules.")] = field(
        default_factory=list
    )
    service_account: Annotated[
        str, Meta(description="Email of the service account of the machines; default: none.")
    ] = ""
    accelerator: Annotated[
        str,
        Meta(
            description="Type of the GPUs of offers with `gpu`, such as nvidia-tesla-t4; default: machine types have their own."
        ),
    ] = ""
    setup: Annotated[
        list[str], Meta(description="Shell lines that a new machine runs before its agent starts.")
    ] = field(default_factory=list)
    program: Annotated[str, Meta(min_length=1, description="The program spill on the machines.")] = "spill"
    endpoint: Annotated[str, Meta(description="URL of the API.")] = ENDPOINT


class GceKind(ProviderKind):
    """The provider `gce`."""

    name: ClassVar[str] = "gce"
    form: ClassVar[type[Struct]] = GceForm
    notices: ClassVar[str] = "gce"

    def check(self, form: GceForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return offers without a zone, and options that cannot be."""
        found = [
            Flaw(("offers", at, "zones"), "GCE needs a zone in each offer; write one such as europe-west1-b")
            for at, offer in enumerate(offers)
            if _ZONE.fullmatch(offer.zone) is None
        ]
        return [*found, *setup_flaws(form.setup), *url_flaws("endpoint", form.endpoint)]

    def missing(self, form: GceForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return which credentials are missing, and the project if nothing names it."""
        from spillover.providers.gce.credentials import missing  # noqa: PLC0415 - as below

        return missing(form, environ, home)

    def open(self, form: GceForm, opening: ProviderOpening) -> Provider:
        """Open the provider. Credentials that are missing now may be there later."""
        from spillover.providers.gce.provider import Gce  # noqa: PLC0415 - most servers rent elsewhere

        return Gce(form, opening)
