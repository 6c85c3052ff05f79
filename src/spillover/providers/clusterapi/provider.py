"""Whole clusters as objects of Cluster API in a management cluster.

An object has the name of its order, so a repeated order meets it. The number of nodes is in its topology. It is written
only if nobody else has written the object since it was read, and it is never counted up or down. Cluster API deletes first
the machines that carry a certain annotation: those of the nodes to drop.

The provider's id of a cluster is NAMESPACE/NAME.
"""

import base64
import binascii
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from spillover.clusters.kubernetes.api.kubeconfig import Access
from spillover.clusters.kubernetes.api.objects import is_object_name, moment_of
from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble, UnreadableAnswer, Unsent
from spillover.clusters.kubernetes.checks import Need, lacking
from spillover.model.pools import Offer, RefusalCause
from spillover.ports.provider import (
    ClusterMaker,
    Created,
    Listing,
    Made,
    NotNow,
    Order,
    Presence,
    PriceSeen,
    ProviderError,
    ProviderOpening,
    Refused,
    Unknown,
)
from spillover.providers import rest
from spillover.providers.clusterapi.kind import ClusterApiForm
from spillover.providers.clusterapi.objects import (
    CLUSTERS,
    WORKERS,
    ClusterObject,
    cluster_of,
    listed,
    page_of,
    replicas_of,
)
from spillover.providers.kubernetes.calls import (
    CONFLICT,
    NOT_FOUND,
    adopted,
    deleted,
    is_ours,
    pages,
    sample,
    without_namespace,
)
from spillover.providers.kubernetes.kind import named
from spillover.providers.kubernetes.nodegroup import ANY, GROUP, TRIES, Machine, Machines, Served
from spillover.providers.rest import one_line

CLUSTER_NAME: Final = f"{GROUP}/cluster-name"
DEPLOYMENT_NAME: Final = f"topology.{GROUP}/deployment-name"
"""Labels of the machines of a cluster, and of those of one MachineDeployment in its topology."""
NEEDS: Final = (
    *(Need(verb, "clusters", GROUP) for verb in ("create", "delete", "get", "list", "update")),
    *(Need(verb, "machines", GROUP) for verb in ("get", "list", "update")),
    Need("get", "secrets"),
)
"""All permissions that the provider uses in the namespace of its clusters, besides `CLASS`."""
CLASS: Final = (Need("get", "clusterclasses", GROUP),)
"""The one that it uses in the namespace of the ClusterClass."""
FORBIDDEN: Final = (401, 403)


class _Secret(Struct, frozen=True):
    data: dict[str, str] = {}


_SECRETS: Final = msgspec.json.Decoder(_Secret)


