"""Simulates a driver of a virtual cluster, whose connection breaks, lags and loses answers."""

from random import Random

from spillover.core.events import Lease
from spillover.ports.driver import Answer, Changes, Connection, DriverLink, Made
from tests.support.external.cluster import Cluster


class Watcher:
    """The view that one server has of a cluster."""

    def __init__(self, cluster: Cluster, dice: Random, now: int) -> None:
        self._cluster = cluster
        self._dice = dice
        self._link = DriverLink.CONNECTING
        self._since = now
        self._failures = 0
        self._read = -1
        """The revision read so far; -1 before the first list."""
        self._known: set[Lease] = set()
        self._relist = True

    def connection(self) -> Connection:
        """The state of the connection."""
        return Connection(self._link, self._since, self._failures, "no answer" if self._failures else "")

    def connect(self, now: int, *, works: bool, resumes: bool) -> None:
        """Try to connect; a watch that cannot resume begins with a list."""
        if not works:
            if self._link is not DriverLink.DOWN:
                self._link, self._since = DriverLink.DOWN, now
            self._failures += 1
            return
        if self._link is not DriverLink.UP:
            self._link, self._since, self._failures = DriverLink.UP, now, 0
            self._relist = self._relist or not resumes

    def lose(self, now: int) -> None:
        """Lose the connection."""
        if self._link is DriverLink.UP:
            self._link, self._since = DriverLink.DOWN, now

    def take(self, *, lags: bool) -> Changes:
        """Return what is new; a watch may lag behind, a list does not."""
        if self._link is not DriverLink.UP:
            return Changes(False)
        cluster = self._cluster
        if self._relist:
            self._relist = False
            self._read, self._known = cluster.revision, set(cluster.objects)
            return Changes(
                True,
                tuple(cluster.see_node(node) for node in cluster.foreign),
                attempts=tuple(seen for lease in cluster.objects if (seen := cluster.see(lease)) is not None),
            )
        if lags:
            return Changes(False)
        changed = [lease for lease, at in cluster.changed.items() if at > self._read]
        nodes = [node for node, at in cluster.nodes_changed.items() if at > self._read]
        self._read = cluster.revision
        there = {lease: cluster.see(lease) for lease in changed}
        gone = tuple(lease for lease, each in there.items() if each is None)
        self._known = (self._known | set(changed)) - set(gone)
        return Changes(
            False,
            tuple(cluster.see_node(node) for node in nodes),
            attempts=tuple(each for each in there.values() if each is not None),
            gone=gone,
        )

    def start(self, lease: Lease, tasks: int, now: int, chance: float) -> Answer:
        """Request an attempt; the request and the answer may each get lost."""
        draw = self._dice.random()
        if self._link is not DriverLink.UP or draw < chance:
            return Answer(Made.UNSENT, "refused")
        if draw < 2 * chance:
            self._cluster.make(lease, tasks, now)
            return Answer(Made.UNKNOWN, "no answer")
        if draw < 3 * chance:
            return Answer(Made.UNKNOWN, "no answer")
        if draw < 4 * chance:
            return Answer(Made.NOT_NOW, "over quota")
        self._cluster.make(lease, tasks, now)
        return Answer(Made.MADE)
