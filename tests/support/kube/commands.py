"""What the programs of a cluster are started with: all on loopback, TLS and RBAC, and as idle as they can be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.support.kube.binaries import Binaries
from tests.support.kube.identities import Identities

LOOPBACK: Final = "127.0.0.1"
CALLS: Final = 1000
"""Requests a second that controllers and the scheduler may make; their own limits (20, 50) are for clusters that share a server."""
LEASE: Final = 100
"""Seconds of a node's lease. KWOK renews it after a quarter, well within the half after which a node counts as lost."""
SELECTOR: Final = "kwok.x-k8s.io/node=fake"
"""The annotation of nodes that KWOK plays; others are left to who they belong to."""
_STAGES: Final = Path(__file__).parent / "kwok.yaml"


@dataclass(frozen=True)
class Addresses:
    """Ports on loopback."""

    apiserver: int
    controllers: int
    scheduler: int
    kwok: int


class Commands:
    """The command line of each program of one cluster; writes the files that they name."""

    def __init__(
        self, folder: Path, binaries: Binaries, identities: Identities, ports: Addresses, lease: int = LEASE
    ) -> None:
        self.folder = folder
        self.socket = folder / "etcd.sock"
        """Where etcd listens: on no port at all."""
        self._binaries = binaries
        self._identities = identities
        self._ports = ports
        self._lease = lease
        """Seconds of a node's lease."""

    def etcd(self) -> list[str | Path]:
        """One member, that nobody but owners of the folder can reach."""
        # It wants addresses that look like a host and a port; these are names of sockets in its folder.
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
            "--unsafe-no-fsync",  # nobody cuts the power in a test
            "--snapshot-count=100000",
            "--quota-backend-bytes=4294967296",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=5m",
            "--log-level=warn",
        ]

    def apiserver(self) -> list[str | Path]:
        """Tokens of service accounts and certificates are who one is, roles are what one may."""
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
            "--endpoint-reconciler-type=none",  # a loopback address is not one for a Service
            f"--kubelet-certificate-authority={who.ca}",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        ]

    def controllers(self, kubeconfig: Path) -> list[str | Path]:
        """Each controller with the role of its own service account, as RBAC wants it."""
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
        """The scheduler as it comes, with more calls."""
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
        """Plays nodes and their pods, and shows one file as the output of every container."""
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
            "--v=WARN",  # it would tell of every pod
        ]

    def _serving(self, port: int, kubeconfig: Path) -> list[str]:
        """How the two that nobody calls serve what says whether they are ready."""
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
