"""Decides on whole clusters that pools ordered: when they are added, have joined, are drained, and are gone.

Such a cluster is a rented machine in the state, from its order to its end, and a cluster with the same name from the
moment when it answers. These deciders keep the two in step.
"""

from collections.abc import Sequence

from spillover.core.deciders import clusters
from spillover.core.deciders.agents import together
from spillover.core.deciders.endings import ITSELF
from spillover.core.deciders.verdicts import lost
from spillover.core.events import (
    AnyEvent,
    ClusterDraining,
    ClusterRemoved,
    ClusterResumed,
    JobStopping,
    MachineJoined,
    Stop,
)
from spillover.core.pool_proposals import SeeRunning
from spillover.core.proposals import AddCluster, Done, Reply, UpdateCluster
from spillover.core.records.jobs import Placed, Running
from spillover.core.records.machines import POOL, RentedMachine
from spillover.core.state import State
from spillover.model.cluster import ClusterHealth, ClusterLife, Leave
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineState

_COMING = (MachineState.WANTED, MachineState.BOOTING)
_THERE = (*_COMING, MachineState.READY, MachineState.DRAINING)


def running(state: State, proposal: SeeRunning, now: int) -> tuple[list[AnyEvent], Reply]:
    """Add a cluster that answers and is still wanted, or connect to it in another way."""
    machine = state.machines.get(proposal.machine)
    if machine is None or machine.cluster != proposal.cluster or machine.state not in _THERE:
        return [], Done()
    known = state.lives.get(machine.cluster_made)
    if known is not None:
        if known.form == proposal.form or known.leaving is not None:
            return [], Done()
        return clusters.update(state, UpdateCluster(proposal.spec, POOL, proposal.form), now)
    return clusters.add(state, AddCluster(proposal.spec, POOL, proposal.form), now)


def joins(
    state: State, cluster: ClusterName, now: int, health: ClusterHealth | None = None, *, nodes: bool = False
) -> list[AnyEvent]:
    """Return that a cluster which was ordered can run tasks: it is healthy and has nodes, now or with these events."""
    machine = state.made(cluster) if state.machines else None
    if machine is None or machine.state not in _COMING:
        return []
    healthy = (health or state.health(cluster)) is ClusterHealth.READY
    usable = nodes or any(node.status == "ready" for node in state.nodes_of(cluster))
    timed = state.facts.jumped == machine.jumped
    return [MachineJoined(machine.id, now, machine.cluster, timed)] if healthy and usable else []


def drain(state: State, machine: RentedMachine, now: int, leaving: Leave | None = None) -> list[AnyEvent]:
    """Return the event that keeps new jobs from a cluster, or also removes it once it has none; none if it is so."""
    known = state.lives.get(machine.cluster_made)
    if known is None or (known.life is ClusterLife.DRAINING and (leaving is None or known.leaving)):
        return []
    return [ClusterDraining(machine.cluster_made, now, POOL, leaving)]


def resume(state: State, machine: RentedMachine, now: int) -> list[AnyEvent]:
    """Return the event that lets a cluster get jobs again which the pool drained."""
    known = state.lives.get(machine.cluster_made)
    if known is None or known.drained != POOL:
        return []
    return [ClusterResumed(machine.cluster_made, now, POOL)]


def interrupt(state: State, machine: RentedMachine, now: int) -> list[AnyEvent]:
    """Stop all jobs on a cluster that will not be there for long; those that stop already do so as before."""
    jobs = [state.jobs[each] for each in state.jobs_on(machine.cluster_made)]
    return [
        JobStopping(job.id, now, Stop.INTERRUPT, ITSELF)
        for job in jobs
        if isinstance(job.phase, Placed | Running) and job.phase.stopping is None
    ]


def remove(state: State, machine: RentedMachine, now: int, why: str) -> list[AnyEvent]:
    """Return the end of a cluster that does not exist any more. Jobs that it had are lost, and go back to the queue."""
    name = machine.cluster_made
    if name not in state.lives:
        return []
    because = why or f"cluster {name} is gone"
    left: Sequence[AnyEvent] = [lost(state, state.jobs[each], now, because) for each in state.jobs_on(name)]
    events: list[AnyEvent] = [*together(state, left, now), *drain(state, machine, now, Leave.MOVE)]
    return [*events, ClusterRemoved(name, now)]
