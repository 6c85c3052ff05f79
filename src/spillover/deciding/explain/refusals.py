"""Explains why a cluster does not take jobs of a shape, and why no cluster ever could.

Checks go from what the job asks for down to what is free.
"""

from collections.abc import Iterable, Sequence

from msgspec import structs

from spillover.core.records.clusters import Condition
from spillover.core.records.machines import PoolRecord
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.deciding.capacity import matching
from spillover.deciding.capacity.amounts import TASKS, count, fits
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import NO_RULES, Machine
from spillover.deciding.explain.pools import why_kept, why_not_rented
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.offers import OpenOffer, offers_for
from spillover.model.admission import (
    FOR_NOW,
    PYTHON,
    cannot_run,
    matches,
    may_run,
    missing_of,
    refused_by,
    repelled_by,
)
from spillover.model.cluster import WITHOUT, ClusterHealth, ClusterLife, Role
from spillover.model.ids import JobId
from spillover.model.job import Burst, Shape
from spillover.model.reasons import (
    AgentsOutdated,
    AllDrained,
    AtLimit,
    BurstRefused,
    CannotRun,
    ClusterDown,
    ClusterDrained,
    GangTooBig,
    GangUnsupported,
    NoEmptyNode,
    NoNodeReady,
    NoRoom,
    NoRoomInside,
    NoRoomTogether,
    NoSuchLevel,
    NoSuchNode,
    NotObserved,
    NotOffered,
    NotWhere,
    OverLimit,
    Reason,
    Tainted,
    TooBig,
    TooBigInside,
    TooLate,
)
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.model.where import Rules


def why_never(index: SchedulingIndex, shape: Shape, reasons: Sequence[Reason | None]) -> Reason:
    """Return why no cluster could ever run a job, from the cluster that comes closest."""
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
        return TooBig(shape.resources, largest_of(offering, shape.resources))
    missing = _missing(machines, shape)
    return NotOffered(missing, _because(index.state, missing))


def _why_unwanted(index: SchedulingIndex, shape: Shape, reasons: Sequence[Reason | None]) -> Reason | None:
    """Return which limit, node rule or `where` excludes all clusters that could run a job; None if none does."""
    nearest = [reason for reason in reasons if isinstance(reason, OverLimit | Tainted | NoSuchNode)]
    if nearest:
        return nearest[0]
    if larger := [reason for reason in reasons if isinstance(reason, GangTooBig)]:
        return max(larger, key=lambda reason: reason.most)
    if inner := [reason for reason in reasons if isinstance(reason, TooBigInside)]:
        return max(inner, key=lambda reason: (reason.gpus, reason.cpus))
    if unknown := [reason for reason in reasons if isinstance(reason, NoSuchLevel)]:
        known = dict.fromkeys(level for reason in unknown for level in reason.known)
        return NoSuchLevel(unknown[0].level, tuple(known))
    anywhere = structs.replace(shape, where=None)
    elsewhere = [cluster for cluster in index.capacity.values() if not may_run(shape, cluster.spec)]
    could = any(machine.could_fit(anywhere) for cluster in elsewhere for machine in cluster.machines)
    if not could and len(elsewhere) < len(index.capacity):
        return None
    asked = dict.fromkeys(word for reason in reasons if isinstance(reason, NotWhere) for word in reason.asked)
    if asked:
        return NotWhere(tuple(asked), _unknown(index.state, shape))
    return next((reason for reason in reasons if isinstance(reason, CannotRun)), None)


def _unknown(state: State, shape: Shape) -> tuple[str, ...]:
    """Return the clusters that `where` names, if none of them exists."""
    named = () if shape.where is None else shape.where.clusters
    return () if any(name in state.clusters for name in named) else named


def _because(state: State, missing: tuple[str, ...]) -> str:
    """Return the reason of the first agent that could offer a word but does not."""
    for node in state.nodes.values():
        for word in missing:
            if (why := node.labels.get(f"{WITHOUT}{word}")) is not None:
                return f"{node.key}: {why}"
    return _other_pythons(state, missing)


def _other_pythons(state: State, missing: tuple[str, ...]) -> str:
    """Return which versions of Python agents offer instead of a missing one; empty if none does, or none is missing."""
    if not any(word.startswith(f"{PYTHON}:") for word in missing):
        return ""
    words = {word for node in state.nodes.values() for word in node.offers if word.startswith(f"{PYTHON}:")}
    other = [word.partition(":")[2] for word in sorted(words)]
    if not other:
        return ""
    return f"agents have Python {' and '.join(other)}; start one with --python PATH of that version, or call from one of theirs"


