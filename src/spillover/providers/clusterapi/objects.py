"""A cluster as an object of Cluster API: what is created for an order, and what the object says about its cluster.

The object has a topology: its ClusterClass says what a control plane and a node are, and Cluster API makes all other
objects from that. Versions v1beta1 and v1beta2 differ in how they name the class, and in where they say that the control
plane answers.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from spillover.clusters.kubernetes.api.objects import UNREADABLE, ListMeta, Meta, Page, moment_of
from spillover.ports.provider import MACHINE_TAG, OWNER_TAG, Listed, Order, Presence
from spillover.providers.clusterapi.kind import ClusterApiForm
from spillover.providers.kubernetes.kind import named

WORKERS: Final = "workers"
"""Name of the only MachineDeployment in the topology."""
OLD: Final = "v1beta1"
"""The version in which a topology names its class by a text."""
_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


class _Object(Struct, frozen=True, rename="camel"):
    """Base of all objects; the JSON names are in camel case."""


class Deployment(_Object, frozen=True):
    """A MachineDeployment in a topology."""

    name: str = ""
    replicas: int | None = None


class Workers(_Object, frozen=True):
    """The nodes in a topology."""

    machine_deployments: tuple[Deployment, ...] = ()


class Topology(_Object, frozen=True):
    """What a cluster should look like."""

    workers: Workers = Workers()


class ClusterSpec(_Object, frozen=True):
    """Spec of a cluster."""

    topology: Topology = Topology()


class Initialization(_Object, frozen=True):
    """How far the creation of a cluster has come, since v1beta2."""

    control_plane_initialized: bool = False


class ClusterStatus(_Object, frozen=True):
    """Status of a cluster."""

    control_plane_ready: bool = False
    """In v1beta1. Like the other, it becomes true once and stays so."""
    initialization: Initialization = Initialization()

    @property
    def answers(self) -> bool:
        """Whether the API server of the cluster has answered."""
        return self.control_plane_ready or self.initialization.control_plane_initialized


class ClusterObject(_Object, frozen=True):
    """A cluster of Cluster API."""

    metadata: Meta = Meta()
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


class _Bare(_Object, frozen=True):
    """As much of an object as says whose it is."""

    metadata: Meta = Meta()


class _Raw(_Object, frozen=True):
    """A page of objects that are not decoded yet."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] = ()


CLUSTERS: Final = msgspec.json.Decoder(ClusterObject)
_BARE: Final = msgspec.json.Decoder(_Bare)
_RAW: Final = msgspec.json.Decoder(_Raw)


def page_of(data: bytes) -> Page[ClusterObject]:
    """Decode a page; raise one of UNREADABLE. Of an object that is odd only the metadata count: it exists."""
    raw = _RAW.decode(data)
    return Page(raw.metadata, tuple([_read(bytes(each)) for each in raw.items]))


def _read(data: bytes) -> ClusterObject:
    try:
        return CLUSTERS.decode(data)
    except UNREADABLE:
        return ClusterObject(_BARE.decode(data).metadata)


def cluster_of(order: Order, form: ClusterApiForm, version: str) -> dict[str, Any]:
    """Return the object of an order, in a version such as cluster.x-k8s.io/v1beta2."""
    offer = order.offer
    workers: dict[str, Any] = {"class": form.worker_class, "name": WORKERS, "replicas": order.nodes}
    if offer.zone and not form.zone_variable:
        workers["failureDomain"] = offer.zone
    workers["metadata"] = {"labels": _labels(offer.agent_labels)}
    topology: dict[str, Any] = {
        **_class(form.cluster_class, version),
        "version": form.version,
        "workers": {"machineDeployments": [workers]},
    }
    if form.control_plane_replicas is not None:
        topology["controlPlane"] = {"replicas": form.control_plane_replicas}
    if values := _variables(order, form):
        topology["variables"] = [{"name": name, "value": value} for name, value in values.items()]
    network = {"clusterNetwork": form.network} if form.network else {}
    return {
        "apiVersion": version,
        "kind": "Cluster",
        "metadata": {"name": order.name, "labels": {**form.labels, **_labels(order.tags)}},
        "spec": {**network, "topology": topology},
    }


def _class(written: str, version: str) -> dict[str, Any]:
    """Return the fields that name the class of a topology."""
    namespace, name = named(written, "") or ("", written)
    if version.endswith(f"/{OLD}"):
        return {"class": name} | ({"classNamespace": namespace} if namespace else {})
    return {"classRef": {"name": name} | ({"namespace": namespace} if namespace else {})}


def _variables(order: Order, form: ClusterApiForm) -> dict[str, Any]:
    """Return the values of variables: those configured, and what follows from the offer."""
    values = dict(form.variables)
    offered = {
        form.type_variable: order.offer.type,
        form.zone_variable: order.offer.zone,
        form.spot_variable: order.offer.spot,
    }
    return values | {name: value for name, value in offered.items() if name and value != ""}


def _labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels that Kubernetes takes."""
    return {key: value for key, value in labels.items() if _KEY.fullmatch(key) and _VALUE.fullmatch(value)}


def listed(cluster: ClusterObject, id_: str) -> Listed:
    """Translate an object."""
    meta = cluster.metadata
    presence = Presence.RUNNING if cluster.status.answers else Presence.PENDING
    if meta.deletion_timestamp is not None:
        presence = Presence.STOPPING
    return Listed(
        id_,
        presence,
        meta.labels.get(MACHINE_TAG, ""),
        meta.labels.get(OWNER_TAG, ""),
        meta.name,
        None if meta.creation_timestamp is None else moment_of(meta.creation_timestamp),
        "it is being deleted" if presence is Presence.STOPPING else "",
        nodes=replicas_of(cluster),
    )


def replicas_of(cluster: ClusterObject) -> int | None:
    """Return how many nodes a cluster was told to have; None if its topology does not say."""
    found = cluster.spec.topology.workers.machine_deployments
    return next((each.replicas for each in found if each.name == WORKERS), None)
