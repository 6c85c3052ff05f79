"""Applies lifecycle events of clusters: added, changed, opened, drained, resumed and removed."""

from msgspec.structs import replace

from spillover.core.appliers.rounds import reset_waits
from spillover.core.events import (
    ClusterAdded,
    ClusterChanged,
    ClusterDraining,
    ClusterOpened,
    ClusterRemoved,
    ClusterResumed,
    ClustersConfigured,
    ClusterUpdated,
    EpochStarted,
    Event,
    NodesSeen,
)
from spillover.core.holding import remove_gone_node
from spillover.core.records.clusters import ClusterRecord
from spillover.core.records.jobs import Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.core.transitions import AGENTS_OPEN, LIFE, NODE, Impossible
from spillover.model.cluster import ClusterLife, ClusterSpec
from spillover.model.ids import ClusterName


def added(state: State, event: ClusterAdded) -> None:
    """Add a cluster, which is tried after all others."""
    spec = event.spec
    _take_specs(state, (*state.facts.clusters, spec))
    life = LIFE[None, ClusterAdded, ""]
    state.lives[spec.name] = ClusterRecord(spec.name, life, event.at, event.form, event.who)
    state.touch_life(spec.name)
    if event.anew:
        reset_waits(state)


def updated(state: State, event: ClusterUpdated) -> None:
    """Replace the configuration of a cluster; jobs there keep the prices of their placement."""
    spec = event.spec
    _keep_prices(state, state.clusters[spec.name], spec)
    _take_specs(state, tuple([spec if each.name == spec.name else each for each in state.facts.clusters]))
    record = state.lives[spec.name]
    state.lives[spec.name] = replace(record, form=event.form, who=event.who if event.form else "")
    state.touch_life(spec.name)
    state.rented = True
    if event.anew:
        reset_waits(state)


def opened(state: State, event: ClusterOpened) -> None:
    """Record that the server watches a cluster, or accepts its agents."""
    move(state, event.cluster, event, event.at)


def draining(state: State, event: ClusterDraining) -> None:
    """Record that a cluster gets no more work."""
    move(state, event.cluster, event, event.at)
    record = state.lives[event.cluster]
    form = event.form or record.form
    state.lives[event.cluster] = replace(record, drained=event.who, leaving=event.leaving, form=form)
    state.touch_life(event.cluster)
    state.rented = True


def resumed(state: State, event: ClusterResumed) -> None:
    """Record that a cluster may get work again."""
    move(state, event.cluster, event, event.at)
    state.lives[event.cluster] = replace(state.lives[event.cluster], drained="", leaving=None)
    state.touch_life(event.cluster)
    state.rented = True


def removed(state: State, event: ClusterRemoved) -> None:
    """Remove a cluster and its machines."""
    name = event.cluster
    move(state, name, event, event.at)
    _take_specs(state, tuple([spec for spec in state.facts.clusters if spec.name != name]))
    del state.lives[name]
    if state.conditions.pop(name, None) is not None:
        state.touch_cluster(name)
    if state.pools.pop(name, None) is not None:
        state.touch_pool(name)
    for node in [each for each in state.nodes.values() if each.cluster == name]:
        if node.is_agent:
            if not node.holding and not node.ahead:
                remove_agent(state, node)
            continue
        node.status = NODE[node.status, NodesSeen, "gone"]
        remove_gone_node(state, node)
        state.touch_node(node.key)
    if event.anew:
        reset_waits(state)


def move(state: State, cluster: ClusterName, event: Event, at: int) -> None:
    """Move a cluster to the lifecycle state that follows an event."""
    record = state.lives[cluster]
    kind = type(event)
    life = LIFE.get((record.life, kind, ""))
    if life is None or (kind is EpochStarted and not state.clusters[cluster].external):
        life = LIFE.get((record.life, kind, _how(state, cluster)), life)
    if life is None:
        raise Impossible(f"{kind.__name__} on cluster {cluster}, which is {record.life}")
    if life is record.life:
        return
    state.lives[cluster] = replace(record, life=life, since=at)
    state.touch_life(cluster)
    if ClusterLife.READY in {life, record.life}:  # whether its machines are usable depends on it
        for key, node in state.nodes.items():
            if node.cluster == cluster:
                state.moved[key] = None


def update_lifecycles(state: State, at: int) -> None:
    """Give each configured cluster a lifecycle if it has none, and drop others; keep the order of clusters."""
    before, state.lives = state.lives, {}
    for spec in state.facts.clusters:
        name = spec.name
        record = before.pop(name, None)
        if record is None:
            record = ClusterRecord(name, LIFE[None, ClustersConfigured, _how(state, name)], at)
            state.touch_life(name)
        state.lives[name] = record
    for name in before:
        state.touch_life(name)


def remove_agent(state: State, node: Node) -> None:
    """Remove an agent from the state."""
    state.lost -= node.status == "lost"
    unregister(state, node)
    del state.nodes[node.key], state.agents[node.key]
    state.touch_node(node.key)


def unregister(state: State, node: Node) -> None:
    """Forget the latest registration of an agent."""
    if state.registered.get(node.incarnation) == node.key:
        del state.registered[node.incarnation]


def _how(state: State, cluster: ClusterName) -> str:
    """Return the health of an external cluster, or AGENTS_OPEN for a cluster of agents."""
    return state.health(cluster) or AGENTS_OPEN


def _take_specs(state: State, specs: tuple[ClusterSpec, ...]) -> None:
    state.facts.clusters = specs
    state.clusters = {spec.name: spec for spec in specs}
    state.touch_facts()


def _keep_prices(state: State, before: ClusterSpec, after: ClusterSpec) -> None:
    """Record the prices at placement for jobs on a cluster."""
    for job in (state.jobs[each] for each in state.jobs_on(before.name)):
        if before != after and isinstance(job.phase, Placed | Running) and job.extra.placed_on is None:
            job.extra = replace(job.extra, placed_on=before)
            state.touch_job(job.id)


def changed(state: State, event: ClusterChanged) -> None:
    """Follow a change of the health of a cluster."""
    move(state, event.cluster, event, event.at)