def refusal_of(state: State, cluster: Capacity, shape: Shape, job: JobId | None = None) -> Reason | None:
    """Return why a cluster does not take a job of this shape now; None if it does. Permanent reasons come first."""
    found = _refusal_of_machines(state, cluster, shape)
    if found is None and cluster.earmarks:
        found = why_kept(cluster, shape, job)
    if found is None or cluster.spec.pool is None or never_suits(cluster, shape) is not None:
        return found
    if not offers_for(cluster.spec, shape, state.pool(cluster.name)):
        return never_rented(cluster, shape) if found.never or not cluster.machines else found
    if (life := state.lives[cluster.name]).life is ClusterLife.DRAINING:
        return ClusterDrained(cluster.name, life.drained, leaving=life.leaving is not None)
    full = NoRoom(shape.resources, (cluster.name,))
    waits = full if found.never or isinstance(found, NotObserved | AllDrained) else found
    return why_not_rented(state, cluster, shape, job) or waits


def _drained(cluster: Capacity, nodes: Sequence[Node]) -> AllDrained:
    """Return that agents are drained, with the reasons that people gave."""
    why = tuple([node.reason for node in nodes])
    return AllDrained((cluster.name,), tuple([node.key for node in nodes]), why if any(why) else ())


def never_rented(cluster: Capacity, shape: Shape) -> Reason:
    """Return why no machine that a pool could rent can hold a job."""
    pool = cluster.spec.pool
    offers = (
        []
        if pool is None
        else [OpenOffer(cluster.spec, pool, PoolRecord(cluster.name), each) for each in pool.offers]
    )
    machines = [each.machine()[1] for each in offers]
    offering = [machine for machine in machines if machine.offers.issuperset(shape.needs)]
    if not offering:
        return NotOffered(_missing(machines, shape))
    wanted = [machine for machine in offering if machine.admits(without_inside(shape))]
    if not wanted:
        return _no_node(offering, shape.rules or NO_RULES) or NotOffered(shape.needs)
    for _, part in shape.parts:
        if not any(machine.could_fit(part) for machine in wanted):
            return TooBig(part.resources, largest_of(wanted, part.resources))
    counts = [
        machine.tasks_of(shape, cluster.layout.wants(shape.resources), machine.free) for machine in wanted
    ]
    many = 1 if pool is None else max([each.nodes or pool.max for each in pool.offers])
    return gang_too_big(cluster, shape, min(shape.tasks - 1, max(counts) * many))


def _refusal_of_machines(state: State, cluster: Capacity, shape: Shape) -> Reason | None:
    """Return why the machines that a cluster has do not take a job of this shape now; None if they do."""
    never = never_suits(cluster, shape)
    if never is not None or not cluster.machines:
        return never or _not_ready(state, cluster)
    offering = [machine for machine in cluster.machines if machine.offers.issuperset(shape.needs)]
    if not offering:
        return NotOffered(_missing(cluster.machines, shape))
    anywhere = without_inside(shape)
    if anywhere.topology is not None:
        anywhere = structs.replace(anywhere, topology=None)
    wanted = [machine for machine in offering if machine.admits(anywhere, upgraded=True)]
    if not wanted:
        return _no_node(offering, shape.rules or NO_RULES) or _not_ready(state, cluster)
    for _, part in reversed(anywhere.parts):
        large = [machine for machine in wanted if machine.could_fit(part)]
        if not large:
            return TooBig(part.resources, largest_of(wanted, part.resources))
    if (inside := too_big_inside(large, shape)) is not None:
        return inside
    if shape.topology is not None:
        labels = [level.label for level in cluster.spec.levels if level.name in shape.topology.levels]
        large = [machine for machine in large if machine.admits(shape, upgraded=True)]
        if not large:
            return NoSuchNode(" and ".join(f"a label {label}" for label in labels))
    if shape.tasks > 1 and (most := matching.most_ever(cluster, shape, upgraded=True)) < shape.tasks:
        return gang_too_big(cluster, shape, most)
    return _not_now(state, cluster, shape, large)


def without_inside(shape: Shape) -> Shape:
    """Return a shape that asks for nothing inside of machines, and else for the same."""
    if not shape.asks_inside:
        return shape
    groups = tuple([structs.replace(group, pin="", link="") for group in shape.groups])
    topology = None if shape.topology is None else structs.replace(shape.topology, pin="", link="")
    return structs.replace(shape, topology=topology, groups=groups)


