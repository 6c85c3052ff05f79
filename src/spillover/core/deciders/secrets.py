"""Decides on secrets. The proposer has stored the value before."""

from spillover.core.events import AnyEvent, SecretRemoved, SecretSet
from spillover.core.proposals import Done, Refusal, RefusalKind, RemoveSecret, Reply, SetSecret
from spillover.core.state import State
from spillover.model.secrets import MOST_SECRETS, secret_key


def put(state: State, proposal: SetSecret, now: int) -> tuple[list[AnyEvent], Reply]:
    """Set a secret whose value was stored under the next version."""
    known = state.secrets.get(secret_key(proposal.project, proposal.name))
    if known is None and len(state.secrets) >= MOST_SECRETS:
        told = f"there are {MOST_SECRETS} secrets, the maximum; remove some"
        return [], Refusal(RefusalKind.CONFLICT, told)
    if proposal.version != (1 if known is None else known.version + 1):
        return [], Refusal(RefusalKind.STALE, f"secret {proposal.name} was set by somebody else meanwhile")
    users = proposal.users
    if users is None:
        users = () if known is None else known.users
    event = SecretSet(proposal.project, proposal.name, now, proposal.who, proposal.version, users)
    return [event], Done()


def remove(state: State, proposal: RemoveSecret, now: int) -> tuple[list[AnyEvent], Reply]:
    """Remove a secret."""
    if secret_key(proposal.project, proposal.name) not in state.secrets:
        told = f"project {proposal.project} has no secret {proposal.name}; `spill secret ls` lists secrets"
        return [], Refusal(RefusalKind.UNKNOWN, told)
    return [SecretRemoved(proposal.project, proposal.name, now, proposal.who)], Done()
