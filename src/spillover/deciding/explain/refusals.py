"""Why a cluster does not take jobs of a shape, and why none ever could: from what the job asks for down to what is free."""

from collections.abc import Sequence

from msgspec import structs

from spillover.core.clusters import Condition
from spillover.core.state import State
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import NO_RULES, Machine
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.admission import (
    FOR_NOW,
    cannot_run,
    matches,
    may_run,
    missing_of,
    refused_by,
    repelled_by,
)
from spillover.model.cluster import WITHOUT, ClusterHealth, ClusterLife, Role
from spillover.model.job import Burst, Shape
from spillover.model.reasons import (
    AllDrained,
    BurstRefused,
    CannotRun,
    ClusterDown,
    ClusterDrained,
    GangUnsupported,
    NoNodeReady,
    NoRoom,
    NoSuchNode,
    NotObserved,
    NotOffered,
    NotWhere,
    OverLimit,
    Reason,
    Tainted,
    TooBig,
    TooLate,
)
from spillover.model.resources import Resources
from spillover.model.where import Rules


def why_never(index: SchedulingIndex, shape: Shape, reasons: Sequence[Reason | None]) -> Reason:
    """Why no cluster could ever run a job, by what comes nearest."""
    late = [reason for reason in reasons if isinstance(reason, TooLate)]
    if late:
        return min(late, key=lambda reason: reason.finish)
    if (unwanted := _why_unwanted(index, shape, reasons)) is not None:
        return unwanted
    clusters = [cluster for cluster in index.capacity.values() if may_run(shape, cluster.spec)]
    ruled_out = [cluster for cluster in clusters if shape.burst is _excluded(cluster)]
    others = [cluster for cluster in clusters if cluster not in ruled_out]
    could = any(machine.could_fit(shape) for cluster in ruled_out for machine in cluster.machines)
    if could or (ruled_out and not others):
        return BurstRefused(shape.burst)
    machines = [machine for cluster in others for machine in cluster.machines]
    offering = [machine for machine in machines if machine.offers.issuperset(shape.needs)]
    if offering:
        return TooBig(shape.resources, _largest(offering, shape.resources))
    missing = _missing(machines, shape)
    return NotOffered(missing, _because(index.state, missing))


def _why_unwanted(index: SchedulingIndex, shape: Shape, reasons: Sequence[Reason | None]) -> Reason | None:
    """Whether limits, nodes, or what the job asks of clusters keep it from all that could run it."""
    nearest = [reason for reason in reasons if isinstance(reason, OverLimit | Tainted | NoSuchNode)]
    if nearest:
        return nearest[0]
    anywhere = structs.replace(shape, where=None)
    elsewhere = [cluster for cluster in index.capacity.values() if not may_run(shape, cluster.spec)]
    could = any(machine.could_fit(anywhere) for cluster in elsewhere for machine in cluster.machines)
    if not could and len(elsewhere) < len(index.capacity):
        return None
    asked = dict.fromkeys(word for reason in reasons if isinstance(reason, NotWhere) for word in reason.asked)
    if asked:
        return NotWhere(tuple(asked))
    return next((reason for reason in reasons if isinstance(reason, CannotRun)), None)


def _because(state: State, missing: tuple[str, ...]) -> str:
    """What the first agent says that could offer a word and does not."""
    for node in state.nodes.values():
        for word in missing:
            if (why := node.labels.get(f"{WITHOUT}{word}")) is not None:
                return f"{node.key}: {why}"
    return ""


def refusal_of(state: State, cluster: Capacity, shape: Shape) -> Reason | None:
    """Why a cluster does not take a job of this shape now; None if it does. What never changes comes before what may."""
    never = _never_suits(cluster, shape)
    if never is not None or not cluster.machines:
        return never or _not_ready(state, cluster)
    offering = [machine for machine in cluster.machines if machine.offers.issuperset(shape.needs)]
    if not offering:
        return NotOffered(_missing(cluster.machines, shape))
    wanted = [machine for machine in offering if machine.admits(shape)]
    if not wanted:
        return _no_node(offering, shape.rules or NO_RULES) or _not_ready(state, cluster)
    large = [machine for machine in wanted if machine.could_fit(shape)]
    if not large:
        return TooBig(shape.resources, _largest(wanted, shape.resources))
    return _not_now(state, cluster, shape, large)


