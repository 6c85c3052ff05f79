"""Reasons why an external cluster takes no job, or why nothing is known about a job there or on an agent."""

from typing import Final

from spillover.model.cluster import ClusterHealth
from spillover.model.ids import ClusterName, NodeKey
from spillover.model.reasons.base import NotNow
from spillover.model.units import FOREVER, format_moment


class ClusterDown(NotNow, frozen=True, tag="cluster_down"):
    """An external cluster is unreachable, or is being cleared after a failure. It gets no jobs."""

    cluster: ClusterName
    health: ClusterHealth
    since: int
    """Nanoseconds UTC; 0 if it was never observed."""
    why: str
    """The reason that its driver or the server reports; empty if there is none."""

    def __str__(self) -> str:
        since = f" since {format_moment(self.since)}" if self.since else ""
        why = f": {self.why}" if self.why else ""
        return f"{self.cluster} {_STATES[self.health]}{since}{why}"


class ClusterDrained(NotNow, frozen=True, tag="cluster_drained"):
    """The cluster is drained or being removed. Its jobs continue, and it gets no new ones."""

    cluster: ClusterName
    who: str
    leaving: bool = False
    """Whether it is being removed."""

    def __str__(self) -> str:
        how = "is being removed" if self.leaving else "was drained"
        return f"{self.cluster} {how} by {self.who}; resume it with `spill clusters resume {self.cluster}`"


class NotConfigured(NotNow, frozen=True, tag="not_configured"):
    """It is on an external cluster that is no longer configured, so its state is unknown."""

    cluster: ClusterName

    def __str__(self) -> str:
        return (
            f"is on {self.cluster}, which is no longer configured; configure it again, "
            "or give the job up with `spill requeue` or `spill cancel`"
        )


_STATES: Final = {
    ClusterHealth.UNOBSERVED: "has not answered yet",
    ClusterHealth.READY: "is ready",
    ClusterHealth.DEGRADED: "does not answer",
    ClusterHealth.FAILED: "has failed",
    ClusterHealth.CLEARING: "is being cleaned up after it failed,",
}


class NoNodeReady(NotNow, frozen=True, tag="no_node_ready"):
    """No node of an external cluster that could run it is ready for new work."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"waits for a suitable node of {' or '.join(self.clusters)} to be ready for new work"


class BackingOff(NotNow, frozen=True, tag="shunned"):
    """A cluster returned it. It may be tried there again after a while."""

    cluster: ClusterName
    until: int
    """Nanoseconds UTC."""
    because: str
    """The reason that the cluster gave; empty if there is none."""

    def __str__(self) -> str:
        because = f": {self.because}" if self.because else ""
        return f"backs off from {self.cluster} until {format_moment(self.until)}{because}"


class NotStarting(NotNow, frozen=True, tag="not_starting"):
    """It is placed on an external cluster and has not started there yet."""

    cluster: ClusterName
    what: str
    """`unschedulable`, `image`, `refused`, `config` or `unanswered`."""
    message: str
    """The message of that cluster, or the error of its driver."""
    at: int
    """Since when, nanoseconds UTC."""

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return (
            f"has been waiting to start on {self.cluster} since {format_moment(self.at)} ({self.what}{said})"
        )


class AgentSilent(NotNow, frozen=True, tag="agent_silent"):
    """Its agent does not answer, so nobody knows whether it still runs."""

    agent: NodeKey
    at: int
    """When the agent was last heard from, nanoseconds UTC; null if it has not registered with this server."""
    until: int
    """When the lease expires, nanoseconds UTC; null if that is not known."""
    started: bool
    """Whether its process was started. If not, the lease has the short term."""
    retried: bool
    """Whether it returns to the queue then; else it fails."""

    @property
    def unanswered(self) -> str:
        """Since when the agent does not answer."""
        if self.at >= FOREVER:
            return f"agent {self.agent} has not come back since the server started"
        return f"agent {self.agent} has not answered since {format_moment(self.at)}"

    def __str__(self) -> str:
        term = "lost_after" if self.started else "the term of its lease"
        by = f"within {term}" if self.until >= FOREVER else f"by {format_moment(self.until)} ({term})"
        then = "returns to the queue" if self.retried else "fails, because retry.lost allows no more attempts"
        return f"{self.unanswered}; if it does not come back {by}, the job {then}"
