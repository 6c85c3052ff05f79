"""Drains, resumes and forgets agents on request."""

from spillover.control.live.loop import Loop
from spillover.core.proposals import Drain, Forget, Refusal, Resume
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.bounds import plain
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import AgentAction, AgentNames, FieldProblem


async def act_on_agents(loop: Loop, action: AgentAction, who: str) -> AgentNames:
    """Drain, resume or forget agents; raise CommandError if one is unknown or refuses."""
    state = (await loop.read()).state
    nodes = [named_agent(state, name) for name in dict.fromkeys(action.agents)]
    if action.reason and action.act != "drain":
        problem = FieldProblem("reason", "is for `drain` only; leave it out")
        raise CommandError(ErrorKind.INVALID, f"reason {problem.message}", [problem])
    reason = plain(" ".join(action.reason.split()))
    replies = await loop.propose(*[_proposal(action.act, node, who, reason) for node in nodes])
    for reply in replies:
        if isinstance(reply, Refusal):
            raise refused(reply)
    return AgentNames([node.key for node in nodes])


def _proposal(act: str, node: Node, who: str, reason: str) -> Drain | Resume | Forget:
    """Return what to propose for one agent."""
    match act:
        case "drain":
            return Drain(node.cluster, node.name, who, reason)
        case "resume":
            return Resume(node.cluster, node.name, who)
        case _:
            return Forget(node.cluster, node.name, who)


def named_agent(state: State, name: str) -> Node:
    """Return the agent with this name or CLUSTER/NAME; raise CommandError if none or several match."""
    named = [node for node in state.nodes.values() if name in {node.name, node.key}]
    found = [node for node in named if node.is_agent] or named
    if not found:
        raise CommandError(ErrorKind.UNKNOWN, f"there is no agent {name[:80]!r}; `spill agents` lists agents")
    if len(found) > 1:
        keys = ", ".join(node.key for node in found)
        raise CommandError(ErrorKind.AMBIGUOUS, f"{name[:80]!r} matches {keys}; name the cluster too")
    return found[0]
