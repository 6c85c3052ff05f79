"""Opens drivers for configured clusters."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spillover.clusters.kubernetes.api.kubeconfig import NoAccess, access_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.ports.driver import Lead

if TYPE_CHECKING:
    from spillover.clusters.kubernetes.driver import Kubernetes


def open_cluster(
    options: KubernetesOptions, environ: Mapping[str, str], home: Path, lead: Lead
) -> "Kubernetes":
    """Return the driver of a cluster; raise NoAccess if it cannot connect."""
    access = access_of(options, environ, home)
    try:
        from spillover.clusters.kubernetes.driver import Kubernetes  # noqa: PLC0415 - needs an optional package
    except ModuleNotFoundError as missing:
        raise NoAccess(
            f"a Kubernetes cluster needs the package {missing.name}; install it with: pip install 'spillover[kubernetes]'"
        ) from None
    return Kubernetes(options, access, lead)
