"""Where jobs of a lane may run, in the order to be tried."""

from collections.abc import Mapping

from spillover.deciding.gangs import GangSeat
from spillover.deciding.lanes import Lane
from spillover.deciding.rooms import Room
from spillover.deciding.seats import Seat
from spillover.model.admission import may_run, refused_by
from spillover.model.cluster import OWNED, RENTED, ClusterSpec, Role, cost_of_job
from spillover.model.ids import ClusterName
from spillover.model.job import Burst, Shape
from spillover.model.units import HOUR


class Seating:
    """The rooms of all clusters, as lanes see them. A lane remembers its seats, so that it is asked for them once."""

    def __init__(self, rooms: Mapping[ClusterName, Room]) -> None:
        self._rooms = rooms
        self._seats_of: dict[tuple[Shape, tuple[ClusterName, ...], Role], list[Seat]] = {}
        """By the shape of jobs, and the clusters that they shun."""

    def seats(self, lane: Lane, role: Role) -> list[Seat]:
        """Where jobs of a lane may run, in the order to be tried: as configured, and rented ones by price."""
        if role is OWNED:
            if lane.owned is None:
                lane.owned = self._seats(lane, role)
            return lane.owned
        if lane.rented is None:
            lane.rented = self._seats(lane, role)
        return lane.rented

    def _seats(self, lane: Lane, role: Role) -> list[Seat]:
        """Where jobs of a lane may run; lanes of one shape share what they know of rooms."""
        key = shape, _, _ = lane.kind.shape, lane.kind.shunned, role
        seats = self._seats_of.get(key)
        if seats is None:
            seats = self._seats_of[key] = [Seat(room, shape) for room in self.rooms_of(lane, role)]
        return seats

    def gang_seats(self, lane: Lane, role: Role) -> list[GangSeat]:
        """Where gangs of a lane may run, likewise."""
        if role is OWNED:
            if lane.gangs_owned is None:
                lane.gangs_owned = self._gang_seats(lane, role)
            return lane.gangs_owned
        if lane.gangs_rented is None:
            lane.gangs_rented = self._gang_seats(lane, role)
        return lane.gangs_rented

    def _gang_seats(self, lane: Lane, role: Role) -> list[GangSeat]:
        return [GangSeat(room, lane.kind.shape) for room in self.rooms_of(lane, role) if room.spec.gangs]

    def rooms_of(self, lane: Lane, role: Role) -> list[Room]:
        """Clusters that suit a lane, in the order to be tried: as configured, and rented ones by price, then by how soon they start."""
        shape = lane.kind.shape
        ruled_out = Burst.NEVER if role is Role.RENTED else Burst.ALWAYS
        if shape.burst is ruled_out:
            return []
        shunned = lane.kind.shunned
        rooms = [
            room
            for room in self._rooms.values()
            if room.spec.role is role and room.name not in shunned and may_run(shape, room.spec)
        ]
        if role is Role.RENTED:
            rooms.sort(key=lambda room: (cost_of_job(room.spec, shape, HOUR), room.spec.startup))
        return rooms

    def only_rented(self, shape: Shape) -> bool:
        """Whether what jobs of a shape ask of clusters is true of rented ones only, so that none is owned that they could wait for."""
        where = shape.where
        if where is None:
            return False
        roles = {room.spec.role for room in self._rooms.values() if not refused_by(where, room.spec)}
        return roles == {RENTED}

    def rented_for(self, lane: Lane) -> list[ClusterSpec]:
        """Rented clusters that jobs of a lane may run on."""
        if lane.kind.shape.tasks > 1:
            return [room.spec for room in self.rooms_of(lane, Role.RENTED)]
        return [seat.room.spec for seat in self.seats(lane, RENTED)]

    def eager(self) -> bool:
        """Whether any machine takes leases ahead of room."""
        for room in self._rooms.values():  # noqa: SIM110 - asked for every job
            if room.eager:
                return True
        return False

    def forget(self) -> None:
        """Lanes were forgotten: what only they knew of rooms goes with them."""
        self._seats_of.clear()
