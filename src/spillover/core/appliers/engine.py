"""Agents, clusters, clocks and policies."""

from msgspec.structs import replace

from spillover.core import usage
from spillover.core.appliers.clusters import enroll, move, strike_agent, unregister
from spillover.core.appliers.rounds import wait_anew
from spillover.core.book import move_up, strike_off
from spillover.core.clusters import Condition
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
)
from spillover.core.jobs import Placed, Running
from spillover.core.nodes import Node
from spillover.core.policy_book import PolicyNote
from spillover.core.state import State
from spillover.core.transitions import AGENT, NODE
from spillover.model.policy import PolicySet, choice_of, without

KEPT = 100
"""Changes of policies that the book remembers."""


def clusters(state: State, event: ClustersConfigured) -> None:
    """Other clusters, so other waits. What is placed pays what it was placed for."""
    before, state.facts.clusters = state.clusters, event.clusters
    state.clusters = {spec.name: spec for spec in event.clusters}
    for name in [name for name in state.conditions if state.health(name) is None]:
        del state.conditions[name]
        state.touch_cluster(name)
    for node in [state.nodes[key] for key, each in state.nodes.items() if not each.is_agent]:
        if state.health(node.cluster) is None:
            node.status = NODE[node.status, NodesSeen, "gone"]
            strike_off(state, node)
            state.touch_node(node.key)
    agents = [
        state.nodes[key] for key, each in state.agents.items() if state.health(each.cluster) is not None
    ]
    for node in agents:
        if not node.holding and not node.ahead:  # others run its cluster from now on
            strike_agent(state, node)
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
            state.lives.pop(name, None)  # others run it from now on, or its machines speak for themselves
    enroll(state, state.facts.now)
    wait_anew(state)


def agent_registered(state: State, event: AgentRegistered) -> None:
    """An agent may be given work, with what it has now."""
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
    _enter(state, node, AGENT[node.status, AgentRegistered], event.at)
    move_up(node)
    state.facts.incarnations = max(state.facts.incarnations, event.incarnation, node.number)
    state.touch_node(key)
    state.touch_facts()


def agent_changed(state: State, event: AgentDraining | AgentResumed | AgentLost) -> None:
    """An agent is given nothing more, or may be given work again."""
    key = f"{event.cluster}/{event.node}"
    node = state.nodes[key]
    _enter(state, node, AGENT[node.status, type(event)], event.at)
    if type(event) is AgentDraining:
        node.drained = event.who or node.drained
    elif type(event) is AgentResumed:
        node.drained = ""
    state.touch_node(key)


def agent_forgotten(state: State, event: AgentForgotten) -> None:
    """An agent is not in the book any more."""
    strike_agent(state, state.agents[f"{event.cluster}/{event.node}"])


def _enter(state: State, node: Node, status: str, at: int) -> None:
    """An agent is in a state of its life, and remembers since when it is lost."""
    state.lost += (status == "lost") - (node.status == "lost")
    node.status = status
    if status != "lost":
        node.missed = None
    elif node.missed is None:
        node.missed = state.steady(at)


def agents_configured(state: State, event: AgentsConfigured) -> None:
    """Agents prefetch more work, or less."""
    state.facts.ahead = event.ahead
    state.touch_facts()


def epoch_started(state: State, event: EpochStarted) -> None:
    """All agents have to register anew, and all external clusters have to be seen."""
    state.facts.epoch = event.epoch
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
    """The book has a name for others."""
    state.facts.identity = event.identity
    state.touch_facts()


def clock_jumped(state: State, event: ClockJumped) -> None:
    """Time passed that is no waiting."""
    state.facts.jumped += event.by
    state.touch_facts()


def policy_changed(state: State, event: PolicyChanged) -> None:
    """Other policies, so other waits."""
    book, before = state.policies, state.facts.policies
    if event.configured:
        book.configured = event.policies
    stays = [axis for axis in book.disabled if choice_of(event.policies, axis) == choice_of(before, axis)]
    settled = tuple([axis for axis in stays if axis in event.named])
    book.disabled = {axis: book.disabled[axis] for axis in stays if axis not in settled}
    how = "configured" if event.configured else "reset" if event.reset else "set"
    _take_policies(state, PolicyNote(event.at, event.who, how, before, event.policies, settled=settled))


def policy_disabled(state: State, event: PolicyDisabled) -> None:
    """The fallback decides an axis."""
    before = state.facts.policies
    after: PolicySet = without(before, event.axis)
    note = PolicyNote(event.at, "spillover", "disabled", before, after, event.axis, event.took, event.error)
    state.policies.disabled[event.axis] = note
    _take_policies(state, note)


def _take_policies(state: State, note: PolicyNote) -> None:
    """Decide otherwise from now on, and remember since when."""
    state.facts.policies = note.after
    usage.follow(state, note.at)
    if note.after != note.before or note.settled:
        state.policies.notes = (*state.policies.notes, note)[-KEPT:]
    state.touch_policies()
    state.touch_facts()
    wait_anew(state)


def decided(state: State, event: Decided) -> None:
    """A cycle decided what the events behind this one say."""
    facts = state.facts
    if event.now > facts.now:
        facts.now = event.now
    facts.cycles += 1
    state.dirty["facts"][""] = None
