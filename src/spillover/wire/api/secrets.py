"""Requests and answers about secrets. No answer has a value."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from spillover.model.secrets import MOST_SECRET, MOST_USERS
from spillover.wire.api.jobs import Time

SecretName = Annotated[str, Meta(min_length=1, max_length=100)]


class SecretRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret to set."""

    name: SecretName
    project: SecretName | None = None
    """Null for the project of the token, or else `default`."""
    value: Annotated[str, Meta(max_length=MOST_SECRET)] | None = None
    """The value as text; either this or `data`."""
    data: Annotated[bytes, Meta(max_length=MOST_SECRET)] | None = None
    """The value in base64."""
    users: Annotated[list[SecretName], Meta(max_length=MOST_USERS)] | None = None
    """Whose jobs may use it; empty for all members of the project. Null leaves that as it is, or is all for a new one."""

    def __repr__(self) -> str:
        return f"SecretRequest({self.name!r}, {self.project!r}, ...)"  # a value must not get into a log


class SecretRef(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret, by its name."""

    name: SecretName
    project: SecretName | None = None
    """Null for the project of the token, or else `default`."""


class SecretView(Struct, frozen=True):
    """A secret, without its value."""

    name: str
    project: str
    version: int
    """Rises each time the value is set."""
    set_at: Time
    set_by: str
    users: list[str]
    """Whose jobs may use it; empty for all members of the project."""
    state: Literal["usable", "no_key"]
    """`no_key` if the server does not have the key that it is encrypted with."""


class RekeyOutcome(Struct, frozen=True):
    """Secrets that are now encrypted with the first key."""

    secrets: int
    """How many had another key before."""