class Clusters(ClusterMaker):
    """See ClusterMaker."""

    def __init__(self, form: ClusterApiForm, opening: ProviderOpening, access: Access) -> None:
        self._form = form
        self._opening = opening
        self._api = Api(access)
        self._served = Served(self._api)
        self._namespace = form.namespace or access.namespace

    async def create(self, order: Order) -> Created:
        """See Provider."""
        try:
            body = cluster_of(order, self._form, await self._served.version())
        except ApiRefused as refused:
            why = one_line(self._without(refused))
            if refused.code in FORBIDDEN:
                return Refused(RefusalCause.AUTH, why)
            # Also if there is no such API: an API server that starts may not know its kinds yet.
            return NotNow(why, refused.retry_after or 0.0)
        except Trouble as error:
            return NotNow(one_line(str(error)))
        try:
            path = await self._path(self._namespace)
            try:
                made = await self._api.read(CLUSTERS, "POST", path, body=body, once=True)
            except ApiRefused as refused:
                found = await adopted(self._api, CLUSTERS, f"{path}/{order.name}", order, refused)
                if not isinstance(found, ClusterObject):
                    return found
                made = found
        except Unsent as error:
            return NotNow(one_line(str(error)))
        except Trouble as error:
            return Unknown(one_line(str(error)))
        at = made.metadata.creation_timestamp
        return Made(f"{self._namespace}/{order.name}", None if at is None else moment_of(at))

    async def list(self) -> Listing:
        """See Provider. All clusters of the namespace are asked for: one that lost its labels is known by its name."""
        began, found, any_page, why = time.time_ns(), list[ClusterObject](), False, ""
        try:
            async for page in pages(self._api, await self._path(self._namespace), page_of):
                found += [each for each in page.items if is_ours(each.metadata, self._opening.owner)]
                any_page = True
        except Trouble as error:
            why = one_line(str(error))
            self._served.forget()  # an upgrade of Cluster API may have ended the version that was asked for
            if not any_page:
                raise ProviderError(why) from None
        clusters = [listed(each, f"{self._namespace}/{each.metadata.name}") for each in found]
        return Listing(began, not why, tuple(clusters), why)

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider. Only the object of the cluster is deleted: Cluster API deletes the others, in its order."""
        return await rest.destroyed(ids, self._delete)

    async def kubeconfig(self, id_: str) -> str:
        """See ClusterMaker."""
        namespace, name = _names(id_)
        from_ = f"{name}-{self._form.kubeconfig_secret}"
        try:
            await self._running(namespace, name)
            secret = await self._api.read(_SECRETS, "GET", f"/api/v1/namespaces/{namespace}/secrets/{from_}")
            return base64.b64decode(secret.data["value"], validate=True).decode()
        except (KeyError, binascii.Error, UnicodeDecodeError):
            raise ProviderError(f"the Secret {from_} has no kubeconfig under `value`") from None
        except Trouble as error:
            raise ProviderError(one_line(f"the kubeconfig of {id_} cannot be read: {error}")) from None

    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        """See ClusterMaker."""
        namespace, name = _names(id_)
        for tried in range(TRIES):
            try:
                await self._resize(namespace, name, nodes, drop)
            except ApiRefused as refused:
                if refused.code == CONFLICT and tried < TRIES - 1:
                    continue
                raise ProviderError(one_line(f"{id_} cannot be resized: {refused}")) from None
            except Trouble as error:
                raise ProviderError(one_line(f"{id_} cannot be resized: {error}")) from None
            else:
                return

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider."""
        try:
            version = await self._served.version()
            found = [*await lacking(self._api, self._namespace, NEEDS), *await self._class_flaws()]
            for offer in () if found else offers:
                body = cluster_of(sample(offer, self._opening), self._form, version)
                try:
                    await self._api.ask("POST", await self._path(self._namespace), {"dryRun": "All"}, body)
                except ApiRefused as refused:
                    found.append(self._flaw(offer, refused))
        except ApiRefused as refused:
            return [one_line(self._without(refused))]
        except Trouble as error:
            return [one_line(str(error))]
        return [*dict.fromkeys(map(one_line, found))]

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. Cluster API has no prices."""
        del offers
        return ()

    async def close(self) -> None:
        """See Provider."""
        await self._api.close()

    # --- clusters

    async def _path(self, namespace: str, what: str = "clusters") -> str:
        return await self._served.path(namespace, what)

    async def _running(self, namespace: str, name: str) -> None:
        """Check that a cluster is there and answers; raise ProviderError or Trouble."""
        try:
            path = await self._path(namespace, f"clusters/{name}")
            cluster = await self._api.read(CLUSTERS, "GET", path)
        except ApiRefused as refused:
            if refused.code == NOT_FOUND:
                raise ProviderError(f"there is no cluster {namespace}/{name}") from None
            raise
        presence = listed(cluster, "").presence
        if presence is not Presence.RUNNING:
            raise ProviderError(f"the cluster {namespace}/{name} is {presence}")

    async def _delete(self, id_: str) -> str:
        """Delete a cluster; return why it could not be, and nothing if it is gone or is being deleted."""
        try:
            namespace, name = _names(id_)
            path = await self._path(namespace, f"clusters/{name}")
        except ProviderError as error:
            return str(error)
        except Trouble as error:
            raise rest.Unsent(one_line(str(error))) from None
        return await deleted(self._api, path)

    async def _resize(self, namespace: str, name: str, nodes: int, drop: Sequence[str]) -> None:
        """Write the number of nodes once; raise ProviderError or Trouble."""
        path = await self._path(namespace, f"clusters/{name}")
        try:
            there = await self._api.read(ANY, "GET", path)
        except ApiRefused as refused:
            if refused.code == NOT_FOUND:
                raise ProviderError(f"there is no cluster {namespace}/{name}") from None
            raise
        cluster = _decoded(there)
        if cluster.metadata.deletion_timestamp is not None:
            raise ProviderError(f"the cluster {namespace}/{name} is being deleted")
        before = replicas_of(cluster)
        if before is None:
            raise ProviderError(f"the topology of {namespace}/{name} has no MachineDeployment {WORKERS}")
        if before == nodes:
            return
        if nodes < before:
            await self._choose(namespace, name, nodes, drop)
        for each in there["spec"]["topology"]["workers"]["machineDeployments"]:
            if each["name"] == WORKERS:
                each["replicas"] = nodes
        await self._api.ask("PUT", path, body=there, once=True)

    async def _choose(self, namespace: str, name: str, nodes: int, drop: Sequence[str]) -> None:
        """Mark the machines that go, and no others."""
        labels = {CLUSTER_NAME: name, DEPLOYMENT_NAME: WORKERS}
        machines = Machines(self._served, namespace, labels)
        there = await machines.there()
        # Counted by machines: some that were marked for a number before may not have gone yet, and go before any other.
        surplus = max(0, len(there) - nodes)
        going = [each for each in there if each.node in drop or each.is_marked or not each.node]
        going.sort(key=lambda each: _turn(each, drop))
        await machines.mark(there, going[:surplus])

    # --- checks

    async def _class_flaws(self) -> Sequence[str]:
        """Return why the ClusterClass cannot be used; raise Trouble."""
        namespace, name = named(self._form.cluster_class, self._namespace) or ("", "")
        if found := await lacking(self._api, namespace, CLASS):
            return found
        try:
            there = await self._api.read(ANY, "GET", await self._path(namespace, f"clusterclasses/{name}"))
        except ApiRefused as refused:
            if refused.code != NOT_FOUND:
                raise
            shows = "`kubectl get clusterclasses -A` shows those there are"
            return [f"there is no ClusterClass {name!r} in namespace {namespace!r}; {shows}"]
        classes = _classes(there)
        if self._form.worker_class not in classes:
            known = ", ".join(classes) or "none"
            return [
                (
                    f"the ClusterClass {name} has no class {self._form.worker_class!r} of MachineDeployments; "
                    f"set worker_class to one of: {known}"
                )
            ]
        return []

    def _without(self, refused: ApiRefused) -> str:
        """Return why a management cluster cannot be used at all."""
        if refused.code == NOT_FOUND:
            return (
                f"{self._api.access.origin} has no Cluster API; run `clusterctl init` there, "
                "or set `context` to the management cluster"
            )
        return str(refused)

    def _flaw(self, offer: Offer, refused: ApiRefused) -> str:
        """Return why the cluster of an offer would be refused."""
        if refused.code == NOT_FOUND:
            return without_namespace(self._namespace)
        return f"Cluster API refuses clusters of the offer {offer.key}: {refused}"


def _names(id_: str) -> tuple[str, str]:
    """Return namespace and name of a cluster; raise ProviderError."""
    namespace, _, name = id_.partition("/")
    if not (is_object_name(namespace) and is_object_name(name)):
        raise ProviderError(f"{one_line(id_)!r} is not NAMESPACE/NAME of a cluster")
    return namespace, name


def _decoded(there: dict[str, Any]) -> ClusterObject:
    """Return what we know of an object; raise UnreadableAnswer."""
    try:
        return msgspec.convert(there, ClusterObject)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(f"the cluster cannot be read: {error}") from None


def _turn(machine: Machine, drop: Sequence[str]) -> tuple[int, str]:
    """Return when the turn of a machine is to go: to be dropped, then chosen before, then without a node."""
    rank = 0 if machine.node and machine.node in drop else 1 if machine.is_marked else 2
    return rank, machine.metadata.name


def _classes(there: dict[str, Any]) -> list[str]:
    """Return the classes of MachineDeployments that a ClusterClass has."""
    try:
        found = there["spec"]["workers"]["machineDeployments"]
        return [each["class"] for each in found]
    except (KeyError, TypeError):
        return []
