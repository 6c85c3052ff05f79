"""Decides on tokens for people and agents."""

from typing import Final

from spillover.core.events import AnyEvent, TokenCreated, TokenRevoked
from spillover.core.proposals import CreateToken, Done, Refusal, RefusalKind, Reply, RevokeToken
from spillover.core.state import State
from spillover.model.tokens import TokenRole

MOST: Final = 10_000
"""The most valid tokens at a time, without those of rented machines."""


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
    if sum(token.node is None and token.is_valid(now) for token in state.tokens.values()) >= MOST:
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


def revoke(state: State, proposal: RevokeToken, now: int) -> tuple[list[AnyEvent], Reply]:
    """Revoke a token."""
    token = state.tokens.get(proposal.token)
    if token is None:
        return [], Refusal(
            RefusalKind.UNKNOWN, f"there is no token {proposal.token}; `spill token list` lists tokens"
        )
    return ([TokenRevoked(token.id, now, proposal.who)] if token.revoked is None else []), Done()
