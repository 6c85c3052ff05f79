"""Finds the shape of a job of a trace on machines of a given size; a large job becomes a gang."""

from msgspec.structs import replace

from spillover.model.admission import EXCLUSIVE, PIN, SPREAD
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.sim.setting import Fleet
from spillover.sim.trace import TraceJob


class Shapes(dict[tuple[int, int, int, int], Shape]):
    """The shapes of jobs on one fleet, by GPUs, CPUs, memory and nodes; equal jobs share one object."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet
        self._located: dict[tuple[Shape, Topology], Shape] = {}

    def __missing__(self, asked: tuple[int, int, int, int]) -> Shape:
        fleet, (gpus, cpus, *_) = self._fleet, asked
        node = fleet.node if gpus or not cpus or fleet.without_gpus is None else fleet.without_gpus
        shape = self[asked] = _shape(*asked, node, fleet.limits_cpu, fleet.limits_memory)
        return shape

    def of(self, job: TraceJob) -> Shape:
        """Return the shape of a job."""
        shape = self[job.gpus, job.cpus, job.memory, job.nodes]
        return shape if job.topology is None else self.located(job, job.topology)

    def located(self, job: TraceJob, topology: Topology) -> Shape:
        """Return the shape of a job that says where its tasks must be."""
        shape = self[job.gpus, job.cpus, job.memory, job.nodes]
        found = self._located.get((shape, topology))
        if found is None:
            found = self._located[shape, topology] = _located(shape, topology)
        return found


def _located(shape: Shape, topology: Topology) -> Shape:
    """Add what is left of a topology after a job was split; all tasks then ask for the same."""
    if shape.tasks == 1:
        topology = replace(topology, within="", preferred=False, spread="")
    asked = shape.resources
    if topology.pin:
        asked = replace(asked, cpu=max(1000, -(-asked.cpu // 1000) * 1000))
    if topology.link and asked.gpu < 2:
        topology = replace(topology, link="")
    if topology == Topology():
        return shape
    words = ((EXCLUSIVE, topology.exclusive), (PIN, topology.asks_inside), (SPREAD, topology.spread))
    return replace(
        shape,
        resources=asked,
        rest=None,
        topology=topology,
        runs=tuple(sorted([word for word, asks in words if asks])),
    )


def _shape(
    gpus: int, cpus: int, memory: int, nodes: int, node: Resources, limits_cpu: bool, limits_memory: bool
) -> Shape:
    """Split a job evenly over the requested machines, or else into whole machines and a rest."""
    if not gpus and not cpus:
        whole = Resources(node.cpu if limits_cpu else 0, node.memory if limits_memory else 0, node.gpu)
        return Shape(whole, tasks=max(1, nodes))
    total = Resources(cpus, memory, gpus)
    needed = max(_over(gpus, node.gpu), _over(cpus, node.cpu), _over(memory, node.memory), 1)
    tasks = _even(gpus or -(-cpus // 1000), nodes)
    if tasks > needed:
        return _split(total, Resources(-(-cpus // tasks), -(-memory // tasks), -(-gpus // tasks)), tasks)
    if needed == 1:
        return Shape(total)
    # Each task takes all that a machine has of the scarcest resource, and its share of the others.
    most, have = max(
        ((gpus, node.gpu), (cpus, node.cpu), (memory, node.memory)), key=lambda one: _over(one[0], one[1])
    )
    each = Resources(
        min(node.cpu, _share(cpus, have, most)),
        min(node.memory, _share(memory, have, most)),
        min(node.gpu, _share(gpus, have, most)) if node.gpu else gpus,
    )
    return _split(total, each, needed)


def _split(total: Resources, each: Resources, tasks: int) -> Shape:
    """Return a shape of this many tasks, of which the last gets the rest."""
    before = tasks - 1
    rest = Resources(
        max(0, total.cpu - before * each.cpu),
        max(0, total.memory - before * each.memory),
        max(0, total.gpu - before * each.gpu),
    )
    return Shape(each, tasks=tasks, rest=None if rest == each or tasks == 1 else rest)


def _over(amount: int, have: int) -> int:
    """Return how many machines an amount needs; 0 if no machine has the resource, so that it does not count."""
    return -(-amount // have) if have else 0


def _share(amount: int, have: int, most: int) -> int:
    """Return the amount that belongs to one machine's part of the scarcest resource."""
    return -(-amount * have // most)


def _even(units: int, nodes: int) -> int:
    """Return how many machines get an equal number of units if at most `nodes` are used; the last may get fewer."""
    return -(-units // -(-units // nodes)) if nodes else 0
