"""The provider `aws`: checks its options and opens it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import read_memory
from spillover.model.pools import Offer
from spillover.ports.kinds import CannotOpen, Flaw
from spillover.ports.provider import (
    CLUSTER_TAG,
    MACHINE_TAG,
    OWNER_TAG,
    PriceList,
    Provider,
    ProviderKind,
    ProviderOpening,
)
from spillover.providers.aws.credentials import lacking, region_of
from spillover.providers.aws.launching import image_of
from spillover.providers.aws.options import AwsForm
from spillover.providers.options import setup_flaws, url_flaws

_OURS = (OWNER_TAG, MACHINE_TAG, CLUSTER_TAG, "Name")


class AwsKind(ProviderKind):
    """The provider `aws`."""

    name: ClassVar[str] = "aws"
    form: ClassVar[type[Struct]] = AwsForm
    notices: ClassVar[str] = "ec2"
    requires: ClassVar[Mapping[str, str]] = {"boto3": "spillover[aws]"}

    def check(self, form: AwsForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return contradictions and invalid values."""
        found = Findings()
        if form.disk is not None:
            read_memory(form.disk, ("disk",), found)
            if any(not (image_of(form, each.type) or "").startswith("ami-") for each in offers):
                found.add(
                    ("disk",),
                    "needs an image (ami-...) for each type; else set the size in the launch template",
                )
        found_tags = [key for key in form.tags if key in _OURS or key.lower().startswith("aws:")]
        for key in found_tags:
            found.add(("tags", key), "is a tag that Spillover or AWS sets; write another name")
        for index, offer in enumerate(offers):
            _check_offer(form, offer, index, found)
        endpoint = url_flaws("endpoint", form.endpoint) if form.endpoint is not None else ()
        flaws = [Flaw(path, message) for path, message in found.found]
        return [*flaws, *setup_flaws(form.setup), *endpoint]

    def price_list(self, region: str) -> PriceList:
        """Read the list that AWS publishes."""
        from spillover.providers.aws.pricelist import price_list  # noqa: PLC0415 - heavy

        return price_list(region)

    def missing(self, form: AwsForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return what is missing: boto3, the region, credentials."""
        why = lacking(form.profile, environ, home)
        return [*self._bare(form, environ, home), *([why] if why else [])]

    def _bare(self, form: AwsForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return what is missing besides credentials."""
        lines = [*super().missing(form, environ, home)]
        if not region_of(form.region, environ):
            lines.append("the provider aws has no region; set `region`, or AWS_REGION")
        return lines

    def open(self, form: AwsForm, opening: ProviderOpening) -> Provider:
        """Open the provider; raise CannotOpen. Credentials that are missing now may be there later."""
        from spillover.providers.aws.provider import AwsProvider  # noqa: PLC0415 - most servers rent elsewhere

        if lines := self._bare(form, opening.environ, opening.home):
            raise CannotOpen(lines[0])
        return AwsProvider(form, opening)


def _check_offer(form: AwsForm, offer: Offer, index: int, found: Findings) -> None:
    """Add problems of one offer."""
    path = ("offers", index)
    if image_of(form, offer.type) is None and form.launch_template is None:
        found.add(
            path, f"there is no image for {shown(offer.type)}; set `image`, `images` or `launch_template`"
        )
    if form.region and offer.zone and not offer.zone.startswith(form.region):
        found.add(path, f"the zone {shown(offer.zone)} is not in the region {form.region}")
    if form.subnets and offer.zone not in form.subnets:
        zones = ", ".join(sorted(form.subnets))
        found.add(path, f"`subnets` has no subnet for the zone {shown(offer.zone)}; it has those of {zones}")
