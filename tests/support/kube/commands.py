"""Builds the command lines of the programs of a cluster: on loopback, with TLS and RBAC, and with little idle work."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.support.kube.binaries import Binaries
from tests.support.kube.identities import Identities

LOOPBACK: Final = "127.0.0.1"
CALLS: Final = 1000
"""Requests per second for controllers and scheduler; their defaults (20, 50) are for shared servers."""
LEASE: Final = 100
"""Seconds of a node lease. KWOK renews it after a quarter; after half, a node counts as lost."""
SELECTOR: Final = "kwok.x-k8s.io/node=fake"
"""The annotation of nodes that KWOK simulates; it ignores others."""
_STAGES: Final = Path(__file__).parent / "kwok.yaml"


@dataclass(frozen=True)
class Addresses:
    """Ports on loopback."""

    apiserver: int
    controllers: int
    scheduler: int
    kwok: int


class Commands:
    """The command line of each program of one cluster; writes the files that they use."""

    def __init__(
        self, folder: Path, binaries: Binaries, identities: Identities, ports: Addresses, lease: int = LEASE
    ) -> None:
        self.folder = folder
        self.socket = folder / "etcd.sock"
        """Socket of etcd, which listens on no port."""
        self._binaries = binaries
        self._identities = identities
        self._ports = ports
        self._lease = lease
        """Seconds of a node lease."""

    def etcd(self) -> list[str | Path]:
        """One member, accessible only to the owner of the folder."""
        # etcd wants addresses of the form host:port; these are names of sockets in its folder.
        advertised, peer = "unix://etcd:1", "unix://peer:1"
        return [
            self._binaries.etcd,
            "--name=only",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls=unix://{self.socket}",
            f"--advertise-client-urls={advertised}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=only={peer}",
            "--unsafe-no-fsync",  # tests do not cut the power
            "--snapshot-count=100000",
            "--quota-backend-bytes=4294967296",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=5m",
            "--log-level=warn",
        ]

    def apiserver(self) -> list[str | Path]:
        """Authenticates by service account tokens and certificates, and authorises by RBAC."""
        who = self._identities
        return [
            self._binaries.apiserver,
            f"--etcd-servers=unix://{self.socket}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self._ports.apiserver}",
            f"--tls-cert-file={who.server}",
            f"--tls-private-key-file={who.server_key}",
            f"--cert-dir={self.folder}",
            f"--client-ca-file={who.ca}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={who.tokens_key}",
            f"--service-account-signing-key-file={who.tokens_key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",  # a Service cannot have a loopback address
            f"--kubelet-certificate-authority={who.ca}",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        ]

    def controllers(self, kubeconfig: Path) -> list[str | Path]:
        """Each controller uses its own service account, as RBAC requires."""
        who = self._identities
        return [
            self._binaries.controllers,
            *self._serving(self._ports.controllers, kubeconfig),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={who.tokens_key}",
            f"--root-ca-file={who.ca}",
            f"--kube-api-qps={CALLS}",
            f"--kube-api-burst={2 * CALLS}",
            f"--node-monitor-grace-period={self._lease // 2}s",
            "--profiling=false",
        ]

    def scheduler(self, kubeconfig: Path) -> list[str | Path]:
        """The default scheduler, with a higher rate limit."""
        config = self.folder / "scheduler.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": CALLS, "burst": 2 * CALLS},
            "enableProfiling": False,
        }
        config.write_text(yaml.safe_dump(document))
        return [
            self._binaries.scheduler,
            *self._serving(self._ports.scheduler, kubeconfig),
            f"--config={config}",
        ]

    def kwok(self, kubeconfig: Path, pod_log: Path) -> list[str | Path]:
        """Simulates nodes and their pods, and shows one file as the output of every container."""
        logs = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterLogs",
            "metadata": {"name": "output"},
            "spec": {"logs": [{"logsFile": str(pod_log)}]},
        }
        config = self.folder / "kwok.yaml"
        config.write_text(f"{_STAGES.read_text()}---\n{yaml.safe_dump(logs)}")
        who = self._identities
        return [
            self._binaries.kwok,
            f"--kubeconfig={kubeconfig}",
            f"--config={config}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={SELECTOR}",
            f"--node-ip={LOOPBACK}",
            f"--node-port={self._ports.kwok}",
            f"--server-address={LOOPBACK}:{self._ports.kwok}",
            f"--tls-cert-file={who.server}",
            f"--tls-private-key-file={who.server_key}",
            f"--node-lease-duration-seconds={self._lease}",
            "--v=WARN",  # by default it logs every pod
        ]

    def _serving(self, port: int, kubeconfig: Path) -> list[str]:
        """Return the options for the readiness port of controllers and scheduler, which have no other clients."""
        who = self._identities
        return [
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={who.server}",
            f"--tls-private-key-file={who.server_key}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authentication-skip-lookup=true",
        ]
