"""External clusters, as the book keeps them."""

from msgspec import Struct

from spillover.model.cluster import Health
from spillover.model.ids import ClusterName


class Condition(Struct, frozen=True, array_like=True):
    """How a cluster is, as it was last seen."""

    cluster: ClusterName
    health: Health = Health.UNOBSERVED
    since: int = 0
    """When it came to be so, nanoseconds UTC."""
    why: str = ""
    """For people; empty if there is nothing to say."""
