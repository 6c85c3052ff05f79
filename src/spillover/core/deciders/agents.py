"""Agents that come, go, hand leases back or let them run out."""

from spillover.core.deciders.endings import attempt_cost, finish
from spillover.core.deciders.results import again, holder, verdict
from spillover.core.events import (
    AgentDraining,
    AgentLost,
    AgentRegistered,
    AnyEvent,
    Back,
    JobEnded,
    JobRequeued,
    Lease,
    Usage,
)
from spillover.core.proposals import (
    AgentGone,
    Done,
    Drain,
    HandBack,
    Outcome,
    Reclaim,
    Refusal,
    Refused,
    Register,
    Registered,
    Reply,
    Result,
)
from spillover.core.state import Job, Placed, Running, State
from spillover.model.ids import JobId


def register(state: State, proposal: Register, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent may work; what it holds under valid leases it keeps, what it does not name it has lost or never got."""
    if proposal.cluster not in state.clusters:
        known = ", ".join(state.clusters) or "none"
        return [], Refusal(Refused.UNKNOWN, f"there is no cluster {proposal.cluster!r} here; known: {known}")
    if state.clusters[proposal.cluster].kind != "agents":
        return [], Refusal(Refused.INVALID, f"{proposal.cluster!r} is not a cluster of agents")
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
        )
    ]
    keep = tuple(lease for lease in proposal.held if holder(state, lease, proposal.node) is not None)
    kept = {lease.job: None for lease in keep}
    node = state.nodes.get(f"{proposal.cluster}/{proposal.node}")
    for job_id in (*node.holding, *node.ahead) if node is not None else ():
        if job_id not in kept:
            events += _gone(state, state.jobs[job_id], now)
    return events, Registered(keep)


def hand_back(state: State, proposal: HandBack, now: int) -> tuple[list[AnyEvent], Reply]:
    """Leases that never started go back to the queue, unharmed."""
    events: list[AnyEvent] = []
    for lease in proposal.leases:
        job = holder(state, lease, proposal.node)
        if job is not None and type(job.phase) is Placed:
            events += _released(state, job, now)
    return events, Done()


def reclaim(state: State, proposal: Reclaim, now: int) -> tuple[list[AnyEvent], Reply]:
    """Leases that ran out: their tasks are lost, or never started for all that is known, which is the same."""
    events: list[AnyEvent] = []
    for lease in proposal.leases:
        job = holder(state, lease, proposal.node)
        if job is not None:
            events += lost(state, job, now)
    return events, Done()


def drain(state: State, proposal: Drain, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent is given nothing more."""
    node = state.nodes.get(f"{proposal.cluster}/{proposal.node}")
    if node is None:
        return [], Refusal(Refused.UNKNOWN, f"there is no agent {proposal.node!r} in {proposal.cluster}")
    if node.status != "ready":
        return [], Done()
    return [AgentDraining(proposal.cluster, proposal.node, now)], Done()


def gone(state: State, proposal: AgentGone, now: int) -> tuple[list[AnyEvent], Reply]:
    """An agent is given nothing more until it registers anew."""
    node = state.nodes.get(f"{proposal.cluster}/{proposal.node}")
    if node is None or node.incarnation != proposal.incarnation or node.status == "lost":
        return [], Done()
    return [AgentLost(proposal.cluster, proposal.node, now)], Done()


def lost(state: State, job: Job, now: int) -> list[AnyEvent]:
    """The events of a job whose lease is void while its task may have run."""
    ran = max(0, now - job.phase.since) if type(job.phase) is Running else 0
    cost = job.cost + (attempt_cost(state, job, ran) if type(job.phase) is Running else 0)
    back = again(job, Outcome.LOST, None)
    if back is not None:
        return [JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, cost)]
    return _end_lost(state, job, now, ran, cost)


def _gone(state: State, job: Job, now: int) -> list[AnyEvent]:
    """The events of a lease that its agent does not know (any more)."""
    return _released(state, job, now) if type(job.phase) is Placed else lost(state, job, now)


def _released(state: State, job: Job, now: int) -> list[AnyEvent]:
    """Back to the queue with the same attempt; a job that is being stopped ends here."""
    if isinstance(job.phase, Placed) and job.phase.stopping is not None:
        if (back := again(job, Outcome.STOPPED, None)) is not None:
            return [JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, job.cost)]
        return _end_lost(state, job, now, 0, job.cost)
    return [JobRequeued(job.id, now, Back.RELEASED, job.attempt, job.seq + 1, job.cost)]


def _end_lost(state: State, job: Job, now: int, ran: int, cost: int) -> list[AnyEvent]:
    """The end of a job whose task is gone and that is not tried again."""
    lease = Lease(JobId(job.id), job.attempt, job.seq)
    node = job.phase.node if isinstance(job.phase, Placed | Running) else None
    if node is None:
        return []
    usage = Usage(ran)
    ended, why = verdict(job, Result(node, lease, Outcome.LOST, None, None, usage, 0))
    since = job.phase.since if type(job.phase) is Running else None
    ending = JobEnded(job.id, now, ended, job.attempt, job.seq + 1, since, None, None, cost, usage, why)
    return finish(state, [ending], now)
