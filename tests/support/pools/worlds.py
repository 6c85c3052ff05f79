"""Worlds with a pool on a virtual clock, for stories of what the plan orders, keeps and gives back."""

from typing import Any

from msgspec.structs import replace

from spillover.core.events import MachinesWanted
from spillover.core.pool_proposals import SeeGone, SeeMade
from spillover.deciding.explain.explain import reason_of
from spillover.deciding.replay import Replay
from spillover.model.cluster import Billing, ClusterSpec, Role, pool_price
from spillover.model.ids import ClusterName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import MachineId, MachineState, Offer, Pool
from spillover.model.resources import Resources
from spillover.model.topology import Level
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

CLOUD = ClusterName("cloud")
GIB = 2**30
SMALL = Offer("small", Resources(4000, 16 * GIB), 400_000, "a")
LARGE = Offer("large", Resources(16000, 64 * GIB), 1_500_000, "a")


def cluster(
    *offers: Offer, billing: Billing | None = None, levels: tuple[Level, ...] = (), **pool: Any
) -> ClusterSpec:
    """Return a rented cluster with a pool."""
    chosen = Pool("process", offers or (SMALL,), **{"max": 10, **pool})
    spec = ClusterSpec(CLOUD, "agents", Role.RENTED, pool_price(chosen), billing or Billing(), gangs=True)
    return replace(spec, pool=chosen, levels=levels)


def world(*offers: Offer, **pool: Any) -> World:
    """Return a world with owned machines and a pool, in which jobs do not wait before they are rented."""
    return World(load, PolicySet(wait=Choice("zero")), (OWNED, cluster(*offers, **pool)))


def rented(name: str, cpus: float = 4, minutes: float = 30) -> JobBuilder:
    """Return a job that is always rented."""
    return a_job(name).cpus(cpus).burst(Burst.ALWAYS).expected(minutes=minutes)


def wanted(w: World) -> list[str]:
    """The offers of all machines that were ordered, in order."""
    return [wish.offer.key for event in w.happened(MachinesWanted) for wish in event.wishes]


def in_state(w: World, *states: MachineState) -> list[MachineId]:
    """Return the machines in these states."""
    return [each.id for each in w.state.machines.values() if each.state in states]


def boot(w: World, seconds: float = 90, cpus: float = 4) -> None:
    """Let all machines that were ordered be made now, and join after a time."""
    ordered = in_state(w, MachineState.WANTED)
    for machine in ordered:
        w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    w.wait(seconds=seconds)
    for machine in ordered:
        w.agent(machine, cpus=cpus, memory=16 * GIB, cluster="cloud")


def end(w: World) -> None:
    """Let the provider destroy what is ending."""
    for machine in in_state(w, MachineState.ENDING):
        w.propose(SeeGone(CLOUD, machine))


def why(w: World, job: str) -> str:
    """Return why a job waits, in words."""
    return str(reason_of(w.engine, w.job(job)))


def replayed(w: World) -> Replay:
    """Return a replay of all that has happened."""
    again = Replay(load)
    for revision, event in enumerate(w.events, 1):
        again.take(revision, event)
    again.end(len(w.events))
    return again
