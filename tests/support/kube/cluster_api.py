"""Plays the controllers of Cluster API on a test cluster: machines for each MachineDeployment, and nodes for machines.

Like the real ones, it deletes machines with the annotation first, and then the newest. Its nodes are those of KWOK.
`topologies.py` plays those for whole clusters.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Self

from tests.support.kube.cluster import Cluster

GROUP: Final = "cluster.x-k8s.io"
VERSION: Final = "v1beta1"
VERSIONS: Final = (VERSION, "v1beta2")
"""Served by a current release, which prefers the last."""
DELETE: Final = f"{GROUP}/delete-machine"
DEPLOYMENT: Final = f"{GROUP}/deployment-name"


class ClusterApi:
    """The controllers, for one namespace."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        labels: Mapping[str, str],
        rented: Cluster | None = None,
        version: str = VERSION,
    ) -> None:
        """Nodes are in the rented cluster; by default that is the cluster with the objects."""
        self._cluster = rented or cluster
        self._admin = cluster.admin
        self._labels = labels
        """Labels of nodes."""
        self.boots = True
        """Whether new machines get a node."""
        self.version = version
        self.path = f"/apis/{GROUP}/{version}/namespaces/{namespace}"
        self._numbers = count(1)
        self._stop = threading.Event()
        self._nodes: list[str] = []
        self.paused = threading.Lock()
        """Nothing happens while a test holds it."""

    def deploy(self, name: str, replicas: int = 0) -> None:
        """Create a MachineDeployment."""
        body = {
            "apiVersion": f"{GROUP}/{self.version}",
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
    def running(self) -> Iterator[Self]:
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
            with self.paused:
                self._round()
            time.sleep(0.05)

    def _round(self) -> None:
        """Reconcile everything once."""
        for each in self._admin.get(f"{self.path}/machinedeployments").json()["items"]:
            name = each["metadata"]["name"]
            self._reconcile(name, each["spec"]["replicas"], {DEPLOYMENT: name}, self._labels)

    def _reconcile(
        self, name: str, wanted: int, labels: Mapping[str, str], of_nodes: Mapping[str, str]
    ) -> None:
        """Add and remove machines with these labels, and nodes for them with others."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        there = self._admin.get(f"{self.path}/machines", params=query).json()["items"]
        for _ in range(wanted - len(there)):
            machine = {
                "apiVersion": f"{GROUP}/{self.version}",
                "kind": "Machine",
                "metadata": {"name": f"{name}-{next(self._numbers)}", "labels": dict(labels)},
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
                self._boot(each, of_nodes)

    def _boot(self, machine: dict[str, Any], labels: Mapping[str, str]) -> None:
        (node,) = self._cluster.add_nodes(1, cpu="4", labels=labels)
        self._nodes.append(node)
        path = f"{self.path}/machines/{machine['metadata']['name']}"
        there = self._admin.get(path).json()
        there["status"] = {"nodeRef": {"name": node}}
        if self._admin.put(path, json=there).status_code >= 300:  # it was changed meanwhile: the next round
            self._nodes.remove(node)
            self._cluster.remove_nodes([node])


def install(cluster: Cluster, versions: Sequence[str] = VERSIONS) -> None:
    """Add the kinds of Cluster API to a cluster, unless it has them; it prefers the last version."""
    for kind, plural in (
        ("MachineDeployment", "machinedeployments"),
        ("Machine", "machines"),
        ("ClusterClass", "clusterclasses"),
        ("Cluster", "clusters"),
    ):
        served = [_served(kind, version, storage=version == versions[-1]) for version in versions]
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
                "versions": served,
            },
        }
        answer = cluster.admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=body)
        assert answer.status_code in {201, 409}, answer.text
        for version in versions:
            cluster._await(f"/apis/{GROUP}/{version}/namespaces/default/{plural}")


def _served(kind: str, version: str, *, storage: bool) -> dict[str, Any]:
    """Return one version of a kind. Of its fields, it checks those in which our clusters could be wrong."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    subresources = {"MachineDeployment": {"scale": scale}, "Cluster": {"status": {}}}
    fields = {"spec": _spec(version)} if kind == "Cluster" else {}
    return {
        "name": version,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": _object(fields)},
        "subresources": subresources.get(kind, {}),
    }


def _spec(version: str) -> dict[str, Any]:
    """Return the schema of the spec of a cluster."""
    text = {"type": "string", "minLength": 1, "maxLength": 256}
    domain = {"class": text, "name": text, "failureDomain": text, "replicas": {"type": "integer"}}
    deployments = {"type": "array", "items": _object(domain, "class", "name")}
    classes = {"class": text} if version == VERSION else {"classRef": _object({"name": text}, "name")}
    topology = {
        **classes,
        "version": text,
        "workers": _object({"machineDeployments": deployments}),
        "variables": {"type": "array", "minItems": 1, "items": _object({"name": text}, "name", "value")},
    }
    return _object({"topology": _object(topology, "version", *classes)})


def _object(fields: Mapping[str, Any], *required: str) -> dict[str, Any]:
    known: dict[str, Any] = {"properties": dict(fields)} if fields else {}
    needed: dict[str, Any] = {"required": [*required]} if required else {}
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **known, **needed}


def _node(machine: dict[str, Any]) -> str:
    name: str = machine.get("status", {}).get("nodeRef", {}).get("name", "")
    return name


def _number(machine: dict[str, Any]) -> int:
    return int(machine["metadata"]["name"].rpartition("-")[2])
