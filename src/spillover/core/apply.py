"""The only code that changes state: one small function for each event, which assigns what the event says.

An event that is durable has been decided on this very state, so nothing here refuses; `Impossible` is a bug of ours.
"""

from collections.abc import Callable
from typing import Any, Final

from spillover.core.appliers import arrays, engine, external, jobs, leases, money, tokens
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    AgentsConfigured,
    AnyEvent,
    BackoffEnded,
    BudgetsConfigured,
    ClockJumped,
    ClusterChanged,
    ClustersConfigured,
    CostHeld,
    Decided,
    DependencyEnded,
    EpochStarted,
    GangPlaced,
    Identified,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobsAdmitted,
    JobsArchived,
    JobStarted,
    JobStopping,
    JobSubmitted,
    LeaseMoved,
    LeasesRevoked,
    MemberPlaced,
    MembersDropped,
    NodesSeen,
    PolicyChanged,
    PolicyDisabled,
    StealAsked,
    StealRefused,
    TasksBound,
    TasksEnded,
    TasksStarted,
    TokenCreated,
    TokenRevoked,
    WaitsExpired,
)
from spillover.core.state import State


def apply(state: State, event: AnyEvent) -> None:
    """Let an event change the state."""
    APPLIERS[type(event)](state, event)


APPLIERS: Final[dict[type, Callable[[State, Any], None]]] = {
    JobSubmitted: jobs.submitted,
    JobsAdmitted: jobs.admitted,
    WaitsExpired: jobs.expired,
    JobPlaced: jobs.placed,
    GangPlaced: jobs.gang_placed,
    MemberPlaced: arrays.member_placed,
    MembersDropped: arrays.members_dropped,
    CostHeld: money.held,
    JobStarted: jobs.started,
    TasksStarted: jobs.tasks_started,
    TasksEnded: jobs.tasks_ended,
    StealAsked: leases.asked,
    StealRefused: leases.refused,
    LeaseMoved: leases.moved,
    LeasesRevoked: leases.revoked,
    JobStopping: jobs.stopping,
    JobRequeued: jobs.requeued,
    JobEnded: jobs.ended,
    BackoffEnded: jobs.backoff_ended,
    JobHeld: jobs.held,
    JobReleased: jobs.released,
    DependencyEnded: jobs.dependency_ended,
    JobReprioritised: jobs.reprioritised,
    JobsArchived: jobs.archived,
    ClustersConfigured: engine.clusters,
    BudgetsConfigured: money.budgets,
    AgentRegistered: engine.agent_registered,
    AgentDraining: engine.agent_changed,
    AgentResumed: engine.agent_changed,
    AgentLost: engine.agent_changed,
    AgentForgotten: engine.agent_forgotten,
    AgentsConfigured: engine.agents_configured,
    NodesSeen: external.nodes_seen,
    ClusterChanged: external.cluster_changed,
    TasksBound: external.tasks_bound,
    TokenCreated: tokens.created,
    TokenRevoked: tokens.revoked,
    EpochStarted: engine.epoch_started,
    Identified: engine.identified,
    ClockJumped: engine.clock_jumped,
    PolicyChanged: engine.policy_changed,
    PolicyDisabled: engine.policy_disabled,
    Decided: engine.decided,
}
