"""Plays the controllers of Cluster API on a test cluster: machines for each MachineDeployment, and nodes for machines.

Like the real ones, it deletes machines with the annotation first, and then the newest. Its nodes are those of KWOK.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from tests.support.kube.cluster import Cluster

GROUP: Final = "cluster.x-k8s.io"
VERSION: Final = "v1beta1"
DELETE: Final = f"{GROUP}/delete-machine"
DEPLOYMENT: Final = f"{GROUP}/deployment-name"


class ClusterApi:
    """The controllers, for one namespace."""

    def __init__(self, cluster: Cluster, namespace: str, labels: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._admin = cluster.admin
        self._labels = labels
        """Labels of nodes."""
        self.boots = True
        """Whether new machines get a node."""
        self.path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}"
        self._numbers = count(1)
        self._stop = threading.Event()
        self._nodes: list[str] = []

    def deploy(self, name: str, replicas: int = 0) -> None:
        """Create a MachineDeployment."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "MachineDeployment",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "clusterName": "rented"},
        }
        self._admin.post(f"{self.path}/machinedeployments", json=body).raise_for_status()

    def replicas(self, name: str) -> int:
        """Return the replicas that are asked for."""
        found: int = self._admin.get(f"{self.path}/machinedeployments/{name}").json()["spec"]["replicas"]
        return found

    def machines(self) -> dict[str, str]:
        """Return the node of each machine, by name; empty for one without a node."""
        items = self._admin.get(f"{self.path}/machines").raise_for_status().json()["items"]
        return {each["metadata"]["name"]: _node(each) for each in items}

    @contextmanager
    def running(self) -> Iterator["ClusterApi"]:
        """Run until the block ends; its nodes go then."""
        thread = threading.Thread(target=self._run, name="cluster api")
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(30)
            self._cluster.remove_nodes([each for each in self._nodes if each])

    def _run(self) -> None:
        while not self._stop.is_set():
            deployments = self._admin.get(f"{self.path}/machinedeployments").json()["items"]
            for each in deployments:
                self._reconcile(each["metadata"]["name"], each["spec"]["replicas"])
            time.sleep(0.05)

    def _reconcile(self, name: str, wanted: int) -> None:
        query = {"labelSelector": f"{DEPLOYMENT}={name}"}
        there = self._admin.get(f"{self.path}/machines", params=query).json()["items"]
        for _ in range(wanted - len(there)):
            machine = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "Machine",
                "metadata": {"name": f"{name}-{next(self._numbers)}", "labels": {DEPLOYMENT: name}},
                "spec": {"clusterName": "rented"},
            }
            self._admin.post(f"{self.path}/machines", json=machine).raise_for_status()
        there.sort(key=lambda each: (DELETE in each["metadata"].get("annotations", {}), _number(each)))
        for each in there[wanted:]:
            self._admin.delete(f"{self.path}/machines/{each['metadata']['name']}").raise_for_status()
            if node := _node(each):
                self._nodes.remove(node)
                self._cluster.remove_nodes([node])
        for each in there[:wanted] if self.boots else ():
            if not _node(each):
                self._boot(each)

    def _boot(self, machine: dict[str, Any]) -> None:
        (node,) = self._cluster.add_nodes(1, cpu="4", labels=self._labels)
        self._nodes.append(node)
        path = f"{self.path}/machines/{machine['metadata']['name']}"
        there = self._admin.get(path).json()
        there["status"] = {"nodeRef": {"name": node}}
        if self._admin.put(path, json=there).status_code >= 300:  # it was changed meanwhile: the next round
            self._nodes.remove(node)
            self._cluster.remove_nodes([node])


def install(cluster: Cluster) -> None:
    """Add the kinds of Cluster API to a cluster, unless it has them."""
    for kind, plural in (("MachineDeployment", "machinedeployments"), ("Machine", "machines")):
        scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
            "subresources": {"scale": scale} if kind == "MachineDeployment" else {},
        }
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": kind,
                    "plural": plural,
                    "singular": kind.lower(),
                    "listKind": f"{kind}List",
                },
                "versions": [version],
            },
        }
        answer = cluster.admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=body)
        assert answer.status_code in {201, 409}, answer.text
        cluster._await(f"/apis/{GROUP}/{VERSION}/namespaces/default/{plural}")


def _node(machine: dict[str, Any]) -> str:
    name: str = machine.get("status", {}).get("nodeRef", {}).get("name", "")
    return name


def _number(machine: dict[str, Any]) -> int:
    return int(machine["metadata"]["name"].rpartition("-")[2])
