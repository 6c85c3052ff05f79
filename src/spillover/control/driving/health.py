"""How a cluster is, from how the connection to it is. Pure."""

from typing import Final

from msgspec import Struct

from spillover.model.cluster import Health
from spillover.model.units import MINUTE
from spillover.ports.driver import Connection, Link

FEW: Final = 3
"""Tries in a row that may fail before a cluster is degraded."""


AWAITED: Final = frozenset((Health.UNOBSERVED, Health.CLEARING))
"""Where nothing is placed before what is left over is gone."""


class View(Struct, frozen=True):
    """What is known of a cluster at one moment."""

    connection: Connection
    listed: bool
    """Whether what is there was listed since this server leads."""
    leftovers: int
    """Attempts there that may run and that the book has not; of account while a cluster is AWAITED."""
    monotonic: int


def health_of(book: Health, view: View, failed_after: int = 2 * MINUTE) -> Health:
    """How a cluster is now, that was so."""
    connection = view.connection
    if connection.link is Link.UP and view.listed:
        if book is Health.FAILED or (book is Health.CLEARING and view.leftovers):
            return Health.CLEARING
        if book is Health.UNOBSERVED and view.leftovers:
            return book  # nothing is placed there beside what an earlier server gave up
        return Health.READY
    if connection.link is Link.UP or connection.failures < FEW or book is Health.FAILED:
        return book
    if book is Health.CLEARING or view.monotonic - connection.since >= failed_after:
        return Health.FAILED
    return Health.DEGRADED
