"""Who may speak as an agent: a token lets one register, and the secret of a registration lets it go on.

A token may be shared by many agents, so it does not tell one from another. The session does: nobody but the one that was given it
can renew, report, listen or send output as that agent.
"""

import hmac
import secrets
from typing import Any, Final, NoReturn

import grpc

from spillover.api.grpc.admission import Metadata
from spillover.clusters.agents.hub import Hub, Session
from spillover.model.tokens import TokenRole
from spillover.ports.callers import Caller, Callers, Stranger

SESSION: Final = "spillover-session-bin"
_NUMBER: Final = 8
"""Bytes of the incarnation, with which a session begins."""
_SECRET: Final = 32
_ROLES: Final = frozenset({TokenRole.AGENT, TokenRole.ADMIN})


class Denied(Exception):
    """A call that may not be made."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class GrpcEntry:
    """Checks who calls."""

    def __init__(self, callers: Callers, hub: Hub) -> None:
        self._callers = callers
        self._hub = hub

    async def caller(self, context: Any) -> Caller:
        """Who shows a token that agents may use."""
        try:
            return self.known(context.invocation_metadata() or ())
        except Denied as denied:
            await abort(context, denied.code, denied.message)

    def known(self, metadata: Metadata) -> Caller:
        """Who sends these metadata; raises Denied unless agents may use the token."""
        scheme, _, shown = _found(metadata, "authorization").partition(" ")
        try:
            caller = self._callers.caller(shown.strip() if scheme.lower() == "bearer" else "")
        except Stranger as stranger:
            told = str(stranger) if scheme else "a token is needed"
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, told) from None
        if caller.role not in _ROLES:
            told = f"a token of role {caller.role} is not for agents; make one with `spill token create --role agent`"
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, told)
        return caller

    def admit(self, incarnation: int, caller: Caller) -> bytes:
        """The session of a registration that has just been made."""
        secret = incarnation.to_bytes(_NUMBER, "big") + secrets.token_bytes(_SECRET)
        session = self._hub.session(incarnation)
        if session is not None:  # or a newer registration counts already
            session.secret, session.token = secret, caller.token
        return secret

    async def session(self, context: Any, incarnation: int | None = None) -> Session | None:
        """The session that a call belongs to; None if a newer registration counts.

        `incarnation` is the registration that the call says it is of, where it says so.
        """
        try:
            return self.registered(context.invocation_metadata() or (), incarnation)
        except Denied as denied:
            await abort(context, denied.code, denied.message)

    def registered(self, metadata: Metadata, incarnation: int | None = None) -> Session | None:
        """The session that these metadata are of, likewise; raises Denied if they are of another's, or of none."""
        caller = self.known(metadata)
        given = _found(metadata, SESSION)
        if len(given) != _NUMBER + _SECRET:
            told = f"the metadata {SESSION} must hold the session that Register answered with"
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, told)
        number = int.from_bytes(given[:_NUMBER], "big")
        if incarnation is not None and incarnation != number:
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, _NOT_YOURS)
        session = self._hub.session(number)
        if session is None:
            return None
        if not hmac.compare_digest(session.secret, given) or session.token != caller.token:
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, _NOT_YOURS)
        return session

    def holds(self, session: Session) -> bool:
        """Whether the token of a session is still good."""
        return self._callers.is_valid(session.token)


_NOT_YOURS: Final = "this registration is another agent's"


def _found(metadata: Metadata, key: str) -> Any:
    """What a call carries under a key: text, or bytes where the key says so; empty if nothing, or what is not of that kind."""
    empty: str | bytes = b"" if key.endswith("-bin") else ""
    given = [value for name, value in metadata if name == key]
    return given[0] if len(given) == 1 and isinstance(given[0], type(empty)) else empty


async def abort(context: Any, code: grpc.StatusCode, message: str) -> NoReturn:
    """End a call."""
    await context.abort(code, message)
    raise AssertionError("abort does not return")
