"""Events of advance reservations."""

from spillover.core.events.base import Event
from spillover.model.ids import ClusterName, NodeName
from spillover.model.units import format_moment


class ReservationMade(Event, frozen=True, tag="reservation_made"):
    """Nodes were reserved for a project, or for maintenance, over a span of time."""

    name: str
    at: int
    who: str
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """Its nodes."""
    start: int
    """Nanoseconds UTC."""
    end: int
    """Nanoseconds UTC."""
    project: str = ""
    """The project whose jobs may run there; empty for maintenance."""
    within: str = ""
    """The level of which one vertex has all nodes; empty is any."""
    needs: tuple[str, ...] = ()
    """Words that its nodes must offer, sorted."""
    named: bool = False
    """Whether a person chose the nodes, so that none is replaced."""

    def of_project(self) -> str | None:
        """See Event."""
        return self.project or None

    def __str__(self) -> str:
        whom = f"project {self.project}" if self.project else "maintenance"
        many = "1 node" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        return (
            f"{self.who} reserved {many} of {self.cluster} for {whom} as {self.name}, "
            f"from {format_moment(self.start)} to {format_moment(self.end)}"
        )


class ReservationMoved(Event, frozen=True, tag="reservation_moved"):
    """A reservation has other nodes, because some of its nodes were lost."""

    name: str
    at: int
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """All of its nodes from now on."""

    def __str__(self) -> str:
        return f"reservation {self.name} has other nodes of {self.cluster}: {', '.join(self.nodes)}"


class ReservationCancelled(Event, frozen=True, tag="reservation_cancelled"):
    """A person cancelled a reservation."""

    name: str
    at: int
    who: str
    cluster: ClusterName

    def __str__(self) -> str:
        return f"{self.who} cancelled reservation {self.name}"


class ReservationEnded(Event, frozen=True, tag="reservation_ended"):
    """The time of a reservation is over."""

    name: str
    at: int
    cluster: ClusterName

    def __str__(self) -> str:
        return f"reservation {self.name} ended"
