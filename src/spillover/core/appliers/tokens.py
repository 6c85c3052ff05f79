"""Applies events of tokens. Revoked and expired tokens stay for a while."""

from typing import Final

from msgspec.structs import replace

from spillover.core.events import SignedIn, TokenCreated, TokenRevoked
from spillover.core.state import State
from spillover.model.tokens import Token
from spillover.model.units import DAY

REMEMBERED: Final = 90 * DAY
"""Nanoseconds for which a token is listed after it expired or was revoked."""
REMEMBERED_SIGN_IN: Final = DAY
"""The same for sign-ins, of which there are more."""


def created(state: State, event: TokenCreated) -> None:
    """Add a token."""
    _forget_old(state, event.at)
    state.tokens[event.token] = Token(
        event.token,
        event.role,
        event.digest,
        event.at,
        event.who,
        event.project,
        event.user,
        event.cluster,
        event.expires,
        event.note,
        node=event.node,
    )
    state.touch_token(event.token)


def signed_in(state: State, event: SignedIn) -> None:
    """Add the token of a sign-in."""
    _forget_old(state, event.at)
    state.tokens[event.token] = Token(
        event.token,
        event.role,
        event.digest,
        event.at,
        event.who,
        event.project,
        event.user,
        expires=event.expires,
        note=event.note,
        how=event.how,
        parent=event.parent,
        called=event.called,
    )
    state.touch_token(event.token)


def revoked(state: State, event: TokenRevoked) -> None:
    """Mark a token as revoked; drop that of a rented machine, which is gone."""
    token = state.tokens[event.token]
    if token.node is not None:
        del state.tokens[event.token]
    else:
        state.tokens[event.token] = replace(token, revoked=event.at, revoked_by=event.who)
    state.touch_token(event.token)


def _forget_old(state: State, now: int) -> None:
    """Drop tokens that expired or were revoked some time ago."""
    for token in list(state.tokens.values()):
        ends = [at for at in (token.revoked, token.expires) if at is not None]
        listed = REMEMBERED if token.how is None else REMEMBERED_SIGN_IN
        if ends and min(ends) < now - listed:
            del state.tokens[token.id]
            state.touch_token(token.id)
