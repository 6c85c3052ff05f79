"""Runs the pods of a namespace as real processes of this machine, as the kubelet of a node runs containers.

KWOK plays nodes, and would play pods too. With the annotations `REAL` it leaves a pod to this kubelet, which mounts its
Secrets and empty folders, runs the command of its first container, reports what becomes of it, and ends it with
everything that it started when the pod is deleted. A process has no root folder of its own, so paths below a mount are
replaced in its command.
"""

import base64
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
from msgspec import Struct

from tests.support.kube.cluster import Cluster
from tests.support.kube.guard import MARK
from tests.support.processes import clean_environment, processes_of, wait_until

REAL: Final = {
    "spillover.test/never-starts": "ContainerCreating",
    "spillover.test/runs-for": "forever",
    "spillover.test/stops-in": "24h",
}
"""Annotations of pods that KWOK neither starts nor ends."""
EVERY: Final = 0.05
"""Seconds between two looks at all pods."""


class _Run(Struct):
    """A pod whose process was started."""

    name: str
    folder: Path
    process: "subprocess.Popen[bytes]"
    killed_at: float | None = None
    """When TERM becomes KILL, on the monotonic clock; None before the pod is deleted."""
    over: bool = False
    """Whether its end was reported."""


class Kubelet:
    """Runs the pods of one namespace, on all nodes."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self._cluster = cluster
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._folder = folder
        self._runs: dict[str, _Run] = {}
        """By the uid of the pod."""
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        """What ended its work; None if nothing did."""

    @contextmanager
    def running(self) -> Iterator["Kubelet"]:
        """Run until the block ends; the processes of all pods end then."""
        self._folder.mkdir(parents=True)
        thread = threading.Thread(target=self._work, name="kubelet")
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(30)
            for run in self._runs.values():
                _end(run, signal.SIGKILL)
        assert self.failure is None, self.failure

    def processes(self) -> list[int]:
        """Return the pids of everything that pods started and that still runs."""
        return processes_of(self._folder)

    def kill(self, pod: str) -> None:
        """Kill the processes of a pod, as the kernel does when memory is short."""
        (run,) = [each for each in self._runs.values() if each.name == pod]
        _end(run, signal.SIGKILL)

    def log(self) -> str:
        """Return the output of all pods."""
        return "\n".join([f"{run.name}: {(run.folder / 'log').read_text()}" for run in self._runs.values()])

    # --- its work

    def _work(self) -> None:
        try:
            with self._cluster.client(self._cluster.token) as client:
                while not self._stop.wait(EVERY):
                    with suppress(httpx.TransportError):  # an API server that restarts
                        self._look(client)
        except BaseException as error:  # noqa: BLE001 - told when the block ends
            self.failure = error

    def _look(self, client: httpx.Client) -> None:
        """Compare what should run with what runs."""
        pods = client.get(self._pods).raise_for_status().json()["items"]
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in self._runs.keys() - there:  # deleted without waiting for its end, as when a node is lost
            _end(self._runs[uid], signal.SIGKILL)
        for pod in pods:
            run = self._runs.get(pod["metadata"]["uid"])
            if run is None:
                if _is_due(pod):
                    self._start(client, pod)
            elif "deletionTimestamp" in pod["metadata"]:
                self._end(client, pod, run)
            elif run.process.poll() is not None and not run.over:
                _end(run, signal.SIGKILL)  # a container ends with its first process
                run.over = True
                self._report_end(client, pod, run.process.returncode)

    def _start(self, client: httpx.Client, pod: dict[str, Any]) -> None:
        """Start the process of a pod, unless a Secret of it is missing so far."""
        meta, (container, *_) = pod["metadata"], pod["spec"]["containers"]
        folder = self._folder / meta["uid"]
        mounts = self._mount(client, pod, container, folder)
        if mounts is None:
            return
        words = [_moved(word.replace("$$", "$"), mounts) for word in container["command"]]
        given = {each["name"]: each.get("value", "") for each in container.get("env", ())}
        # The guard of the cluster ends what has its mark, also if this process is killed.
        ours = {"HOME": str(folder), MARK: str(self._cluster.folder)}
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=clean_environment() | given | ours,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._runs[meta["uid"]] = _Run(meta["name"], folder, process)
        running = {"running": {"startedAt": _now()}, "waiting": None}
        self._report(client, pod, "Running", running, ready=True)

    def _mount(
        self, client: httpx.Client, pod: dict[str, Any], container: dict[str, Any], folder: Path
    ) -> dict[str, str] | None:
        """Return where the paths of all mounts are; None if a Secret is missing."""
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        mounts: dict[str, str] = {}
        for mount in container.get("volumeMounts", ()):
            volume = volumes[mount["name"]]
            place = folder / "volumes" / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                answer = client.get(f"{self._secrets}/{volume['secret']['secretName']}")
                if answer.status_code == httpx.codes.NOT_FOUND:
                    return None
                for name, text in answer.raise_for_status().json()["data"].items():
                    (place / name).write_bytes(base64.b64decode(text))
                    (place / name).chmod(volume["secret"].get("defaultMode", 0o644))
            mounts[mount["mountPath"]] = str(place / mount.get("subPath", ""))
        return mounts

    def _end(self, client: httpx.Client, pod: dict[str, Any], run: _Run) -> None:
        """Stop a pod that is deleted, and say that it is gone once it is."""
        now = time.monotonic()
        if run.killed_at is None:
            run.killed_at = now + pod["metadata"].get("deletionGracePeriodSeconds", 30)
            with suppress(ProcessLookupError):
                run.process.send_signal(signal.SIGTERM)
        if run.process.poll() is None and now < run.killed_at:
            return
        _end(run, signal.SIGKILL)
        at_once = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        client.request("DELETE", f"{self._pods}/{run.name}", json=at_once)

    def _report_end(self, client: httpx.Client, pod: dict[str, Any], code: int) -> None:
        phase = "Failed" if code else "Succeeded"
        ended = {"exitCode": code if code >= 0 else 128 - code, "finishedAt": _now()}
        self._report(client, pod, phase, {"terminated": ended, "running": None}, ready=False)

    def _report(
        self, client: httpx.Client, pod: dict[str, Any], phase: str, state: Mapping[str, Any], *, ready: bool
    ) -> None:
        """Write the status of a pod."""
        container = pod["spec"]["containers"][0]
        told = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": _now()}
        status = {
            "phase": phase,
            "conditions": [condition],
            "containerStatuses": [told | {"ready": ready, "started": ready, "state": state}],
        }
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        path = f"{self._pods}/{pod['metadata']['name']}/status"
        client.patch(path, json={"status": status}, headers=headers)  # unless it is gone meanwhile


def _is_due(pod: Mapping[str, Any]) -> bool:
    """Return whether a node has a pod and KWOK has said that it does not start it."""
    return (
        "deletionTimestamp" not in pod["metadata"]
        and bool(pod["spec"].get("nodeName"))
        and pod["status"].get("phase") == "Pending"
        and bool(pod["status"].get("containerStatuses"))
        and REAL.items() <= pod["metadata"].get("annotations", {}).items()
    )


def _moved(word: str, mounts: Mapping[str, str]) -> str:
    """Return a word of a command with a path below a mount as it is on this machine."""
    for path in sorted(mounts, key=len, reverse=True):
        if word == path or word.startswith(f"{path}/"):
            return mounts[path] + word.removeprefix(path)
    return word


def _end(run: _Run, number: int) -> None:
    """End everything that a pod started; a container has a process tree of its own."""

    def gone() -> bool:
        left = processes_of(run.folder)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        run.process.poll()
        return not left

    wait_until(gone, f"the end of the processes of {run.name}")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
