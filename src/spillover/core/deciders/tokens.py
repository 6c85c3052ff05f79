"""Decides on tokens for people and agents."""

from typing import Final

from spillover.core.events import AnyEvent, SignedIn, TokenCreated, TokenRevoked
from spillover.core.proposals import CreateToken, Done, Refusal, RefusalKind, Reply, RevokeToken, SignIn
from spillover.core.state import State
from spillover.model.tokens import Token, TokenRole, holder_of, origins

MOST: Final = 10_000
"""The most valid tokens at a time, without those of rented machines and sign-ins."""
MOST_SIGN_INS: Final = 10_000
"""The most valid sign-ins at a time."""
MOST_OF_ONE: Final = 100
"""The most valid sign-ins that came from one token, or of one person whom a provider knows. The next one ends the oldest."""


def create(state: State, proposal: CreateToken, now: int) -> tuple[list[AnyEvent], Reply]:
    """Create a token."""
    if proposal.token in state.tokens:
        return [], Refusal(RefusalKind.CONFLICT, f"token {proposal.token} already exists")
    if proposal.project is not None and proposal.role in {TokenRole.AGENT, TokenRole.ADMIN}:
        return [], Refusal(
            RefusalKind.INVALID, f"a token of role {proposal.role} cannot be limited to a project"
        )
    if proposal.user is not None and proposal.role is TokenRole.AGENT:
        return [], Refusal(RefusalKind.INVALID, "a token of role agent cannot have a user")
    if proposal.cluster is not None and proposal.role is not TokenRole.AGENT:
        return [], Refusal(
            RefusalKind.INVALID, f"a token of role {proposal.role} cannot be limited to a cluster"
        )
    if proposal.expires is not None and proposal.expires <= now:
        return [], Refusal(RefusalKind.INVALID, "the expiry time is in the past")
    if sum(_counts(token) and token.is_valid(now) for token in state.tokens.values()) >= MOST:
        return [], Refusal(RefusalKind.CONFLICT, f"there are {MOST} valid tokens, the maximum; revoke some")
    created = TokenCreated(
        proposal.token,
        now,
        proposal.who,
        proposal.role,
        proposal.digest,
        proposal.project,
        proposal.user,
        proposal.cluster,
        proposal.expires,
        proposal.note,
    )
    return [created], Done()


def _counts(token: Token) -> bool:
    """Return whether somebody created a token, rather than a machine or a sign-in."""
    return token.node is None and token.how is None


def sign_in(state: State, proposal: SignIn, now: int) -> tuple[list[AnyEvent], Reply]:
    """Sign a person in; the oldest sign-in of somebody with too many ends."""
    if proposal.token in state.tokens:
        return [], Refusal(RefusalKind.CONFLICT, f"token {proposal.token} already exists")
    expires = proposal.expires
    parent = state.tokens.get(proposal.parent)
    if parent is not None:
        if not parent.is_valid(now):
            return [], Refusal(RefusalKind.CONFLICT, f"token {parent.id} is no longer valid")
        expires = min(expires, parent.expires or expires)
    valid = [token for token in state.tokens.values() if token.how is not None and token.is_valid(now)]
    tokens = state.tokens
    holder = holder_of(tokens, proposal.parent, proposal.user)
    own = [token for token in valid if holder_of(tokens, token.parent, token.user) == holder]
    kept = {proposal.parent, *origins(tokens, proposal.parent)}  # without these, the new one would end too
    others = [token for token in own if token.id not in kept]
    if len(valid) >= MOST_SIGN_INS and not others:
        return [], Refusal(
            RefusalKind.CONFLICT, f"{MOST_SIGN_INS} sign-ins are valid, the maximum; revoke some"
        )
    many = max(len(own) - MOST_OF_ONE + 1, len(valid) >= MOST_SIGN_INS)
    if many > len(others):
        told = f"{MOST_OF_ONE} sign-ins came from one another, the maximum; sign in with another token"
        return [], Refusal(RefusalKind.CONFLICT, told)
    surplus = others[: max(0, many)]
    ended = [end for token in surplus for end in _ended(state, token, now, proposal.who)]
    signed_in = SignedIn(
        proposal.token,
        now,
        proposal.who,
        proposal.role,
        proposal.digest,
        proposal.how,
        proposal.parent,
        expires,
        proposal.project,
        proposal.user,
        proposal.called,
        proposal.note,
    )
    return [*{end.token: end for end in ended}.values(), signed_in], Done()


def _ended(state: State, token: Token, now: int, who: str) -> list[TokenRevoked]:
    """Return the end of a token, and of the sign-ins that came from it."""
    children: dict[str, list[str]] = {}
    for one in state.tokens.values():
        if one.parent:
            children.setdefault(one.parent, []).append(one.id)
    ids = [token.id]
    for each in ids:  # grows
        ids += children.get(each, ())
    return [TokenRevoked(each, now, who) for each in ids if state.tokens[each].revoked is None]


def revoke(state: State, proposal: RevokeToken, now: int) -> tuple[list[AnyEvent], Reply]:
    """Revoke a token, and the sign-ins that came from it."""
    token = state.tokens.get(proposal.token)
    if token is None:
        return [], Refusal(
            RefusalKind.UNKNOWN, f"there is no token {proposal.token}; `spill token list` lists tokens"
        )
    return [*_ended(state, token, now, proposal.who)], Done()