def too_big_inside(machines: Iterable[Machine], shape: Shape) -> TooBigInside | None:
    """Return why no machine that is large enough has the inside for a task; None if one has, or if none is asked for."""
    if not shape.asks_inside:
        return None
    machines = list(machines)
    found = [_too_big_inside(machines, part, part.topology) for _, part in shape.parts if part.topology]
    return next((reason for reason in found if reason is not None), None)


def _too_big_inside(machines: Iterable[Machine], shape: Shape, topology: Topology) -> TooBigInside | None:
    """Do the same for tasks that are alike."""
    flat = without_inside(shape)
    large = [machine for machine in machines if machine.could_fit(flat)]
    if flat is shape or not large or any(machine.could_fit(shape) for machine in large):
        return None
    known = [machine.inside for machine in large if machine.inside is not None]
    parts = [part for inside in known for part in inside.parts(topology)]
    cpus = max([cpus for cpus, _ in parts], default=0) if topology.pin else 0
    links = dict.fromkeys(kind for inside in known for kind in inside.links)
    gpus = max([gpus for _, gpus in parts], default=0)
    most = [inside.most_memory(topology, shape.resources) for inside in known]
    memory = max([each for each in most if each is not None], default=0)
    return TooBigInside(shape.resources, topology.pin, topology.link, cpus, gpus, tuple(links), memory)


def gang_too_big(cluster: Capacity, shape: Shape, most: int) -> GangTooBig:
    """Return the reason for a gang of which a cluster could hold only so many tasks."""
    return GangTooBig(
        shape.tasks,
        most,
        cluster.name,
        required_level(shape),
        len(shape.parts) == 1,
        "" if shape.topology is None else shape.topology.spread,
        shape.reservation,
    )


def required_level(shape: Shape) -> str:
    """Return the level in one vertex of which all tasks must be; empty if there is none."""
    topology = shape.topology
    return "" if topology is None or topology.preferred else topology.within


def never_suits(cluster: Capacity, shape: Shape) -> Reason | None:
    """Return why a cluster could not run a job whatever machines it has; None if it could."""
    if shape.where is not None and (asked := refused_by(shape.where, cluster.spec)):
        return NotWhere((asked,))
    if shape.reservation and (cluster.windows is None or not cluster.windows.has(shape.reservation)):
        return NotWhere((f"reservation: {shape.reservation}",))
    if what := cannot_run(shape.runs, cluster.spec):
        return CannotRun(what)
    if shape.is_gang and not cluster.spec.gangs:
        return GangUnsupported(shape.tasks)
    if shape.topology is not None:
        known = cluster.spec.level_names
        for level in shape.topology.levels:
            if level not in known:
                return NoSuchLevel(level, known)
    return BurstRefused(shape.burst) if shape.burst is _excluded(cluster) else None


def _not_now(state: State, cluster: Capacity, shape: Shape, large: Sequence[Machine]) -> Reason | None:
    """Return why a job does not start on machines that are large enough for it; None if it does."""
    limit = cluster.limits.refusal(shape.total) if cluster.limits is not None else None
    if limit is not None and limit.never:
        return limit
    if (life := state.lives[cluster.name]).life is ClusterLife.DRAINING:
        return ClusterDrained(cluster.name, life.drained, leaving=life.leaving is not None)
    if not any(machine.ready for machine in large):
        nodes = [state.nodes.get(f"{cluster.name}/{machine.name}") for machine in large]
        drained = [node for node in nodes if node and node.drained and node.status == "draining"]
        return _drained(cluster, drained) if drained else _not_ready(state, cluster)
    if limit is not None or cluster.fits(shape):
        return limit
    if shape.is_gang and (old := _outdated(cluster, shape, large)) is not None:
        return old
    if shape.topology is not None or shape.asks_inside:
        return _no_room_in_levels(cluster, shape, shape.topology or Topology())
    if (limited := _task_limit(state, cluster, shape)) is not None:
        return limited
    return _no_room_together(cluster, shape) if shape.is_gang else NoRoom(shape.resources, (cluster.name,))


def _outdated(cluster: Capacity, shape: Shape, large: Sequence[Machine]) -> AgentsOutdated | None:
    """Return which agents must be upgraded before a cluster can hold a gang; None if it can without them."""
    old = tuple([machine.name for machine in large if machine.outdated])
    if not old or (most := matching.most_ever(cluster, shape)) >= shape.tasks:
        return None
    return AgentsOutdated(cluster.name, shape.tasks, most, old)


