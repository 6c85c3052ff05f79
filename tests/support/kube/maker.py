"""Makes whole clusters as control planes on this machine: five programs for the provider `command`, in one file.

Each gets JSON and writes it, as docs/pools.md says: `python maker.py create`, `list`, `destroy`, `kubeconfig` or `resize`. The
clusters are in folders of CLUSTERS. A process holds each of them, and outlives the program that started it. It keeps as
many nodes as the file `nodes.json` says, and ends with its cluster when it is told to.

The programs import only what every Python has, because they start often.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
PATIENCE: Final = 30.0
"""Seconds for a cluster to end."""


def main() -> None:
    """Run one of the programs."""
    folder = Path(os.environ["CLUSTERS"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    asked = json.load(sys.stdin)
    programs = {
        "create": create,
        "list": show,
        "destroy": destroy,
        "kubeconfig": kubeconfig,
        "resize": resize,
    }
    programs[sys.argv[1]](folder, asked)


def create(clusters: Path, order: dict[str, Any]) -> None:
    """Start a cluster, unless it was started before."""
    folder = clusters / order["name"]
    if not folder.exists():
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=clusters))
        told = {"nodes": order["nodes"], "drop": [], "cpu": order["cpu"], "memory": order["memory"]}
        write(new / "nodes.json", told | {"gpu": order["gpu"], "labels": order["labels"]})
        write(new / "tags.json", order["tags"])
        try:
            new.rename(folder)
        except OSError:  # the same order, at the same time
            shutil.rmtree(new)
    with (folder / "lock").open("w") as lock, (folder / "log").open("ab") as log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # it runs
        else:
            holder = subprocess.Popen(
                [sys.executable, "-m", "tests.support.kube.holder", str(folder)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock.fileno()],  # the lock is held for as long as the cluster runs
            )
            (folder / "pid").write_text(str(holder.pid))
    answer({"id": order["name"]})


def show(clusters: Path, asked: dict[str, Any]) -> None:
    """List all clusters."""
    del asked
    answer({"machines": [listed(each) for each in sorted(clusters.glob("[!.]*"))]})


def listed(folder: Path) -> dict[str, Any]:
    """Return what a listing says about a cluster."""
    state = "gone" if (folder / "pid").exists() and not runs(folder) else "pending"
    if state == "pending" and (folder / "kubeconfig").exists():
        state = "running"
    entry = {"id": folder.name, "name": folder.name, "state": state}
    with contextlib.suppress(FileNotFoundError):
        entry["nodes"] = read(folder / "nodes.json")["nodes"]
        entry["tags"] = read(folder / "tags.json")
    return entry


def destroy(clusters: Path, asked: dict[str, Any]) -> None:
    """End clusters. One that is gone, or never was, counts as destroyed."""
    there = {each.name: each for each in clusters.glob("[!.]*")}
    ends = {id_: end(there[id_]) for id_ in asked["ids"] if id_ in there}
    answer({"failed": {id_: why for id_, why in ends.items() if why}})


def end(folder: Path) -> str:
    """End a cluster; return why it still runs, or nothing."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + PATIENCE
        while runs(folder) and time.monotonic() < until:
            # Sent again: a process that starts may not listen for it yet.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
                os.kill(int((folder / "pid").read_text()), number)
            time.sleep(0.05)
    if runs(folder):
        return "its process does not end"
    shutil.rmtree(folder, ignore_errors=True)
    return ""


def kubeconfig(clusters: Path, asked: dict[str, Any]) -> None:
    """Write the kubeconfig of a cluster that runs."""
    folder = existing(clusters, asked["id"])
    try:
        sys.stdout.write((folder / "kubeconfig").read_text())
    except FileNotFoundError:
        sys.exit(f"the cluster {folder.name} does not run yet")


def resize(clusters: Path, asked: dict[str, Any]) -> None:
    """Tell a cluster how many nodes to have. Its process adds and removes them."""
    folder = existing(clusters, asked["id"])
    with (folder / "sizing").open("w") as sizing:
        fcntl.flock(sizing, fcntl.LOCK_EX)
        told = read(folder / "nodes.json")
        # Nodes of a call before that are still there go before any other.
        drop = [*asked["drop"], *[each for each in told["drop"] if each not in asked["drop"]]]
        if told["nodes"] != asked["nodes"]:
            smaller = asked["nodes"] < told["nodes"]
            write(folder / "nodes.json", told | {"nodes": asked["nodes"], "drop": drop if smaller else []})


def existing(clusters: Path, id_: str) -> Path:
    """Return the folder of a cluster; end if it is gone."""
    found = [each for each in clusters.glob("[!.]*") if each.name == id_]
    if not found or not runs(found[0]):
        sys.exit(f"there is no cluster {id_}")
    return found[0]


def runs(folder: Path) -> bool:
    """Return whether the process of a cluster runs."""
    try:
        with (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def read(path: Path) -> Any:
    """Read a file that others write."""
    return json.loads(path.read_text())


def write(path: Path, document: object) -> None:
    """Write a file that others read, at once."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(document))
    new.rename(path)


def answer(document: object) -> None:
    """Answer the server."""
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
