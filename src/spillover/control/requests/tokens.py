"""Checks, creates, lists and revokes tokens.

The server's own token is in its data folder and has all rights. The state holds the digests of all others.
"""

import hmac
import secrets
from typing import Final

from spillover.control.live.loop import Loop
from spillover.control.views.jobs import when
from spillover.core.proposals import CreateToken, Refusal, RevokeToken
from spillover.model.ids import ID_BITS, NAME_RULE, is_name, job_id
from spillover.model.pools import MachineId
from spillover.model.tokens import (
    Token,
    TokenRole,
    TokenText,
    digest_of,
    is_join_token,
    machine_of,
    origins,
    own_token_mark,
    read_token,
)
from spillover.model.units import SECOND, format_time
from spillover.ports.callers import ADMIN, Caller, Stranger
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import FieldProblem, NewToken, TokenRequest, TokenView

LONGEST_NOTE: Final = 200


class Tokens:
    """All tokens of a server."""

    def __init__(self, own: str, loop: Loop) -> None:
        if not own:
            raise ValueError("a server needs a token of its own")
        self._own = own.encode()
        self.own_mark = own_token_mark(own)
        """What sign-ins with the server's own token have as parent."""
        self._loop = loop
        self._used: dict[str, int] = {}
        """Last use of each token since this server started, nanoseconds UTC."""

    # --- authentication

    def caller(self, shown: str) -> Caller:
        """Return the caller with this token; raise Stranger if it is not valid."""
        if hmac.compare_digest(shown.encode(), self._own):
            return ADMIN
        text = read_token(shown)
        token = self._loop.state.tokens.get(text.id) if text is not None else None
        if text is None or token is None or not token.opens_with(text.secret):
            raise Stranger("the token is invalid")
        now = self._loop.now()
        if token.revoked is not None:
            raise Stranger(f"token {token.id} was revoked")
        if not token.is_valid(now):
            raise Stranger(f"token {token.id} has expired")
        if not self.is_usable(token, now):
            raise Stranger(f"token {token.id} came from an earlier token of the server")
        self._note_use(token.id, now)
        return Caller(
            token.role,
            token.id,
            token.user,
            token.project,
            token.cluster,
            token.node,
            sign_in=token.how is not None,
            called=token.called,
        )

    def machine(self, shown: str) -> Caller:
        """Return the rented machine with this join token; whether it may still join is decided when it does."""
        state = self._loop.state
        machine = state.machines.get(MachineId(machine_of(shown) or ""))
        pool = state.pools.get(machine.cluster) if machine is not None else None
        if machine is None or pool is None or not is_join_token(shown, pool.key, machine.id):
            raise Stranger("the join token is invalid, or its machine is gone")
        return Caller(TokenRole.AGENT, cluster=machine.cluster, node=machine.id, joins=True)

    def _note_use(self, token: str, now: int) -> None:
        """Record when a token was last used; drop entries of deleted tokens."""
        known = self._loop.state.tokens
        if token not in self._used and len(self._used) >= 2 * len(known):
            self._used = {each: at for each, at in self._used.items() if each in known}
        self._used[token] = now

    def is_valid(self, token: str) -> bool:
        """Return whether a token that was accepted before, by its id, is still valid."""
        if not token:
            return True
        known = self._loop.state.tokens.get(token)
        return known is not None and self.is_usable(known, self._loop.now())

    def is_usable(self, token: Token, now: int) -> bool:
        """Return whether a token is valid, and did not come from an earlier token of the server."""
        return token.is_valid(now) and not any(
            each.startswith("own:") and each != self.own_mark
            for each in origins(self._loop.state.tokens, token.id)
        )

    def used(self, token: str) -> int | None:
        """Return when a token was last used, nanoseconds UTC; None if not since this server started."""
        return self._used.get(token)

    # --- administration

    async def create(self, request: TokenRequest, who: str) -> NewToken:
        """Create a token; return its secret, which cannot be read later."""
        _check(request)
        text = draw_token()
        expires = None if request.expires_s is None else self._loop.now() + int(request.expires_s * SECOND)
        proposal = CreateToken(
            text.id,
            TokenRole(request.role),
            digest_of(text.secret),
            who,
            request.project,
            request.user,
            request.cluster,
            expires,
            request.note,
        )
        if request.cluster is not None:
            clusters = (await self._loop.read()).state.clusters
            if request.cluster not in clusters:
                known = ", ".join(clusters)
                raise _invalid("cluster", f"there is no cluster {request.cluster!r}; known clusters: {known}")
        (reply,) = await self._loop.propose(proposal)
        if isinstance(reply, Refusal):
            raise refused(reply)
        return NewToken(text.id, str(text), None if expires is None else format_time(expires))

    async def all(self) -> list[TokenView]:
        """Return all tokens, newest first."""
        state = (await self._loop.read()).state
        now = self._loop.now()
        return [self._view(token, now) for token in reversed(state.tokens.values())]

    async def revoke(self, token: str, who: str) -> None:
        """Revoke a token."""
        (reply,) = await self._loop.propose(RevokeToken(token, who))
        if isinstance(reply, Refusal):
            raise refused(reply)

    def _view(self, token: Token, now: int) -> TokenView:
        """Return a token in the form of the API."""
        used = self._used.get(token.id)
        state = "revoked" if token.revoked is not None else "valid" if token.is_valid(now) else "expired"
        return TokenView(
            id=token.id,
            role=token.role,
            state=state,
            project=token.project,
            user=token.user,
            cluster=token.cluster,
            created_at=format_time(token.created),
            created_by=token.by,
            expires_at=when(token.expires),
            revoked_at=when(token.revoked),
            revoked_by=token.revoked_by or None,
            used_at=when(used),
            note=token.note,
            sign_in=token.how,
        )


def draw_token() -> TokenText:
    """Draw a new token."""
    return TokenText(job_id(secrets.randbits(ID_BITS)), secrets.token_urlsafe(32))


def _check(request: TokenRequest) -> None:
    """Raise CommandError if a request has bad names or an unprintable note."""
    for field in ("project", "user", "cluster"):
        name = getattr(request, field)
        if name is not None and not is_name(name):
            raise _invalid(field, f"{name[:80]!r} is not a name: {NAME_RULE}")
    if not request.note.isprintable():
        raise _invalid("note", "has unprintable characters")


def _invalid(path: str, message: str) -> CommandError:
    return CommandError(ErrorKind.INVALID, f"{path}: {message}", [FieldProblem(path, message)])
