import pytest

from spillover.control.driving.health import View, health_of
from spillover.model.cluster import Health
from spillover.model.units import MINUTE, SECOND
from spillover.ports.driver import Connection, Link

UP = Connection(Link.UP, 0)


def down(failures: int) -> Connection:
    return Connection(Link.DOWN, 0, failures, "no answer")


@pytest.mark.parametrize(
    ("book", "connection", "listed", "leftovers", "after", "health"),
    [
        (Health.UNOBSERVED, UP, False, 0, 0, Health.UNOBSERVED),
        (Health.UNOBSERVED, UP, True, 0, 0, Health.READY),
        (Health.UNOBSERVED, UP, True, 1, 0, Health.UNOBSERVED),
        (Health.READY, down(2), True, 0, MINUTE, Health.READY),
        (Health.READY, down(3), True, 0, SECOND, Health.DEGRADED),
        (Health.UNOBSERVED, down(3), False, 0, SECOND, Health.DEGRADED),
        (Health.DEGRADED, down(9), True, 0, 2 * MINUTE - 1, Health.DEGRADED),
        (Health.DEGRADED, down(9), True, 0, 2 * MINUTE, Health.FAILED),
        (Health.FAILED, down(99), True, 0, 60 * MINUTE, Health.FAILED),
        (Health.DEGRADED, UP, True, 0, 0, Health.READY),
        (Health.FAILED, UP, True, 0, 0, Health.CLEARING),
        (Health.CLEARING, UP, True, 2, 0, Health.CLEARING),
        (Health.CLEARING, UP, True, 0, 0, Health.READY),
        (Health.CLEARING, down(2), True, 2, SECOND, Health.CLEARING),
        (Health.CLEARING, down(3), True, 2, SECOND, Health.FAILED),
    ],
)
def test_a_cluster_is_as_its_connection_and_its_leftovers_are(
    book: Health, connection: Connection, listed: bool, leftovers: int, after: int, health: Health
) -> None:
    assert health_of(book, View(connection, listed, leftovers, after)) is health
