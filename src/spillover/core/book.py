"""What tasks hold on a node, each by its lease.

A lease either has its room, or was prefetched so that the agent need not wait for a message between two short
tasks. Those ahead get room in the order they were given, as the agent itself starts them; so the book never holds more than a
node has.
"""

from collections.abc import Sequence

from spillover.core.jobs import Job
from spillover.core.nodes import Node
from spillover.core.state import State
from spillover.core.tasks import asked_by
from spillover.model.ids import ClusterName, NodeName, TaskKey, task_key
from spillover.model.resources import Resources
from spillover.model.units import SECOND

STUCK = 3 * SECOND
"""Nanoseconds that a prefetched lease waits for room at the least before it is asked back: idle agents may ask for it first."""


def room_of(node: Node) -> Resources:
    """What is free."""
    return node.capacity - node.used


def slots_of(node: Node) -> int:
    """How many tasks of one CPU a node runs at a time."""
    return max(1, node.capacity.cpu // 1000)


def ahead_of(node: Node, horizon: int) -> int:
    """How many leases a node may prefetch: what it gets done in the horizon, by how short its recent tasks were."""
    if node.pace <= 0:
        return 0
    return min(node.queue, slots_of(node) * horizon // node.pace)


def stuck_after(horizon: int) -> int:
    """Nanoseconds after which a prefetched lease that still has no room is asked back."""
    return max(STUCK, 4 * horizon)


def revoked_from(at: int, horizon: int) -> int:
    """From when on a lease that was prefetched at a time is asked back, nanoseconds UTC: whole seconds, so that many are due together."""
    return -(-(at + stuck_after(horizon)) // SECOND) * SECOND


def takes_over(node: Node, asked: Resources, horizon: int) -> bool:
    """Whether a node has room right now for a lease that moves to it, or prefetches one more."""
    if node.status != "ready" or not asked.fits(node.capacity):
        return False
    return (not node.ahead and asked.fits(room_of(node))) or len(node.ahead) < ahead_of(node, horizon)


def put_on_node(state: State, job: Job, cluster: ClusterName, name: NodeName) -> None:
    """Let the only task of a job hold its room, or wait for it; where others run the node, nothing waits."""
    key = f"{cluster}/{name}"
    node = state.nodes[key]
    asked = job.kind.shape.resources
    after = node.used + asked
    task = task_key(job.id, job.attempt)
    if node.foreign is not None or (not node.ahead and after.fits(node.capacity)):
        node.used = after
        node.holding[task] = asked
    else:
        node.ahead[task] = asked
        state.facts.turns += 1
        node.turn = state.facts.turns
        state.touch_facts()
    state.dirty["node"][key] = state.moved[key] = None


def put_gang_on_nodes(state: State, job: Job, cluster: ClusterName) -> None:
    """Let the tasks of a gang hold their room, all at once: none of them waits for it."""
    for task in job.tasks:
        _hold(state, job, cluster, task.rank, task.node)


def move_lease(state: State, job: Job, cluster: ClusterName, name: NodeName, thief: NodeName) -> None:
    """Let another node hold a lease. That its old one had work to give away says nothing of how short that is."""
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
    """Let tasks that go on hold room where they really are, by rank, whatever else is there, and none where they are not."""
    left: dict[str, Node] = {}
    for task, name in zip(job.tasks, names, strict=True):
        if not task.lives or task.node == name:
            continue
        key = f"{cluster}/{task.node}"
        node = left[key] = state.nodes[key]
        node.used = node.used - node.holding.pop(task_key(job.id, job.attempt, task.rank))
        state.touch_node(key)
        _hold(state, job, cluster, task.rank, name)
    for node in left.values():
        strike_off(state, node)


def _hold(state: State, job: Job, cluster: ClusterName, rank: int, name: NodeName) -> None:
    """Let a task hold its room."""
    key = f"{cluster}/{name}"
    node, asked = state.nodes[key], asked_by(job.kind.shape, rank)
    node.used = node.used + asked
    node.holding[task_key(job.id, job.attempt, rank)] = asked
    state.touch_node(key)


def strike_off(state: State, node: Node) -> None:
    """Forget a node that is gone, once nothing of ours is on it."""
    if node.status == "gone" and not node.holding:
        del state.nodes[node.key]


def move_up(node: Node) -> None:
    """Let prefetched leases have it, in their order, as far as there is any."""
    while node.ahead:
        first, wanted = next(iter(node.ahead.items()))
        if not wanted.fits(room_of(node)):
            break
        del node.ahead[first]
        node.holding[first] = wanted
        node.used = node.used + wanted


def leave_nodes(state: State, job: Job, cluster: ClusterName, ran: int) -> None:
    """Give back what the tasks of a job that go on hold; how long they ran counts once for each node."""
    told: dict[NodeName, None] = {}
    for task in job.tasks:
        if task.lives:
            key = task_key(job.id, job.attempt, task.rank)
            leave_node(state, key, cluster, task.node, 0 if task.node in told else ran)
            told[task.node] = None


def leave_node(state: State, task: TaskKey, cluster: ClusterName, name: NodeName, ran: int) -> None:
    """Give back what a task held, and let prefetched leases move up."""
    key = f"{cluster}/{name}"
    node = state.nodes.get(key)
    if node is None:
        return
    asked = node.holding.pop(task, None)
    if asked is not None:
        node.used = node.used - asked
    elif node.ahead.pop(task, None) is not None and ran == 0:
        node.pace = max(node.pace, STUCK)  # it never got its room: what runs there is not short after all
    if node.ahead:
        move_up(node)
    if ran > 0:
        node.pace = ran if node.pace == 0 else (7 * node.pace + ran) // 8
    if node.foreign is not None:
        strike_off(state, node)
    state.dirty["node"][key] = state.moved[key] = None
