"""Tokens while the server runs: who shows one, and how they are made, listed and revoked.

The server's own token is in its data folder and good for everything. All others are in the book, as digests.
"""

import hmac
import secrets
from typing import Final

from spillover.control.loop import Loop
from spillover.control.views import when
from spillover.core.proposals import CreateToken, Refusal, RevokeToken
from spillover.model.ids import ID_BITS, NAME_RULE, is_name, job_id
from spillover.model.tokens import Token, TokenRole, TokenText, digest_of, read_token
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
        self._loop = loop
        self._used: dict[str, int] = {}
        """When each was last shown since this server started, nanoseconds UTC."""

    # --- who asks

    def caller(self, shown: str) -> Caller:
        """Who shows a token; raises Stranger."""
        if hmac.compare_digest(shown.encode(), self._own):
            return ADMIN
        text = read_token(shown)
        token = self._loop.state.tokens.get(text.id) if text is not None else None
        if text is None or token is None or not token.opens_with(text.secret):
            raise Stranger("the token is wrong")
        now = self._loop.now()
        if token.revoked is not None:
            raise Stranger(f"the token {token.id} was revoked")
        if not token.is_valid(now):
            raise Stranger(f"the token {token.id} has expired")
        self._note_use(token.id, now)
        return Caller(token.role, token.id, token.user, token.project, token.cluster)

    def _note_use(self, token: str, now: int) -> None:
        """Remember when a token was last shown, as long as it is known."""
        known = self._loop.state.tokens
        if token not in self._used and len(self._used) >= 2 * len(known):
            self._used = {each: at for each, at in self._used.items() if each in known}
        self._used[token] = now

    def is_valid(self, token: str) -> bool:
        """Whether a token that was good, by its id, still is."""
        if not token:
            return True
        known = self._loop.state.tokens.get(token)
        return known is not None and known.is_valid(self._loop.now())

    # --- keeping them

    async def create(self, request: TokenRequest, who: str) -> NewToken:
        """A new token; its secret is told here, and never again."""
        _check(request)
        text = TokenText(job_id(secrets.randbits(ID_BITS)), secrets.token_urlsafe(32))
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
                raise _invalid("cluster", f"there is no cluster {request.cluster!r} here; known: {known}")
        (reply,) = await self._loop.propose(proposal)
        if isinstance(reply, Refusal):
            raise refused(reply)
        return NewToken(text.id, str(text), None if expires is None else format_time(expires))

    async def all(self) -> list[TokenView]:
        """All of them, the newest first."""
        state = (await self._loop.read()).state
        now = self._loop.now()
        return [self._view(token, now) for token in reversed(state.tokens.values())]

    async def revoke(self, token: str, who: str) -> None:
        """Let nobody in with it any more."""
        (reply,) = await self._loop.propose(RevokeToken(token, who))
        if isinstance(reply, Refusal):
            raise refused(reply)

    def _view(self, token: Token, now: int) -> TokenView:
        """One token as people see it."""
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
        )


def _check(request: TokenRequest) -> None:
    """Refuse what cannot be a token."""
    for field in ("project", "user", "cluster"):
        name = getattr(request, field)
        if name is not None and not is_name(name):
            raise _invalid(field, f"{name[:80]!r} is not a name: {NAME_RULE}")
    if not request.note.isprintable():
        raise _invalid("note", "holds characters that cannot be printed")


def _invalid(path: str, message: str) -> CommandError:
    return CommandError(ErrorKind.INVALID, f"{path}: {message}", [FieldProblem(path, message)])
