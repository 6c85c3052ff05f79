"""The offers of pools as machines that could be there: what fits on one, and what it would cost.

An imagined machine answers with the code that places jobs on real ones: words, labels, sizes and levels count alike.
Once a machine of an offer has joined, the next one is imagined like that one. So a machine that is smaller than its
offer, or lacks a word, is not ordered again and again for a job that does not fit on it.
"""

from typing import Final, TypeAlias

from msgspec.structs import replace

from spillover.core.records.jobs import Job
from spillover.core.records.machines import PoolRecord, SeenOffer, machine_cost
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.deciding.capacity.amounts import change
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.machine import Machine
from spillover.model.admission import CONTAINER_CALLS, may_run
from spillover.model.cluster import ClusterSpec
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Burst, Shape
from spillover.model.pools import Offer, OfferKey, Pool
from spillover.model.resources import Resources
from spillover.model.units import FOREVER

ASSUMED: Final = ("container", CONTAINER_CALLS, "python")
"""Words that agents offer by themselves where they can run such work. Until one has joined, they are assumed to."""


Imagined: TypeAlias = dict[
    tuple[ClusterName, OfferKey], tuple[ClusterSpec, Offer, SeenOffer | None, Capacity]
]
"""Clusters with one empty machine of an offer, which nobody changes, with what they were made from. Making them takes
most of the time of a plan that orders few machines of many offers."""


class OpenOffer:
    """An offer that may be ordered now, with what was learned about it."""

    __slots__ = (
        "_admits",
        "_imagined",
        "_known",
        "_needed",
        "_seen",
        "boot",
        "configured",
        "late",
        "offer",
        "pool",
        "spec",
    )

    def __init__(
        self,
        spec: ClusterSpec,
        pool: Pool,
        record: PoolRecord,
        offer: Offer,
        known: "Imagined | None" = None,
    ) -> None:
        self.spec = spec
        """The cluster of its pool."""
        self.pool = pool
        self.configured = offer
        """With its price as configured, or when it was ordered."""
        self.offer = replace(offer, hour=record.hour(offer))
        """With its present price."""
        self.boot = record.boot(pool, offer.key)
        """Expected nanoseconds from order to ready."""
        self.late = record.boot(pool, offer.key, 90)
        """Nanoseconds in which nine of ten boots are ready."""
        self._seen = record.seen.get(offer.key)
        self._known: Imagined = {} if known is None else known
        self._imagined: Capacity | None = None
        self._admits: dict[Shape, bool] = {}
        self._needed: dict[Shape, int] = {}
        """How many machines gangs need, by shape."""

    @property
    def _cluster(self) -> Capacity:
        """A cluster with an empty machine. Most plans order nothing, and do not imagine any."""
        if self._imagined is None:
            key = self.spec.name, self.offer.key
            known = self._known.get(key)
            # The price does not matter.
            if (
                known is None
                or known[0] is not self.spec
                or (known[1] is not self.configured and known[1] != self.configured)
                or known[2] != self._seen
            ):
                cluster = imagined(self.spec, self.offer, self._seen)
                known = self._known[key] = self.spec, self.configured, self._seen, cluster
            self._imagined = known[3]
        return self._imagined

    def machine(self) -> tuple[Capacity, Machine]:
        """Return an empty machine of this offer, alone in a cluster of its own that may be changed."""
        cluster = self._cluster.copy()
        return cluster, cluster.machines[0]

    def empty(self) -> Machine:
        """Return an empty machine of this offer that may be changed."""
        return _empty(self._cluster)

    def node(self, number: int) -> Node:
        """Return a new machine of this offer as a node."""
        return _node(self.spec, self.offer, self._seen, number, NodeName(f"{self.offer.key}-{number}"))

    def size(self) -> tuple[Resources, frozenset[str]]:
        """Return what such a machine has, and the words it offers."""
        (machine,) = self._cluster.machines
        return machine.total, machine.offers

    def admits(self, job: Job, slack: int = FOREVER) -> bool:
        """Return whether the tasks of a job may run on such machines, and fit on empty ones.

        A spot machine also needs the slack to boot slowly, and to be replaced.
        """
        if self.spec.name in job.kind.backing_off or (self.offer.spot and slack < 2 * self.late):
            return False
        shape = job.kind.shape
        answer = self._admits.get(shape)
        if answer is None:
            answer = self._admits[shape] = self.admits_shape(shape)
        return answer

    def admits_shape(self, shape: Shape) -> bool:
        """Return whether tasks of a shape may run on such machines, and fit on empty ones."""
        if shape.burst is Burst.NEVER or shape.reservation or not may_run(shape, self.spec):
            return False
        if shape.is_gang and not self.spec.gangs:
            return False
        (machine,) = self._cluster.machines
        return all(machine.could_fit(part) for _, part in shape.parts)

    def machines_for(self, shape: Shape) -> int:
        """Return how many machines of this offer a gang needs to start; 0 if it cannot start on any number of them."""
        known = self._needed.get(shape)
        if known is None:
            known = self._needed[shape] = self._machines_for(shape)
        return known

    def _machines_for(self, shape: Shape) -> int:
        least, parts = self._least_machines(shape), len(shape.parts)
        if not least or (shape.topology is None and parts == 1):
            return least
        # Where tasks must be relative to each other, and how parts are packed, only the real placement knows.
        for count in range(least, least + parts):
            if imagined(self.spec, self.offer, self._seen, count).fits(shape):
                return count
        return 0

    def _least_machines(self, shape: Shape) -> int:
        """Return how many machines the tasks of a gang fill, wherever they must be; 0 if some fit on none."""
        tasks = [(part, part.tasks) for _, part in shape.parts]
        machines = 0
        while any(count for _, count in tasks):
            _, machine = self.machine()
            left = []
            for part, count in tasks:
                wants = machine.asks(part, machine.layout.wants(part.resources))
                many = min(count, machine.tasks_of(part, wants, machine.free)) if machine.admits(part) else 0
                change(machine.free, wants, -many)
                left.append((part, count - many))
            if left == tasks:
                return 0
            tasks, machines = left, machines + 1
        return machines

    def cost(self, time: int) -> int:
        """Return what a machine costs that is ready after its boot and then stays for a time, in millionths."""
        return machine_cost(self.offer, self.spec.billing, self.boot + time)


