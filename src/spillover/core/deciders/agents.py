"""Decides on agents that register, leave, return leases or let them expire."""

from collections.abc import Iterable
from typing import TypeAlias

from spillover.core.deciders.endings import ITSELF, finish
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
    JobStopping,
    Lease,
    MachineJoined,
    StealRefused,
    Stop,
    Unmoved,
)
from spillover.core.proposals import (
    DRIVER,
    AgentGone,
    Done,
    Drain,
    Forget,
    HandBack,
    Interrupt,
    Reclaim,
    Refusal,
    RefusalKind,
    Register,
    Registered,
    Reply,
    Resume,
)
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.nodes import Node
from spillover.core.records.tasks import JobTask
from spillover.core.state import State
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, TaskKey, node_key, split_task, task_key
from spillover.model.pools import MachineId, MachineState
from spillover.model.units import so_many


def register(state: State, proposal: Register, now: int) -> tuple[list[AnyEvent], Reply]:
    """Register an agent. It keeps tasks with valid leases; tasks that it does not name are lost or never arrived."""
    if proposal.cluster not in state.clusters:
        known = ", ".join(state.clusters) or "none"
        return [], Refusal(
            RefusalKind.UNKNOWN, f"there is no cluster {proposal.cluster!r}; known clusters: {known}"
        )
    if state.clusters[proposal.cluster].kind != "agents":
        return [], Refusal(
            RefusalKind.INVALID, f"agents cannot join {proposal.cluster!r}, which is an external cluster"
        )
    key = node_key(proposal.cluster, proposal.node)
    if (taken := name_taken(state, key, proposal.token, now, admin=proposal.admin)) is not None:
        return [], Refusal(RefusalKind.CONFLICT, taken)
    node = state.nodes.get(key)
    if node is not None and not node.is_agent:
        message = f"{node.key} is still known as a node of an external cluster that has jobs; cancel or requeue them first"
        return [], Refusal(RefusalKind.CONFLICT, message)
    joined = _joins(state, proposal, now)
    if isinstance(joined, Refusal):
        return [], joined
    events: list[AnyEvent] = [
        AgentRegistered(
            proposal.cluster,
            proposal.node,
            now,
            proposal.incarnation,
            proposal.capacity,
            tuple(sorted(set(proposal.offers))),
            _labels(state, proposal),
            proposal.queue,
            proposal.token,
            proposal.inside,
            proposal.gangs,
        )
    ]
    events += joined
    keep = tuple(lease for lease in proposal.held if _task(state, lease, key) is not None)
    if node is not None:
        excess = _excess(node, proposal, dict.fromkeys(map(_key, keep)))
        keep = tuple(lease for lease in keep if _key(lease) not in excess)
        wanted = dict.fromkeys(lease.job for lease in keep if _is_wanted(state.jobs[lease.job]))
        events += [StealRefused(job, now, Unmoved.VOID) for job in wanted]
        if node.drained:
            events.append(AgentDraining(proposal.cluster, proposal.node, now, node.drained, node.reason))
    kept = dict.fromkeys(map(_key, keep))
    gone = [found_task(state, each) for each in (node.held if node is not None else ()) if each not in kept]
    return together(state, give_up(state, gone, now), now, events), Registered(keep)


def _labels(state: State, proposal: Register) -> dict[str, str]:
    """Return the labels of an agent; of a rented machine, the book says which type, zone and market it has."""
    machine = state.machines.get(MachineId(proposal.node)) if state.machines else None
    if machine is None or machine.cluster != proposal.cluster:
        return proposal.labels
    return {**proposal.labels, **machine.offer.agent_labels}


def _joins(state: State, proposal: Register, now: int) -> list[AnyEvent] | Refusal:
    """Return what a registration means for the rented machine of the agent, or why the machine may not join."""
    machine = state.machines.get(MachineId(proposal.node))
    if machine is None or machine.cluster != proposal.cluster:
        return []
    match machine.state:
        case MachineState.WANTED | MachineState.BOOTING:
            timed = state.facts.jumped == machine.jumped
            return [MachineJoined(machine.id, now, machine.cluster, timed)]
        case MachineState.READY | MachineState.DRAINING:
            return []
        case MachineState.ENDING | MachineState.GONE | MachineState.REFUSED:
            message = f"machine {machine.id} is {machine.state}; it cannot join any more"
            return Refusal(RefusalKind.CONFLICT, message)


