"""Decides on epochs, clock jumps, policies, configuration and the archive."""

from collections.abc import Sequence

from spillover.core.events import (
    AgentsConfigured,
    AnyEvent,
    BudgetsConfigured,
    ClockJumped,
    ClusterResumed,
    ClustersConfigured,
    ClusterUpdated,
    EpochStarted,
    Identified,
    JobsArchived,
    PolicyChanged,
    PolicyDisabled,
    QueuesConfigured,
)
from spillover.core.proposals import (
    Archived,
    Configure,
    DisablePolicy,
    Done,
    Jump,
    Refusal,
    RefusalKind,
    Reply,
    SetPolicies,
    StartEpoch,
)
from spillover.core.records.jobs import Ended
from spillover.core.state import State
from spillover.model.cluster import ClusterSpec
from spillover.model.policy import choice_of


def start_epoch(state: State, proposal: StartEpoch, now: int) -> tuple[list[AnyEvent], Reply]:
    """Start an epoch: agents must register again, and the time without a server does not count as waiting."""
    events: list[AnyEvent] = [EpochStarted(proposal.epoch, now, proposal.restored)]
    if proposal.identity and not state.facts.identity:
        events.append(Identified(proposal.identity))
    if proposal.gap > 0:
        events.append(ClockJumped(proposal.gap))
    clusters = (*proposal.clusters, *kept_clusters(state, proposal.clusters))
    if clusters != state.facts.clusters:
        events.append(ClustersConfigured(clusters))
    events += _taken_over(state, proposal.clusters, now)
    return events + _configured(state, proposal, "", now), Done()


def configure(state: State, proposal: Configure, now: int) -> tuple[list[AnyEvent], Reply]:
    """Apply a configuration that was read again."""
    return _configured(state, proposal, proposal.who, now), Done()


def _configured(state: State, said: StartEpoch | Configure, who: str, now: int) -> list[AnyEvent]:
    """Return the events for changed settings other than clusters; `who` is empty at the start of the server."""
    events: list[AnyEvent] = []
    if said.budgets != state.facts.budgets:
        events.append(BudgetsConfigured(said.budgets, who))
    if said.queues != state.facts.queues:
        events.append(QueuesConfigured(said.queues, who))
    if said.ahead != state.facts.ahead:
        events.append(AgentsConfigured(said.ahead, who))
    if said.policies != state.policies.configured:
        events.append(PolicyChanged(now, who or "spillover", said.policies, configured=True))
    return events


def kept_clusters(state: State, configured: Sequence[ClusterSpec]) -> list[ClusterSpec]:
    """Return clusters that stay although no configuration has them: added to a running server, or being removed."""
    named = {spec.name for spec in configured}
    return [spec for spec in state.facts.clusters if spec.name not in named and state.lives[spec.name].form]


def _taken_over(state: State, configured: Sequence[ClusterSpec], now: int) -> list[AnyEvent]:
    """Return events for clusters that the configuration now defines, but that were added to a running server."""
    events: list[AnyEvent] = []
    for spec in configured:
        known = state.lives.get(spec.name)
        if known is None or not known.form:
            continue
        if known.leaving is not None:
            events.append(ClusterResumed(spec.name, now, "spillover"))
        events.append(ClusterUpdated(spec, now, "spillover"))
    return events


def jump(state: State, proposal: Jump, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record a clock jump."""
    del state, now
    return ([ClockJumped(proposal.by, proposal.who)] if proposal.by > 0 else []), Done()


def set_policies(state: State, proposal: SetPolicies, now: int) -> tuple[list[AnyEvent], Reply]:
    """Change the policies."""
    if proposal.over is not None and proposal.over != state.facts.policies:
        return [], Refusal(RefusalKind.STALE, "the policies changed in the meantime; check them and retry")
    settles = any(axis in state.policies.disabled for axis in proposal.named)
    if proposal.policies == state.facts.policies and not settles:
        return [], Done()
    named, reset = proposal.named, proposal.reset
    return [PolicyChanged(now, proposal.who, proposal.policies, named=named, reset=reset)], Done()


def disable_policy(state: State, proposal: DisablePolicy, now: int) -> tuple[list[AnyEvent], Reply]:
    """Disable a policy, if it is still in use."""
    if choice_of(state.facts.policies, proposal.axis).name != proposal.name:
        return [], Done()
    return [PolicyDisabled(now, proposal.axis, proposal.name, proposal.took, proposal.error)], Done()


def archived(state: State, proposal: Archived, now: int) -> tuple[list[AnyEvent], Reply]:
    """Remove ended jobs that are archived."""
    del now
    gone = tuple(job for job in proposal.jobs if job in state.jobs and type(state.jobs[job].phase) is Ended)
    return ([JobsArchived(gone)] if gone else []), Done()
