"""Agents that come, go, hand leases back or let them run out."""

from collections.abc import Iterable
from typing import TypeAlias

from spillover.core.deciders.endings import finish
from spillover.core.deciders.gangs import given_up, lost_task, tasks_end
from spillover.core.deciders.results import holder
from spillover.core.deciders.verdicts import lost, released
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    AnyEvent,
    JobEnded,
    JobState,
    Lease,
    StealRefused,
    Unmoved,
)
from spillover.core.jobs import Job, Placed
from spillover.core.nodes import Node
from spillover.core.proposals import (
    DRIVER,
    AgentGone,
    Done,
    Drain,
    Forget,
    HandBack,
    Reclaim,
    Refusal,
    RefusalKind,
    Register,
    Registered,
    Reply,
    Resume,
)
from spillover.core.state import State
from spillover.core.tasks import JobTask
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, TaskKey, node_key, split_task, task_key


def register(state: State, proposal: Register, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent may work; what it holds under valid leases it keeps, what it does not name it has lost or never got."""
    if proposal.cluster not in state.clusters:
        known = ", ".join(state.clusters) or "none"
        return [], Refusal(
            RefusalKind.UNKNOWN, f"there is no cluster {proposal.cluster!r} here; known: {known}"
        )
    if state.clusters[proposal.cluster].kind != "agents":
        return [], Refusal(RefusalKind.INVALID, f"{proposal.cluster!r} is not a cluster of agents")
    key = node_key(proposal.cluster, proposal.node)
    if (taken := name_taken(state, key, proposal.token, now, admin=proposal.admin)) is not None:
        return [], Refusal(RefusalKind.CONFLICT, taken)
    node = state.nodes.get(key)
    if node is not None and not node.is_agent:
        told = f"{node.key} is known as a node that others ran, with jobs that nobody has given up yet: cancel or requeue them"
        return [], Refusal(RefusalKind.CONFLICT, told)
    events: list[AnyEvent] = [
        AgentRegistered(
            proposal.cluster,
            proposal.node,
            now,
            proposal.incarnation,
            proposal.capacity,
            tuple(sorted(set(proposal.offers))),
            proposal.labels,
            proposal.queue,
            proposal.token,
        )
    ]
    keep = tuple(lease for lease in proposal.held if _task(state, lease, key) is not None)
    if node is not None:
        excess = _excess(node, proposal, dict.fromkeys(map(_key, keep)))
        keep = tuple(lease for lease in keep if _key(lease) not in excess)
        wanted = dict.fromkeys(lease.job for lease in keep if _is_wanted(state.jobs[lease.job]))
        events += [StealRefused(job, now, Unmoved.VOID) for job in wanted]
        if node.drained:
            events.append(AgentDraining(proposal.cluster, proposal.node, now, node.drained))
    kept = dict.fromkeys(map(_key, keep))
    gone = [_found(state, each) for each in (node.held if node is not None else ()) if each not in kept]
    return together(state, _given_up(state, gone, now), now, events), Registered(keep)


def name_taken(state: State, key: NodeKey, token: str, now: int, *, admin: bool) -> str | None:
    """Why an agent may not have its name in its cluster: whoever had it with another token keeps it, and its results with it."""
    node = state.agents.get(key)
    if admin or node is None or node.token == token:
        return None
    if not node.token:
        return f"the name {node.name!r} belongs to an agent of the server itself; give this one another"
    owner = state.tokens.get(node.token)
    if owner is not None and owner.is_valid(now):
        return f"the name {node.name!r} belongs to an agent with the token {owner.id}; revoke that, or give this one another name"
    return None


def hand_back(state: State, proposal: HandBack, now: int) -> tuple[list[AnyEvent], Reply]:
    """Leases that never started go back to the queue, unharmed."""
    held = _holders(state, proposal.leases, proposal.node)
    never_began = [(job, task) for job, task in held if _has_not_begun(job, task)]
    return together(
        state, _given_up(state, never_began, now, proposal.because, proposal.backoff), now
    ), Done()


def reclaim(state: State, proposal: Reclaim, now: int) -> tuple[list[AnyEvent], Reply]:
    """Leases that ran out: their tasks are lost, or never started for all that is known, which is the same."""
    ran_out = _holders(state, proposal.leases, proposal.node)
    left: list[AnyEvent] = [lost(state, job, now) for job, task in ran_out if task is None]
    for job, tasks in _gangs(ran_out):
        left += tasks_end(state, job, [lost_task(state, job, task, now) for task in tasks], now)
    return together(state, left, now), Done()


def drain(state: State, proposal: Drain, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent is given nothing more: until it registers anew, or until it is resumed if a person wants it so."""
    node = _node(state, proposal.cluster, proposal.node)
    if isinstance(node, Refusal):
        return [], node
    if node.drained if proposal.who else node.status != "ready":
        return [], Done()
    return [AgentDraining(proposal.cluster, proposal.node, now, proposal.who)], Done()


def resume(state: State, proposal: Resume, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent that somebody drained may be given work."""
    node = _node(state, proposal.cluster, proposal.node)
    if isinstance(node, Refusal):
        return [], node
    if not node.drained:
        return [], Done()
    return [AgentResumed(proposal.cluster, proposal.node, now, proposal.who)], Done()


def forget(state: State, proposal: Forget, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent that is not there and holds nothing leaves the book."""
    node = _node(state, proposal.cluster, proposal.node)
    if isinstance(node, Refusal):
        return [], node
    if node.status not in {"lost", "unobserved"}:
        told = (
            f"agent {proposal.node} is {node.status}; stop it first, and it can be forgotten once it is lost"
        )
        return [], Refusal(RefusalKind.CONFLICT, told)
    if leases := len(node.held):
        return [], Refusal(
            RefusalKind.CONFLICT,
            f"agent {proposal.node} may still run {leases} jobs; wait until their leases have run out",
        )
    return [AgentForgotten(proposal.cluster, proposal.node, now, proposal.who)], Done()


def gone(state: State, proposal: AgentGone, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent is given nothing more until it registers anew."""
    node = state.nodes.get(f"{proposal.cluster}/{proposal.node}")
    if node is None or not node.is_agent or node.incarnation != proposal.incarnation or node.status == "lost":
        return [], Done()
    return [AgentLost(proposal.cluster, proposal.node, now)], Done()


def _node(state: State, cluster: ClusterName, name: NodeName) -> Node | Refusal:
    """An agent that the book knows."""
    node = state.nodes.get(f"{cluster}/{name}")
    if node is None:
        return Refusal(RefusalKind.UNKNOWN, f"there is no agent {name!r} in {cluster}")
    if not node.is_agent:
        return Refusal(
            RefusalKind.INVALID, f"{node.key} is a node of an external cluster: cordon or remove it there"
        )
    return node


_Task: TypeAlias = tuple[Job, JobTask | None]
"""A task that its agent speaks for: of a gang which one it is; None is all of a job."""


def _key(lease: Lease) -> TaskKey:
    return task_key(lease.job, lease.attempt, lease.task)


def _excess(node: Node, proposal: Register, kept: dict[TaskKey, None]) -> dict[TaskKey, None]:
    """Leases that an agent has not started and that the queue it has now leaves no room for, the last ones first."""
    waiting = dict.fromkeys(map(_key, proposal.waiting))
    free = proposal.capacity
    for task, asked in node.holding.items():
        if task in kept:
            free = free - asked
    ahead = [task for task in node.ahead if task in kept]
    while ahead and node.ahead[ahead[0]].fits(free):
        free = free - node.ahead[ahead.pop(0)]
    spare = [task for task in ahead if task in waiting]
    return dict.fromkeys(spare[len(spare) - max(0, min(len(spare), len(ahead) - proposal.queue)) :])


def _is_wanted(job: Job) -> bool:
    """Whether another agent has asked for a job's lease."""
    return type(job.phase) is Placed and job.phase.thief is not None


def _holders(state: State, leases: Iterable[Lease], node: NodeKey) -> list[_Task]:
    """The tasks that a node may speak for under these leases, each once."""
    found = {_key(lease): _task(state, lease, node) for lease in leases}
    return [each for each in found.values() if each is not None]


def _task(state: State, lease: Lease, node: NodeKey) -> _Task | None:
    """The task that a node may speak for under a lease and that goes on; a driver speaks for all tasks of a job."""
    job = holder(state, lease, node)
    if job is None or job.extra.gang is None or node == DRIVER:
        return None if job is None else (job, None)
    task = job.extra.gang.tasks[lease.task]
    return (job, task) if task.lives else None


def _found(state: State, key: TaskKey) -> _Task:
    """A task that the book has on a node of an agent."""
    job_id, _, rank = split_task(key)
    job = state.jobs[job_id]
    return job, None if job.extra.gang is None else job.extra.gang.tasks[rank]


def _has_not_begun(job: Job, task: JobTask | None) -> bool:
    return type(job.phase) is Placed if task is None else task.state is JobState.PLACED


def _given_up(
    state: State, given: Iterable[_Task], now: int, because: str = "", backoff: int = 0
) -> list[AnyEvent]:
    """What becomes of tasks that their agent does not have (any more): back to the queue, or lost if they had begun."""
    given = list(given)
    events: list[AnyEvent] = [
        released(job, now, because, backoff) if type(job.phase) is Placed else lost(state, job, now)
        for job, task in given
        if task is None
    ]
    for job, tasks in _gangs(given):
        events += tasks_end(state, job, [given_up(state, job, task, now, because) for task in tasks], now)
    return events


def _gangs(found: Iterable[_Task]) -> list[tuple[Job, list[JobTask]]]:
    """Those that are tasks of gangs, by their jobs."""
    gangs: dict[JobId, tuple[Job, list[JobTask]]] = {}
    for job, task in found:
        if task is not None:
            gangs.setdefault(job.id, (job, []))[1].append(task)
    return list(gangs.values())


def together(
    state: State, each: Iterable[AnyEvent], now: int, before: Iterable[AnyEvent] = ()
) -> list[AnyEvent]:
    """All of these at once: an array ends with its last member also when several members end together."""
    events = list(before)
    endings = []
    for event in each:
        if type(event) is JobEnded:
            endings.append(event)
        else:
            events.append(event)
    return finish(state, endings, now, events)
