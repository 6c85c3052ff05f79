"""Bodies of signing in from a browser or with `spill login`."""

from typing import Annotated

from msgspec import Meta, Struct

from spillover.wire.api.jobs import Time

Shown = Annotated[str, Meta(min_length=1, max_length=32_768)]


class SignInRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Proof of who signs in: exactly one of the first three."""

    token: Shown | None = None
    """A token of role `read`, `submit`, `maintain` or `admin`."""
    code: Shown | None = None
    """The part of a sign-in link after `#`, which works once."""
    id_token: Shown | None = None
    """Of the configured provider of OpenID Connect. The answer then has a `token`, and sets no cookie."""
    access_token: Shown | None = None
    """What the provider gave with the `id_token`, for what the `id_token` does not tell."""
    user: Annotated[str, Meta(max_length=63)] | None = None
    """The user name to use if the token names none; null for that of `Spill-User`."""


class SignInOutcome(Struct, frozen=True):
    """A new sign-in."""

    id: str
    user: str
    role: str
    project: str | None
    """The only project that it gives access to; null for all."""
    expires_at: Time
    token: str | None = None
    """Its text, for a program; null if it is in the cookie `spill_sign_in`."""


class Me(Struct, frozen=True):
    """Who the server takes the caller for."""

    user: str
    role: str
    project: str | None
    """The only project that the caller may see; null for all."""
    sign_in: str | None
    """Id of the sign-in; null if the caller uses another token."""
    expires_at: Time | None
    """When the token of the caller expires; null for never."""


class OidcMethod(Struct, frozen=True):
    """How to sign in at the provider of OpenID Connect."""

    name: str
    """Its name for people."""
    start: str
    """The path that redirects a browser to it."""
    issuer: str
    client_id: str
    """The client that programs name to it, for the device flow."""
    scope: str


class SignInMethods(Struct, frozen=True):
    """How people can sign in."""

    token: bool
    oidc: OidcMethod | None


class SignInLink(Struct, frozen=True):
    """A link that signs its reader in as its maker, once."""

    code: str
    url: str
    expires_at: Time


class SignInView(Struct, frozen=True):
    """A valid sign-in in a list."""

    id: str
    user: str
    role: str
    project: str | None
    how: str
    """`token`, `link` or `oidc`."""
    browser: str
    """What the browser or program called itself."""
    created_at: Time
    expires_at: Time
    used_at: Time | None
    """When it was last used; null if not since this server started."""
    current: bool
    """Whether the caller uses it."""


class SignInRef(Struct, frozen=True, forbid_unknown_fields=True):
    """A sign-in, by its id."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]
