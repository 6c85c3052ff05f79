"""Runs a real server above real clusters, and inspects its jobs and their objects on each cluster."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from spillover.client import Client
from spillover.wire.api import ClusterView, JobDetail, WhyView
from tests.support.kube.cluster import Cluster
from tests.support.processes import ServerProcess, wait_until, write_config

PATIENCE: Final = 60.0
"""Seconds to wait for anything on a busy machine."""
ENDED: Final = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")
JOB: Final = "spillover.dev/job"
"""The label of objects that belong to a job."""
PATIENT: Final = {"limits": {"too_large": "wait"}}
"""Nodes of these clusters come and go, so jobs may wait for larger ones."""
MERGE: Final = {"Content-Type": "application/merge-patch+json"}


def a_job(
    name: str = "job",
    *,
    cpu: str = "100m",
    spec: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    notes: Mapping[str, str] | None = None,
    **told: str,
) -> dict[str, Any]:
    """Return a manifest of one pod.

    `spec` and `pod` override fields, `notes` are our annotations, and others say how it runs. For example,
    `a_job(cpu="2", notes={"burst": "never"}, exit_code="3", runs_for="100ms")`.
    """
    container = {"name": "main", "image": "example/image:1", "resources": {"requests": {"cpu": cpu}}}
    template = {
        "metadata": {
            "annotations": {f"spillover.test/{key.replace('_', '-')}": value for key, value in told.items()}
        },
        "spec": {"restartPolicy": "Never", "containers": [container]} | dict(pod or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {f"spillover.dev/{key}": value for key, value in (notes or {}).items()},
        },
        "spec": {"backoffLimit": 0, "template": template} | dict(spec or {}),
    }


class Serving:
    """A server with its own namespace on each of its clusters; everything is gone when its block ends."""

    def __init__(
        self,
        folder: Path,
        clusters: Mapping[str, tuple[Cluster, dict[str, Any]]],
        others: tuple[dict[str, Any], ...] = (),
        **settings: Any,
    ) -> None:
        """Take clusters in order, each with its entry for spill.yaml; `kubernetes` in it sets further options."""
        folder.mkdir(exist_ok=True)
        self.clusters = {name: cluster for name, (cluster, _) in clusters.items()}
        self.namespaces = {name: cluster.namespace(name) for name, cluster in self.clusters.items()}
        documents = [self._document(name, told) for name, (_, told) in clusters.items()]
        self.server = ServerProcess(
            folder, *write_config(folder, clusters=[*documents, *others], **PATIENT | settings)
        )
        self._client: Client | None = None

    def _document(self, name: str, told: dict[str, Any]) -> dict[str, Any]:
        reached = {"kubeconfig": str(self.clusters[name].kubeconfig), "namespace": self.namespaces[name]}
        return (
            {"name": name, "kind": "kubernetes"} | told | {"kubernetes": reached | told.get("kubernetes", {})}
        )

    # --- lifecycle

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.clear()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def up(self) -> None:
        """Start it, or start it again, and wait until all its clusters are usable."""
        self.launch()
        self.await_clusters()

    def launch(self) -> None:
        """Start it, or start it again, and wait until it accepts work."""
        self.server.launch()
        self.server.await_ready(PATIENCE)
        self._client = self.server.client(patience=PATIENCE)

    def follow(self, another: ServerProcess) -> None:
        """Talk to another server, which leads now."""
        self.disconnect()
        self._client = another.client(patience=PATIENCE)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self.disconnect()
        self.server.kill()

    def disconnect(self) -> None:
        """Close the connections to it."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def clear(self) -> None:
        """End it, and delete its namespaces."""
        self.disconnect()
        try:
            self.server.clear()
        finally:
            for name, cluster in self.clusters.items():
                cluster.admin.delete(f"/api/v1/namespaces/{self.namespaces[name]}")

    # --- requests of users

    @property
    def client(self) -> Client:
        """A client of the server."""
        assert self._client is not None, "it does not run"
        return self._client

    def submit(self, *jobs: dict[str, Any]) -> list[str]:
        """Submit manifests and job files; return their ids."""
        return self.client.submit(jobs)

    def run(self, job: dict[str, Any]) -> JobDetail:
        """Submit a job and wait for its end."""
        return self.ended(*self.submit(job))

    def job(self, job: str) -> JobDetail:
        """Return a job."""
        return self.client.job(job)

    def why(self, job: str) -> WhyView:
        """Return the explanation of a job."""
        return self.client.why(job)

    def says(self, job: str) -> dict[str, str | None]:
        """Return the reason code of each cluster for a waiting job; None if the cluster would take it."""
        return {each.cluster: each.reason.code if each.reason else None for each in self.why(job).clusters}

    def cluster(self, name: str) -> ClusterView:
        """Return a cluster."""
        [found] = [each for each in self.client.clusters() if each.name == name]
        return found

    def events(self, job: str, kind: str) -> list[str]:
        """Return the texts of the events of a job with this type."""
        return [event.text for event in self.client.events(0, follow=False, job=job) if event.type == kind]

    # --- waiting

    def until(self, job: str, *states: str) -> JobDetail:
        """Wait until a job is in one of these states."""

        def look() -> JobDetail | None:
            found = self.job(job)
            assert found.state in states or found.state not in ENDED, msgspec.to_builtins(found)
            return found if found.state in states else None

        found = wait_until(look, f"{job} being {' or '.join(states)}", PATIENCE, every=0.1)
        assert found is not None
        return found

    def ended(self, job: str) -> JobDetail:
        """Wait until a job has ended."""
        return self.until(job, *ENDED)

    def running(self, *jobs: str) -> list[JobDetail]:
        """Wait until all jobs run."""
        return [self.until(job, "RUNNING") for job in jobs]

    def reason(self, job: str, code: str) -> str:
        """Wait until a job has a reason with this code; return its message."""

        def look() -> str:
            reason = self.why(job).reason
            return reason.message if reason is not None and reason.code == code else ""

        return wait_until(look, f"{job} being {code}", PATIENCE, every=0.1)

    def await_state(self, cluster: str, *states: str) -> ClusterView:
        """Wait until a cluster is in one of these states."""

        def look() -> ClusterView | None:
            found = self.cluster(cluster)
            return found if found.state in states else None

        found = wait_until(look, f"{cluster} being {' or '.join(states)}", PATIENCE, every=0.05)
        assert found is not None
        return found

    def await_clusters(self) -> None:
        """Wait until all clusters are ready, with all their nodes."""
        for name in self.clusters:
            self.await_state(name, "READY")

    def await_nodes(self, cluster: str, count: int) -> None:
        """Wait until the server sees this many ready nodes of a cluster."""
        wait_until(
            lambda: self.cluster(cluster).agents == count, f"{count} nodes of {cluster}", PATIENCE, every=0.05
        )

    def await_used(self, cluster: str, cpu: float = 0.0, foreign: float = 0.0) -> None:
        """Wait until the server sees this many CPUs of a cluster in use, by us and by others."""

        def used() -> bool:
            seen = self.cluster(cluster)
            return (seen.used.get("cpu", 0.0), seen.foreign.get("cpu", 0.0)) == (cpu, foreign)

        wait_until(used, f"{cpu} CPUs of ours and {foreign} of others on {cluster}", PATIENCE, every=0.05)

    # --- objects on a cluster

    def objects(self, cluster: str, kind: str, job: str | None = None) -> list[dict[str, Any]]:
        """Return Jobs or pods in the namespace of the server: all, or those of one job."""
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        params = {} if job is None else {"labelSelector": f"{JOB}={job}"}
        answer = self.clusters[cluster].admin.get(
            f"{group}/namespaces/{self.namespaces[cluster]}/{kind}", params=params
        )
        items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        return items

    def jobs(self, cluster: str, job: str | None = None) -> list[dict[str, Any]]:
        """Return Jobs."""
        return self.objects(cluster, "jobs", job)

    def pods(self, cluster: str, job: str | None = None) -> list[dict[str, Any]]:
        """Return pods."""
        return self.objects(cluster, "pods", job)

    def await_gone(self, cluster: str, job: str | None = None) -> None:
        """Wait until no Job and no pod is left."""
        wait_until(
            lambda: not (self.jobs(cluster, job) or self.pods(cluster, job)),
            f"the end of all objects on {cluster}",
            PATIENCE,
            every=0.1,
        )

    def delete(self, cluster: str, kind: str, name: str, **options: Any) -> None:
        """Delete an object, as another user would."""
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        self.clusters[cluster].admin.request(
            "DELETE",
            f"{group}/namespaces/{self.namespaces[cluster]}/{kind}/{name}",
            json={"propagationPolicy": "Background"} | options,
        ).raise_for_status()

    def add(self, cluster: str, kind: str, document: dict[str, Any], group: str = "/api/v1") -> None:
        """Create an object in the namespace of the server."""
        answer = self.clusters[cluster].admin.post(
            f"{group}/namespaces/{self.namespaces[cluster]}/{kind}", json=document
        )
        assert answer.is_success, answer.text

    def foreign_pod(self, cluster: str, node: str, cpu: str, name: str = "foreign", **pod: Any) -> None:
        """Create a pod of another user on a node, which runs for ever."""
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        document = {
            "metadata": {"name": name, "annotations": {"spillover.test/runs-for": "forever"}},
            "spec": {"nodeName": node, "containers": [container]} | pod,
        }
        self.add(cluster, "pods", document)
