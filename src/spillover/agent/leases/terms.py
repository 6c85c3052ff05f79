"""Tracks how long the leases of an agent last without an answer of the server.

A term counts from the time at which an acknowledged heartbeat or registration was sent, and ends one heartbeat early.
The server measures terms on its own clock, and must not give a lease to another agent while the task still runs here.
"""

from collections.abc import Iterable

from spillover.agent.leases.running import RunningTask
from spillover.agent.leases.values import Task
from spillover.model.units import FOREVER, SECOND


class TaskTerms:
    """When leases were last renewed, and when they expire."""

    def __init__(self) -> None:
        self.heartbeat = 2 * SECOND
        self.short = 30 * SECOND
        """Nanoseconds, for leases whose start is not acknowledged."""
        self.number = 0
        """The number of these terms, counted within a registration."""
        self._renewed: int | None = None
        """When the last acknowledged heartbeat or registration was sent; None before the first."""
        self._shortest = FOREVER
        """Nanoseconds; a lower bound for the terms of all leases."""

    def take(self, number: int, heartbeat: int, short: int) -> None:
        """Adopt new terms, from a registration or from the answer to a heartbeat."""
        self.number, self.heartbeat, self.short = number, heartbeat, short

    @property
    def begun(self) -> bool:
        """Return whether the server has ever answered."""
        return self._renewed is not None

    def renew(self, sent: int, running: Iterable[RunningTask]) -> None:
        """Renew all leases from the time at which an acknowledged message was sent."""
        self._renewed = max(sent, self._renewed or sent)
        self._shortest = min((self.of(run) for run in running), default=self.short)
        self._shortest = min(self._shortest, self.short)

    def patience(self) -> int:
        """Return the nanoseconds that the answer to a heartbeat may take.

        Half of what is left of the shortest term then remains for another try. The last answered heartbeat may have
        been sent a full interval earlier, and terms end another interval early.
        """
        left = min(self._shortest, self.short) - 2 * self.heartbeat
        return max(self.heartbeat, left) // 2

    def add_term(self, term: int) -> None:
        """Account for a new lease of this term."""
        self._shortest = min(self._shortest, term)

    def of(self, run: RunningTask) -> int:
        """Return how long a running lease lasts without renewal, in nanoseconds."""
        lasts = self.lasts(run.task)
        return lasts if run.acknowledged else min(self.short, lasts)

    def lasts(self, task: Task) -> int:
        """Return how long a task outlasts its server: `lost_after` of its job, and at least three heartbeats."""
        return max(task.lost_after, 3 * self.heartbeat)

    def due(self, now: int) -> bool:
        """Return whether any lease may have expired. A cheap check before the exact one."""
        return self._renewed is not None and now >= self._renewed + self._shortest - self.heartbeat

    def over(self, now: int, term: int) -> bool:
        """Return whether a lease of this term has expired; False before the first renewal."""
        return self._renewed is not None and now - self._renewed + self.heartbeat >= term

    def swept(self, now: int, running: Iterable[RunningTask]) -> None:
        """Recompute the shortest term after expired leases were removed."""
        # If the short term is over as well, no lease can get it before the next renewal.
        left = [self.of(run) for run in running if not run.killed]
        self._shortest = min(left if self.over(now, self.short) else [*left, self.short], default=FOREVER)

    def soonest(self, running: Iterable[RunningTask], *, unstarted: bool) -> int | None:
        """Return a time before which no lease expires; None if the server never answered."""
        if self._renewed is None:
            return None
        terms = [self.of(run) for run in running if not run.killed]
        if unstarted:
            terms.append(self.short)
        return self._renewed + min(terms, default=FOREVER) - self.heartbeat
