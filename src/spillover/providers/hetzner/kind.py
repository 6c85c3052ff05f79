"""The provider `hetzner` as a plugin: its options, and where its token is looked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct, field

from spillover.model.pools import Offer
from spillover.ports.kinds import Flaw
from spillover.ports.provider import Provider, ProviderKind, ProviderOpening
from spillover.providers.options import beneath, setup_flaws, url_flaws

ENDPOINT: Final = "https://api.hetzner.cloud/v1"
TOKEN: Final = "HCLOUD_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the API token, as Hetzner's own tools have it."""


class HetznerForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `hetzner`."""

    token_file: Annotated[
        str | None, Meta(description=f"File with the API token; default: the variable {TOKEN}.")
    ] = None
    image: Annotated[str, Meta(min_length=1, description="Name or id of the image.")] = "debian-13"
    ssh_keys: Annotated[list[str], Meta(description="Names or ids of SSH keys of the project.")] = field(
        default_factory=list
    )
    networks: Annotated[list[int], Meta(description="Ids of private networks.")] = field(default_factory=list)
    firewalls: Annotated[list[int], Meta(description="Ids of firewalls.")] = field(default_factory=list)
    ipv4: Annotated[bool, Meta(description="Whether machines have a public IPv4 address, billed apart.")] = (
        True
    )
    ipv6: Annotated[bool, Meta(description="Whether machines have a public IPv6 address.")] = True
    setup: Annotated[
        list[str], Meta(description="Shell lines that a new machine runs before its agent starts.")
    ] = field(default_factory=list)
    program: Annotated[str, Meta(min_length=1, description="The program spill on the machines.")] = "spill"
    endpoint: Annotated[str, Meta(description="URL of the API.")] = ENDPOINT


class HetznerKind(ProviderKind):
    """The provider `hetzner`."""

    name: ClassVar[str] = "hetzner"
    form: ClassVar[type[Struct]] = HetznerForm

    def check(self, form: HetznerForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return spot offers, and options that contradict each other."""
        found = [
            Flaw(("offers", at, "spot"), "Hetzner has no spot machines; leave `spot` out")
            for at, offer in enumerate(offers)
            if offer.spot
        ]
        if not (form.ipv4 or form.ipv6 or form.networks):
            found.append(
                Flaw(("ipv4",), "a machine without ipv4 and ipv6 needs a network; name one in `networks`")
            )
        return [*found, *setup_flaws(form.setup), *url_flaws("endpoint", form.endpoint)]

    def missing(self, form: HetznerForm, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return where a token is missing."""
        try:
            token_of(form, environ, home)
        except NoToken as none:
            return [str(none)]
        return ()

    def open(self, form: HetznerForm, opening: ProviderOpening) -> Provider:
        """Open the provider. A token that is missing now may be there later."""
        from spillover.providers.hetzner.provider import Hetzner  # noqa: PLC0415 - most servers rent elsewhere

        return Hetzner(form, opening)


class NoToken(Exception):
    """There is no API token; the message says where it is looked for."""


def token_of(form: HetznerForm, environ: Mapping[str, str], home: Path) -> str:
    """Return the API token; raise NoToken. A file is read each time, so a new token counts at once."""
    if form.token_file is None:
        token, where = environ.get(TOKEN, "").strip(), f"the variable {TOKEN}"
        if not token:
            raise NoToken(
                f"Hetzner needs an API token: set {TOKEN}, or name a file with it in `token_file` "
                "(in the Hetzner console: Security, API tokens, Read & Write)"
            )
    else:
        path = beneath(home, form.token_file)
        try:
            token, where = path.read_text(errors="replace").strip(), str(path)
        except OSError as error:
            raise NoToken(f"cannot read the API token of Hetzner from {path}: {error.strerror}") from None
        if not token:
            raise NoToken(f"{path} is empty; write the API token of Hetzner into it")
    if not (token.isascii() and token.isprintable()):
        raise NoToken(
            f"{where} has no valid API token of Hetzner: it has characters that a token cannot have"
        )
    return token
