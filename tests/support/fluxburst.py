"""Plugins of flux-burst for tests: one of the same form with a folder as its cloud, and the real ones from PyPI."""

import subprocess
import sys
from pathlib import Path
from typing import Final

TOY: Final = """
import logging, os, pathlib, sys, time
from dataclasses import dataclass
from typing import Optional

logger = logging.getLogger("toy")


@dataclass
class BurstParameters:
    cloud: str
    isolated_burst: Optional[bool] = False
    cluster_name: Optional[str] = "flux-bursted-cluster"
    machine_type: Optional[str] = "big"
    nodes: Optional[int] = None


class Toy:
    _param_dataclass = BurstParameters

    def __init__(self, dataclass, **kwargs):
        self.set_params(dataclass)
        self.jobs, self.clusters = {}, {}
        self.cloud = pathlib.Path(dataclass.cloud)

    def set_params(self, dc):
        for key, value in os.environ.items():
            if key.startswith("FLUXBURST_") and hasattr(dc, key[10:].lower()):
                setattr(dc, key[10:].lower(), value)
        self.params = dc

    def fault(self):
        path = self.cloud / "fault"
        return path.read_text() if path.exists() else ""

    def validate(self):
        if self.fault() == "auth":
            logger.warning("TOY_KEY not found: no credentials")
            return False
        return self.params.isolated_burst

    def schedule(self, job):
        if self.fault() == "invalid":
            logger.warning("the toy takes no such job")
            return False
        self.jobs[job["id"]] = job
        return True

    def run(self, request_burst=False, nodes=None, tasks=None):
        assert not request_burst
        (job,) = self.jobs.values()
        name = self.params.cluster_name
        with open(self.cloud / "calls", "a") as calls:
            calls.write(f"create {name}\\n")
        if self.fault() == "exit":
            sys.exit(7)
        (self.cloud / name).write_text(self.params.machine_type + " " + " ".join(job["spec"]["tasks"][0]["command"]))
        while self.fault() == "slow":
            time.sleep(0.02)
        self.clusters[name] = "a client"

    def cleanup(self, name=None):
        if name not in self.clusters:
            logger.warning(f"{name} is not a known cluster.")
            return
        try:
            if self.fault() == "refused_destroy":
                raise RuntimeError("operation in progress")
            (self.cloud / name).unlink()
        except FileNotFoundError as error:
            raise LookupError(f"404: cluster {name} not found")
        except Exception:
            logger.warning(f"Issue deleting {name}")
        self.clusters.pop(name, None)
"""
REAL: Final = ("flux-burst==0.0.15", "flux-burst-gke==0.0.11", "flux-burst-eks==0.0.1")


def put_toy(folder: Path) -> None:
    """Write the plugin `toy` as packages have it."""
    package = folder / "fluxburst_toy"
    package.mkdir(parents=True)
    (package / "plugin.py").write_text(TOY)
    (package / "__init__.py").write_text(
        "def init(dataclass, **kwargs):\n    from .plugin import Toy\n\n    return Toy(dataclass, **kwargs)\n"
    )


def real_plugins() -> Path | None:
    """Return a folder with the real plugins without their libraries, downloaded once; None if PyPI does not answer."""
    folder = Path(sys.prefix) / "flux-burst"
    if not (folder / ".whole").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*pip, "--upgrade", "--target", str(folder), *REAL], capture_output=True, timeout=250, check=False
        )
        if done.returncode:
            return None
        (folder / ".whole").touch()
    return folder


STAND_INS: Final = {
    "kubescaler/scaler/cloud.py": """
import json, os, pathlib, signal

class Cluster:
    def __init__(self, name, node_count=None, **more):
        self.name, self.node_count, self.more = name, node_count, more
        self.path = pathlib.Path(os.environ["CLOUD"]) / name
    def create_cluster(self):
        with open(self.path, "x") as file:
            json.dump({"nodes": self.node_count, **self.more}, file)
        return self
    def delete_cluster(self):
        pid = json.loads(self.path.read_text()).get("pid")
        if pid:
            os.killpg(pid, signal.SIGTERM)
        self.path.unlink()
    def get_k8s_client(self):
        return self
    api_client = None
    def create_namespace(self, namespace):
        pass
""",
    "kubescaler/scaler/google.py": "from .cloud import Cluster as GKECluster",
    "kubescaler/scaler/aws.py": "from .cloud import Cluster as EKSCluster",
    "kubescaler/scaler/__init__.py": "",
    "kubescaler/__init__.py": "",
    "kubernetes/__init__.py": "from . import client, utils",
    "kubernetes/utils.py": "def create_from_yaml(*args): pass",
    "kubernetes/client/__init__.py": """
V1Namespace = V1ObjectMeta = CustomObjectsApi = lambda *args, **more: None
""",
    "kubernetes/client/rest.py": "class ApiException(Exception): pass",
    "fluxoperator/__init__.py": "",
    "fluxoperator/client.py": """
import json, os, subprocess

class FluxMiniCluster:
    def __init__(self, core_v1_api):
        self.cluster = core_v1_api
    def create(self, container, **more):
        # The operator writes the command into a shell script.
        env = os.environ | {"SPILL_DATA": f"{self.cluster.path}.data"}
        with open(f"{self.cluster.path}.log", "w") as log:
            runs = subprocess.Popen(
                ["sh", "-c", f"exec {container['command']}"], env=env, stdout=log, stderr=log, start_new_session=True
            )
        known = json.loads(self.cluster.path.read_text())
        self.cluster.path.write_text(json.dumps({**known, "pid": runs.pid, "image": container["image"]}))
""",
}
"""The libraries of the real plugins. The cloud is a folder, and a machine is a process of this machine."""


def put_stand_ins(folder: Path) -> None:
    """Write the libraries of the real plugins."""
    for name, text in STAND_INS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
