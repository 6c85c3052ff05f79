import pytest

from spillover.control.driving.health import HealthView, health_of
from spillover.model.cluster import ClusterHealth
from spillover.model.units import MINUTE, SECOND
from spillover.ports.driver import Connection, DriverLink

UP = Connection(DriverLink.UP, 0)


def down(failures: int) -> Connection:
    return Connection(DriverLink.DOWN, 0, failures, "no answer")


@pytest.mark.parametrize(
    ("book", "connection", "listed", "leftovers", "after", "health"),
    [
        (ClusterHealth.UNOBSERVED, UP, False, 0, 0, ClusterHealth.UNOBSERVED),
        (ClusterHealth.UNOBSERVED, UP, True, 0, 0, ClusterHealth.READY),
        (ClusterHealth.UNOBSERVED, UP, True, 1, 0, ClusterHealth.UNOBSERVED),
        (ClusterHealth.READY, down(2), True, 0, MINUTE, ClusterHealth.READY),
        (ClusterHealth.READY, down(3), True, 0, SECOND, ClusterHealth.DEGRADED),
        (ClusterHealth.UNOBSERVED, down(3), False, 0, SECOND, ClusterHealth.DEGRADED),
        (ClusterHealth.DEGRADED, down(9), True, 0, 2 * MINUTE - 1, ClusterHealth.DEGRADED),
        (ClusterHealth.DEGRADED, down(9), True, 0, 2 * MINUTE, ClusterHealth.FAILED),
        (ClusterHealth.FAILED, down(99), True, 0, 60 * MINUTE, ClusterHealth.FAILED),
        (ClusterHealth.DEGRADED, UP, True, 0, 0, ClusterHealth.READY),
        (ClusterHealth.FAILED, UP, True, 0, 0, ClusterHealth.CLEARING),
        (ClusterHealth.CLEARING, UP, True, 2, 0, ClusterHealth.CLEARING),
        (ClusterHealth.CLEARING, UP, True, 0, 0, ClusterHealth.READY),
        (ClusterHealth.CLEARING, down(2), True, 2, SECOND, ClusterHealth.CLEARING),
        (ClusterHealth.CLEARING, down(3), True, 2, SECOND, ClusterHealth.FAILED),
    ],
)
def test_a_cluster_is_as_its_connection_and_its_leftovers_are(
    book: ClusterHealth,
    connection: Connection,
    listed: bool,
    leftovers: int,
    after: int,
    health: ClusterHealth,
) -> None:
    assert health_of(book, HealthView(connection, listed, leftovers, after)) is health
