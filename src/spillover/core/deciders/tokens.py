"""Tokens that let people and agents in."""

from typing import Final

from spillover.core.events import AnyEvent, TokenCreated, TokenRevoked
from spillover.core.proposals import CreateToken, Done, Refusal, RefusalKind, Reply, RevokeToken
from spillover.core.state import State
from spillover.model.tokens import TokenRole

MOST: Final = 10_000
"""Tokens that are valid at one time."""


def create(state: State, proposal: CreateToken, now: int) -> tuple[list[AnyEvent], Reply]:
    """A token lets its holder in from now on."""
    if proposal.token in state.tokens:
        return [], Refusal(RefusalKind.CONFLICT, f"there is a token {proposal.token} already")
    if proposal.project is not None and proposal.role is not TokenRole.SUBMIT:
        return [], Refusal(RefusalKind.INVALID, f"a token of role {proposal.role} is not for one project")
    if proposal.user is not None and proposal.role is TokenRole.AGENT:
        return [], Refusal(RefusalKind.INVALID, "a token of role agent has no user")
    if proposal.cluster is not None and proposal.role is not TokenRole.AGENT:
        return [], Refusal(RefusalKind.INVALID, f"a token of role {proposal.role} is not for one cluster")
    if proposal.expires is not None and proposal.expires <= now:
        return [], Refusal(RefusalKind.INVALID, "the token would have expired already")
    if sum(token.is_valid(now) for token in state.tokens.values()) >= MOST:
        return [], Refusal(RefusalKind.CONFLICT, f"there are {MOST} valid tokens; revoke some")
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
    """A token lets nobody in any more."""
    token = state.tokens.get(proposal.token)
    if token is None:
        return [], Refusal(
            RefusalKind.UNKNOWN, f"there is no token {proposal.token}; `spill token list` has them all"
        )
    return ([TokenRevoked(token.id, now, proposal.who)] if token.revoked is None else []), Done()
