"""Drains, resumes and forgets agents on request."""

from collections.abc import Callable
from typing import Final

from spillover.control.live.loop import Loop
from spillover.core.proposals import Drain, Forget, Refusal, Resume
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.ids import ClusterName, NodeName
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import AgentAction, AgentNames

_ACTS: Final[dict[str, Callable[[ClusterName, NodeName, str], Drain | Resume | Forget]]] = {
    "drain": Drain,
    "resume": Resume,
    "forget": Forget,
}


async def act_on_agents(loop: Loop, action: AgentAction, who: str) -> AgentNames:
    """Drain, resume or forget agents; raise CommandError if one is unknown or refuses."""
    state = (await loop.read()).state
    nodes = [_named(state, name) for name in dict.fromkeys(action.agents)]
    replies = await loop.propose(*[_ACTS[action.act](node.cluster, node.name, who) for node in nodes])
    for reply in replies:
        if isinstance(reply, Refusal):
            raise refused(reply)
    return AgentNames([node.key for node in nodes])


def _named(state: State, name: str) -> Node:
    """Return the agent with this name or CLUSTER/NAME; raise CommandError if none or several match."""
    named = [node for node in state.nodes.values() if name in {node.name, node.key}]
    found = [node for node in named if node.is_agent] or named
    if not found:
        raise CommandError(ErrorKind.UNKNOWN, f"there is no agent {name[:80]!r}; `spill agents` lists agents")
    if len(found) > 1:
        keys = ", ".join(node.key for node in found)
        raise CommandError(ErrorKind.AMBIGUOUS, f"{name[:80]!r} matches {keys}; name the cluster too")
    return found[0]
