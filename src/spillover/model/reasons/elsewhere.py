"""Why an external cluster gives no news of a job, or takes none."""

from typing import Final

from spillover.model.cluster import ClusterHealth
from spillover.model.ids import ClusterName
from spillover.model.reasons.base import NotNow
from spillover.model.units import (
    format_moment,
)


class ClusterDown(NotNow, frozen=True, tag="cluster_down"):
    """An external cluster does not answer, or is being cleared after it had failed: it is given nothing."""

    cluster: ClusterName
    health: ClusterHealth
    since: int
    """Nanoseconds UTC; 0 if nothing was ever seen of it."""
    why: str
    """In the words of whoever watches it; empty if there is nothing to say."""

    def __str__(self) -> str:
        since = f" since {format_moment(self.since)}" if self.since else ""
        why = f": {self.why}" if self.why else ""
        return f"{self.cluster} {_STATES[self.health]}{since}{why}"


class ClusterDrained(NotNow, frozen=True, tag="cluster_drained"):
    """Somebody drained the cluster, or it is being removed: what runs there goes on, and it is given nothing more."""

    cluster: ClusterName
    who: str
    leaving: bool = False
    """Whether it is being removed."""

    def __str__(self) -> str:
        how = "is being removed" if self.leaving else "was drained"
        return f"{self.cluster} {how} by {self.who}; `spill clusters resume {self.cluster}` lets it be given work again"


class NotConfigured(NotNow, frozen=True, tag="not_configured"):
    """It was handed to an external cluster and that is not configured any more: nobody can say what became of it."""

    cluster: ClusterName

    def __str__(self) -> str:
        return (
            f"is on {self.cluster}, which is not configured any more; configure it again, "
            "or have the job given up there with `spill requeue` or `spill cancel`"
        )


_STATES: Final = {
    ClusterHealth.UNOBSERVED: "was not seen yet, which the server waits for",
    ClusterHealth.READY: "is ready",
    ClusterHealth.DEGRADED: "does not answer",
    ClusterHealth.FAILED: "has failed",
    ClusterHealth.CLEARING: "is being cleared of what was left there when it failed,",
}


class NoNodeReady(NotNow, frozen=True, tag="no_node_ready"):
    """No node of an external cluster, which could run it, is ready and may be given tasks."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"waits for a node of {' or '.join(self.clusters)} that could run it to be ready, and not cordoned"


class BackingOff(NotNow, frozen=True, tag="shunned"):
    """A cluster gave it back, and it is tried there again after a while."""

    cluster: ClusterName
    until: int
    """Nanoseconds UTC."""
    because: str
    """In the words of the cluster; empty if it said nothing."""

    def __str__(self) -> str:
        because = f": {self.because}" if self.because else ""
        return f"{self.cluster} gave it back and is tried again at {format_moment(self.until)}{because}"


class NotStarting(NotNow, frozen=True, tag="not_starting"):
    """It was handed to an external cluster, which has not started it yet."""

    cluster: ClusterName
    what: str
    """`unschedulable`, `image`, `refused` or `config`."""
    message: str
    """In the words of that cluster."""
    at: int
    """Since when, nanoseconds UTC."""

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"is not started by {self.cluster} since {format_moment(self.at)} ({self.what}{said})"
