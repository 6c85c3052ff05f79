"""Who asks: what a token that was shown stands for, and how those who let people and agents in find that out."""

import hmac
from typing import Protocol

from msgspec import Struct

from spillover.model.tokens import TokenRole


class Caller(Struct, frozen=True):
    """Somebody who showed a valid token, and what that lets them do."""

    role: TokenRole
    token: str = ""
    """Id of the token; empty for the server's own."""
    user: str | None = None
    """Who it is, as the token says; None lets the caller say so."""
    project: str | None = None
    """The only one whose jobs it may see and submit; None is all."""
    cluster: str | None = None
    """The only one that it may join as an agent; None is all."""

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything."""
        return self.role is TokenRole.ADMIN


ADMIN = Caller(TokenRole.ADMIN)
"""Whoever has the server's own token."""


class Stranger(Exception):
    """A token that lets nobody in; the message says why, and never what was shown."""


class Callers(Protocol):
    """Knows tokens."""

    def caller(self, shown: str) -> Caller:
        """Who shows a token; raises Stranger."""
        ...

    def is_valid(self, token: str) -> bool:
        """Whether a token that was good, by its id, still is."""
        ...


class OneToken:
    """Knows one token, which is good for everything."""

    def __init__(self, token: str) -> None:
        if not token:
            raise ValueError("a server needs a token")
        self._token = token.encode()

    def caller(self, shown: str) -> Caller:
        """See Callers."""
        if hmac.compare_digest(shown.encode(), self._token):
            return ADMIN
        raise Stranger("the token is wrong")

    def is_valid(self, token: str) -> bool:
        """See Callers."""
        return not token
