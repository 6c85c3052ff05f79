"""Clusters that are added, changed, drained, resumed and removed while a server runs."""

from typing import Final

from spillover.core.deciders.changes import change
from spillover.core.events import (
    AnyEvent,
    ClusterAdded,
    ClusterDraining,
    ClusterOpened,
    ClusterRemoved,
    ClusterResumed,
    ClusterUpdated,
    Identified,
)
from spillover.core.jobs import Queued, Waiting
from spillover.core.proposals import (
    Act,
    AddCluster,
    Change,
    ClearedCluster,
    Done,
    DrainCluster,
    OpenedCluster,
    Refusal,
    RefusalKind,
    RemoveCluster,
    Reply,
    ResumeCluster,
    UpdateCluster,
)
from spillover.core.state import State
from spillover.model.admission import only_rented
from spillover.model.cluster import ClusterLife, ClusterSpec, Leave, Role
from spillover.model.ids import ClusterName

MOST_CLUSTERS: Final = 1000
"""As many as a configuration may name."""


def add(state: State, proposal: AddCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """One more cluster, under a name that no other has."""
    spec = proposal.spec
    if (known := state.lives.get(spec.name)) is not None:
        told = (
            "it is being removed: wait until it is gone, or resume it"
            if known.leaving
            else _how_to(known.form)
        )
        return [], Refusal(RefusalKind.CONFLICT, f"there is a cluster {spec.name!r} already; {told}")
    if len(state.clusters) >= MOST_CLUSTERS:
        told = f"there are {MOST_CLUSTERS} clusters already, which is the most; remove one first"
        return [], Refusal(RefusalKind.CONFLICT, told)
    events: list[AnyEvent] = []
    if proposal.identity and not state.facts.identity:
        events.append(Identified(proposal.identity))
    anew = _waits_anew(state, (*state.facts.clusters, spec))
    events.append(ClusterAdded(spec, now, proposal.who, proposal.form, anew))
    return events, Done()


def update(state: State, proposal: UpdateCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """A cluster is configured otherwise, or by another."""
    spec, known = proposal.spec, state.lives.get(proposal.spec.name)
    if known is None:
        return [], _unknown(state, spec.name)
    before = state.clusters[spec.name]
    if before.kind != spec.kind:
        told = f"{spec.name!r} is a cluster of kind {before.kind}; remove it, and add one of kind {spec.kind} then"
        return [], Refusal(RefusalKind.CONFLICT, told)
    events: list[AnyEvent] = []
    if known.leaving is not None:
        events.append(ClusterResumed(spec.name, now, proposal.who))
    if before != spec or known.form != proposal.form or proposal.restated:
        after = tuple([spec if each.name == spec.name else each for each in state.facts.clusters])
        anew = _waits_anew(state, after)
        events.append(ClusterUpdated(spec, now, proposal.who, proposal.form, anew))
    return events, Done()


def opened(state: State, proposal: OpenedCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """What was asked for is open."""
    known = state.lives.get(proposal.cluster)
    if known is None or known.life is not ClusterLife.REQUESTED:
        return [], Done()
    return [ClusterOpened(proposal.cluster, now)], Done()


def drain(state: State, proposal: DrainCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """A cluster is given nothing more, until somebody resumes it."""
    known = state.lives.get(proposal.cluster)
    if known is None:
        return [], _unknown(state, proposal.cluster)
    if known.life is ClusterLife.DRAINING:
        return [], Done()
    return [ClusterDraining(proposal.cluster, now, proposal.who)], Done()


def resume(state: State, proposal: ResumeCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """A cluster that is drained, or is being removed, may be given work."""
    known = state.lives.get(proposal.cluster)
    if known is None:
        return [], _unknown(state, proposal.cluster)
    if known.life is not ClusterLife.DRAINING:
        return [], Done()
    return [ClusterResumed(proposal.cluster, now, proposal.who)], Done()


def remove(state: State, proposal: RemoveCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """A cluster is drained, its jobs do as was said, and it is gone once none is left there."""
    name, who = proposal.cluster, proposal.who
    known = state.lives.get(name)
    if known is None:
        return [], _unknown(state, name)
    if not known.form and not proposal.form:
        told = (
            f"the configuration names {name!r}; take it out there and say `spill config apply`, or drain it"
        )
        return [], Refusal(RefusalKind.CONFLICT, told)
    jobs = tuple(state.jobs_on(name))
    events: list[AnyEvent] = []
    if known.leaving is not proposal.how:
        events.append(ClusterDraining(name, now, who, proposal.how, proposal.form))
    if jobs and proposal.how is not Leave.FINISH:
        act = Act.REQUEUE if proposal.how is Leave.MOVE else Act.CANCEL
        stopping, reply = change(state, Change(act, jobs, who), now)
        if isinstance(reply, Refusal):
            return [], reply
        events += stopping
    if not jobs:
        events.append(_gone(state, name, now))
    return events, Done()


def cleared(state: State, proposal: ClearedCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """A cluster that is being removed goes, if nothing of ours is there."""
    known = state.lives.get(proposal.cluster)
    if known is None or known.leaving is None or state.jobs_on(proposal.cluster):
        return [], Done()
    return [_gone(state, proposal.cluster, now)], Done()


def _gone(state: State, name: ClusterName, now: int) -> ClusterRemoved:
    left = tuple([spec for spec in state.facts.clusters if spec.name != name])
    return ClusterRemoved(name, now, _waits_anew(state, left))


def _waits_anew(state: State, after: tuple[ClusterSpec, ...]) -> bool:
    """Whether waits that were given are no good with other clusters.

    A wait follows from whether anything can be rented at all, and from whether all that a job asks for is rented. Everything else is looked
    at when its job is tried: such waits stay as they are, and nothing has to be looked at anew.
    """
    before = state.facts.clusters
    if any(spec.role is Role.RENTED for spec in before) != any(spec.role is Role.RENTED for spec in after):
        return True
    asked = {
        where
        for job in state.jobs.values()
        if (where := job.kind.shape.where) is not None and isinstance(job.phase, Queued | Waiting)
    }
    return any(only_rented(where, after) and not only_rented(where, before) for where in asked)


def _how_to(form: str) -> str:
    """How a cluster is changed that is there."""
    return "remove it first" if form else "change it in the configuration and say `spill config apply`"


def _unknown(state: State, cluster: ClusterName) -> Refusal:
    known = ", ".join(state.clusters) or "none"
    return Refusal(RefusalKind.UNKNOWN, f"there is no cluster {cluster!r} here; known: {known}")
