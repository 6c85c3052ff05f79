"""Proposals about clusters: what drivers saw there, and what people ask for."""

from msgspec import Struct

from spillover.core.events import Lease, SeenNode
from spillover.model.cluster import ClusterHealth, ClusterSpec, Leave
from spillover.model.ids import ClusterName, NodeName


class SeeNodes(Struct, frozen=True):
    """Nodes of a cluster as they are now."""

    cluster: ClusterName
    nodes: tuple[SeenNode, ...]
    gone: tuple[NodeName, ...] = ()
    whole: bool = False
    """Whether these are all nodes of the cluster: then others are gone."""


class SeeCluster(Struct, frozen=True):
    """The health of an external cluster was observed."""

    cluster: ClusterName
    health: ClusterHealth
    why: str = ""
    unsent: tuple[Lease, ...] = ()
    """For a failed cluster, leases that surely never reached it."""


class SeeBound(Struct, frozen=True):
    """Tasks of an external cluster are bound to these nodes."""

    cluster: ClusterName
    leases: tuple[Lease, ...]
    nodes: tuple[tuple[NodeName, ...], ...]
    """For each lease, the nodes of its tasks in order, as far as they are bound."""


class AddCluster(Struct, frozen=True):
    """Use one more cluster."""

    spec: ClusterSpec
    who: str
    form: str = ""
    """Its entry in spill.yaml as JSON; empty if the configuration file has it."""
    identity: str = ""
    """As in `StartEpoch`, for an external cluster."""


class UpdateCluster(Struct, frozen=True):
    """Use a cluster with its new configuration."""

    spec: ClusterSpec
    who: str
    form: str = ""
    """As in `AddCluster`."""
    restated: bool = False
    """Whether settings changed that only its driver uses: then the update is recorded even if `spec` is the same."""


class OpenedCluster(Struct, frozen=True):
    """The server has opened a cluster."""

    cluster: ClusterName


class DrainCluster(Struct, frozen=True):
    """Give a cluster no more work."""

    cluster: ClusterName
    who: str


class ResumeCluster(Struct, frozen=True):
    """Give a cluster work again, and cancel its removal."""

    cluster: ClusterName
    who: str


class RemoveCluster(Struct, frozen=True):
    """Drain a cluster, and remove it when none of our jobs are left there."""

    cluster: ClusterName
    who: str
    how: Leave = Leave.FINISH
    form: str = ""
    """Its entry in spill.yaml as JSON, if it was just removed from the configuration file; otherwise empty."""


class ClearedCluster(Struct, frozen=True):
    """Check whether a cluster that is being removed can go."""

    cluster: ClusterName
