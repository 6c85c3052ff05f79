"""What a proposal leads to: events, or a refusal. Pure: it reads the state and writes nothing.

Each kind of proposal is decided in a module of its own; this one knows which.
"""

from collections.abc import Callable
from typing import Any

from spillover.core.deciders import agents, changes, engine, results, submissions
from spillover.core.events import AnyEvent
from spillover.core.proposals import (
    AgentGone,
    Archived,
    Change,
    DisablePolicy,
    Drain,
    HandBack,
    Jump,
    Proposal,
    Reclaim,
    Register,
    Reply,
    Result,
    SetPolicies,
    SetPriority,
    Started,
    StartEpoch,
    Submit,
)
from spillover.core.state import State


def decide(state: State, proposal: Proposal, now: int) -> tuple[list[AnyEvent], Reply]:
    """What a proposal leads to in this state: events to apply, in order, and what to answer once they are durable."""
    return _DECIDERS[type(proposal)](state, proposal, now)


_DECIDERS: dict[type, Callable[[State, Any, int], tuple[list[AnyEvent], Reply]]] = {
    Submit: submissions.submit,
    Change: changes.change,
    SetPriority: changes.set_priority,
    Register: agents.register,
    Started: results.started,
    Result: results.result,
    HandBack: agents.hand_back,
    Reclaim: agents.reclaim,
    Drain: agents.drain,
    AgentGone: agents.gone,
    Archived: engine.archived,
    StartEpoch: engine.start_epoch,
    Jump: engine.jump,
    SetPolicies: engine.set_policies,
    DisablePolicy: engine.disable_policy,
}
