"""The settings of a Kubernetes cluster."""

from msgspec import Struct

from spillover.forms.jobs.pods import GPU
from spillover.model.ids import ClusterName


class KubernetesOptions(Struct, frozen=True, kw_only=True):
    """The settings of one cluster."""

    cluster: ClusterName
    owner: str
    """Value of the label that marks our objects; unique for each server and each of its clusters."""
    kubeconfig: str | None = None
    """Path of a file; None to search like kubectl."""
    context: str | None = None
    """None for the current context of the kubeconfig."""
    in_cluster: bool = False
    """Use the service account of the pod in which the server runs, instead of a kubeconfig."""
    namespace: str | None = None
    """Where to create Jobs; None for that of the context, else `default`."""
    image: str | None = None
    """Image for commands that name none; None if there is no default."""
    service: str | None = None
    """A headless Service that selects our pods, by which tasks of a gang find the first; None if there is none."""
    gpu: str = GPU
    """The resource that counts as GPUs."""
