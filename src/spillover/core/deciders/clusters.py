"""Decides on clusters that are added, changed, drained, resumed and removed while a server runs."""

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
from spillover.core.records.jobs import Queued, Waiting
from spillover.core.state import State
from spillover.model.admission import only_rented
from spillover.model.cluster import ClusterLife, ClusterSpec, Leave, Role
from spillover.model.ids import ClusterName

MOST_CLUSTERS: Final = 1000
"""The same limit as for a configuration file."""


def add(state: State, proposal: AddCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Add a cluster under a new name."""
    spec = proposal.spec
    if (known := state.lives.get(spec.name)) is not None:
        advice = (
            "it is being removed; wait until it is gone, or resume it"
            if known.leaving
            else _advice(known.form)
        )
        return [], Refusal(RefusalKind.CONFLICT, f"cluster {spec.name!r} already exists; {advice}")
    if len(state.clusters) >= MOST_CLUSTERS:
        message = f"the server has {MOST_CLUSTERS} clusters, the maximum; remove one first"
        return [], Refusal(RefusalKind.CONFLICT, message)
    events: list[AnyEvent] = []
    if proposal.identity and not state.facts.identity:
        events.append(Identified(proposal.identity))
    resets = _resets_waits(state, (*state.facts.clusters, spec))
    events.append(ClusterAdded(spec, now, proposal.who, proposal.form, resets))
    return events, Done()


def update(state: State, proposal: UpdateCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Change the configuration of a cluster, or who manages it."""
    spec, known = proposal.spec, state.lives.get(proposal.spec.name)
    if known is None:
        return [], _unknown(state, spec.name)
    before = state.clusters[spec.name]
    if before.kind != spec.kind:
        message = f"{spec.name!r} is a cluster of kind {before.kind}; to change its kind, remove it and add it again"
        return [], Refusal(RefusalKind.CONFLICT, message)
    if (left := _left_behind(state, before, spec)) is not None:
        return [], left
    events: list[AnyEvent] = []
    if known.leaving is not None:
        events.append(ClusterResumed(spec.name, now, proposal.who))
    if before != spec or known.form != proposal.form or proposal.restated:
        after = tuple([spec if each.name == spec.name else each for each in state.facts.clusters])
        resets = _resets_waits(state, after)
        events.append(ClusterUpdated(spec, now, proposal.who, proposal.form, resets))
    return events, Done()


def opened(state: State, proposal: OpenedCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Record that a requested cluster is open."""
    known = state.lives.get(proposal.cluster)
    if known is None or known.life is not ClusterLife.REQUESTED:
        return [], Done()
    return [ClusterOpened(proposal.cluster, now)], Done()


def drain(state: State, proposal: DrainCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Give a cluster no more work until it is resumed."""
    known = state.lives.get(proposal.cluster)
    if known is None:
        return [], _unknown(state, proposal.cluster)
    if known.life is ClusterLife.DRAINING:
        return [], Done()
    return [ClusterDraining(proposal.cluster, now, proposal.who)], Done()


def resume(state: State, proposal: ResumeCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Resume a cluster that is drained or being removed."""
    known = state.lives.get(proposal.cluster)
    if known is None:
        return [], _unknown(state, proposal.cluster)
    if known.life is not ClusterLife.DRAINING:
        return [], Done()
    return [ClusterResumed(proposal.cluster, now, proposal.who)], Done()


def remove(state: State, proposal: RemoveCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Drain a cluster and handle its jobs as requested; remove it at once if it has none, and no rented machines."""
    name, who = proposal.cluster, proposal.who
    known = state.lives.get(name)
    if known is None:
        return [], _unknown(state, name)
    if made_by := state.clusters[name].made_by:
        message = (
            f"{name!r} was made by the pool of {made_by}; drain it, and the pool ends it when it has no jobs"
        )
        return [], Refusal(RefusalKind.CONFLICT, message)
    if not known.form and not proposal.form:
        message = f"{name!r} belongs to the configuration; remove it there, or drain it"
        return [], Refusal(RefusalKind.CONFLICT, message)
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
    if not jobs and not state.live_machines(name):
        events.append(_gone(state, name, now))
    return events, Done()


def cleared(state: State, proposal: ClearedCluster, now: int) -> tuple[list[AnyEvent], Reply]:
    """Remove a cluster that is being removed, if none of our jobs and rented machines are left there."""
    known = state.lives.get(proposal.cluster)
    if known is None or known.leaving is None or not is_clear(state, proposal.cluster):
        return [], Done()
    return [_gone(state, proposal.cluster, now)], Done()


def is_clear(state: State, cluster: ClusterName) -> bool:
    """Return whether a cluster has no jobs, and no rented machines that may cost something."""
    return not state.jobs_on(cluster) and not state.live_machines(cluster)


def _left_behind(state: State, before: ClusterSpec, after: ClusterSpec) -> Refusal | None:
    """Return why a pool cannot be taken away yet: nobody else can end its machines."""
    if before.pool is None or (after.pool is not None and after.pool.provider == before.pool.provider):
        return None
    live = len(state.live_machines(before.name))
    if not live:
        return None
    many = "1 machine" if live == 1 else f"{live} machines"
    message = (
        f"{before.name!r} has {many} of {before.pool.provider}, which only that provider can end; "
        f"run `spill pools pause {before.name} --end` first, and wait until they are gone"
    )
    return Refusal(RefusalKind.CONFLICT, message)


def _gone(state: State, name: ClusterName, now: int) -> ClusterRemoved:
    left = tuple([spec for spec in state.facts.clusters if spec.name != name])
    return ClusterRemoved(name, now, _resets_waits(state, left))


def _resets_waits(state: State, after: tuple[ClusterSpec, ...]) -> bool:
    """Return whether present waits become invalid with other clusters.

    A wait depends on whether anything can be rented at all, and on whether `where` allows only rented clusters.
    Everything else is checked when a job is tried, so other changes keep the waits.
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


def _advice(form: str) -> str:
    """Tell how to change an existing cluster."""
    return "remove it first" if form else "change it in the configuration"


def _unknown(state: State, cluster: ClusterName) -> Refusal:
    known = ", ".join(state.clusters) or "none"
    return Refusal(RefusalKind.UNKNOWN, f"there is no cluster {cluster!r}; known clusters: {known}")
