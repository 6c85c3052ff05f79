"""The lives of clusters: added, changed, opened, drained, resumed and removed while a server runs."""

from msgspec.structs import replace

from spillover.core.appliers.rounds import wait_anew
from spillover.core.book import strike_off
from spillover.core.clusters import ClusterRecord
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
from spillover.core.jobs import Placed, Running
from spillover.core.nodes import Node
from spillover.core.state import State
from spillover.core.transitions import AGENTS_OPEN, LIFE, NODE, Impossible
from spillover.model.cluster import ClusterLife, ClusterSpec
from spillover.model.ids import ClusterName


def added(state: State, event: ClusterAdded) -> None:
    """One more cluster, the last to be tried."""
    spec = event.spec
    _take_specs(state, (*state.facts.clusters, spec))
    life = LIFE[None, ClusterAdded, ""]
    state.lives[spec.name] = ClusterRecord(spec.name, life, event.at, event.form, event.who)
    state.touch_life(spec.name)
    if event.anew:
        wait_anew(state)


def updated(state: State, event: ClusterUpdated) -> None:
    """A cluster is another one in its place; what is there pays what it was placed for."""
    spec = event.spec
    _keep_prices(state, state.clusters[spec.name], spec)
    _take_specs(state, tuple([spec if each.name == spec.name else each for each in state.facts.clusters]))
    record = state.lives[spec.name]
    state.lives[spec.name] = replace(record, form=event.form, who=event.who if event.form else "")
    state.touch_life(spec.name)
    if event.anew:
        wait_anew(state)


def opened(state: State, event: ClusterOpened) -> None:
    """The server watches a cluster, or takes its agents."""
    move(state, event.cluster, event, event.at)


def draining(state: State, event: ClusterDraining) -> None:
    """A cluster is given nothing more."""
    move(state, event.cluster, event, event.at)
    record = state.lives[event.cluster]
    form = event.form or record.form
    state.lives[event.cluster] = replace(record, drained=event.who, leaving=event.leaving, form=form)
    state.touch_life(event.cluster)


def resumed(state: State, event: ClusterResumed) -> None:
    """A cluster may be given work again."""
    move(state, event.cluster, event, event.at)
    state.lives[event.cluster] = replace(state.lives[event.cluster], drained="", leaving=None)
    state.touch_life(event.cluster)


def removed(state: State, event: ClusterRemoved) -> None:
    """A cluster is in the book no more, and neither are its machines."""
    name = event.cluster
    move(state, name, event, event.at)
    _take_specs(state, tuple([spec for spec in state.facts.clusters if spec.name != name]))
    del state.lives[name]
    if state.conditions.pop(name, None) is not None:
        state.touch_cluster(name)
    for node in [each for each in state.nodes.values() if each.cluster == name]:
        if node.is_agent:
            if not node.holding and not node.ahead:
                strike_agent(state, node)
            continue
        node.status = NODE[node.status, NodesSeen, "gone"]
        strike_off(state, node)
        state.touch_node(node.key)
    if event.anew:
        wait_anew(state)


def move(state: State, cluster: ClusterName, event: Event, at: int) -> None:
    """Let a cluster be where an event takes it in its life."""
    record = state.lives[cluster]
    kind = type(event)
    life = LIFE.get((record.life, kind, ""))
    if life is None or (kind is EpochStarted and not state.clusters[cluster].external):
        life = LIFE.get((record.life, kind, _how(state, cluster)), life)
    if life is None:
        raise Impossible(f"cluster {cluster} is {record.life}, and {kind.__name__} takes it nowhere")
    if life is record.life:
        return
    state.lives[cluster] = replace(record, life=life, since=at)
    state.touch_life(cluster)
    if ClusterLife.READY in {life, record.life}:  # whether its machines are of use depends on it
        for key, node in state.nodes.items():
            if node.cluster == cluster:
                state.moved[key] = None


def enroll(state: State, at: int) -> None:
    """Give each cluster that is configured a life, if it has none, and forget those of others; in the order of the clusters."""
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


def strike_agent(state: State, node: Node) -> None:
    """Take an agent out of the book."""
    state.lost -= node.status == "lost"
    unregister(state, node)
    del state.nodes[node.key], state.agents[node.key]
    state.touch_node(node.key)


def unregister(state: State, node: Node) -> None:
    """The last registration of an agent counts no more."""
    if state.registered.get(node.incarnation) == node.key:
        del state.registered[node.incarnation]


def _how(state: State, cluster: ClusterName) -> str:
    """How an external cluster is, or that its machines speak for themselves."""
    return state.health(cluster) or AGENTS_OPEN


def _take_specs(state: State, specs: tuple[ClusterSpec, ...]) -> None:
    state.facts.clusters = specs
    state.clusters = {spec.name: spec for spec in specs}
    state.touch_facts()


def _keep_prices(state: State, before: ClusterSpec, after: ClusterSpec) -> None:
    """Let jobs on a cluster remember what they were placed for."""
    for job in (state.jobs[each] for each in state.jobs_on(before.name)):
        if before != after and isinstance(job.phase, Placed | Running) and job.extra.placed_on is None:
            job.extra = replace(job.extra, placed_on=before)
            state.touch_job(job.id)


def changed(state: State, event: ClusterChanged) -> None:
    """How a cluster is, as its life has it."""
    move(state, event.cluster, event, event.at)
