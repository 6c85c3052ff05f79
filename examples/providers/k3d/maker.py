#!/usr/bin/env python3
"""Makes whole clusters with k3d, in Docker on this machine: create, list, destroy, kubeconfig and resize.

For a cloud, replace the calls of k3d by those of its command line. The order of the steps is what makes them safe to repeat.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STATE = Path(os.environ.get("STATE", "./state"))
LABEL = "spillover-"
"""How the tags begin that k3d keeps as labels of containers."""


def k3d(*words: str) -> str:
    """Run k3d and return what it prints; its messages go to our log."""
    return subprocess.run(["k3d", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def clusters() -> dict[str, Any]:
    """Return all clusters of k3d by name."""
    return {each["name"]: each for each in json.loads(k3d("cluster", "list", "-o", "json"))}


def nodes_of(cluster: dict[str, Any]) -> list[str]:
    """Return the names of the nodes, oldest first. Those of the control plane do not count: they take no jobs."""
    agents = [each for each in cluster["nodes"] if each["role"] == "agent"]
    return [each["name"] for each in sorted(agents, key=lambda each: (each["created"], each["name"]))]


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Keep other programs away from a cluster. One that is created twice at a time would be rolled back."""
    STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (STATE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def create(order: dict[str, Any]) -> None:
    """Create a cluster, unless it is there."""
    name = order["name"]
    with alone(name):
        if name not in clusters():
            (STATE / f"{name}.json").write_text(json.dumps(order["labels"]))
            tags = [f"--runtime-label={key}={value}@server:*" for key, value in order["tags"].items()]
            labels = [f"--k3s-node-label={key}={value}@agent:*" for key, value in order["labels"].items()]
            k3d(
                *("cluster", "create", name, f"--agents={order['nodes']}", *tags),
                *(labels if order["nodes"] else []),
                "--k3s-arg=--node-taint=node-role.kubernetes.io/control-plane=true:NoSchedule@server:*",
                "--kubeconfig-update-default=false",
            )
        (STATE / f"{name}.made").touch()  # k3d has waited until the cluster answers
    print(json.dumps({"id": name}))


def listing(asked: dict[str, Any]) -> None:
    """List all clusters; the server picks its own."""
    del asked
    print(json.dumps({"machines": [listed(each) for each in clusters().values()]}))


def listed(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return what a listing says about a cluster."""
    servers = [each for each in cluster["nodes"] if each["role"] == "server"]
    tags = {
        key: value
        for each in servers
        for key, value in each.get("runtimeLabels", {}).items()
        if key.startswith(LABEL)
    }
    answers = cluster["serversRunning"] > 0 and (STATE / f"{cluster['name']}.made").exists()
    return {
        "id": cluster["name"],
        "name": cluster["name"],
        "state": "running" if answers else "pending",
        "tags": tags,
        "nodes": len(nodes_of(cluster)),
    }


def destroy(asked: dict[str, Any]) -> None:
    """Delete clusters that are there."""
    failed = {}
    for name in asked["ids"]:
        with alone(name):
            try:
                if name in clusters():
                    k3d("cluster", "delete", name)
                (STATE / f"{name}.made").unlink(missing_ok=True)
            except subprocess.CalledProcessError as error:
                failed[name] = f"k3d ended with exit code {error.returncode}"
    print(json.dumps({"failed": failed}))


def kubeconfig(asked: dict[str, Any]) -> None:
    """Write the kubeconfig of a cluster."""
    print(k3d("kubeconfig", "get", existing(asked["id"])))


def resize(asked: dict[str, Any]) -> None:
    """Add nodes, or remove first those that are named and then the youngest."""
    name = existing(asked["id"])
    with alone(name):
        there = nodes_of(clusters()[name])
        missing = asked["nodes"] - len(there)
        if missing > 0:
            labels = json.loads((STATE / f"{name}.json").read_text())
            k3d(
                *("node", "create", f"{name}-{time.time_ns()}", f"--cluster={name}", f"--replicas={missing}"),
                *[f"--k3s-node-label={key}={value}" for key, value in labels.items()],
            )
        named = [each for each in there if each in asked["drop"]]
        others = [each for each in reversed(there) if each not in asked["drop"]]
        for node in [*named, *others][: max(0, -missing)]:
            k3d("node", "delete", node)
            # k3d leaves the object of the node behind.
            kubectl = ["docker", "exec", f"k3d-{name}-server-0", "kubectl", "delete", "node", node]
            subprocess.run([*kubectl, "--ignore-not-found"], check=True, stdout=subprocess.DEVNULL)


def existing(name: str) -> str:
    """Return the name of a cluster that is there; end if it is gone."""
    if name not in clusters():
        sys.exit(f"there is no cluster {name}")
    return name


PROGRAMS: dict[str, Callable[[dict[str, Any]], None]] = {
    "create": create,
    "list": listing,
    "destroy": destroy,
    "kubeconfig": kubeconfig,
    "resize": resize,
}
try:
    PROGRAMS[sys.argv[1]](json.load(sys.stdin))
except subprocess.CalledProcessError:
    sys.exit(1)  # what k3d said is the last line of the log
