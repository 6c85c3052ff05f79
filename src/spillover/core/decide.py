"""Decides proposals: turns each into events, or refuses it. Deciding reads the state and changes nothing.

Each family of proposals has its own module in `deciders`. This module has the table.
"""

from collections.abc import Callable
from typing import Any, Final

from spillover.core.deciders import (
    agents,
    changes,
    clusters,
    engine,
    external,
    gangs,
    machines,
    reservations,
    results,
    stealing,
    submissions,
    tokens,
)
from spillover.core.events import AnyEvent
from spillover.core.pool_proposals import (
    OpenPool,
    PausePool,
    ResumePool,
    SeeGone,
    SeeMade,
    SeeNotice,
    SeePrices,
    SeeRefused,
    SeeUnwanted,
)
from spillover.core.proposals import (
    AddCluster,
    AgentGone,
    Archived,
    AskSteal,
    CancelReservation,
    Change,
    ClearedCluster,
    Configure,
    CreateToken,
    DisablePolicy,
    Drain,
    DrainCluster,
    Forget,
    GangOverdue,
    HandBack,
    Jump,
    MoveReservation,
    OpenedCluster,
    Proposal,
    Reclaim,
    Register,
    RemoveCluster,
    Reply,
    Reserve,
    Result,
    Resume,
    ResumeCluster,
    RevokeToken,
    SeeBound,
    SeeCluster,
    SeeNodes,
    SetPolicies,
    SetPriority,
    Started,
    StartEpoch,
    Submit,
    UpdateCluster,
    Yielded,
)
from spillover.core.state import State


def decide(state: State, proposal: Proposal, now: int) -> tuple[list[AnyEvent], Reply]:
    """Return the events of a proposal, in order, and the reply to send once they are durable."""
    return DECIDERS[type(proposal)](state, proposal, now)


DECIDERS: Final[dict[type, Callable[[State, Any, int], tuple[list[AnyEvent], Reply]]]] = {
    Submit: submissions.submit,
    Change: changes.change,
    SetPriority: changes.set_priority,
    Register: agents.register,
    Started: results.started,
    Result: results.result,
    HandBack: agents.hand_back,
    Reclaim: agents.reclaim,
    GangOverdue: gangs.overdue,
    AskSteal: stealing.ask,
    Yielded: stealing.yielded,
    Drain: agents.drain,
    Resume: agents.resume,
    Forget: agents.forget,
    AgentGone: agents.gone,
    SeeNodes: external.see_nodes,
    SeeCluster: external.see_cluster,
    SeeBound: external.see_bound,
    AddCluster: clusters.add,
    UpdateCluster: clusters.update,
    OpenedCluster: clusters.opened,
    DrainCluster: clusters.drain,
    ResumeCluster: clusters.resume,
    RemoveCluster: clusters.remove,
    ClearedCluster: clusters.cleared,
    Configure: engine.configure,
    Archived: engine.archived,
    CreateToken: tokens.create,
    RevokeToken: tokens.revoke,
    Reserve: reservations.reserve,
    MoveReservation: reservations.move,
    CancelReservation: reservations.cancel,
    OpenPool: machines.open_pool,
    SeeMade: machines.made,
    SeeRefused: machines.refused,
    SeeGone: machines.gone,
    SeeUnwanted: machines.found,
    SeeNotice: machines.notice,
    SeePrices: machines.prices,
    PausePool: machines.pause,
    ResumePool: machines.resume,
    StartEpoch: engine.start_epoch,
    Jump: engine.jump,
    SetPolicies: engine.set_policies,
    DisablePolicy: engine.disable_policy,
}