def _never_suits(cluster: Capacity, shape: Shape) -> Reason | None:
    """Why a cluster is none that a job asks for, or that could run it, whatever machines it has."""
    if shape.where is not None and (asked := refused_by(shape.where, cluster.spec)):
        return NotWhere((asked,))
    if what := cannot_run(shape.runs, cluster.spec):
        return CannotRun(what)
    if shape.tasks > 1 and not cluster.spec.gangs:
        return GangUnsupported(shape.tasks)
    return BurstRefused(shape.burst) if shape.burst is _excluded(cluster) else None


def _not_now(state: State, cluster: Capacity, shape: Shape, large: Sequence[Machine]) -> Reason | None:
    """Why a job does not start on these machines, each of which is large enough; None if it does."""
    limit = cluster.limits.refusal(shape.total) if cluster.limits is not None else None
    if limit is not None and limit.never:
        return limit
    if (life := state.lives[cluster.name]).life is ClusterLife.DRAINING:
        return ClusterDrained(cluster.name, life.drained, leaving=life.leaving is not None)
    if not any(machine.ready for machine in large):
        nodes = [state.nodes.get(f"{cluster.name}/{machine.name}") for machine in large]
        drained = tuple(node.key for node in nodes if node and node.drained and node.status == "draining")
        return AllDrained((cluster.name,), drained) if drained else _not_ready(state, cluster)
    if limit is not None or cluster.fits(shape):
        return limit
    return NoRoom(shape.resources, (cluster.name,))


def _no_node(machines: Sequence[Machine], rules: Rules) -> NoSuchNode | Tainted | None:
    """Why none of these nodes is one that a job asks for; None if one is, but for its condition."""
    named = [machine for machine in machines if matches(rules, machine.name, machine.labels)]
    if not named:
        return NoSuchNode(missing_of(rules, [machine.labels for machine in machines]))
    taints: dict[str, None] = {}
    for machine in named:
        lasting = [taint for taint in machine.taints if not taint.key.startswith(FOR_NOW)]
        one = repelled_by(rules.tolerations, lasting)
        if one is None:
            return None
        taints[f"{one.key}={one.value}:{one.effect}"] = None
    return Tainted(tuple(taints))


def _not_ready(state: State, cluster: Capacity) -> Reason:
    """Why no machine of a cluster is ready."""
    health = state.health(cluster.name)
    if health is None:
        return NotObserved((cluster.name,))
    if health is ClusterHealth.READY:
        return NoNodeReady((cluster.name,))
    known = state.conditions.get(cluster.name) or Condition(cluster.name)
    return ClusterDown(cluster.name, known.health, known.since, known.why)


def _excluded(cluster: Capacity) -> Burst:
    """What a job says that must not run there."""
    return Burst.NEVER if cluster.spec.role is Role.RENTED else Burst.ALWAYS


def _missing(machines: list[Machine], shape: Shape) -> tuple[str, ...]:
    """Words that no machine offers; all of them if each is offered, but not together."""
    offered = {word for machine in machines for word in machine.offers}
    return tuple(word for word in shape.needs if word not in offered) or shape.needs


def _largest(machines: Sequence[Machine], asked: Resources) -> Resources:
    """The most that any of them has of each resource; of those with names, of what is asked for."""
    totals = [machine.total for machine in machines]
    return Resources(
        max(total.cpu for total in totals),
        max(total.memory for total in totals),
        max(total.gpu for total in totals),
        tuple((name, max(dict(total.other).get(name, 0) for total in totals)) for name, _ in asked.other),
    )
