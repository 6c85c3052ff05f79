"""Serves the metrics API for a cluster, as metrics-server does: behind the API server, with samples that a test sets."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.support.kube.cluster import Cluster
from tests.support.processes import wait_until

GROUP: Final = "metrics.k8s.io"
VERSION: Final = "v1beta1"
PATIENCE: Final = 60.0


class MetricsServer:
    """A server of samples of all running pods of a namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.asked: list[str] = []
        """Label selectors of the questions."""

    def pods(self, namespace: str, selector: str) -> dict[str, Any]:
        """Return a sample of each running pod: as many CPUs and 100 MiB as its rank, plus one."""
        self.asked.append(selector)
        listed = self._cluster.admin.get(
            f"/api/v1/namespaces/{namespace}/pods", params={"labelSelector": selector}
        )
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "PodMetricsList",
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": [
                {
                    "metadata": {"name": pod["metadata"]["name"], "namespace": namespace},
                    "timestamp": now,
                    "window": "15s",
                    "containers": [{"name": "main", "usage": _usage(pod)}],
                }
                for pod in listed.raise_for_status().json()["items"]
                if pod["status"].get("phase") == "Running"
            ],
        }


def _usage(pod: dict[str, Any]) -> dict[str, str]:
    amount = 1 + int(pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index", 0))
    return {"cpu": f"{amount}000000000n", "memory": f"{amount * 100 * 1024}Ki"}


@contextmanager
def metrics_api(cluster: Cluster) -> Iterator[MetricsServer]:
    """Serve the metrics API of a cluster, through its API server, while the block runs."""
    metrics = MetricsServer(cluster)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            parts = url.path.strip("/").split("/")
            if parts[:1] != ["apis"] or len(parts) < 6:
                resources = [{"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}]
                found: dict[str, Any] = {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": f"{GROUP}/{VERSION}",
                    "resources": resources,
                }
            else:
                found = metrics.pods(parts[4], parse_qs(url.query).get("labelSelector", [""])[0])
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cluster.folder / "server.pem", cluster.folder / "server-key.pem")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with _registered(cluster, server.server_address[1]):
                yield metrics
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _registered(cluster: Cluster, port: int) -> Iterator[None]:
    """Let the API server pass requests for the metrics API to a port of this machine."""
    services, name = "/api/v1/namespaces/kube-system/services", f"{VERSION}.{GROUP}"
    registrations = "/apis/apiregistration.k8s.io/v1/apiservices"
    # A Service cannot have a loopback address, but it can be the name of one.
    service = {"metadata": {"name": "metrics"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    registration = {
        "metadata": {"name": name},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "service": {"name": "metrics", "namespace": "kube-system", "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    cluster.admin.post(services, json=service).raise_for_status()
    cluster.admin.post(registrations, json=registration).raise_for_status()
    try:
        wait_until(
            lambda: _answers(cluster.admin), "the metrics API behind the API server", PATIENCE, every=0.2
        )
        yield
    finally:
        cluster.admin.delete(f"{registrations}/{name}").raise_for_status()
        cluster.admin.delete(f"{services}/metrics").raise_for_status()


def _answers(admin: httpx.Client) -> bool:
    return admin.get(f"/apis/{GROUP}/{VERSION}/namespaces/default/pods").is_success
