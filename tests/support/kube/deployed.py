"""Applies deploy/kubernetes by the documented commands, and runs servers from nothing but the applied objects.

The nodes of our clusters are simulated, so that servers are processes here. Everything that a pod would get comes from
the cluster: arguments, configuration, certificate, tokens and password, and the roles of its account.
"""

import base64
import ctypes
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock
from urllib.parse import urlsplit

import httpx
import yaml

from spillover.clusters.kubernetes.api.kubeconfig import IN_POD
from tests.support.kube.binaries import find_binaries
from tests.support.kube.cluster import Cluster
from tests.support.processes import ServerProcess, free_ports

NAMESPACE: Final = "spillover"
"""Namespace of the server and the database."""
LONGEST: Final = 180.0
"""Seconds for a command that waits for controllers on a busy machine."""
NEW_MOUNTS: Final = 0x20000
READ_ONLY: Final = 0x1
REMOUNT: Final = 0x20
RECURSIVE: Final = 0x4000
PRIVATE: Final = 0x40000
BIND: Final = 0x1000


class Typed:
    """Runs commands at the root of the repository, with a kubectl that has full access."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.folder = folder
        """Working directory."""
        kubectl = find_binaries().kubectl
        self._environment = os.environ | {
            "PATH": f"{kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(kubeconfig.parent),  # kubectl's cache is removed with it
        }

    def __call__(self, line: str) -> str:
        """Run a command line and return its output; it must succeed without warnings."""
        done = subprocess.run(
            ["/bin/bash", "-euc", line],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert "Warning" not in done.stderr, done.stderr
        return done.stdout

    def objects(self, what: str) -> Any:
        """Return what kubectl gets, as JSON."""
        return json.loads(self(f"kubectl get {what} --output json"))


class Pod:
    """A pod of the server's Deployment, as a process of this machine."""

    def __init__(self, typed: Typed, cluster: Cluster, database: str, folder: Path) -> None:
        self._cluster = cluster
        self._typed = typed
        folder.mkdir()
        spec = typed.objects(f"deployment/server -n {NAMESPACE}")["spec"]["template"]["spec"]
        [container] = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        self.probe = container["readinessProbe"]["httpGet"]
        self.grace: float = spec["terminationGracePeriodSeconds"]
        data = folder / "data"
        data.mkdir(mode=0o700)
        places = {
            mount["mountPath"]: folder / f"volume-{mount['name']}" for mount in container["volumeMounts"]
        }
        for volume in spec["volumes"]:
            self._fill(folder / f"volume-{volume['name']}", volume)
        shutil.copy(places["/data/token"] / "token", data / "token")
        (data / "token").chmod(0o600)
        self.account = folder / "account"
        self._fill_account(spec["serviceAccountName"])
        self.ca = places["/tls"] / "ca.pem"
        self.token = data / "token"

        up, *options = container["args"]
        assert up == "up"
        path = places["/etc/spillover"] / "spill.yaml"
        document = yaml.safe_load(path.read_text())
        assert urlsplit(document["store"])[1:3] == ("spillover@database", "/spillover")
        assert document["data"] == "/data"
        # Replace what depends on this machine: ports, paths and the database.
        self.port, grpc = free_ports(2)
        document |= {
            "http": f"127.0.0.1:{self.port}",
            "grpc": f"127.0.0.1:{grpc}",
            "data": str(data),
            "store": database,
        }
        document["tls"] = {
            name: file.replace("/tls", str(places["/tls"])) for name, file in document["tls"].items()
        }
        path.write_text(yaml.safe_dump(document))
        options[options.index("--config") + 1] = str(path)
        self.server = ServerProcess(folder, *options, data=data)
        [variable] = container["env"]
        self.variables = {
            variable["name"]: self._secret(variable["valueFrom"]["secretKeyRef"]["name"])[
                "password"
            ].decode(),
            "KUBERNETES_SERVICE_HOST": urlsplit(cluster.url).hostname or "",
            "KUBERNETES_SERVICE_PORT": str(urlsplit(cluster.url).port),
        }

    def _secret(self, name: str) -> dict[str, bytes]:
        found = self._typed.objects(f"secret/{name} -n {NAMESPACE}")["data"]
        return {key: base64.b64decode(value) for key, value in found.items()}

    def _fill(self, place: Path, volume: dict[str, Any]) -> None:
        place.mkdir()
        files: dict[str, bytes] = {}
        if "secret" in volume:
            files = self._secret(volume["secret"]["secretName"])
        elif "configMap" in volume:
            name = volume["configMap"]["name"]
            found = self._typed.objects(f"configmap/{name} -n {NAMESPACE}")["data"]
            files = {key: value.encode() for key, value in found.items()}
        for name, content in files.items():
            (place / name).touch(mode=0o600)
            (place / name).write_bytes(content)

    def _fill_account(self, name: str) -> None:
        """Write the files of a service account as a kubelet does, with a token for an hour."""
        self.account.mkdir()
        token = self._typed(f"kubectl -n {NAMESPACE} create token {name} --duration=1h")
        (self.account / "token").write_text(token.strip())
        (self.account / "namespace").write_text(NAMESPACE)
        shutil.copy(self._cluster.ca, self.account / "ca.crt")

    def launch(self) -> None:
        """Start the server, with the account files where a pod has them."""
        with mock.patch.dict(os.environ, self.variables):
            self.server.launch(limits=in_pod(self.account))

    def ready(self) -> bool:
        """Probe readiness as a kubelet does."""
        # A kubelet uses the address of the pod as host, which nobody knows in advance.
        headers = {"Host": f"10.244.0.7:{self.port}"} | {
            each["name"]: each["value"] for each in self.probe.get("httpHeaders", ())
        }
        anybody = ssl.create_default_context()
        # a kubelet accepts any certificate
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        url = f"{self.probe['scheme'].lower()}://127.0.0.1:{self.port}{self.probe['path']}"
        try:
            return httpx.get(url, headers=headers, verify=anybody, trust_env=False, timeout=10.0).is_success
        except httpx.TransportError:
            return False


def in_pod(account: Path) -> Callable[[], None]:
    """Return a function that gives a new process the view of a pod: account files, read-only root; needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    temporary = os.path.realpath(tempfile.gettempdir())

    def mount(source: bytes, target: str, kind: bytes | None, flags: int) -> None:
        if libc.mount(source, os.fsencode(target), kind, flags, None) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount", target)

    def enter() -> None:
        if libc.unshare(NEW_MOUNTS) != 0:
            raise OSError(ctypes.get_errno(), "cannot have mounts of its own")
        mount(b"none", "/", None, RECURSIVE | PRIVATE)
        mount(b"none", os.path.realpath("/var/run"), b"tmpfs", 0)
        IN_POD.mkdir(parents=True)
        mount(os.fsencode(account), os.path.realpath(IN_POD), None, BIND)
        # The root of a container is read-only. All files of the test are below the temporary folder.
        mount(os.fsencode(temporary), temporary, None, BIND)
        mount(b"none", "/", None, REMOUNT | BIND | READ_ONLY)

    return enter
