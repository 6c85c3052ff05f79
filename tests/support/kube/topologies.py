"""Plays the controllers of Cluster API for whole clusters on a test cluster.

Each cluster that is asked for gets a status, a Secret with a kubeconfig, and machines. All of them share the control plane
of one real cluster; each has nodes of its own there, by label.
"""

import base64
from typing import Any, Final

from tests.support.kube.cluster import Cluster
from tests.support.kube.cluster_api import GROUP, VERSION, VERSIONS, ClusterApi

NAME: Final = f"{GROUP}/cluster-name"
OWNED: Final = f"topology.{GROUP}/deployment-name"
FINALIZER: Final = f"cluster.{GROUP}"


class Topologies(ClusterApi):
    """The controllers, for one namespace of a management cluster."""

    def __init__(
        self, management: Cluster, namespace: str, rented: Cluster, version: str = VERSIONS[-1]
    ) -> None:
        super().__init__(management, namespace, {}, rented, version)
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self.answers = True
        """Whether new control planes answer."""

    def classify(self, name: str, *workers: str) -> None:
        """Create a ClusterClass."""
        body = {
            "apiVersion": f"{GROUP}/{self.version}",
            "kind": "ClusterClass",
            "metadata": {"name": name},
            "spec": {"workers": {"machineDeployments": [{"class": each} for each in workers]}},
        }
        self._admin.post(f"{self.path}/clusterclasses", json=body).raise_for_status()

    def clusters(self) -> list[dict[str, Any]]:
        """Return the objects that are there."""
        items: list[dict[str, Any]] = (
            self._admin.get(f"{self.path}/clusters").raise_for_status().json()["items"]
        )
        return items

    def nodes(self, name: str) -> set[str]:
        """Return the nodes of a cluster, as its API lists them."""
        asked = {"labelSelector": f"{NAME}={name}"}
        items = self._cluster.admin.get("/api/v1/nodes", params=asked).raise_for_status().json()["items"]
        return {each["metadata"]["name"] for each in items}

    def _round(self) -> None:
        for each in self.clusters():
            meta = each["metadata"]
            if "deletionTimestamp" in meta:
                self._remove(each)
            elif FINALIZER not in meta.get("finalizers", ()):
                self._write(each, finalizers=[*meta.get("finalizers", ()), FINALIZER])
            elif self.answers and not each.get("status"):
                self._provision(each)
            elif each.get("status"):
                self._follow(each)

    def _provision(self, cluster: dict[str, Any]) -> None:
        """Write the kubeconfig, and then that the control plane answers."""
        name = cluster["metadata"]["name"]
        kubeconfig = base64.b64encode(self._cluster.kubeconfig.read_bytes()).decode()
        secret = {
            "metadata": {"name": f"{name}-kubeconfig", "labels": {NAME: name}},
            "data": {"value": kubeconfig},
        }
        self._admin.post(self._secrets, json=secret)  # there already if the status was not written
        status: dict[str, Any] = {"infrastructureReady": True, "controlPlaneReady": True}
        if self.version != VERSION:
            status = {"initialization": {"infrastructureProvisioned": True, "controlPlaneInitialized": True}}
        body = {**cluster, "status": {"phase": "Provisioned", **status}}
        self._admin.put(f"{self.path}/clusters/{name}/status", json=body)  # a conflict: the next round

    def _follow(self, cluster: dict[str, Any], wanted: int | None = None) -> None:
        """Let the machines and nodes of a cluster follow its topology."""
        name = cluster["metadata"]["name"]
        for each in cluster["spec"]["topology"]["workers"]["machineDeployments"]:
            labels = {NAME: name, OWNED: each["name"]}
            count = each["replicas"] if wanted is None else wanted
            self._reconcile(f"{name}-{each['name']}", count, labels, {NAME: name})

    def _remove(self, cluster: dict[str, Any]) -> None:
        """Remove what belongs to a cluster, and let its object go."""
        self._follow(cluster, 0)
        self._admin.delete(f"{self._secrets}/{cluster['metadata']['name']}-kubeconfig")
        left = [each for each in cluster["metadata"].get("finalizers", ()) if each != FINALIZER]
        self._write(cluster, finalizers=left)

    def _write(self, cluster: dict[str, Any], **meta: Any) -> None:
        """Write metadata; if somebody else wrote the object meanwhile, the next round does."""
        body = {**cluster, "metadata": cluster["metadata"] | meta}
        self._admin.put(f"{self.path}/clusters/{cluster['metadata']['name']}", json=body)