def open_offers(state: State, spec: ClusterSpec, now: int, known: Imagined | None = None) -> list[OpenOffer]:
    """Return the offers of a pool that may be ordered now; none while it is paused."""
    pool, record = spec.pool, state.pool(spec.name)
    if pool is None or record.paused or not state.is_open(spec.name):
        return []
    return [
        OpenOffer(spec, pool, record, each, known)
        for each in pool.offers
        if not record.is_closed(each.key, now)
    ]


def offers_for(spec: ClusterSpec, shape: Shape, record: PoolRecord | None = None) -> list[OpenOffer]:
    """Return the offers of a pool that could hold jobs of a shape, whether they are open or not."""
    pool = spec.pool
    if pool is None:
        return []
    known = record or PoolRecord(spec.name)
    offers = [OpenOffer(spec, pool, known, each) for each in pool.offers]
    could = [each for each in offers if each.admits_shape(shape)]
    return [
        each
        for each in could
        if not shape.is_gang or 0 < each.machines_for(shape) <= (each.offer.nodes or pool.max)
    ]


class Alike:
    """Empty machines of the offers by which machines were ordered; those of one offer are imagined once.

    A plan looks at all of the hundreds that may boot, and a copy takes less time.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[tuple[ClusterName, OfferKey], tuple[Offer, Capacity]] = {}

    def of(self, spec: ClusterSpec, offer: Offer) -> Capacity:
        """Return a cluster with one such machine, which must not be changed."""
        key = spec.name, offer.key
        known = self._known.get(key)
        if known is None or (known[0] is not offer and known[0] != offer):
            seen = self._state.pool(spec.name).seen.get(offer.key)
            known = self._known[key] = offer, imagined(spec, offer, seen)
        return known[1]

    def empty(self, spec: ClusterSpec, offer: Offer) -> Machine:
        """Return one that may be changed."""
        return _empty(self.of(spec, offer))


def _empty(cluster: Capacity) -> Machine:
    """Return a copy of the machine of a cluster that has only this one. Only in a cluster is a machine at levels."""
    if cluster.levels is not None:
        cluster = cluster.copy()
        return cluster.machines[0]
    return cluster.machines[0].copy(cluster.layout)


def imagined(spec: ClusterSpec, offer: Offer, seen: SeenOffer | None, count: int = 1) -> Capacity:
    """Return a cluster with one empty machine of an offer, or several."""
    cluster = Capacity(spec, 0)
    for number in range(1, count + 1):
        name = NodeName(offer.key if count == 1 else f"{offer.key}-{number}")
        cluster.refresh(_node(spec, offer, seen, number, name))
    return cluster


def _node(spec: ClusterSpec, offer: Offer, seen: SeenOffer | None, number: int, name: NodeName) -> Node:
    return Node(
        spec.name,
        name,
        number,
        offer.resources if seen is None else seen.resources,
        tuple(sorted({*offer.words, *ASSUMED})) if seen is None else seen.words,
        offer.agent_labels if seen is None else seen.labels,
        0,
    )
