"""Applies events of agents, epochs, clocks and policies, and of the whole configuration of clusters."""

from msgspec.structs import replace

from spillover.core.appliers.clusters import move, remove_agent, unregister, update_lifecycles
from spillover.core.appliers.rounds import reset_waits
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    AgentsConfigured,
    ClockJumped,
    ClustersConfigured,
    Decided,
    EpochStarted,
    Identified,
    NodesSeen,
    PolicyChanged,
    PolicyDisabled,
    QueuesConfigured,
)
from spillover.core.holding import move_up, remove_gone_node
from spillover.core.learned import usage
from spillover.core.records.clusters import Condition
from spillover.core.records.jobs import Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.records.policies import PolicyNote
from spillover.core.state import State
from spillover.core.transitions import AGENT, NODE
from spillover.model.policy import PolicySet, choice_of, without
from spillover.model.queues import Queues

KEPT = 100
"""Changes of policies that the state remembers."""


def clusters(state: State, event: ClustersConfigured) -> None:
    """Replace the clusters and reset all waits; placed jobs keep the prices of their placement."""
    before, state.facts.clusters = state.clusters, event.clusters
    state.clusters = {spec.name: spec for spec in event.clusters}
    for name in [name for name in state.conditions if state.health(name) is None]:
        del state.conditions[name]
        state.touch_cluster(name)
    for node in [state.nodes[key] for key, each in state.nodes.items() if not each.is_agent]:
        if state.health(node.cluster) is None:
            node.status = NODE[node.status, NodesSeen, "gone"]
            remove_gone_node(state, node)
            state.touch_node(node.key)
    agents = [
        state.nodes[key] for key, each in state.agents.items() if state.health(each.cluster) is not None
    ]
    for node in agents:
        if not node.holding and not node.ahead:  # its cluster is now an external one
            remove_agent(state, node)
    there = dict.fromkeys(each for node in state.nodes.values() for each in node.jobs)
    for job in (state.jobs[each] for each in there):
        if isinstance(job.phase, Placed | Running) and job.extra.placed_on is None:
            spec = before.get(job.phase.cluster)
            if spec is not None and spec != state.clusters.get(spec.name):
                job.extra = replace(job.extra, placed_on=spec)
                state.touch_job(job.id)
    state.touch_facts()
    for name in [each for each in state.clusters if each in before]:
        if before[name].external != state.clusters[name].external:
            state.lives.pop(name, None)  # it became an external cluster, or a cluster of agents
    update_lifecycles(state, state.facts.now)
    reset_waits(state)


def agent_registered(state: State, event: AgentRegistered) -> None:
    """Let an agent get work, with its present capacity."""
    key = f"{event.cluster}/{event.node}"
    node = state.nodes.get(key)
    if node is None:
        node = state.nodes[key] = state.agents[key] = Node(
            event.cluster,
            event.node,
            event.incarnation,
            event.capacity,
            event.offers,
            event.labels,
            event.queue,
            status="unknown",
            number=max(event.incarnation, state.facts.incarnations + 1),
        )
    unregister(state, node)
    state.registered[event.incarnation] = key
    node.incarnation = event.incarnation
    node.capacity = event.capacity
    node.offers = event.offers
    node.labels = event.labels
    node.queue = event.queue
    node.token = event.token
    node.inside = event.inside
    node.gangs = event.gangs
    _enter(state, node, AGENT[node.status, AgentRegistered], event.at)
    move_up(node)
    state.facts.incarnations = max(state.facts.incarnations, event.incarnation, node.number)
    _plan_machines(state, node)
    state.touch_node(key)
    state.touch_facts()


def agent_changed(state: State, event: AgentDraining | AgentResumed | AgentLost) -> None:
    """Drain, resume or lose an agent."""
    key = f"{event.cluster}/{event.node}"
    node = state.nodes[key]
    _enter(state, node, AGENT[node.status, type(event)], event.at)
    if type(event) is AgentDraining:
        node.drained = event.who or node.drained
        node.reason = event.reason if event.who else node.reason
    elif type(event) is AgentResumed:
        node.drained = node.reason = ""
    else:
        _plan_machines(state, node)
    state.touch_node(key)


