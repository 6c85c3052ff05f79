"""Decides on observations of external clusters: records only what differs from the state."""

from collections import Counter
from collections.abc import Iterable, Sequence

from spillover.core.deciders import whole_clusters
from spillover.core.deciders.agents import together
from spillover.core.deciders.endings import attempt_cost, elapsed
from spillover.core.deciders.verdicts import lost, released
from spillover.core.events import (
    AnyEvent,
    ClusterChanged,
    JobEnded,
    JobRequeued,
    JobState,
    Lease,
    NodesSeen,
    NodeUse,
    SeenNode,
    Stop,
    TasksBound,
    Usage,
)
from spillover.core.proposals import Done, Refusal, RefusalKind, Reply, SeeBound, SeeCluster, SeeNodes
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.core.transitions import CLUSTER
from spillover.model.cluster import ClusterHealth
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import OnFailure
from spillover.model.reasons import CancelledBy, ClusterFailed, Reason


def see_nodes(state: State, proposal: SeeNodes, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record nodes that differ from the state."""
    cluster = proposal.cluster
    if (unknown := _unknown(state, cluster)) is not None:
        return [], unknown
    nodes: list[SeenNode] = []
    used: list[NodeUse] = []
    same: list[NodeName] = []
    seen = {each.name: each for each in proposal.nodes}
    for name, each in seen.items():
        node = state.nodes.get(f"{cluster}/{name}")
        if node is not None and node.is_agent:
            continue  # it still has jobs from when this was a cluster of agents
        if node is None or not _is_unchanged(node, each):
            nodes.append(each)
        elif node.foreign != each.foreign or node.tasks != each.tasks:
            used.append(NodeUse(name, each.foreign, each.tasks))
        elif node.status == "unobserved":
            same.append(name)
    if proposal.whole:
        known = [node for node in state.nodes.values() if node.cluster == cluster and node.name not in seen]
    else:
        named = [state.nodes.get(f"{cluster}/{name}") for name in dict.fromkeys(proposal.gone)]
        known = [node for node in named if node is not None and node.name not in seen]
    gone = [node.name for node in known if node.status != "gone" and not node.is_agent]
    if not (nodes or used or same or gone):
        return [], Done()
    nodes.sort(key=lambda each: each.name)  # the same order as in a checkpoint
    usable = any(each.ready for each in nodes)
    return [
        NodesSeen(cluster, now, tuple(nodes), tuple(used), tuple(same), tuple(gone)),
        *whole_clusters.joins(state, cluster, now, nodes=usable),
    ], Done()


def _is_unchanged(node: Node, seen: SeenNode) -> bool:
    """Return whether nothing changed about a node except its usage by others; an unobserved node counts as ready."""
    status = "ready" if node.status == "unobserved" else node.status
    return (
        status == ("ready" if seen.ready else "closed")
        and node.capacity == seen.capacity
        and node.labels == seen.labels
        and node.taints == seen.taints
        and node.offers == seen.offers
    )


def see_cluster(state: State, proposal: SeeCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record the health of a cluster; if it has failed, handle its jobs as their `on_cluster_failure` says."""
    cluster, health = proposal.cluster, proposal.health
    if (unknown := _unknown(state, cluster)) is not None:
        return [], unknown
    before = state.health(cluster) or ClusterHealth.UNOBSERVED
    changed = ClusterChanged(cluster, now, health, proposal.why)
    if health is before:
        known = state.conditions.get(cluster)
        if known is None or known.why == proposal.why or health is ClusterHealth.UNOBSERVED:
            return [], Done()
        return [changed], Done()
    if health not in CLUSTER[before]:
        return [], Refusal(RefusalKind.CONFLICT, f"{cluster} is {before} and cannot become {health}")
    if health is not ClusterHealth.FAILED:
        return [changed, *whole_clusters.joins(state, cluster, now, health)], Done()
    unsent = {
        each: job for each, job in _held(state, cluster, proposal.unsent).items() if type(job.phase) is Placed
    }
    there = {job: None for node in state.nodes.values() if node.cluster == cluster for job in node.jobs}
    left = [released(job, now, proposal.why) for job in unsent.values()]
    left += [
        ended
        for job in there
        if job not in unsent and (ended := _failed(state, state.jobs[job], now, changed)) is not None
    ]
    return together(state, left, now, [changed]), Done()


def _failed(state: State, job: Job, now: int, failure: ClusterChanged) -> JobRequeued | JobEnded | None:
    """Decide on a job that may run on a failed cluster; None if it waits for the cluster."""
    match job.terms.on_cluster_failure:
        case OnFailure.WAIT:
            return None
        case OnFailure.REQUEUE:
            return lost(state, job, now, f"{failure.cluster} has failed: {failure.why}")
        case OnFailure.CANCEL:
            return _cancelled(state, job, now, ClusterFailed(failure.cluster, failure.why))


def _cancelled(state: State, job: Job, now: int, why: Reason) -> JobEnded:
    """Return the end of a job cancelled with its cluster; an earlier cancel by a person takes precedence."""
    phase = job.phase
    since = phase.since if type(phase) is Running else None
    ran = elapsed(state, job, now)
    cost = job.cost + (attempt_cost(state, job, ran) if since is not None else 0)
    if isinstance(phase, Placed | Running) and phase.stopping is Stop.CANCEL:
        why = CancelledBy(phase.by)
    ended = JobState.CANCELLED
    return JobEnded(job.id, now, ended, job.attempt, job.seq + 1, since, None, None, cost, Usage(ran), why)


def see_bound(state: State, proposal: SeeBound, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record the nodes of tasks with valid leases, if the state knows these nodes."""
    cluster = proposal.cluster
    if (unknown := _unknown(state, cluster)) is not None:
        return [], unknown
    held = _held(state, cluster, proposal.leases)
    bound: dict[JobId, tuple[NodeName, ...]] = {}
    for lease, nodes in zip(proposal.leases, proposal.nodes, strict=True):
        job = held.get(lease.job)
        if job is None or (after := _bound(job, nodes)) is None:
            continue
        if all(_is_watched(state, cluster, name) for name in (*after, *_places(job))):
            bound[job.id] = after
    if not bound:
        return [], Done()
    running = tuple([job for job in bound if type(state.jobs[job].phase) is Running])
    return [TasksBound(cluster, now, tuple(bound), tuple(bound.values()), running)], Done()


def _bound(job: Job, nodes: Sequence[NodeName]) -> tuple[NodeName, ...] | None:
    """Return the nodes of all tasks of a job by rank, given some of them; None if the state already matches."""
    before = _places(job)
    nodes = nodes[: len(before)]
    if len(nodes) == len(before):
        return None if tuple(nodes) == before else tuple(nodes)
    if Counter(nodes) <= Counter(before):
        return None
    spare = Counter(before) - Counter(nodes)
    others = [name for name in before if _takes(spare, name)]
    return (*nodes, *others[: len(before) - len(nodes)])


def _is_watched(state: State, cluster: ClusterName, name: NodeName) -> bool:
    """Return whether a node is known as one of an external cluster."""
    node = state.nodes.get(f"{cluster}/{name}")
    return node is not None and not node.is_agent


def _places(job: Job) -> tuple[NodeName, ...]:
    """Return the nodes of a job's tasks according to the state."""
    phase = job.phase
    return tuple([task.node for task in job.tasks]) if isinstance(phase, Placed | Running) else ()


def _takes(spare: Counter[NodeName], name: NodeName) -> bool:
    """Take one of a name from the counter; return whether one was left."""
    spare[name] -= 1
    return spare[name] >= 0


def _held(state: State, cluster: ClusterName, leases: Iterable[Lease]) -> dict[JobId, Job]:
    """Return the jobs of those leases that are valid on a cluster."""
    held: dict[JobId, Job] = {}
    for lease in leases:
        job = state.jobs.get(lease.job)
        if (
            job is not None
            and (job.attempt, job.seq) == (lease.attempt, lease.seq)
            and isinstance(job.phase, Placed | Running)
            and job.phase.cluster == cluster
        ):
            held[job.id] = job
    return held


def _unknown(state: State, cluster: ClusterName) -> Refusal | None:
    """Return why a cluster cannot be observed; None if it can."""
    spec = state.clusters.get(cluster)
    if spec is None:
        known = ", ".join(state.clusters) or "none"
        return Refusal(RefusalKind.UNKNOWN, f"there is no cluster {cluster!r}; known clusters: {known}")
    if not spec.external:
        return Refusal(RefusalKind.INVALID, f"{cluster!r} is a cluster of agents, not an external cluster")
    return None
