"""Advance reservations: nodes that a person keeps for a project, or for maintenance, over a span of time."""

from typing import Final

from msgspec import Struct

from spillover.model.ids import ClusterName, NodeName
from spillover.model.units import DAY

MOST_AHEAD: Final = 366 * DAY
"""How far ahead a reservation may begin, in nanoseconds."""
LONGEST: Final = 366 * DAY
"""The longest reservation, in nanoseconds."""
MOST_RESERVATIONS: Final = 1000
"""The most advance reservations at a time."""


class AdvanceReservation(Struct, frozen=True, array_like=True):
    """Nodes of one cluster that others may not use over a span of time."""

    name: str
    """Unique among the reservations that have not ended."""
    cluster: ClusterName
    nodes: tuple[NodeName, ...]
    """Chosen when it was made. A lost node is replaced if another one fits."""
    start: int
    """Nanoseconds UTC."""
    end: int
    """Nanoseconds UTC."""
    project: str = ""
    """The project whose jobs may run there; empty for maintenance, when no job starts there."""
    made: int = 0
    """When it was made, nanoseconds UTC."""
    who: str = ""
    """The person who made it."""
    within: str = ""
    """The level of which one vertex has all nodes; empty is any."""
    needs: tuple[str, ...] = ()
    """Words that its nodes must offer, sorted."""
    named: bool = False
    """Whether a person chose the nodes, so that none is replaced."""

    @property
    def maintenance(self) -> bool:
        """Whether no job may start there."""
        return not self.project

    def overlaps(self, other: "AdvanceReservation") -> bool:
        """Return whether both have a node at the same time."""
        together = self.cluster == other.cluster and self.start < other.end and other.start < self.end
        return together and not set(self.nodes).isdisjoint(other.nodes)