def agent_forgotten(state: State, event: AgentForgotten) -> None:
    """Remove an agent from the state."""
    remove_agent(state, state.agents[f"{event.cluster}/{event.node}"])


def _plan_machines(state: State, node: Node) -> None:
    """Let the next cycle plan machines, if an agent came or went that may run on one."""
    spec = state.clusters.get(node.cluster)
    state.rented = state.rented or (spec is not None and spec.pool is not None)


def _enter(state: State, node: Node, status: str, at: int) -> None:
    """Set the status of an agent, and since when it is lost."""
    state.lost += (status == "lost") - (node.status == "lost")
    if node.status != status or not node.since:
        node.since = at
    node.status = status
    if status != "lost":
        node.missed = None
    elif node.missed is None:
        node.missed = state.steady(at)


def agents_configured(state: State, event: AgentsConfigured) -> None:
    """Set how much work agents prefetch."""
    state.facts.ahead = event.ahead
    state.touch_facts()


def queues_configured(state: State, event: QueuesConfigured) -> None:
    """Replace the queues. Jobs of a queue that is gone stay in it, and nothing limits them there."""
    state.facts.queues = event.queues
    state.queues = Queues(event.queues)
    state.touch_facts()


def epoch_started(state: State, event: EpochStarted) -> None:
    """Make all agents register again, and all external clusters unobserved."""
    state.facts.epoch = event.epoch
    if event.restored:
        state.facts.least_seq = event.epoch
        state.facts.machines = max(state.facts.machines, event.epoch)
    for key in state.nodes:
        node = state.nodes[key]
        if node.is_agent:
            _enter(state, node, AGENT[node.status, EpochStarted], event.at)
        else:
            node.status = NODE[node.status, EpochStarted, ""]
        state.touch_node(key)
    for name in state.conditions:
        state.conditions[name] = Condition(name, since=event.at)
        state.touch_cluster(name)
    for name in state.lives:
        move(state, name, event, event.at)
    state.touch_facts()


def identified(state: State, event: Identified) -> None:
    """Set the label of objects on external clusters."""
    state.facts.identity = event.identity
    state.touch_facts()


def clock_jumped(state: State, event: ClockJumped) -> None:
    """Exclude a span of time from waits."""
    state.facts.jumped += event.by
    state.touch_facts()


def policy_changed(state: State, event: PolicyChanged) -> None:
    """Replace the policies and reset all waits."""
    history, before = state.policies, state.facts.policies
    if event.configured:
        history.configured = event.policies
    stays = [axis for axis in history.disabled if choice_of(event.policies, axis) == choice_of(before, axis)]
    settled = tuple([axis for axis in stays if axis in event.named])
    history.disabled = {axis: history.disabled[axis] for axis in stays if axis not in settled}
    how = "configured" if event.configured else "reset" if event.reset else "set"
    _take_policies(state, PolicyNote(event.at, event.who, how, before, event.policies, settled=settled))


def policy_disabled(state: State, event: PolicyDisabled) -> None:
    """Let the fallback decide an axis."""
    before = state.facts.policies
    after: PolicySet = without(before, event.axis)
    note = PolicyNote(event.at, "spillover", "disabled", before, after, event.axis, event.took, event.error)
    state.policies.disabled[event.axis] = note
    _take_policies(state, note)


def _take_policies(state: State, note: PolicyNote) -> None:
    """Use other policies from now on, and record the change."""
    state.facts.policies = note.after
    usage.follow(state, note.at)
    if note.after != note.before or note.settled:
        state.policies.notes = (*state.policies.notes, note)[-KEPT:]
    state.touch_policies()
    state.touch_facts()
    reset_waits(state)


def decided(state: State, event: Decided) -> None:
    """Count a cycle; the events that follow carry out its plan."""
    facts = state.facts
    if event.now > facts.now:
        facts.now = event.now
    facts.cycles += 1
    state.dirty["facts"][""] = None
