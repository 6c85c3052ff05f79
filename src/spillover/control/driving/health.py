"""Derives the health of a cluster from the state of its connection. Pure."""

from typing import Final

from msgspec import Struct

from spillover.model.cluster import ClusterHealth
from spillover.model.units import MINUTE
from spillover.ports.driver import Connection, DriverLink

FEW: Final = 3
"""Failures in a row after which a cluster is degraded."""


AWAITED: Final = frozenset((ClusterHealth.UNOBSERVED, ClusterHealth.CLEARING))
"""Health in which a cluster takes no jobs until its leftovers are gone."""


class HealthView(Struct, frozen=True):
    """What is known of a cluster at one moment."""

    connection: Connection
    listed: bool
    """Whether the driver has listed all objects since this server leads."""
    leftovers: int
    """Attempts there that may run and are not in the state; they matter only if the health is in AWAITED."""
    monotonic: int


def health_of(last: ClusterHealth, view: HealthView, failed_after: int = 2 * MINUTE) -> ClusterHealth:
    """Return the new health of a cluster whose last health was `last`."""
    connection = view.connection
    if connection.link is DriverLink.UP and view.listed:
        if last is ClusterHealth.FAILED or (last is ClusterHealth.CLEARING and view.leftovers):
            return ClusterHealth.CLEARING
        if last is ClusterHealth.UNOBSERVED and view.leftovers:
            return last  # place nothing beside attempts that an earlier server gave up
        return ClusterHealth.READY
    if connection.link is DriverLink.UP or connection.failures < FEW or last is ClusterHealth.FAILED:
        return last
    if last is ClusterHealth.CLEARING or view.monotonic - connection.since >= failed_after:
        return ClusterHealth.FAILED
    return ClusterHealth.DEGRADED
