"""What lets somebody in: a token says what it may be used for, and is known here by a digest of its secret alone."""

from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

PREFIX: Final = "spt"
"""How the text of a token begins, so that it is recognised where it should not be."""


class TokenRole(StrEnum):
    """What a token may be used for."""

    AGENT = "agent"
    """Running tasks, and nothing else."""
    SUBMIT = "submit"
    """Jobs, and looking."""
    ADMIN = "admin"
    """Everything."""


class Token(Struct, frozen=True, array_like=True):
    """What the book knows of a token."""

    id: str
    role: TokenRole
    digest: bytes
    """SHA-256 of its secret."""
    created: int
    """Nanoseconds UTC."""
    by: str
    project: str | None = None
    """The only one whose jobs it may see and submit; None is all."""
    user: str | None = None
    """Who its holder is; None lets the holder say so."""
    cluster: str | None = None
    """The only one that agents may join with it; None is all."""
    expires: int | None = None
    """Nanoseconds UTC; None is never."""
    note: str = ""
    revoked: int | None = None
    """Nanoseconds UTC; None if it was not."""
    revoked_by: str = ""

    def is_valid(self, now: int) -> bool:
        """Whether it still lets anybody in."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def opens_with(self, secret: str) -> bool:
        """Whether this is its secret."""
        from hmac import compare_digest  # noqa: PLC0415 - takes long to load, and what has no network needs no tokens

        return compare_digest(self.digest, digest_of(secret))


class TokenText(NamedTuple):
    """A token as its holder has it, taken apart."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}_{self.id}_{self.secret}"


def read_token(text: str) -> TokenText | None:
    """The parts of a token; None if it cannot be one."""
    prefix, _, rest = text.partition("_")
    token, _, secret = rest.partition("_")
    return TokenText(token, secret) if prefix == PREFIX and token and secret else None


def digest_of(secret: str) -> bytes:
    """What is kept of a secret; it is drawn from 256 bits, so that nothing slower is needed."""
    from hashlib import sha256  # noqa: PLC0415 - likewise

    return sha256(secret.encode()).digest()