def name_taken(state: State, key: NodeKey, token: str, now: int, *, admin: bool) -> str | None:
    """Return why an agent may not use its name, which belongs to the agent with another valid token; None if it may."""
    if admin:
        return None
    cluster, _, name = key.partition("/")
    machine = state.machines.get(MachineId(name))
    if machine is not None and machine.cluster == cluster and machine.is_live and machine.token != token:
        return f"the name {name!r} belongs to a rented machine, which joins with a token of its own; choose another name"
    node = state.agents.get(key)
    if node is None or node.token == token:
        return None
    if not node.token:
        return f"the name {node.name!r} belongs to an agent that the server runs itself; choose another name"
    owner = state.tokens.get(node.token)
    if owner is not None and owner.is_valid(now):
        return f"the name {node.name!r} belongs to an agent with token {owner.id}; revoke that token, or choose another name"
    return None


def hand_back(state: State, proposal: HandBack, now: int) -> tuple[list[AnyEvent], Reply]:
    """Requeue leases that never started."""
    held = _holders(state, proposal.leases, proposal.node)
    never_began = [(job, task) for job, task in held if _has_not_begun(job, task)]
    return together(state, give_up(state, never_began, now, proposal.because, proposal.backoff), now), Done()


def reclaim(state: State, proposal: Reclaim, now: int) -> tuple[list[AnyEvent], Reply]:
    """Treat the tasks of expired leases as lost, because it is unknown whether they started."""
    ran_out = _holders(state, proposal.leases, proposal.node)
    left: list[AnyEvent] = [lost(state, job, now) for job, task in ran_out if task is None]
    for job, tasks in _gangs(ran_out):
        left += tasks_end(state, job, [lost_task(state, job, task, now) for task in tasks], now)
    return together(state, left, now), Done()


def drain(state: State, proposal: Drain, now: int) -> tuple[list[AnyEvent], Reply]:
    """Drain an agent until it registers again or, if a person asked, until it is resumed."""
    node = _node(state, proposal.cluster, proposal.node)
    if isinstance(node, Refusal):
        return [], node
    told = proposal.reason not in {"", node.reason}
    if node.drained and not told if proposal.who else node.status != "ready":
        return [], Done()
    return [AgentDraining(proposal.cluster, proposal.node, now, proposal.who, proposal.reason)], Done()


def interrupt(state: State, proposal: Interrupt, now: int) -> tuple[list[AnyEvent], Reply]:
    """Drain an agent whose machine will be taken back, and stop its tasks, which return to the queue."""
    events, reply = drain(state, Drain(proposal.cluster, proposal.node), now)
    if isinstance(reply, Refusal):
        return [], reply
    return events + interrupted(state, node_key(proposal.cluster, proposal.node), now), Done()


def interrupted(state: State, key: NodeKey, now: int) -> list[AnyEvent]:
    """Stop all jobs with a task on an agent that will not be there for long; those that stop already do so as before."""
    node = state.agents.get(key)
    jobs = [] if node is None else [state.jobs[each] for each in node.jobs]
    return [
        JobStopping(job.id, now, Stop.INTERRUPT, ITSELF)
        for job in jobs
        if isinstance(job.phase, Placed | Running) and job.phase.stopping is None
    ]


def resume(state: State, proposal: Resume, now: int) -> tuple[list[AnyEvent], Reply]:
    """Resume an agent that a person drained."""
    node = _node(state, proposal.cluster, proposal.node)
    if isinstance(node, Refusal):
        return [], node
    if not node.drained:
        return [], Done()
    return [AgentResumed(proposal.cluster, proposal.node, now, proposal.who)], Done()


def forget(state: State, proposal: Forget, now: int) -> tuple[list[AnyEvent], Reply]:
    """Remove an agent that is lost or unobserved and holds nothing."""
    node = _node(state, proposal.cluster, proposal.node)
    if isinstance(node, Refusal):
        return [], node
    if node.status not in {"lost", "unobserved"}:
        message = f"agent {proposal.node} is {node.status}; stop it and wait until it is lost, then forget it"
        return [], Refusal(RefusalKind.CONFLICT, message)
    if leases := len(node.held):
        return [], Refusal(
            RefusalKind.CONFLICT,
            f"agent {proposal.node} may still run {so_many(leases)}; wait until "
            f"{'its lease expires' if leases == 1 else 'their leases expire'}",
        )
    return [AgentForgotten(proposal.cluster, proposal.node, now, proposal.who)], Done()


