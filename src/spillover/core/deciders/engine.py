"""The engine's own proposals: epochs, clocks, policies, archive."""

from spillover.core.events import (
    AgentsConfigured,
    AnyEvent,
    BudgetsConfigured,
    ClockJumped,
    ClustersConfigured,
    EpochStarted,
    Identified,
    JobsArchived,
    PolicyChanged,
    PolicyDisabled,
)
from spillover.core.jobs import Ended
from spillover.core.proposals import (
    Archived,
    DisablePolicy,
    Done,
    Jump,
    Refusal,
    Refused,
    Reply,
    SetPolicies,
    StartEpoch,
)
from spillover.core.state import State
from spillover.model.policy import choice_of


def start_epoch(state: State, proposal: StartEpoch, now: int) -> tuple[list[AnyEvent], Reply]:
    """A server leads: agents have to register anew, and time without a server does not count as waiting."""
    events: list[AnyEvent] = [EpochStarted(proposal.epoch, now)]
    if proposal.identity and not state.facts.identity:
        events.append(Identified(proposal.identity))
    if proposal.gap > 0:
        events.append(ClockJumped(proposal.gap))
    if proposal.clusters != state.facts.clusters:
        events.append(ClustersConfigured(proposal.clusters))
    if proposal.budgets != state.facts.budgets:
        events.append(BudgetsConfigured(proposal.budgets))
    if proposal.ahead != state.facts.ahead:
        events.append(AgentsConfigured(proposal.ahead))
    if proposal.policies != state.policies.configured:
        events.append(PolicyChanged(now, "spillover", proposal.policies, configured=True))
    return events, Done()


def jump(state: State, proposal: Jump, now: int) -> tuple[list[AnyEvent], Reply]:
    """The clock jumped."""
    del state, now
    return ([ClockJumped(proposal.by, proposal.who)] if proposal.by > 0 else []), Done()


def set_policies(state: State, proposal: SetPolicies, now: int) -> tuple[list[AnyEvent], Reply]:
    """Other policies decide."""
    if proposal.over is not None and proposal.over != state.facts.policies:
        return [], Refusal(
            Refused.STALE, "somebody else changed the policies meanwhile; look again and retry"
        )
    settles = any(axis in state.policies.disabled for axis in proposal.named)
    if proposal.policies == state.facts.policies and not settles:
        return [], Done()
    named, reset = proposal.named, proposal.reset
    return [PolicyChanged(now, proposal.who, proposal.policies, named=named, reset=reset)], Done()


def disable_policy(state: State, proposal: DisablePolicy, now: int) -> tuple[list[AnyEvent], Reply]:
    """A policy decides no more, if it is still the one that does."""
    if choice_of(state.facts.policies, proposal.axis).name != proposal.name:
        return [], Done()
    return [PolicyDisabled(now, proposal.axis, proposal.name, proposal.took, proposal.error)], Done()


def archived(state: State, proposal: Archived, now: int) -> tuple[list[AnyEvent], Reply]:
    """Ended jobs leave the state."""
    del now
    gone = tuple(job for job in proposal.jobs if job in state.jobs and type(state.jobs[job].phase) is Ended)
    return ([JobsArchived(gone)] if gone else []), Done()
