"""Authenticates agents: by a token to register, and by the secret of the registration for further calls.

Many agents may share a token, so it does not identify one of them. The session does. Only its owner can renew, report,
listen or send output as that agent.
"""

import hmac
import secrets
from typing import Any, Final, NoReturn

import grpc

from spillover.api.grpc.admission import Metadata
from spillover.clusters.agents.hub import Hub, Session
from spillover.model.tokens import TokenRole, machine_of
from spillover.ports.callers import AgentCallers, Caller, Stranger

SESSION: Final = "spillover-session-bin"
_NUMBER: Final = 8
"""Bytes of the incarnation, with which a session begins."""
_SECRET: Final = 32
_ROLES: Final = frozenset({TokenRole.AGENT, TokenRole.ADMIN})


class Denied(Exception):
    """The caller may not make this call."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class GrpcEntry:
    """Checks callers."""

    def __init__(self, callers: AgentCallers, hub: Hub) -> None:
        self._callers = callers
        self._hub = hub

    async def caller(self, context: Any) -> Caller:
        """Return the caller of a registration; end the call unless agents may use its token."""
        try:
            return self.joiner(context.invocation_metadata() or ())
        except Denied as denied:
            await abort(context, denied.code, denied.message)

    def joiner(self, metadata: Metadata) -> Caller:
        """Like `known`, for registrations: the token may also be the join token of a rented machine."""
        shown = _bearer(metadata)
        if machine_of(shown) is None:
            return self.known(metadata)
        try:
            return self._callers.machine(shown)
        except Stranger as stranger:
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, str(stranger)) from None

    def known(self, metadata: Metadata) -> Caller:
        """Return the sender of these metadata; raise Denied unless agents may use the token."""
        try:
            caller = self._callers.caller(_bearer(metadata))
        except Stranger as stranger:
            told = str(stranger) if _found(metadata, "authorization") else "a token is required"
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, told) from None
        if caller.role not in _ROLES:
            told = f"agents cannot use a token of role {caller.role}; create one with `spill token create --role agent`"
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, told)
        return caller

    def admit(self, incarnation: int, caller: Caller) -> bytes:
        """Create the session of a new registration; return its secret."""
        secret = incarnation.to_bytes(_NUMBER, "big") + secrets.token_bytes(_SECRET)
        session = self._hub.session(incarnation)
        if session is not None:  # else a newer registration has replaced it already
            session.secret, session.token = secret, caller.token
        return secret

    async def session(self, context: Any, incarnation: int | None = None) -> Session | None:
        """Return the session of a call; None if a newer registration has replaced it.

        `incarnation` is the registration that the call names, if it names one.
        """
        try:
            return self.registered(context.invocation_metadata() or (), incarnation)
        except Denied as denied:
            await abort(context, denied.code, denied.message)

    def registered(self, metadata: Metadata, incarnation: int | None = None) -> Session | None:
        """Like `session`, from metadata; raise Denied if they belong to another agent or to none."""
        caller = self.known(metadata)
        given = _found(metadata, SESSION)
        if len(given) != _NUMBER + _SECRET:
            told = f"the metadata {SESSION} must hold the session from the answer of Register"
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
        """Return whether the token of a session is still valid."""
        return self._callers.is_valid(session.token)


_NOT_YOURS: Final = "this registration belongs to another agent"


def _bearer(metadata: Metadata) -> str:
    """Return the token in metadata; empty if there is none."""
    scheme, _, shown = _found(metadata, "authorization").partition(" ")
    return str(shown).strip() if scheme.lower() == "bearer" else ""


def _found(metadata: Metadata, key: str) -> Any:
    """Return the value of a key: bytes if the key ends in `-bin`, else text; empty if missing or repeated."""
    empty: str | bytes = b"" if key.endswith("-bin") else ""
    given = [value for name, value in metadata if name == key]
    return given[0] if len(given) == 1 and isinstance(given[0], type(empty)) else empty


async def abort(context: Any, code: grpc.StatusCode, message: str) -> NoReturn:
    """End a call."""
    await context.abort(code, message)
    raise AssertionError("abort does not return")