def gone(state: State, proposal: AgentGone, now: int) -> tuple[list[AnyEvent], Reply]:
    """Mark an agent as lost, so that it gets no work until it registers again."""
    node = state.nodes.get(f"{proposal.cluster}/{proposal.node}")
    if node is None or not node.is_agent or node.incarnation != proposal.incarnation or node.status == "lost":
        return [], Done()
    machine = state.machines.get(MachineId(proposal.node))
    ends = machine is not None and machine.cluster == proposal.cluster and machine.is_going
    return [AgentLost(proposal.cluster, proposal.node, now, proposal.left or ends)], Done()


def _node(state: State, cluster: ClusterName, name: NodeName) -> Node | Refusal:
    """Return an agent of the state, or a refusal."""
    node = state.nodes.get(f"{cluster}/{name}")
    if node is None:
        return Refusal(RefusalKind.UNKNOWN, f"there is no agent {name!r} in {cluster}")
    if not node.is_agent:
        return Refusal(
            RefusalKind.INVALID, f"{node.key} is a node of an external cluster; cordon or remove it there"
        )
    return node


_Task: TypeAlias = tuple[Job, JobTask | None]
"""A job and the task of a gang that an agent reports on; None means the whole job."""


def _key(lease: Lease) -> TaskKey:
    return task_key(lease.job, lease.attempt, lease.task)


def _excess(node: Node, proposal: Register, kept: dict[TaskKey, None]) -> dict[TaskKey, None]:
    """Return unstarted leases beyond the present queue length of an agent, last ones first."""
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
    """Return whether another agent has asked for the lease of a job."""
    return type(job.phase) is Placed and job.phase.thief is not None


def _holders(state: State, leases: Iterable[Lease], node: NodeKey) -> list[_Task]:
    """Return the tasks that a node may report on under these leases, each once."""
    found = {_key(lease): _task(state, lease, node) for lease in leases}
    return [each for each in found.values() if each is not None]


def _task(state: State, lease: Lease, node: NodeKey) -> _Task | None:
    """Return the live task that a node may report on under a lease; a driver reports on whole jobs."""
    job = holder(state, lease, node)
    if job is None or job.extra.gang is None or node == DRIVER:
        return None if job is None else (job, None)
    task = job.extra.gang.tasks[lease.task]
    return (job, task) if task.lives else None


def found_task(state: State, key: TaskKey) -> _Task:
    """Return a task that the state has on a node of an agent."""
    job_id, _, rank = split_task(key)
    job = state.jobs[job_id]
    return job, None if job.extra.gang is None else job.extra.gang.tasks[rank]


def _has_not_begun(job: Job, task: JobTask | None) -> bool:
    return type(job.phase) is Placed if task is None else task.state is JobState.PLACED


def give_up(
    state: State,
    given: Iterable[_Task],
    now: int,
    because: str = "",
    backoff: int = 0,
    *,
    interrupted: bool = False,
) -> list[AnyEvent]:
    """Decide on tasks that their agent does not have: requeue them, or treat them as lost if they had started."""
    given = list(given)
    events: list[AnyEvent] = [
        released(job, now, because, backoff)
        if type(job.phase) is Placed
        else lost(state, job, now, because if interrupted else "", interrupted=interrupted)
        for job, task in given
        if task is None
    ]
    for job, tasks in _gangs(given):
        ends = [given_up(state, job, task, now, because, backoff) for task in tasks]
        events += tasks_end(state, job, ends, now)
    return events


def _gangs(found: Iterable[_Task]) -> list[tuple[Job, list[JobTask]]]:
    """Group tasks of gangs by job."""
    gangs: dict[JobId, tuple[Job, list[JobTask]]] = {}
    for job, task in found:
        if task is not None:
            gangs.setdefault(job.id, (job, []))[1].append(task)
    return list(gangs.values())


def together(
    state: State, each: Iterable[AnyEvent], now: int, before: Iterable[AnyEvent] = ()
) -> list[AnyEvent]:
    """Combine events, so that an array also ends when its last members end together."""
    events = list(before)
    endings = []
    for event in each:
        if type(event) is JobEnded:
            endings.append(event)
        else:
            events.append(event)
    return finish(state, endings, now, events)
