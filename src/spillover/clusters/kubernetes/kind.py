"""Clusters of Kubernetes, as a kind: what spill.yaml says of one, and its driver."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct

from spillover.clusters.kubernetes.kubeconfig import NoAccess, access_of
from spillover.clusters.kubernetes.opening import open_cluster
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import duration
from spillover.model.ids import ClusterName
from spillover.model.units import DAY, SECOND
from spillover.ports.driver import Driver, Manner, Patience
from spillover.ports.kinds import CannotOpen, Capability, ClusterKind, Flaw, Opening
from spillover.wire.configfile import KubernetesDoc

_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


class KubernetesKind(ClusterKind):
    """The kind `kubernetes`."""

    name: ClassVar[str] = "kubernetes"
    form: ClassVar[type[Struct]] = KubernetesDoc

    def capabilities(self, form: KubernetesDoc) -> frozenset[Capability]:
        """Containers and gangs, and commands where there is an image for them."""
        commands = {Capability.COMMANDS} if form.image is not None else set()
        return frozenset({Capability.CONTAINERS, Capability.GANGS} | commands)

    def check(self, form: KubernetesDoc, cluster: ClusterName) -> Sequence[Flaw]:
        """What cannot be meant so."""
        del cluster
        found = Findings()
        if form.in_cluster and (form.kubeconfig is not None or form.context is not None):
            found.add(("in_cluster",), "cannot stand beside kubeconfig or context; leave one of them out")
        if form.namespace is not None and _NAMESPACE.fullmatch(form.namespace) is None:
            found.add(("namespace",), f"{shown(form.namespace)} is not the name of a namespace")
        _manner(form, found)
        return [Flaw(path, message) for path, message in found.found]

    def missing(self, form: KubernetesDoc, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """What is not said, or not there, of how it is reached."""
        try:
            access_of(_options(form, ClusterName(""), ""), environ, home)
        except NoAccess as error:
            return [str(error)]
        return ()

    def manner(self, form: KubernetesDoc) -> Manner:
        """As configured."""
        return _manner(form, Findings())

    def open(self, form: KubernetesDoc, opening: Opening) -> Driver:
        """A driver."""
        options = _options(form, opening.cluster, opening.owner)
        try:
            return open_cluster(options, opening.environ, opening.home, opening.lead)
        except NoAccess as error:
            raise CannotOpen(str(error)) from None


def _options(form: KubernetesDoc, cluster: ClusterName, owner: str) -> KubernetesOptions:
    return KubernetesOptions(
        cluster=cluster,
        owner=owner,
        kubeconfig=form.kubeconfig,
        context=form.context,
        in_cluster=form.in_cluster,
        namespace=form.namespace,
        image=form.image,
    )


def _manner(form: KubernetesDoc, found: Findings) -> Manner:
    """Times in nanoseconds; problems are noted."""
    bind, start, backoff, failed = (
        duration(getattr(form, name), (name,), found, least=SECOND // 10, most=31 * DAY) or 0
        for name in ("bind_within", "start_within", "shun_for", "failed_after")
    )
    keep = duration(form.keep, ("keep",), found, most=31 * DAY) or 0
    return Manner(Patience(bind, start, backoff, keep), failed)
