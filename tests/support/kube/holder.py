"""Holds one cluster of `maker.py`: starts it, and keeps as many nodes as its file says, until it is told to end."""

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from tests.support.kube.cluster import Cluster
from tests.support.kube.maker import read

EVERY: Final = 0.1
"""Seconds between two looks at the file."""


def main(folder: Path) -> None:
    """Hold the cluster of a folder."""
    signal.signal(signal.SIGTERM, _end)
    with Cluster(folder.name) as cluster:
        new = folder / "kubeconfig.new"
        shutil.copy(cluster.kubeconfig, new)
        new.rename(folder / "kubeconfig")
        while folder.exists():
            follow(cluster, read(folder / "nodes.json"))
            time.sleep(EVERY)


def follow(cluster: Cluster, told: dict[str, Any]) -> None:
    """Add or remove nodes, one by one."""
    there = [each["metadata"]["name"] for each in cluster.admin.get("/api/v1/nodes").json()["items"]]
    if len(there) < told["nodes"]:
        memory, gpu = str(told["memory"]), told["gpu"]
        cluster.add_nodes(cpu=f"{told['cpu']:g}", memory=memory, gpu=gpu, labels=told["labels"])
    elif len(there) > told["nodes"]:
        remove(cluster, chosen(there, told["drop"]))


def chosen(there: Sequence[str], drop: Sequence[str]) -> str:
    """Return the node that goes next: one that is named, or else the youngest."""
    return next(
        (each for each in drop if each in there), max(there, key=lambda each: int(each.rpartition("-")[2]))
    )


def remove(cluster: Cluster, node: str) -> None:
    """Cordon a node and delete it."""
    path, headers = f"/api/v1/nodes/{node}", {"Content-Type": "application/merge-patch+json"}
    cluster.admin.patch(path, json={"spec": {"unschedulable": True}}, headers=headers).raise_for_status()
    cluster.remove_nodes([node])


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise SystemExit


if __name__ == "__main__":
    main(Path(sys.argv[1]))
