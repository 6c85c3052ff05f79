"""Callers of the server, and how their tokens are checked."""

import hmac
from typing import Protocol

from msgspec import Struct

from spillover.model.tokens import TokenRole


class Caller(Struct, frozen=True):
    """Someone with a valid token, and their rights."""

    role: TokenRole
    token: str = ""
    """Id of the token; empty for the server's own."""
    user: str | None = None
    """User that the token is for; None lets the caller choose the name."""
    project: str | None = None
    """The only project whose jobs the caller may see and submit; None means all."""
    cluster: str | None = None
    """The only cluster that the caller may join as an agent; None means all."""
    node: str | None = None
    """The only agent that the caller may be; None means all."""
    joins: bool = False
    """Whether the caller is the machine `node` with its join token, which gets it a token of its own and nothing else."""
    sign_in: bool = False
    """Whether the token is that of a sign-in, which a cookie may hold."""
    called: str = ""
    """The user name that the caller stated when it signed in, which proves nothing; empty if none."""

    @property
    def is_admin(self) -> bool:
        """Whether the caller has all rights."""
        return self.role is TokenRole.ADMIN


ADMIN = Caller(TokenRole.ADMIN)
"""The caller with the server's own token."""


class Stranger(Exception):
    """A token is not valid; the message says why, and never contains the token."""


class Callers(Protocol):
    """Checks tokens."""

    def caller(self, shown: str) -> Caller:
        """Return the caller with this token; raise Stranger if it is not valid."""
        ...

    def is_valid(self, token: str) -> bool:
        """Return whether a token that was accepted before, by its id, is still valid."""
        ...


class AgentCallers(Callers, Protocol):
    """Checks tokens of agents too."""

    def machine(self, shown: str) -> Caller:
        """Return the rented machine with this join token; raise Stranger if it is not valid."""
        ...


class OneToken:
    """Accepts one token, with all rights."""

    def __init__(self, token: str) -> None:
        if not token:
            raise ValueError("a server needs a token")
        self._token = token.encode()

    def caller(self, shown: str) -> Caller:
        """See Callers."""
        if hmac.compare_digest(shown.encode(), self._token):
            return ADMIN
        raise Stranger("the token is invalid")

    def is_valid(self, token: str) -> bool:
        """See Callers."""
        return not token

    def machine(self, shown: str) -> Caller:
        """See AgentCallers."""
        del shown
        raise Stranger("the join token is invalid")
