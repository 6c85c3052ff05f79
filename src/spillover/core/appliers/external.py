"""Applies observations of external clusters: their nodes, their health, and where tasks are."""

from msgspec.structs import replace

from spillover.core.appliers import clusters, machines
from spillover.core.appliers.queue import job_of
from spillover.core.events import ClusterChanged, NodesSeen, NodeUse, SeenNode, TasksBound
from spillover.core.holding import rebind, remove_gone_node
from spillover.core.records.clusters import Condition
from spillover.core.records.jobs import Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.core.transitions import NODE, Impossible
from spillover.model.ids import ClusterName, NodeName


def nodes_seen(state: State, event: NodesSeen) -> None:
    """Update nodes as observed; new nodes come last, sorted by name."""
    cluster = event.cluster
    number = 0
    new: list[NodeName] = []
    for seen in event.nodes:
        key = f"{cluster}/{seen.name}"
        node = state.nodes.get(key)
        if node is None:
            if not number:
                number = state.facts.incarnations = state.facts.incarnations + 1
                state.touch_facts()
            new.append(seen.name)
            node = state.nodes[key] = Node(
                cluster, seen.name, 0, seen.capacity, seen.offers, seen.labels, 0, "unknown", number=number
            )
        _update_node(state, node, seen)
    for use in event.used:
        _update_usage(state, cluster, use)
    for name in event.same:
        node = state.nodes[f"{cluster}/{name}"]
        node.status = NODE[node.status, NodesSeen, "ready"]
        state.touch_node(node.key)
    for name in event.gone:
        _gone(state, cluster, name)
    if state.machines and (whole := state.made(cluster)) is not None:
        state.rented = True  # whether it has the nodes that it is to have
        if new:
            machines.nodes_came(state, whole, new, event.at)


def _update_node(state: State, node: Node, seen: SeenNode) -> None:
    """Update a node as observed."""
    node.capacity = seen.capacity
    node.foreign = seen.foreign
    node.tasks = seen.tasks
    node.offers = seen.offers
    node.labels = seen.labels
    node.taints = seen.taints
    node.status = NODE[node.status, NodesSeen, "ready" if seen.ready else "not ready"]
    state.touch_node(node.key)


def _update_usage(state: State, cluster: ClusterName, use: NodeUse) -> None:
    """Update what others use of a node. An unobserved node becomes ready."""
    key = f"{cluster}/{use.name}"
    node = state.nodes[key]
    node.foreign, node.tasks = use.foreign, use.tasks
    if node.status == "unobserved":
        node.status = NODE[node.status, NodesSeen, "ready"]
    state.touch_node(key)


def _gone(state: State, cluster: ClusterName, name: NodeName) -> None:
    """Mark a node as gone; it stays in the state while our tasks are on it."""
    key = f"{cluster}/{name}"
    node = state.nodes[key]
    node.status = NODE[node.status, NodesSeen, "gone"]
    remove_gone_node(state, node)
    state.touch_node(key)


def cluster_changed(state: State, event: ClusterChanged) -> None:
    """Set the health of a cluster."""
    before = state.conditions.get(event.cluster)
    same = before is not None and before.health is event.health
    since = before.since if before is not None and same else event.at
    state.conditions[event.cluster] = Condition(event.cluster, event.health, since, event.why)
    state.touch_cluster(event.cluster)
    clusters.changed(state, event)
    if state.machines and state.made(event.cluster) is not None:
        state.rented = True  # whether it must be given back depends on it
    if not same:  # whether its nodes are usable depends on it
        for key, node in state.nodes.items():
            if node.cluster == event.cluster:
                state.moved[key] = None


def tasks_bound(state: State, event: TasksBound) -> None:
    """Follow the nodes to which tasks were bound."""
    for job_id, nodes in zip(event.jobs, event.nodes, strict=True):
        job = job_of(state, job_id, event)
        phase = job.phase
        if type(phase) is not Placed and type(phase) is not Running:
            raise Impossible(f"TasksBound on {job}: {event!r}")
        rebind(state, job, event.cluster, nodes)
        job.phase = replace(phase, node=nodes[0])
        if job.extra.gang is not None:
            job.extra.gang.bind(nodes)
