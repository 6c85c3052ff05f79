"""Decides what to propose about one external cluster and what to ask of it, without clock or connection. Pure."""

from spillover.control.driving.cases import DriverOrders
from spillover.control.driving.health import AWAITED, HealthView, health_of
from spillover.control.driving.ledger import Ledger
from spillover.core.proposals import SeeCluster
from spillover.core.state import State
from spillover.model.cluster import ClusterHealth
from spillover.model.ids import ClusterName
from spillover.ports.driver import Changes, Connection, DriverLink, Manner


class Pilot:
    """Combines attempts, nodes and health of one cluster."""

    def __init__(self, cluster: ClusterName, manner: Manner, *, keep_output: bool = False) -> None:
        self.cluster = cluster
        self.ledger = Ledger(cluster, manner.patience, keep_output=keep_output)
        self._failed_after = manner.failed_after
        self._listed = False
        """Whether the driver has listed all objects since this server leads."""

    def take(self, changes: Changes, monotonic: int) -> None:
        """Take in what the driver saw."""
        self._listed = self._listed or changes.whole
        self.ledger.take(changes, monotonic)

    def orders(self, state: State, connection: Connection, now: int, monotonic: int) -> DriverOrders:
        """Return what to propose, in order, and what to ask for once that is durable."""
        if not self._listed or connection.link is not DriverLink.UP:
            orders = DriverOrders.none()
        else:
            orders = self.ledger.orders(state, now, monotonic)
            nodes = self.ledger.nodes.proposal()
            if nodes is not None:
                orders.proposals.insert(0, nodes)
        health = self._health(state, connection, monotonic)
        if health is not None:
            orders.proposals.append(health)
        return orders

    def undo(self, orders: DriverOrders) -> None:
        """Undo orders whose proposals failed, as none was carried out."""
        ledger = self.ledger
        ledger.recheck(orders.jobs)
        ledger.recheck(lease.job for lease in orders.starts)
        for lease, _ in orders.stops:
            ledger.not_asked(lease)
        for lease in orders.keeps:
            ledger.not_kept(lease)
        ledger.nodes.propose_all_again()

    def _health(self, state: State, connection: Connection, monotonic: int) -> SeeCluster | None:
        """Return a proposal for the new health of the cluster; None if it did not change."""
        last = state.health(self.cluster) or ClusterHealth.UNOBSERVED
        leftovers = self.ledger.leftovers(monotonic) if last in AWAITED else 0
        view = HealthView(connection, self._listed, leftovers, monotonic)
        health = health_of(last, view, self._failed_after)
        if health is last:
            return None
        unsent = self.ledger.unsent() if health is ClusterHealth.FAILED else ()
        return SeeCluster(
            self.cluster, health, "" if health is ClusterHealth.READY else connection.error, unsent
        )
