"""Agents that come, go, hand leases back or let them run out."""

from collections.abc import Iterable

from spillover.core.deciders.endings import attempt_cost, elapsed, finish
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
)
from spillover.core.state import Job, Placed, Running, State
from spillover.model.ids import NodeName


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
    gave_up = [
        _gone(state, state.jobs[job_id], now)
        for job_id in ((*node.holding, *node.ahead) if node is not None else ())
        if job_id not in kept
    ]
    return _together(state, gave_up, now, events), Registered(keep)


def hand_back(state: State, proposal: HandBack, now: int) -> tuple[list[AnyEvent], Reply]:
    """Leases that never started go back to the queue, unharmed."""
    given = [
        _released(job, now)
        for job in _holders(state, proposal.leases, proposal.node)
        if type(job.phase) is Placed
    ]
    return _together(state, given, now), Done()


def reclaim(state: State, proposal: Reclaim, now: int) -> tuple[list[AnyEvent], Reply]:
    """Leases that ran out: their tasks are lost, or never started for all that is known, which is the same."""
    ran_out = [_lost(state, job, now) for job in _holders(state, proposal.leases, proposal.node)]
    return _together(state, ran_out, now), Done()


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


def _holders(state: State, leases: Iterable[Lease], node: NodeName) -> list[Job]:
    """The jobs that a node may speak for under these leases, each once."""
    jobs = {lease.job: holder(state, lease, node) for lease in leases}
    return [job for job in jobs.values() if job is not None]


def _together(
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
    return _released(job, now) if type(job.phase) is Placed else _lost(state, job, now)


def _lost(state: State, job: Job, now: int) -> JobRequeued | JobEnded:
    """What becomes of a job whose lease is void while its task may have run."""
    ran = elapsed(state, job, now)
    cost = job.cost + (attempt_cost(state, job, ran) if type(job.phase) is Running else 0)
    back = again(job, Outcome.LOST, None)
    if back is not None:
        return JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, cost)
    return _end_lost(job, now, ran, cost)


def _released(job: Job, now: int) -> JobRequeued | JobEnded:
    """Back to the queue with the same attempt; a job that is being stopped ends here."""
    if isinstance(job.phase, Placed) and job.phase.stopping is not None:
        if (back := again(job, Outcome.STOPPED, None)) is not None:
            return JobRequeued(job.id, now, back, job.attempt + 1, job.seq + 1, job.cost)
        return _end_lost(job, now, 0, job.cost)
    return JobRequeued(job.id, now, Back.RELEASED, job.attempt, job.seq + 1, job.cost)


def _end_lost(job: Job, now: int, ran: int, cost: int) -> JobEnded:
    """The end of a job whose task is gone and that is not tried again."""
    ended, why = verdict(job, Outcome.LOST)
    since = job.phase.since if type(job.phase) is Running else None
    return JobEnded(job.id, now, ended, job.attempt, job.seq + 1, since, None, None, cost, Usage(ran), why)
