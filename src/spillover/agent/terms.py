"""How long the leases of an agent last without a word of the server.

All terms count from the time at which an acknowledged heartbeat or registration was sent, and are over one heartbeat early: the server,
whose clock runs by itself, must not give a lease to somebody else while its task still runs here.
"""

from collections.abc import Iterable

from msgspec import Struct

from spillover.agent.values import Task
from spillover.core.proposals import Outcome
from spillover.model.units import FOREVER, SECOND


class RunningTask(Struct):
    """A lease with a process, or with one that is being made."""

    task: Task
    started: int | None = None
    """Monotonic time at which its process was made; None while it is being made."""
    acknowledged: bool = False
    """Whether the server has its start durably, so that it outlives the short term."""
    cause: Outcome | None = None
    """Why it is being stopped; None if it is not."""
    stopped: int = 0
    """Monotonic time at which `cause` was set."""
    overdue: bool = False
    """Whether it is being stopped because its walltime or deadline has passed, which bounds its process and not its files."""
    terminated: bool = False
    killed: bool = False
    why: str = ""
    """What the result will say; empty if it ends by itself."""
    moving: bool = False
    """Whether its files are being brought here or away, so that it has no process."""
    exited: bool = False
    """Whether its process is gone and its files are being brought away."""


class TaskTerms:
    """When leases were last renewed, and when they are over."""

    def __init__(self) -> None:
        self.heartbeat = 2 * SECOND
        self.short = 30 * SECOND
        """Of leases whose start is not acknowledged."""
        self.number = 0
        """Of these terms, counted within a registration."""
        self._renewed: int | None = None
        """When the last acknowledged heartbeat or registration was sent; None before the first."""
        self._shortest = FOREVER
        """No lease of ours has a shorter term than this."""

    def take(self, number: int, heartbeat: int, short: int) -> None:
        """Live by other terms: those of a registration, or what an answer to a heartbeat told."""
        self.number, self.heartbeat, self.short = number, heartbeat, short

    @property
    def begun(self) -> bool:
        """Whether the server has ever answered."""
        return self._renewed is not None

    def renew(self, sent: int, running: Iterable[RunningTask]) -> None:
        """What was sent then is acknowledged."""
        self._renewed = max(sent, self._renewed or sent)
        self._shortest = min((self.of(run) for run in running), default=self.short)
        self._shortest = min(self._shortest, self.short)

    def patience(self) -> int:
        """Nanoseconds that the answer to a heartbeat may take: then half of what is left of the shortest term is there to try again.

        The last one that was answered may have been sent a heartbeat before it, and terms are over another one early.
        """
        left = min(self._shortest, self.short) - 2 * self.heartbeat
        return max(self.heartbeat, left) // 2

    def bear(self, term: int) -> None:
        """There is a lease of this term now."""
        self._shortest = min(self._shortest, term)

    def of(self, run: RunningTask) -> int:
        """How long a running lease lasts without renewal."""
        lasts = self.lasts(run.task)
        return lasts if run.acknowledged else min(self.short, lasts)

    def lasts(self, task: Task) -> int:
        """How long a task outlives its server: as its job says, and three heartbeats at the least."""
        return max(task.lost_after, 3 * self.heartbeat)

    def due(self, now: int) -> bool:
        """Whether any lease may be over: asked first of all, so that it costs little."""
        return self._renewed is not None and now >= self._renewed + self._shortest - self.heartbeat

    def over(self, now: int, term: int) -> bool:
        """Whether a lease of this term is over; none is that was not renewed ever."""
        return self._renewed is not None and now - self._renewed + self.heartbeat >= term

    def swept(self, now: int, running: Iterable[RunningTask]) -> None:
        """All that was over is gone. What is left has a longer term; until the next renewal nothing shorter can come in."""
        left = [self.of(run) for run in running if not run.killed]
        self._shortest = min(left if self.over(now, self.short) else [*left, self.short], default=FOREVER)

    def soonest(self, running: Iterable[RunningTask], *, unstarted: bool) -> int | None:
        """Before this time no lease is over; None if the server never answered."""
        if self._renewed is None:
            return None
        terms = [self.of(run) for run in running if not run.killed]
        if unstarted:
            terms.append(self.short)
        return self._renewed + min(terms, default=FOREVER) - self.heartbeat
