"""Makes drivers of what is configured."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spillover.clusters.kubernetes.kubeconfig import NoAccess, access_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.ports.driver import Lead

if TYPE_CHECKING:
    from spillover.clusters.kubernetes.driver import Kubernetes


def open_cluster(
    options: KubernetesOptions, environ: Mapping[str, str], home: Path, lead: Lead
) -> "Kubernetes":
    """The driver of a cluster for the server that has this lead; raises NoAccess if how to reach it is not said."""
    access = access_of(options, environ, home)
    try:
        from spillover.clusters.kubernetes.driver import Kubernetes  # noqa: PLC0415 - needs a package that may not be there
    except ModuleNotFoundError as missing:
        raise NoAccess(
            f"a cluster of Kubernetes needs the package {missing.name}, which is not installed; "
            "install it with: pip install 'spillover[kubernetes]'"
        ) from None
    return Kubernetes(options, access, lead)
