"""Tracks what tasks hold on nodes.

A lease either holds its resources, or is prefetched, so that the agent need not wait for a message between two short
tasks. Prefetched leases get resources in their order, which is the order in which the agent starts them. So a placement
never exceeds the capacity of an agent.
"""

from collections.abc import Sequence

from spillover.core.records.jobs import Job
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.ids import ClusterName, NodeName, TaskKey, job_of_task, task_key
from spillover.model.resources import Resources
from spillover.model.units import SECOND

STUCK = 3 * SECOND
"""Shortest time in nanoseconds before a prefetched lease that waits is asked back. Idle agents may steal it first."""


def free_capacity(node: Node) -> Resources:
    """Return what is free on a node."""
    return node.capacity - node.used


def names_gpus(node: Node) -> bool:
    """Return whether the server says which GPUs of a node a task gets, so that no such task is prefetched there."""
    return node.inside is not None and bool(node.inside.gpus)


def slots_of(node: Node) -> int:
    """Return how many tasks of one CPU a node runs at a time."""
    return max(1, node.capacity.cpu // 1000)


def ahead_of(node: Node, horizon: int) -> int:
    """Return how many leases a node may prefetch: as many as it finishes within the horizon at its present pace."""
    if node.pace <= 0:
        return 0
    return min(node.queue, slots_of(node) * horizon // node.pace)


def stuck_after(horizon: int) -> int:
    """Return the nanoseconds after which a prefetched lease without resources is asked back."""
    return max(STUCK, 4 * horizon)


def revoked_from(at: int, horizon: int) -> int:
    """Return when a lease prefetched `at` a time is asked back: a whole second UTC, so that many are due together."""
    return -(-(at + stuck_after(horizon)) // SECOND) * SECOND


def takes_over(node: Node, asked: Resources, horizon: int) -> bool:
    """Return whether a node has room for a stolen lease now, or can prefetch one more."""
    if node.status != "ready" or node.alone or not asked.fits(node.capacity):
        return False
    if asked.gpu and names_gpus(node):
        return False
    return (not node.ahead and asked.fits(free_capacity(node))) or len(node.ahead) < ahead_of(node, horizon)


def put_on_node(state: State, job: Job, cluster: ClusterName, name: NodeName) -> None:
    """Reserve resources for the only task of a job, or queue it as prefetched; on external nodes nothing queues."""
    key = f"{cluster}/{name}"
    node = state.nodes[key]
    shape, granted = job.kind.shape, job.extra.granted
    asked = job.held_by(0) if granted else shape.resources
    after = node.used + asked
    task = task_key(job.id, job.attempt)
    if node.foreign is not None or (not node.ahead and after.fits(node.capacity)):
        node.used = after
        node.holding[task] = asked
        if shape.topology is not None:
            node.alone = shape.topology.exclusive
        if granted and granted[0] is not None:
            node.granted[task] = granted[0]
    else:
        node.ahead[task] = asked
        state.facts.turns += 1
        node.turn = state.facts.turns
        state.touch_facts()
    state.dirty["node"][key] = state.moved[key] = None


def put_gang_on_nodes(state: State, job: Job, cluster: ClusterName) -> None:
    """Reserve resources for all tasks of a gang; none of them is prefetched."""
    for task in job.tasks:
        _hold(state, job, cluster, task.rank, task.node)


def move_lease(state: State, job: Job, cluster: ClusterName, name: NodeName, thief: NodeName) -> None:
    """Move a lease to another node. The pace of the old node stays, because no task has run."""
    key = f"{cluster}/{name}"
    node = state.nodes[key]
    task = task_key(job.id, job.attempt)
    asked = node.holding.pop(task, None)
    if asked is not None:
        node.used = node.used - asked
    node.ahead.pop(task, None)
    move_up(node)
    node.given += 1
    state.touch_node(key)
    put_on_node(state, job, cluster, thief)
    state.nodes[f"{cluster}/{thief}"].taken += 1


def rebind(state: State, job: Job, cluster: ClusterName, names: Sequence[NodeName]) -> None:
    """Move live tasks, by rank, to the nodes where they really are, whatever else is there."""
    left: dict[str, Node] = {}
    for task, name in zip(job.tasks, names, strict=True):
        if not task.lives or task.node == name:
            continue
        key = f"{cluster}/{task.node}"
        node = left[key] = state.nodes[key]
        node.used = node.used - node.holding.pop(task_key(job.id, job.attempt, task.rank))
        node.alone = node.alone and _has_exclusive(state, node)
        state.touch_node(key)
        _hold(state, job, cluster, task.rank, name)
    for node in left.values():
        remove_gone_node(state, node)


def _hold(state: State, job: Job, cluster: ClusterName, rank: int, name: NodeName) -> None:
    """Reserve resources for a task."""
    key = f"{cluster}/{name}"
    node, asked, task = state.nodes[key], job.held_by(rank), task_key(job.id, job.attempt, rank)
    node.used = node.used + asked
    node.holding[task] = asked
    if (granted := job.granted(rank)) is not None:
        node.granted[task] = granted
    if (topology := job.kind.shape.topology) is not None:
        # A task may really be where the state still has that of another job, which is then found elsewhere.
        node.alone = topology.exclusive or (node.alone and not node.is_agent)
    state.touch_node(key)


def remove_gone_node(state: State, node: Node) -> None:
    """Remove a gone node once none of our tasks are on it."""
    if node.status == "gone" and not node.holding:
        del state.nodes[node.key]


def move_up(node: Node) -> None:
    """Give free resources to prefetched leases, in their order, while they fit."""
    while node.ahead:
        first, wanted = next(iter(node.ahead.items()))
        if not wanted.fits(free_capacity(node)):
            break
        del node.ahead[first]
        node.holding[first] = wanted
        node.used = node.used + wanted


def _has_exclusive(state: State, node: Node) -> bool:
    """Return whether a task is on a node whose job has it for itself."""
    return any(
        (topology := state.jobs[job_of_task(key)].kind.shape.topology) is not None and topology.exclusive
        for key in node.holding
    )


def leave_nodes(state: State, job: Job, cluster: ClusterName, ran: int) -> None:
    """Release what the live tasks of a job hold; their runtime counts once for each node."""
    counted: dict[NodeName, None] = {}
    for task in job.tasks:
        if task.lives:
            key = task_key(job.id, job.attempt, task.rank)
            leave_node(state, key, cluster, task.node, 0 if task.node in counted else ran)
            counted[task.node] = None


def leave_node(state: State, task: TaskKey, cluster: ClusterName, name: NodeName, ran: int) -> None:
    """Release what a task held, and let prefetched leases move up."""
    key = f"{cluster}/{name}"
    node = state.nodes.get(key)
    if node is None:
        return
    asked = node.holding.pop(task, None)
    if asked is not None:
        node.used = node.used - asked
        if node.granted:
            node.granted.pop(task, None)
        if node.alone:
            node.alone = _has_exclusive(state, node)
    elif node.ahead.pop(task, None) is not None and ran == 0:
        node.pace = max(node.pace, STUCK)  # it waited in vain, so tasks there are not short after all
    if node.ahead:
        move_up(node)
    if ran > 0:
        node.pace = ran if node.pace == 0 else (7 * node.pace + ran) // 8
    if node.foreign is not None:
        remove_gone_node(state, node)
    state.dirty["node"][key] = state.moved[key] = None
