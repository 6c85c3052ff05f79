"""Tokens: what each one permits. The server stores only a digest of its secret.

A **join token** is another kind: it lets one rented machine join once. It follows from the key of the pool and the id of
the machine, so that an order that is repeated, also by another server, carries the same one, and nothing is stored.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

PREFIX: Final = "spt"
"""Prefix of every token, so that leaked tokens can be recognised."""
JOIN_PREFIX: Final = "spj"
"""Prefix of join tokens."""


class TokenRole(StrEnum):
    """What a token permits."""

    AGENT = "agent"
    """To run tasks, and nothing else."""
    READ = "read"
    """To read, and to change nothing."""
    SUBMIT = "submit"
    """To read, to submit jobs, and to change one's own."""
    MAINTAIN = "maintain"
    """As SUBMIT, and to change jobs of others: of one project, or of all."""
    ADMIN = "admin"
    """Everything."""


PEOPLE: Final = frozenset({TokenRole.READ, TokenRole.SUBMIT, TokenRole.MAINTAIN, TokenRole.ADMIN})
"""Roles that may read."""
SUBMITTERS: Final = PEOPLE - {TokenRole.READ}
"""Roles that may submit jobs and change some."""


SignInMethod: TypeAlias = Literal["token", "link", "oidc"]
"""How a person signed in: with a token, with a one-time link, or at a provider of OpenID Connect."""


class Token(Struct, frozen=True, array_like=True):
    """A token as the state stores it."""

    id: str
    role: TokenRole
    digest: bytes
    """SHA-256 of its secret."""
    created: int
    """Nanoseconds UTC."""
    by: str
    project: str | None = None
    """The only project whose jobs it may see and submit; None means all."""
    user: str | None = None
    """The user that its holder acts as; None lets the holder choose."""
    cluster: str | None = None
    """The only cluster that agents may join with it; None means all."""
    expires: int | None = None
    """Nanoseconds UTC; None is never."""
    note: str = ""
    revoked: int | None = None
    """Nanoseconds UTC; None if it is not revoked."""
    revoked_by: str = ""
    node: str | None = None
    """The only agent that may use it, that of a rented machine; None means all."""
    how: SignInMethod | None = None
    """How its holder signed in; None if it is not a sign-in."""
    parent: str = ""
    """The token that it came from, by its id or as `own_token_mark` says; empty if it came from none."""
    called: str = ""
    """The user name that its holder stated when it signed in, which proves nothing; empty if none."""

    def is_valid(self, now: int) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def opens_with(self, secret: str) -> bool:
        """Return whether this is its secret."""
        from hmac import compare_digest  # noqa: PLC0415 - slow to import, and unused without a network

        return compare_digest(self.digest, digest_of(secret))


class TokenText(NamedTuple):
    """The parts of a token as its holder has it."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"{PREFIX}_{self.id}_{self.secret}"


def read_token(text: str) -> TokenText | None:
    """Split a token into its parts; None if it is not a token."""
    prefix, _, rest = text.partition("_")
    token, _, secret = rest.partition("_")
    return TokenText(token, secret) if prefix == PREFIX and token and secret else None


def own_token_mark(token: str) -> str:
    """Return what sign-ins with the server's own token have as parent, which changes with that token."""
    return f"own:{digest_of(token).hex()[:16]}"


def origins(tokens: Mapping[str, Token], token: str) -> Iterator[str]:
    """Yield what a token came from, nearest first: ids of tokens, and then the mark of the server's own token, if any."""
    while (found := tokens.get(token)) is not None and found.parent:
        token = found.parent
        yield token


def holder_of(tokens: Mapping[str, Token], parent: str, user: str | None) -> str:
    """Return for whom sign-ins with a parent count: a token from which they came in the end, or a person at a provider."""
    root = ""
    for root in (parent, *origins(tokens, parent)):  # noqa: B007 - the last one counts
        pass
    found = tokens.get(root)
    if root and (found is None or found.how is None):
        return root
    return f"oidc:{user if found is None else found.user}"


def join_token(key: bytes, machine: str) -> str:
    """Return the token with which a machine joins, from the key of its pool."""
    from hashlib import sha256  # noqa: PLC0415 - slow to import
    from hmac import digest  # noqa: PLC0415 - slow to import

    proof = digest(key, f"join/{machine}".encode(), sha256)
    return f"{JOIN_PREFIX}_{machine}_{proof.hex()}"


def machine_of(text: str) -> str | None:
    """Return the machine that a join token names; None if it is no join token. The token proves nothing yet."""
    prefix, _, rest = text.partition("_")
    machine, _, secret = rest.rpartition("_")
    return machine if prefix == JOIN_PREFIX and machine and secret else None


def is_join_token(text: str, key: bytes, machine: str) -> bool:
    """Return whether a text is the join token of a machine, in constant time."""
    from hmac import compare_digest  # noqa: PLC0415 - slow to import

    return bool(key) and compare_digest(text.encode(), join_token(key, machine).encode())


def digest_of(secret: str) -> bytes:
    """Return the digest of a secret. A fast hash is enough, because secrets have 256 random bits."""
    from hashlib import sha256  # noqa: PLC0415 - slow to import

    return sha256(secret.encode()).digest()
