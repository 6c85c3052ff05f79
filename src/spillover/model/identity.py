"""People whom a provider of OpenID Connect knows: their user name here, and the rights that their groups give."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from spillover.model.ids import NAME_RULE, is_name
from spillover.model.tokens import TokenRole
from spillover.model.units import HOUR

CALLBACK: Final = "/v1/sign-in/oidc/callback"
"""Path to which a provider sends browsers back."""
MOST_SHOWN: Final = 20
"""Most groups in a message."""
_ADDRESS: Final = re.compile(r"([^@\s]+)@([A-Za-z0-9.-]+)")
_STRENGTH: Final = {role: at for at, role in enumerate(TokenRole)}


class GroupRights(Struct, frozen=True):
    """What members of a group may do."""

    group: str
    role: TokenRole
    project: str | None = None
    """The only project that they may see; None means all."""


class Oidc(Struct, frozen=True):
    """A provider of OpenID Connect, and who may sign in there."""

    issuer: str
    """Its URL, exactly as it is in its tokens."""
    client_id: str
    name: str = ""
    """Its name for people."""
    client_secret_file: str | None = None
    """None for a client that has no secret."""
    device_client_id: str = ""
    """The client of `spill login`, which has no secret."""
    scope: str = "openid profile email groups"
    user_claim: str = "preferred_username"
    """The claim with the name of the user."""
    groups_claim: str = "groups"
    """The claim with the groups; dots lead into objects."""
    domain: str | None = None
    """The domain of mail addresses whose first part is the name of the user."""
    groups: tuple[GroupRights, ...] = ()
    lasts: int = 12 * HOUR
    """Nanoseconds after which people have to sign in again."""
    redirect_uri: str | None = None
    """The address to which it sends browsers back; None derives it from the request."""
    ca: str | None = None
    """File with the authority of its certificate; None for those of the system."""


class Person(Struct, frozen=True):
    """A person and their rights here."""

    user: str
    role: TokenRole
    project: str | None


class NotAllowed(Exception):
    """The provider knows the person, who may not use this server; the message says why, for that person."""


def person_of(settings: Oidc, claims: Mapping[str, Any]) -> Person:
    """Return who a person is here, from what the provider says; raise NotAllowed."""
    user = user_of(settings, claims)
    groups = groups_of(claims, settings.groups_claim)
    allowed = [each for each in settings.groups if each.group in groups]
    if not allowed:
        shown = ", ".join(groups[:MOST_SHOWN]) + (" ..." if len(groups) > MOST_SHOWN else "")
        told = (
            f"is in the groups {shown}, none of which"
            if groups
            else f"is in no group ({settings.groups_claim}) that"
        )
        raise NotAllowed(
            f"{user} {told} may use this server; ask an admin of it to add one to access.oidc.groups"
        )
    # The strongest role, then all projects before one, then the order of the configuration.
    best = max(allowed, key=lambda each: (_STRENGTH[each.role], each.project is None))
    return Person(user, best.role, best.project)


def user_of(settings: Oidc, claims: Mapping[str, Any]) -> str:
    """Return the name of a user here; raise NotAllowed if none can be made.

    A mail address becomes a name: `ada@example.org` is `ada` if that is the configured domain, and `ada_at_example.org`
    if not, so that addresses of two domains never are the same user.
    """
    claim = settings.user_claim
    found = claims.get(claim)
    if not isinstance(found, str) or not found:
        raise NotAllowed(
            f"the provider does not tell the claim {claim}; set another access.oidc.user_claim or scope"
        )
    if claim == "email" and claims.get("email_verified") not in (True, "true"):
        told = "verify it there, or set another access.oidc.user_claim"
        raise NotAllowed(
            f"the provider does not say that it has verified the address {found[:200]!r}; {told}"
        )
    name = found
    if (address := _ADDRESS.fullmatch(found)) is not None:
        first, domain = address[1].lower(), address[2].lower()
        own = settings.domain is not None and domain == settings.domain.lower()
        name = first if own else f"{first}_at_{domain}"
    if not is_name(name):
        raise NotAllowed(
            f"{found[:200]!r} ({claim}) cannot be a user name here: {NAME_RULE}; set another access.oidc.user_claim"
        )
    return name


def groups_of(claims: Mapping[str, Any], claim: str) -> list[str]:
    """Return the groups in a claim, which may be one text or a list; dots lead into objects."""
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return [found]
    return [each for each in found if isinstance(each, str)] if isinstance(found, Iterable) else []
