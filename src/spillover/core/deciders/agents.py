"""Agents that come, go, hand leases back or let them run out."""

from collections.abc import Iterable

from spillover.core.deciders.endings import attempt_cost, elapsed, finish
from spillover.core.deciders.results import again, holder, verdict
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    AnyEvent,
    Back,
    JobEnded,
    JobRequeued,
    Lease,
    StealRefused,
    Unmoved,
    Usage,
)
from spillover.core.jobs import Job, Placed, Running
from spillover.core.nodes import Node
from spillover.core.proposals import (
    AgentGone,
    Done,
    Drain,
    Forget,
    HandBack,
    Outcome,
    Reclaim,
    Refusal,
    Refused,
    Register,
    Registered,
    Reply,
    Resume,
)
from spillover.core.state import State
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, node_key


def register(state: State, proposal: Register, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent may work; what it holds under valid leases it keeps, what it does not name it has lost or never got."""
    if proposal.cluster not in state.clusters:
        known = ", ".join(state.clusters) or "none"
        return [], Refusal(Refused.UNKNOWN, f"there is no cluster {proposal.cluster!r} here; known: {known}")
    if state.clusters[proposal.cluster].kind != "agents":
        return [], Refusal(Refused.INVALID, f"{proposal.cluster!r} is not a cluster of agents")
    key = node_key(proposal.cluster, proposal.node)
    if (taken := name_taken(state, key, proposal.token, now, admin=proposal.admin)) is not None:
        return [], Refusal(Refused.CONFLICT, taken)
    node = state.nodes.get(key)
    if node is not None and not node.is_agent:
        told = f"{node.key} is known as a node that others ran, with jobs that nobody has given up yet: cancel or requeue them"
        return [], Refusal(Refused.CONFLICT, told)
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
    keep = tuple(lease for lease in proposal.held if holder(state, lease, key) is not None)
    kept = {lease.job: None for lease in keep}
    if node is not None:
        excess = _excess(node, proposal, kept)
        keep = tuple(lease for lease in keep if lease.job not in excess)
        kept = {lease.job: None for lease in keep}
        events += [StealRefused(job, now, Unmoved.VOID) for job in kept if _is_wanted(state.jobs[job])]
        if node.drained:
            events.append(AgentDraining(proposal.cluster, proposal.node, now, node.drained))
    gave_up = [
        _gone(state, state.jobs[job_id], now)
        for job_id in ((*node.holding, *node.ahead) if node is not None else ())
        if job_id not in kept
    ]
    return together(state, gave_up, now, events), Registered(keep)


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
    given = [
        released(job, now, proposal.because, proposal.backoff)
        for job in _holders(state, proposal.leases, proposal.node)
        if type(job.phase) is Placed
    ]
    return together(state, given, now), Done()


def reclaim(state: State, proposal: Reclaim, now: int) -> tuple[list[AnyEvent], Reply]:
    """Leases that ran out: their tasks are lost, or never started for all that is known, which is the same."""
    ran_out = [lost(state, job, now) for job in _holders(state, proposal.leases, proposal.node)]
    return together(state, ran_out, now), Done()


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
        return [], Refusal(Refused.CONFLICT, told)
    if leases := len(node.holding) + len(node.ahead):
        return [], Refusal(
            Refused.CONFLICT,
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
        return Refusal(Refused.UNKNOWN, f"there is no agent {name!r} in {cluster}")
    if not node.is_agent:
        return Refusal(
            Refused.INVALID, f"{node.key} is a node of an external cluster: cordon or remove it there"
        )
    return node


def _excess(node: Node, proposal: Register, kept: dict[JobId, None]) -> dict[JobId, None]:
    """Leases that an agent has not started and that the queue it has now leaves no room for, the last ones first."""
    waiting = {lease.job: None for lease in proposal.waiting}
    free = proposal.capacity
    for job, asked in node.holding.items():
        if job in kept:
            free = free - asked
    ahead = [job for job in node.ahead if job in kept]
    while ahead and node.ahead[ahead[0]].fits(free):
        free = free - node.ahead[ahead.pop(0)]
    spare = [job for job in ahead if job in waiting]
    return dict.fromkeys(spare[len(spare) - max(0, min(len(spare), len(ahead) - proposal.queue)) :])


def _is_wanted(job: Job) -> bool:
    """Whether another agent has asked for a job's lease."""
    return type(job.phase) is Placed and job.phase.thief is not None


def _holders(state: State, leases: Iterable[Lease], node: NodeKey) -> list[Job]:
    """The jobs that a node may speak for under these leases, each once."""
    jobs = {lease.job: holder(state, lease, node) for lease in leases}
    return [job for job in jobs.values() if job is not None]


def together(
    state: State, each: Iterable[JobRequeued | JobEnded], now: int, before: Iterable[AnyEvent] = ()
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


def _gone(state: State, job: Job, now: int) -> JobRequeued | JobEnded:
    """What becomes of a lease that its agent does not know (any more)."""
    return released(job, now) if type(job.phase) is Placed else lost(state, job, now)


def lost(state: State, job: Job, now: int, because: str = "") -> JobRequeued | JobEnded:
    """What becomes of a job whose lease is void while its task may have run."""
    ran = elapsed(state, job, now)
    cost = job.cost + (attempt_cost(state, job, ran) if type(job.phase) is Running else 0)
    back = again(job, Outcome.LOST, None)
    if back is not None:
        return JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, cost, because=because)
    return _end_lost(job, now, ran, cost, because)


def released(job: Job, now: int, because: str = "", backoff: int = 0) -> JobRequeued | JobEnded:
    """Back to the queue with the same attempt, not to be tried there for a while; a job that is being stopped ends here."""
    if isinstance(job.phase, Placed) and job.phase.stopping is not None:
        if (back := again(job, Outcome.STOPPED, None)) is not None:
            return JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, job.cost)
        return _end_lost(job, now, 0, job.cost)
    backing_off = job.phase.cluster if backoff > 0 and isinstance(job.phase, Placed) else None
    return JobRequeued(
        job.id,
        now,
        Back.RELEASED,
        job.attempt,
        job.seq + 1,
        job.cost,
        because=because,
        backing_off=backing_off,
        until=now + backoff if backing_off is not None else 0,
    )


def _end_lost(job: Job, now: int, ran: int, cost: int, because: str = "") -> JobEnded:
    """The end of a job whose task is gone and that is not tried again."""
    ended, why = verdict(job, Outcome.LOST, because=because)
    since = job.phase.since if type(job.phase) is Running else None
    return JobEnded(job.id, now, ended, job.attempt, job.seq + 1, since, None, None, cost, Usage(ran), why)
