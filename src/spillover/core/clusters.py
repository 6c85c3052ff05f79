"""Clusters, as the book keeps them: where each is in its life, and how those are that others run."""

from msgspec import Struct

from spillover.model.cluster import ClusterHealth, ClusterLife, Leave
from spillover.model.ids import ClusterName


class Condition(Struct, frozen=True, array_like=True):
    """How a cluster is, as it was last seen."""

    cluster: ClusterName
    health: ClusterHealth = ClusterHealth.UNOBSERVED
    since: int = 0
    """When it came to be so, nanoseconds UTC."""
    why: str = ""
    """For people; empty if there is nothing to say."""


class ClusterRecord(Struct, frozen=True, array_like=True):
    """The life of a cluster so far."""

    cluster: ClusterName
    life: ClusterLife
    """As in the table `LIFE` of `transitions`."""
    since: int = 0
    """When that came to be so, nanoseconds UTC."""
    form: str = ""
    """Its entry of spill.yaml as JSON, if the configuration does not name it: what it is opened by after a restart. Empty if it does."""
    who: str = ""
    """Who added it while a server ran; empty if it was there when one started."""
    drained: str = ""
    """Who drained it, for as long as nobody resumes it; empty as a rule."""
    leaving: Leave | None = None
    """What becomes of its jobs, if it is being removed; None if it is not."""