def _no_room_in_levels(cluster: Capacity, shape: Shape, topology: Topology) -> Reason:
    """Return how many tasks of a job fit now where its topology wants them."""
    if topology.exclusive:
        return NoEmptyNode(cluster.name, shape.tasks, min(matching.most_now(cluster, shape), shape.tasks))
    for _, part in shape.parts if shape.asks_inside else ():
        asked = part.topology or topology
        if asked.asks_inside and (inside := _no_room_inside(cluster, part, asked)) is not None:
            return inside
    if not shape.is_gang:
        return NoRoom(shape.resources, (cluster.name,))
    return _no_room_together(cluster, shape)


def _no_room_inside(cluster: Capacity, shape: Shape, topology: Topology) -> NoRoomInside | None:
    """Return the machine that has enough free for a task, but in several parts; None if none has."""
    wants = cluster.layout.wants(shape.resources)
    for machine in cluster.machines:
        if (
            machine.inside is None
            or not machine.admits(shape)
            or not fits(machine.asks(shape, wants), machine.free)
        ):
            continue
        if machine.holds(shape, wants, machine.free):
            return None
        most = machine.inside.most_memory(topology, shape.resources, machine.left)
        by_gpus = topology.pin in {"", "core"}
        parts = [gpus if by_gpus else cpus for cpus, gpus in machine.inside.parts(topology, machine.left)]
        return NoRoomInside(
            cluster.name,
            shape.resources,
            topology.pin,
            topology.link,
            machine.name,
            machine.cpu if topology.pin else 0,
            machine.gpu if shape.resources.gpu else 0,
            sum(map(bool, parts)),
            most,
        )
    return None


def _no_room_together(cluster: Capacity, shape: Shape) -> NoRoomTogether:
    """Return how many tasks of a gang fit now."""
    most = min(matching.most_now(cluster, shape), shape.tasks)
    return NoRoomTogether(cluster.name, shape.tasks, most, required_level(shape), shape.most)


def _task_limit(state: State, cluster: Capacity, shape: Shape) -> AtLimit | None:
    """Return the task limit as a reason if all else that a job requests is free; None otherwise."""
    wants = cluster.layout.wants(shape.resources)
    others = tuple([each for each in wants if each[0] != TASKS])
    admitting = [machine for machine in cluster.machines if machine.admits(shape)]
    full = [machine for machine in admitting if count(wants, machine.free) < count(others, machine.free)]
    if not full or sum(count(others, machine.free) for machine in admitting) < shape.tasks:
        return None
    nodes = [state.nodes[f"{cluster.name}/{machine.name}"] for machine in full]
    used, most = sum(len(node.holding) for node in nodes), sum(node.tasks for node in nodes)
    return AtLimit(cluster.name, "tasks", used, most)


def _no_node(machines: Sequence[Machine], rules: Rules) -> NoSuchNode | Tainted | None:
    """Return why none of these nodes satisfies the rules of a job; None if only temporary taints exclude one."""
    named = [machine for machine in machines if matches(rules, machine.name, machine.labels, machine.offers)]
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
    """Return why no machine of a cluster is ready."""
    health = state.health(cluster.name)
    if health is None:
        return NotObserved((cluster.name,))
    if health is ClusterHealth.READY:
        return NoNodeReady((cluster.name,))
    known = state.conditions.get(cluster.name) or Condition(cluster.name)
    return ClusterDown(cluster.name, known.health, known.since, known.why)


def _excluded(cluster: Capacity) -> Burst:
    """Return the `burst` setting that excludes a cluster."""
    return Burst.NEVER if cluster.spec.role is Role.RENTED else Burst.ALWAYS


def _missing(machines: list[Machine], shape: Shape) -> tuple[str, ...]:
    """Return the words that no machine offers; all words if each is offered, but not together."""
    offered = {word for machine in machines for word in machine.offers}
    return tuple(word for word in shape.needs if word not in offered) or shape.needs


def largest_of(machines: Sequence[Machine], asked: Resources) -> Resources:
    """Return the most that any machine has of each resource; of named resources, only those asked for."""
    totals = [machine.total for machine in machines]
    return Resources(
        max(total.cpu for total in totals),
        max(total.memory for total in totals),
        max(total.gpu for total in totals),
        tuple((name, max(dict(total.other).get(name, 0) for total in totals)) for name, _ in asked.other),
    )
