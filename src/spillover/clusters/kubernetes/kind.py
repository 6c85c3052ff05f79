"""The cluster kind `kubernetes`: checks its settings in spill.yaml and opens its driver."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct

from spillover.clusters.kubernetes.api.kubeconfig import NoAccess, access_of
from spillover.clusters.kubernetes.opening import open_cluster
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.forms.problems import Findings, shown
from spillover.forms.quantities import duration
from spillover.model.ids import ClusterName
from spillover.model.units import DAY, SECOND
from spillover.ports.driver import Driver, Manner, Patience
from spillover.ports.kinds import CannotOpen, Capability, ClusterKind, Flaw, Opening
from spillover.wire.clusterfile import KubernetesDoc

BACKOFF: Final = "5m"
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


class KubernetesKind(ClusterKind):
    """The kind `kubernetes`."""

    name: ClassVar[str] = "kubernetes"
    form: ClassVar[type[Struct]] = KubernetesDoc
    kubeconfig: ClassVar[str] = "kubeconfig"
    access: ClassVar[tuple[str, ...]] = ("kubeconfig", "context", "in_cluster")

    def capabilities(self, form: KubernetesDoc) -> frozenset[Capability]:
        """Return what pods can do, and commands if there is an image for them."""
        able = {Capability.CONTAINERS, Capability.GANGS, Capability.CONSTRAINTS, Capability.EXCLUSIVE}
        return frozenset(able | ({Capability.COMMANDS} if form.image is not None else set()))

    def check(self, form: KubernetesDoc, cluster: ClusterName) -> Sequence[Flaw]:
        """Return contradictions and invalid values."""
        del cluster
        found = Findings()
        if form.in_cluster and (form.kubeconfig is not None or form.context is not None):
            found.add(("in_cluster",), "cannot be combined with kubeconfig or context; leave one of them out")
        if form.namespace is not None and _NAMESPACE.fullmatch(form.namespace) is None:
            found.add(("namespace",), f"{shown(form.namespace)} is not the name of a namespace")
        if form.service is not None and _NAMESPACE.fullmatch(form.service) is None:
            found.add(("service",), f"{shown(form.service)} is not the name of a Service")
        _manner(form, found)
        return [Flaw(path, message) for path, message in found.found]

    def missing(self, form: KubernetesDoc, environ: Mapping[str, str], home: Path) -> Sequence[str]:
        """Return what is missing to connect to the cluster."""
        try:
            access_of(_options(form, ClusterName(""), ""), environ, home)
        except NoAccess as error:
            return [str(error)]
        return ()

    def manner(self, form: KubernetesDoc) -> Manner:
        """Return the configured timeouts."""
        return _manner(form, Findings())

    def open(self, form: KubernetesDoc, opening: Opening) -> Driver:
        """Open the driver; raise CannotOpen."""
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
        service=form.service,
    )


def _manner(form: KubernetesDoc, found: Findings) -> Manner:
    """Read the timeouts in nanoseconds; add problems to `found`."""
    if form.shun_for is not None and form.backoff is not None:
        found.add(("shun_for",), "is the old name of `backoff`, which is also set; remove one of them")
    name, value = ("backoff", form.backoff) if form.shun_for is None else ("shun_for", form.shun_for)
    bind, start, prepare, backoff, failed = (
        duration(value, (name,), found, least=SECOND // 10, most=31 * DAY) or 0
        for name, value in (
            ("bind_within", form.bind_within),
            ("start_within", form.start_within),
            ("prepare_within", form.prepare_within),
            (name, BACKOFF if value is None else value),
            ("failed_after", form.failed_after),
        )
    )
    keep = duration(form.keep, ("keep",), found, most=31 * DAY) or 0
    return Manner(Patience(bind, start, backoff, keep, prepare), failed)
