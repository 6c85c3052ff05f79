"""Records of clusters: their lifecycles, and the health of external ones."""

from msgspec import Struct

from spillover.model.cluster import ClusterHealth, ClusterLife, Leave
from spillover.model.ids import ClusterName


class Condition(Struct, frozen=True, array_like=True):
    """The health of an external cluster, as last seen."""

    cluster: ClusterName
    health: ClusterHealth = ClusterHealth.UNOBSERVED
    since: int = 0
    """When it became so, nanoseconds UTC."""
    why: str = ""
    """Reason for people; empty if there is none."""


class ClusterRecord(Struct, frozen=True, array_like=True):
    """The lifecycle of a cluster."""

    cluster: ClusterName
    life: ClusterLife
    """As in the table `LIFE` of `transitions`."""
    since: int = 0
    """When that began, nanoseconds UTC."""
    form: str = ""
    """Its entry in spill.yaml as JSON, to open it after a restart; empty if the configuration file has it."""
    who: str = ""
    """Who added it to a running server; empty if it was there at the start."""
    drained: str = ""
    """The person who drained it, until it is resumed; usually empty."""
    leaving: Leave | None = None
    """What happens to its jobs while it is being removed; None if it is not."""
