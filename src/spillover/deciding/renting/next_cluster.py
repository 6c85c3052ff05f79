"""What nodes of a whole cluster would mean for a job: how long they take, and what they add to the bill.

As in the plan, clusters are for what no machine takes, another node of a cluster that is there or coming goes first, and
only then comes a new cluster. A cluster costs something besides its nodes, of which jobs pay their part.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from spillover.core.records.jobs import Job
from spillover.core.records.machines import RentedMachine, hour_cost, machine_cost, node_boots
from spillover.core.state import State
from spillover.deciding.capacity.amounts import change
from spillover.deciding.renting.clusters import GROWING, has_failed
from spillover.deciding.renting.demand import Demand, weight_of
from spillover.deciding.renting.offers import OpenOffer
from spillover.model.cluster import WHOLE, share_of
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Shape
from spillover.model.pools import MachineState

MOST_NODES = 32
"""Nodes that are filled in thought with jobs that would be rented together."""


class NextNodes(Struct, frozen=True):
    """Nodes that a job would get: of a cluster that may grow, or of a new one."""

    offer: OpenOffer
    nodes: int
    """How many it needs."""
    boot: int
    """Nanoseconds until half of such nodes are ready."""
    late: int
    """Nanoseconds until nine of ten are."""
    new: bool
    """Whether the cluster must be ordered."""

    def price(self, shape: Shape, runs: int) -> int:
        """Return what a job pays if others share what it leaves of its nodes, and of the cluster."""
        total = self.offer.size()[0]
        share = sum([share_of(total, part.resources) * part.tasks for _, part in shape.parts])
        share = min(share, self.nodes * WHOLE)
        fee = self._fee(runs) // self.offer.offer.nodes
        return (self._node(runs) + fee) * share // WHOLE

    def alone(self, nodes: int, runs: int) -> int:
        """Return what so many nodes cost that stay for a time, with all of a new cluster."""
        least = self.offer.offer.least if self.new else 0
        return max(nodes, least) * self._node(runs) + self._fee(runs)

    def _node(self, runs: int) -> int:
        return machine_cost(self.offer.offer, self.offer.spec.billing, self.boot + runs)

    def _fee(self, runs: int) -> int:
        """Return what a new cluster costs besides its nodes."""
        fee = self.offer.offer.cluster_hour if self.new else 0
        return hour_cost(fee, self.offer.spec.billing, self.boot + runs)


class _Growing(Struct, frozen=True):
    """A cluster that is there or coming, and may have more nodes."""

    offer: OpenOffer
    nodes: int
    """How many more."""
    empty: int
    """Nodes without tasks, which a gang needs not order."""
    boot: int
    late: int


class NextClusters:
    """The whole clusters that jobs could get nodes of, in one cycle."""

    def __init__(
        self, state: State, offers: Sequence[OpenOffer], left: Mapping[ClusterName, int], now: int
    ) -> None:
        self._state = state
        self._now = now
        self._new = [each for each in offers if left.get(each.spec.name, 0) > 0]
        known = {(each.spec.name, each.offer.key): each for each in offers}
        self._growing = [
            found
            for name in dict.fromkeys([each.spec.name for each in offers])
            for machine in state.unsettled_machines(name)
            if (offer := known.get((name, machine.offer.key))) is not None
            and (found := self._growing_of(machine, offer)) is not None
        ]

    def _growing_of(self, machine: RentedMachine, offer: OpenOffer) -> _Growing | None:
        state, now = self._state, self._now
        if not machine.is_cluster or machine.state not in GROWING or has_failed(state, machine):
            return None
        more = offer.offer.nodes - machine.nodes
        if more <= 0:
            return None
        if machine.state is MachineState.READY:
            record, key = state.pool(machine.cluster), node_boots(offer.offer.key)
            late = record.boot(offer.pool, key, 90) if key in record.boots else offer.late
            empty = sum(
                not each.holding and not each.drained for each in state.nodes_of(machine.cluster_made)
            )
            return _Growing(offer, more, empty, record.node_boot(offer.pool, offer.offer.key), late)
        coming = [max(0, machine.wanted_at + each - now) for each in (offer.boot, offer.late)]
        return _Growing(offer, more, 0, *coming)

    def of(self, job: Job, shape: Shape, slack: int, runs: int) -> NextNodes | None:
        """Return the nodes that a job would get, as the plan chooses them; None if there are none."""
        growing = [
            (each.offer.offer.hour * nodes, NextNodes(each.offer, nodes, each.boot, each.late, new=False))
            for each in self._growing
            if (nodes := _needed(each.offer, job, shape, slack))
            and (nodes := max(1, nodes - each.empty)) <= each.nodes
        ]
        found = growing or [
            (nodes.alone(nodes.nodes, runs), nodes)
            for each in self._new
            if 0 < (count := _needed(each, job, shape, slack)) <= each.offer.nodes
            for nodes in [NextNodes(each, count, each.boot, each.late, new=True)]
        ]
        return min(found, key=lambda each: each[0])[1] if found else None

    def together(
        self, demand: Sequence[Demand], nodes_of: Callable[[Demand], NextNodes | None]
    ) -> Iterator[tuple[JobId, NextNodes, int]]:
        """Yield what jobs of one task pay each, with the nodes that they get, if they share clusters with no others."""
        groups: dict[tuple[int, bool], tuple[NextNodes, list[Demand]]] = {}
        for each in demand:
            if (nodes := nodes_of(each)) is not None:
                groups.setdefault((id(nodes.offer), nodes.new), (nodes, []))[1].append(each)
        for nodes, jobs in groups.values():
            filled, count = _fill(nodes.offer, jobs)
            stays = max([jobs[at].runs for at in filled], default=0)
            weights = {at: weight_of(jobs[at].job, jobs[at].runs, nodes.offer.spec) for at in filled}
            work = sum([filled[at] * weight for at, weight in weights.items()])
            cost = nodes.alone(count, stays)
            for at, weight in weights.items():
                yield jobs[at].job.id, nodes, cost * weight // work


def _needed(offer: OpenOffer, job: Job, shape: Shape, slack: int) -> int:
    """Return how many nodes of an offer a job needs; 0 if it may not run or does not fit there."""
    if not offer.admits(job, slack):
        return 0
    return offer.machines_for(shape) if shape.is_gang else 1


def _fill(offer: OpenOffer, jobs: Sequence[Demand]) -> tuple[dict[int, int], int]:
    """Fill imagined nodes; return how many of each job fit, by its position, and how many nodes that takes."""
    filled: dict[int, int] = {}
    nodes = [offer.empty()]
    for at, each in enumerate(jobs):
        shape = each.job.kind.shape
        for _ in range(each.count):
            place = next((node for node in nodes if node.fits(shape)), None)
            if place is None:
                if len(nodes) >= min(MOST_NODES, offer.offer.nodes):
                    break
                place = offer.empty()
                nodes.append(place)
            change(place.free, place.asks(shape, place.layout.wants(shape.resources)), -1)
            filled[at] = filled.get(at, 0) + 1
    return filled, len(nodes)
