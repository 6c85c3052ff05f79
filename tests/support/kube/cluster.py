"""Runs one real cluster: a control plane of five processes in a folder, with the objects of tests."""

import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.support.kube import guard
from tests.support.kube.binaries import find_binaries
from tests.support.kube.commands import LEASE, LOOPBACK, SELECTOR, Addresses, Commands
from tests.support.kube.component import Component
from tests.support.kube.identities import ADMINS, Access, Identities, write_kubeconfig
from tests.support.kube.ports import Ports
from tests.support.processes import wait_until

PATIENCE: Final = 60.0
"""Seconds that a request, or its effect, may take on a busy machine."""
_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 1 << 30
"""Bytes that must be free in memory to keep the data there."""
_ACCOUNT: Final = "/api/v1/namespaces/{}/serviceaccounts/default"
"""Pods of a namespace are refused until controllers have created this account."""
_FAKE: Final = dict([SELECTOR.split("=")])


class Cluster:
    """A control plane that runs while its block runs; see the package docstring."""

    def __init__(self, name: str, lease: int = LEASE) -> None:
        """Use node leases of this many seconds; use more with thousands of nodes, because KWOK renews them all."""
        self.name = name
        """Also the context in its kubeconfig."""
        self._binaries = find_binaries()
        self.folder = Path(tempfile.mkdtemp(prefix=f"spill-kube-{name}-", dir=_roomiest()))
        """All data, keys and logs of the cluster; removed with it."""
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._ports = Ports()
        who = Identities(self.folder, name)
        self.ca = who.ca
        """Certificate of its CA, PEM."""
        self.admin_certificate = who.certify("admin", ADMINS)
        """A certificate with full access, and its key."""
        self.token = ""
        """Token of a service account with full access; set by `start`."""
        self.kubeconfig = self.folder / "kubeconfig"
        """Kubeconfig with that token; written by `start`."""
        self.pod_log = self.folder / "pod.log"
        """The output of every container; see `write_log`."""
        ports = Addresses(*(self._ports.take() for _ in range(4)))
        self.url = f"https://{LOOPBACK}:{ports.apiserver}"
        self._trust = ssl.create_default_context(cafile=str(self.ca))
        self._anybody = self.client()
        trust = ssl.create_default_context(cafile=str(self.ca))
        trust.load_cert_chain(*self.admin_certificate)
        self.admin = self._calls(trust)
        """Client with the admin certificate."""
        self._nodes = 0
        commands = Commands(self.folder, self._binaries, who, ports, lease)
        self.etcd = Component(
            "etcd", commands.etcd(), self.folder, ready=lambda: _etcd_healthy(commands.socket)
        )
        self.apiserver = Component(
            "kube-apiserver",
            commands.apiserver(),
            self.folder,
            ready=self._answers(ports.apiserver, "readyz"),
        )
        self.controllers = Component(
            "kube-controller-manager",
            commands.controllers(self._known_as("system:kube-controller-manager", who)),
            self.folder,
            ready=self._answers(ports.controllers, "healthz"),
        )
        self.scheduler = Component(
            "kube-scheduler",
            commands.scheduler(self._known_as("system:kube-scheduler", who)),
            self.folder,
            ready=self._answers(ports.scheduler, "readyz"),
        )
        self.kwok = Component(
            "kwok",
            commands.kwok(self._known_as("kwok", who, ADMINS), self.pod_log),
            self.folder,
            ready=self._answers(ports.kwok, "healthz"),
            before=self._end_leases,
        )

    # --- lifecycle

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def components(self) -> tuple[Component, ...]:
        """All programs, in the order in which they start."""
        return (self.etcd, self.apiserver, self.controllers, self.scheduler, self.kwok)

    def start(self) -> None:
        """Start all programs and wait until pods could run."""
        self.write_log("this pod is played by KWOK")
        self.etcd.start()
        self.apiserver.start()
        others = (self.controllers, self.scheduler, self.kwok)
        for each in others:
            each.launch()
        # The API server creates its namespaces just after it is ready.
        self._await("/api/v1/namespaces/kube-system")
        self.token = self.service_account("admin", namespace="kube-system", role="cluster-admin")
        write_kubeconfig(self.kubeconfig, [self.access])
        for each in others:
            each.await_ready()
        self._await(_ACCOUNT.format("default"))

    def stop(self) -> None:
        """Kill all programs and remove the folder; the data are discarded."""
        self.admin.close()
        self._anybody.close()
        self._guard.communicate()  # closes its input, and waits for its clean-up
        for each in self.components:
            each.kill()  # dead already; this reaps it
        self._ports.give_back()

    # --- access

    @property
    def access(self) -> Access:
        """The access data for a kubeconfig."""
        return Access(self.name, self.url, self.ca, token=self.token)

    def client(self, token: str | None = None) -> httpx.Client:
        """Open a client with a token, or anonymously; the caller closes it."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self._calls(self._trust, headers)

    def service_account(
        self, name: str, namespace: str = "default", role: str | None = None, seconds: int = 86_400
    ) -> str:
        """Return a token of a service account, created if necessary; bind it to a cluster role if given."""
        self._make(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        if role is not None:
            group = "rbac.authorization.k8s.io"
            binding = {
                "metadata": {"name": f"{namespace}-{name}-{role}"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            }
            self._make(f"/apis/{group}/v1/clusterrolebindings", binding)
        answer = self.admin.post(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            json={"spec": {"expirationSeconds": seconds}},
        )
        token: str = answer.raise_for_status().json()["status"]["token"]
        return token

    # --- objects

    def namespace(self, prefix: str = "test") -> str:
        """Create a namespace that accepts pods."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self._make("/api/v1/namespaces", {"metadata": {"name": name}})
        self._await(_ACCOUNT.format(name))
        return name

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace with its content, in the background."""
        self.admin.delete(f"/api/v1/namespaces/{name}").raise_for_status()

    def add_quota(self, namespace: str, quota: Mapping[str, Any], **pod: Any) -> None:
        """Add a quota, and wait until it refuses such pods, because its controller needs a moment."""
        self._make(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
        probe = {
            "metadata": {"name": "probe"},
            "spec": {"containers": [{"name": "main", "image": "x"}]} | pod,
        }

        def refuses() -> bool:
            path = f"/api/v1/namespaces/{namespace}/pods"
            return "exceeded quota" in self.admin.post(path, json=probe, params={"dryRun": "All"}).text

        wait_until(refuses, "a quota that counts", PATIENCE)

    def add_nodes(
        self,
        count: int = 1,
        *,
        cpu: str = "8",
        memory: str = "32Gi",
        pods: int = 110,
        gpu: int = 0,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[str] = (),
    ) -> list[str]:
        """Add nodes that KWOK simulates, and wait until they accept pods; write a taint as `key=value:NoSchedule`."""
        room = {"cpu": cpu, "memory": memory, "pods": str(pods)} | (
            {"nvidia.com/gpu": str(gpu)} if gpu else {}
        )
        names = [f"{self.name}-{number}" for number in range(self._nodes, self._nodes + count)]
        self._nodes += count
        for name in names:
            node = {
                "metadata": {
                    "name": name,
                    "annotations": _FAKE,
                    "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
                    | dict(labels or {}),
                },
                "spec": {"taints": [_taint(text) for text in taints]},
                "status": {"capacity": room, "allocatable": room},
            }
            self._make("/api/v1/nodes", node)
        waiting = set(names)

        def usable() -> bool:
            listed = self.admin.get("/api/v1/nodes").raise_for_status().json()["items"]
            waiting.difference_update(node["metadata"]["name"] for node in listed if _takes_pods(node))
            return not waiting

        wait_until(usable, f"{count} usable nodes", PATIENCE, every=0.1)
        return names

    def remove_nodes(self, names: Sequence[str]) -> None:
        """Delete nodes, as if their machines were gone."""
        for name in names:
            self.admin.delete(f"/api/v1/nodes/{name}").raise_for_status()

    def write_log(self, text: str) -> None:
        """Set the output of every container, as `GET .../log` returns it."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())
        self.pod_log.write_text("".join(f"{now} stdout F {line}\n" for line in text.splitlines()))

    # --- internals

    def _calls(self, trust: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """Open a client of the API server that ignores proxies of the machine."""
        return httpx.Client(
            base_url=self.url, verify=trust, headers=headers, timeout=PATIENCE, trust_env=False
        )

    def _make(self, path: str, document: Mapping[str, Any]) -> None:
        """Create an object, unless it exists."""
        answer = self.admin.post(path, json=document)
        if answer.status_code != httpx.codes.CONFLICT:
            assert answer.is_success, f"POST {path}: {answer.status_code} {answer.text}"

    def _await(self, path: str) -> None:
        """Wait for an object that the cluster creates by itself."""
        wait_until(lambda: self.admin.get(path).is_success, path, PATIENCE)

    def _end_leases(self) -> None:
        """Delete all node leases: KWOK gets a new name at each start, and would wait for its old leases to expire."""
        self.admin.delete("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").raise_for_status()

    def _known_as(self, user: str, who: Identities, group: str | None = None) -> Path:
        """Write a kubeconfig for one of its own programs."""
        access = Access(self.name, self.url, self.ca, certificate=who.certify(user, group))
        return write_kubeconfig(self.folder / f"{user.rpartition(':')[2]}.kubeconfig", [access])

    def _answers(self, port: int, path: str) -> Callable[[], bool]:
        """Return a function that tells whether a program reports to be healthy."""

        def ask() -> bool:
            try:
                return self._anybody.get(f"https://{LOOPBACK}:{port}/{path}").is_success
            except httpx.TransportError:
                return False

        return ask


def _roomiest() -> Path | None:
    """Return a folder in memory if there is enough; else None, for the usual temporary folder."""
    try:
        return _MEMORY if shutil.disk_usage(_MEMORY).free > _ROOM else None
    except OSError:
        return None


def _etcd_healthy(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(5)
        try:
            link.connect(str(path))
            link.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            with link.makefile("rb") as answer:
                return b'"health":"true"' in answer.read()
        except OSError:
            return False


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _takes_pods(node: Mapping[str, Any]) -> bool:
    """Tell whether a node is ready, and controllers have seen it."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    taints = node["spec"].get("taints", ())
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)
