"""How a cluster is, from how the connection to it is. Pure."""

from typing import Final

from msgspec import Struct

from spillover.model.cluster import ClusterHealth
from spillover.model.units import MINUTE
from spillover.ports.driver import Connection, DriverLink

FEW: Final = 3
"""Tries in a row that may fail before a cluster is degraded."""


AWAITED: Final = frozenset((ClusterHealth.UNOBSERVED, ClusterHealth.CLEARING))
"""Where nothing is placed before what is left over is gone."""


class HealthView(Struct, frozen=True):
    """What is known of a cluster at one moment."""

    connection: Connection
    listed: bool
    """Whether what is there was listed since this server leads."""
    leftovers: int
    """Attempts there that may run and that the book has not; of account while a cluster is AWAITED."""
    monotonic: int


def health_of(book: ClusterHealth, view: HealthView, failed_after: int = 2 * MINUTE) -> ClusterHealth:
    """How a cluster is now, that was so."""
    connection = view.connection
    if connection.link is DriverLink.UP and view.listed:
        if book is ClusterHealth.FAILED or (book is ClusterHealth.CLEARING and view.leftovers):
            return ClusterHealth.CLEARING
        if book is ClusterHealth.UNOBSERVED and view.leftovers:
            return book  # nothing is placed there beside what an earlier server gave up
        return ClusterHealth.READY
    if connection.link is DriverLink.UP or connection.failures < FEW or book is ClusterHealth.FAILED:
        return book
    if book is ClusterHealth.CLEARING or view.monotonic - connection.since >= failed_after:
        return ClusterHealth.FAILED
    return ClusterHealth.DEGRADED
