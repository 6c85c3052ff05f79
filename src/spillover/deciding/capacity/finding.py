"""Finds the clusters where jobs of a lane may run, in the order to try them."""

from collections.abc import Mapping

from msgspec.structs import replace

from spillover.core.records.jobs import Kind
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.gangs import GangCandidates
from spillover.deciding.capacity.matching import most_ever
from spillover.deciding.capacity.spans import Ask
from spillover.deciding.queue.lanes import Lane
from spillover.deciding.renting.offers import offers_for
from spillover.model.admission import may_run, only_rented
from spillover.model.cluster import OWNED, RENTED, ClusterSpec, Role, cost_of_job
from spillover.model.ids import ClusterName
from spillover.model.job import Burst, Shape
from spillover.model.topology import Topology
from spillover.model.units import HOUR


class Finder:
    """Finds and shares the candidates of lanes. A lane keeps what it got, so it asks once."""

    def __init__(self, clusters: Mapping[ClusterName, Capacity], *, near: bool = False) -> None:
        self._clusters = clusters
        self._near = near
        """Whether the place policy wants the tasks of each gang as near to each other as possible."""
        self._shared: dict[tuple[Shape, tuple[ClusterName, ...], Role], list[Candidates]] = {}
        """Candidates by shape, clusters that the jobs back off from, and role."""
        self._rentable: dict[Kind, tuple[int, bool]] = {}
        """Whether a rented cluster could hold gangs of a kind, as of the last change of the nodes of those clusters."""

    def candidates(self, lane: Lane, role: Role) -> list[Candidates]:
        """Return the candidates of a lane, in the order to try them: as configured, rented clusters by price."""
        if role is OWNED:
            if lane.owned is None:
                lane.owned = self._candidates(lane, role)
            return lane.owned
        if lane.rented is None:
            lane.rented = self._candidates(lane, role)
        return lane.rented

    def _candidates(self, lane: Lane, role: Role) -> list[Candidates]:
        """Return candidates that all lanes of one shape share."""
        key = shape, _, _ = lane.kind.shape, lane.kind.backing_off, role
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = [Candidates(each, shape) for each in self.clusters_for(lane, role)]
        return found

    def gang_candidates(self, lane: Lane, role: Role) -> list[GangCandidates]:
        """Return the candidates for gangs of a lane, in the same order."""
        if role is OWNED:
            if lane.gangs_owned is None:
                lane.gangs_owned = self._gang_candidates(lane, role)
            return lane.gangs_owned
        if lane.gangs_rented is None:
            lane.gangs_rented = self._gang_candidates(lane, role)
        return lane.gangs_rented

    def _gang_candidates(self, lane: Lane, role: Role) -> list[GangCandidates]:
        clusters = [each for each in self.clusters_for(lane, role) if each.spec.gangs]
        return [
            GangCandidates(each, shape) for each in clusters for shape in self._shapes(lane.kind.shape, each)
        ]

    def _shapes(self, shape: Shape, cluster: Capacity) -> list[Shape]:
        """Return the shapes of a gang to try on a cluster in turn: as it is, or the nearest first."""
        asked = shape.topology or Topology()
        if not self._near or asked.within or asked.spread:
            return [shape]
        levels = cluster.spec.level_names[::-1]
        nearest = [replace(shape, topology=replace(asked, within=level)) for level in levels]
        above = levels[
            1:2
        ]  # the lowest level above nodes: the gang goes to as few of its vertices as possible
        apart = [replace(shape, topology=replace(asked, within=level, preferred=True)) for level in above]
        return [*nearest, *(apart or [shape])]

    def asks(self, lane: Lane) -> list[Ask]:
        """Return what a job of a lane asks of each owned cluster, in the order to try them."""
        if lane.asks is None:
            shape = lane.kind.shape
            lane.asks = [
                self._ask(each, self._wished(shape, each))
                for each in self.candidates(lane, OWNED)
                if not shape.is_gang or each.cluster.spec.gangs
            ]
        return lane.asks

    def _wished(self, shape: Shape, candidates: Candidates) -> Shape:
        """Return the shape for which capacity over time is booked on a cluster."""
        return self._shapes(shape, candidates.cluster)[-1] if shape.is_gang else shape

    @staticmethod
    def _ask(candidates: Candidates, shape: Shape) -> Ask:
        """Return what a job asks of one cluster; these are the candidates of a job of its shape."""
        if len(parts := shape.parts) == 1:
            return Ask(candidates if shape is candidates.shape else Candidates(candidates.cluster, shape))
        first, *others = [Candidates(candidates.cluster, part) for _, part in parts]
        return Ask(first, tuple(others), shape)

    def clusters_for(self, lane: Lane, role: Role) -> list[Capacity]:
        """Return the clusters for a lane: as configured, rented ones by price and then by startup time."""
        shape = lane.kind.shape
        ruled_out = Burst.NEVER if role is Role.RENTED else Burst.ALWAYS
        if shape.burst is ruled_out:
            return []
        backing_off = lane.kind.backing_off
        clusters = [
            each
            for each in self._clusters.values()
            if each.spec.role is role and each.name not in backing_off and may_run(shape, each.spec)
        ]
        if role is Role.RENTED:
            clusters.sort(key=lambda each: (cost_of_job(each.spec, shape, HOUR), each.spec.startup))
        return clusters

    def only_rented(self, shape: Shape) -> bool:
        """Return whether `where` allows only rented clusters, so that there is no owned one to wait for."""
        where = shape.where
        return where is not None and only_rented(where, [each.spec for each in self._clusters.values()])

    def rented_for(self, lane: Lane) -> list[ClusterSpec]:
        """Return the rented clusters on which jobs of a lane may run."""
        if lane.kind.shape.is_gang:
            return [each.spec for each in self.clusters_for(lane, Role.RENTED)]
        return [each.cluster.spec for each in self.candidates(lane, RENTED)]

    def could_rent(self, lane: Lane) -> bool:
        """Return whether some rented cluster could hold all tasks of a gang. One without known machines could."""
        shape, clusters = lane.kind.shape, [each.cluster for each in self.gang_candidates(lane, RENTED)]
        version = sum([each.turns for each in clusters])
        known = self._rentable.get(lane.kind)
        if known is None or known[0] != version:
            answer = any(
                not each.machines
                or most_ever(each, shape) >= shape.tasks
                or (each.spec.pool is not None and bool(offers_for(each.spec, shape)))
                for each in clusters
            )
            known = self._rentable[lane.kind] = version, answer
        return known[1]

    def eager(self) -> bool:
        """Return whether any machine prefetches leases."""
        for each in self._clusters.values():  # noqa: SIM110 - called for every job
            if each.eager:
                return True
        return False

    def forget(self) -> None:
        """Drop shared candidates, together with the lanes that used them."""
        self._shared.clear()
        self._rentable.clear()
