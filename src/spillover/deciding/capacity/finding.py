"""On which clusters jobs of a lane may run, in the order to be tried, with the machines where they fit."""

from collections.abc import Mapping

from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.gangs import GangCandidates
from spillover.deciding.queue.lanes import Lane
from spillover.model.admission import may_run, only_rented
from spillover.model.cluster import OWNED, RENTED, ClusterSpec, Role, cost_of_job
from spillover.model.ids import ClusterName
from spillover.model.job import Burst, Shape
from spillover.model.units import HOUR


class Finder:
    """All clusters, as lanes see them. A lane keeps its candidates, so that it asks for them once."""

    def __init__(self, clusters: Mapping[ClusterName, Capacity]) -> None:
        self._clusters = clusters
        self._shared: dict[tuple[Shape, tuple[ClusterName, ...], Role], list[Candidates]] = {}
        """Candidates by the shape of jobs and the clusters that they are not tried on for now."""

    def candidates(self, lane: Lane, role: Role) -> list[Candidates]:
        """Where jobs of a lane may run, in the order to be tried: as configured, and rented clusters by price."""
        if role is OWNED:
            if lane.owned is None:
                lane.owned = self._candidates(lane, role)
            return lane.owned
        if lane.rented is None:
            lane.rented = self._candidates(lane, role)
        return lane.rented

    def _candidates(self, lane: Lane, role: Role) -> list[Candidates]:
        """Lanes of one shape share theirs."""
        key = shape, _, _ = lane.kind.shape, lane.kind.backing_off, role
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = [Candidates(each, shape) for each in self.clusters_for(lane, role)]
        return found

    def gang_candidates(self, lane: Lane, role: Role) -> list[GangCandidates]:
        """Where gangs of a lane may run, likewise."""
        if role is OWNED:
            if lane.gangs_owned is None:
                lane.gangs_owned = self._gang_candidates(lane, role)
            return lane.gangs_owned
        if lane.gangs_rented is None:
            lane.gangs_rented = self._gang_candidates(lane, role)
        return lane.gangs_rented

    def _gang_candidates(self, lane: Lane, role: Role) -> list[GangCandidates]:
        clusters = self.clusters_for(lane, role)
        return [GangCandidates(each, lane.kind.shape) for each in clusters if each.spec.gangs]

    def clusters_for(self, lane: Lane, role: Role) -> list[Capacity]:
        """Clusters that suit a lane, in the order to be tried: as configured, and rented ones by price, then by how soon they start."""
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
        """Whether only rented clusters are what jobs of a shape ask for, so that there is no owned one to wait for."""
        where = shape.where
        return where is not None and only_rented(where, [each.spec for each in self._clusters.values()])

    def rented_for(self, lane: Lane) -> list[ClusterSpec]:
        """Rented clusters that jobs of a lane may run on."""
        if lane.kind.shape.tasks > 1:
            return [each.spec for each in self.clusters_for(lane, Role.RENTED)]
        return [each.cluster.spec for each in self.candidates(lane, RENTED)]

    def eager(self) -> bool:
        """Whether any machine prefetches leases."""
        for each in self._clusters.values():  # noqa: SIM110 - asked for every job
            if each.eager:
                return True
        return False

    def forget(self) -> None:
        """Lanes were forgotten: their candidates go with them."""
        self._shared.clear()
