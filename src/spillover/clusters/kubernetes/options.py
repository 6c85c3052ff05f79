"""How a cluster of Kubernetes is reached and used, as configured."""

from msgspec import Struct

from spillover.forms.pods import GPU
from spillover.model.ids import ClusterName


class KubernetesOptions(Struct, frozen=True, kw_only=True):
    """One cluster."""

    cluster: ClusterName
    owner: str
    """Which objects are ours: a word that no other server has on that cluster, and this one under no other name of it."""
    kubeconfig: str | None = None
    """A file; None is where kubectl looks for it."""
    context: str | None = None
    """None is the current one of that file."""
    in_cluster: bool = False
    """Reach it as a pod of it does, whatever a kubeconfig says."""
    namespace: str | None = None
    """Where Jobs are made; None is that of the context, else `default`."""
    image: str | None = None
    """What commands run in that name no image; None if there is none."""
    gpu: str = GPU
    """The resource that is counted as GPUs."""
