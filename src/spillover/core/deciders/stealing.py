"""Decides steals: an idle agent asks for a lease, its holder gives it up, and one event moves it."""

from spillover.core.deciders.endings import finish
from spillover.core.deciders.results import holder
from spillover.core.deciders.verdicts import released
from spillover.core.events import AnyEvent, JobEnded, LeaseMoved, StealAsked, StealRefused, Unmoved
from spillover.core.holding import takes_over
from spillover.core.proposals import AskSteal, Done, Refusal, RefusalKind, Reply, Yield, Yielded
from spillover.core.records.jobs import Job, Placed
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.admission import matches
from spillover.model.ids import node_key

_UNMOVED = {Yield.STARTED: Unmoved.STARTED, Yield.UNKNOWN: Unmoved.UNKNOWN}


def ask(state: State, proposal: AskSteal, now: int) -> tuple[list[AnyEvent], Reply]:
    """Ask the holder of a lease on behalf of an agent that has room for it."""
    job = holder(state, proposal.lease, node_key(proposal.cluster, proposal.node))
    thief = state.nodes.get(f"{proposal.cluster}/{proposal.thief}")
    if (
        job is None
        or thief is None
        or not thief.is_agent
        or proposal.thief == proposal.node
        or not _may_move(state, job, thief)
    ):
        return [], Refusal(RefusalKind.STALE, f"{proposal.lease.job} cannot move to {proposal.thief}")
    asked = StealAsked(
        job.id, now, proposal.cluster, proposal.node, proposal.thief, job.attempt, proposal.lease.seq
    )
    return [asked], Done()


def yielded(state: State, proposal: Yielded, now: int) -> tuple[list[AnyEvent], Reply]:
    """Decide on the holder's answer. A repeated or late answer changes nothing, because it names the exact lease."""
    job = holder(state, proposal.lease, proposal.node)
    if job is None or type(job.phase) is not Placed or job.extra.gang is not None:
        return [], Done()
    phase = job.phase
    if proposal.answer is not Yield.RELEASED:
        refused = StealRefused(job.id, now, _UNMOVED[proposal.answer])
        return ([refused] if phase.thief is not None else []), Done()
    thief = state.nodes.get(f"{phase.cluster}/{phase.thief}")
    if phase.stopping is None and thief is not None and _has_room(state, thief, job):
        before = proposal.lease.seq
        seq = max(before + 1, state.facts.least_seq)
        moved = LeaseMoved(job.id, now, phase.cluster, phase.node, thief.name, job.attempt, seq, before)
        return [moved], Done()
    back = released(job, now)  # the thief has no room any more, or the job is being stopped
    return (finish(state, [back], now) if type(back) is JobEnded else [back]), Done()


def _has_room(state: State, thief: Node, job: Job) -> bool:
    return takes_over(thief, job.kind.shape.resources, state.facts.ahead)


def _may_move(state: State, job: Job, thief: Node) -> bool:
    """Return whether a lease can move to an agent that has room for it."""
    phase, shape = job.phase, job.kind.shape
    return (
        type(phase) is Placed
        and phase.cluster == thief.cluster
        and phase.thief is None
        and phase.stopping is None
        and job.extra.gang is None
        and shape.topology is None
        and set(thief.offers).issuperset(shape.needs)
        and (shape.rules is None or matches(shape.rules, thief.name, thief.labels, thief.offers))
        and _has_room(state, thief, job)
    )
