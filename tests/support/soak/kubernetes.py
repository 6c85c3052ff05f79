"""Simulates a Kubernetes API server in a thread: stores Jobs, runs a pod for each, and serves watches."""

import asyncio
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import yaml
from aiohttp import web

NAMESPACE: Final = "batch"
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES: Final = 2
REMEMBERED: Final = 5_000
"""Changes from which a watch can resume."""
SICKNESS: Final = "the soak says that it cannot answer now"
Object: TypeAlias = dict[str, Any]


class Change(NamedTuple):
    """A change of an object."""

    version: int
    kind: str
    """`nodes`, `pods` or `jobs`."""
    type: str
    line: bytes
    labels: dict[str, str]


class PlayedKubernetes:
    """All objects of a cluster, and the watches on them."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, dict[str, Object]] = {"nodes": {}, "pods": {}, "jobs": {}}
        self.refused = 0
        """Number of refused requests while sick."""
        self.sick = False
        """While true, it answers every request with 503."""
        self._changes: deque[Change] = deque(maxlen=REMEMBERED)
        self._news = asyncio.Event()
        self._lives: set[asyncio.Task[None]] = set()
        for number in range(NODES):
            self._put("nodes", _node(f"node-{number}"))

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.sick:
            self.refused += 1
            return _status(503, SICKNESS)
        path = request.path
        if path.endswith("/selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}}, status=201)
        if path.endswith("/log"):
            name = path.split("/")[-2]
            return web.Response(text=f"{name} was here\n") if name in self.objects["pods"] else _status(404)
        kind = path.rpartition("/")[2]
        if request.method == "POST":
            return await self._make(request)
        if request.method == "DELETE":
            return self._delete(*path.split("/")[-2:])
        if kind in {"nodes", "pods", "jobs", "events"}:
            if "watch" in request.query:
                return await self._watch(kind, request)
            return self._list(kind, _wanted(request))
        found = self.objects[path.split("/")[-2]].get(kind)
        return _status(404) if found is None else web.json_response(found)

    def _list(self, kind: str, wanted: dict[str, str]) -> web.Response:
        items = [each for each in self.objects.get(kind, {}).values() if _has(each["metadata"], wanted)]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, kind: str, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        seen, wanted = int(request.query.get("resourceVersion") or 0), _wanted(request)
        until = asyncio.get_running_loop().time() + float(request.query.get("timeoutSeconds", "60"))
        while (left := until - asyncio.get_running_loop().time()) > 0 and not self.sick:
            news = self._news
            lines = [
                each.line
                for each in self._changes
                if each.version > seen and each.kind == kind and _has({"labels": each.labels}, wanted)
            ]
            seen = self.version
            with suppress(ConnectionError):  # the watcher is gone; the loop notices next
                await stream.write(b"".join(lines))
            if request.transport is None or request.transport.is_closing():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, 10)):
                    await news.wait()
        return stream

    async def _make(self, request: web.Request) -> web.Response:
        job: Object = await request.json()
        if "dryRun" in request.query:
            return web.json_response(job, status=201)
        name = job["metadata"]["name"]
        if name in self.objects["jobs"]:
            return _status(409, f"jobs.batch {name!r} already exists")
        job["metadata"] |= {"uid": f"uid-{name}-{self.version}", "creationTimestamp": _now()}
        job["status"] = {}
        self._put("jobs", job)
        life = asyncio.ensure_future(self._live(job))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return web.json_response(job, status=201)

    def _delete(self, kind: str, name: str) -> web.Response:
        if name not in self.objects[kind]:
            return _status(404)
        self._drop(kind, name)
        if kind == "jobs":
            self._drop("pods", f"{name}-x")
        return web.json_response({"status": "Success"})

    async def _live(self, job: Object) -> None:
        """Run a Job: a pod that is bound, runs for a while and ends."""
        name, template = job["metadata"]["name"], job["spec"]["template"]
        pod: Object = {
            "metadata": {
                "name": f"{name}-x",
                "namespace": NAMESPACE,
                "uid": f"pod-{job['metadata']['uid']}",
                "labels": template["metadata"]["labels"],
                "creationTimestamp": _now(),
            },
            "spec": dict(template["spec"]),
            "status": {"phase": "Pending"},
        }
        seconds, code = _script(template["spec"])
        steps: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.02, lambda: None),
            (0.05, lambda: _bind(pod, f"node-{self.version % NODES}")),
            (0.05, lambda: _run(pod)),
            (seconds, lambda: _end(pod, job, code)),
        )
        for pause, change in steps:
            await asyncio.sleep(pause)
            if name not in self.objects["jobs"]:
                return
            change()
            self._put("pods", pod)
        self._put("jobs", job)

    def _put(self, kind: str, thing: Object) -> None:
        name = thing["metadata"]["name"]
        self._change(kind, "MODIFIED" if name in self.objects[kind] else "ADDED", thing)
        self.objects[kind][name] = thing

    def _drop(self, kind: str, name: str) -> None:
        if (thing := self.objects[kind].pop(name, None)) is not None:
            self._change(kind, "DELETED", thing)

    def _change(self, kind: str, what: str, thing: Object) -> None:
        self.version += 1
        thing["metadata"]["resourceVersion"] = str(self.version)
        line = json.dumps({"type": what, "object": thing}, separators=(",", ":")).encode() + b"\n"
        labels = dict(thing["metadata"].get("labels", {}))
        self._changes.append(Change(self.version, kind, what, line, labels))
        self._news.set()
        self._news = asyncio.Event()


@contextmanager
def played(kubeconfig: Path) -> Iterator[PlayedKubernetes]:
    """Serve a cluster on loopback while the block runs, with a kubeconfig for it."""
    ready = threading.Event()
    made: list[tuple[PlayedKubernetes, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        cluster, stop = PlayedKubernetes(), asyncio.Event()
        runner = web.AppRunner(cluster.app(), shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        _write(kubeconfig, f"http://127.0.0.1:{runner.addresses[0][1]}")
        made.append((cluster, asyncio.get_running_loop(), stop))
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait(10)
    cluster, loop, stop = made[0]
    try:
        yield cluster
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def _write(path: Path, url: str) -> None:
    named = {"cluster": "played", "user": "played", "namespace": NAMESPACE}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "played",
        "clusters": [{"name": "played", "cluster": {"server": url}}],
        "users": [{"name": "played", "user": {"token": "a-token-for-tests"}}],
        "contexts": [{"name": "played", "context": named}],
    }
    path.write_text(yaml.safe_dump(document))


def _node(name: str) -> Object:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "50"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _now()}],
        },
    }


def _bind(pod: Object, node: str) -> None:
    pod["spec"]["nodeName"] = node
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": _now()}]


def _run(pod: Object) -> None:
    pod["status"] |= {"phase": "Running", "startTime": _now()}
    pod["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {"startedAt": _now()}}}]


def _end(pod: Object, job: Object, code: int) -> None:
    began = pod["status"]["startTime"]
    reason = "Completed" if code == 0 else "Error"
    over = {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": _now()}
    pod["status"] |= {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{"name": "main", "state": {"terminated": over}}],
    }
    what = "Complete" if code == 0 else "Failed"
    condition = {"type": what, "status": "True", "lastTransitionTime": _now()}
    count = {"succeeded": 1, "completionTime": _now()} if code == 0 else {"failed": 1}
    job["status"] = {"startTime": began, "conditions": [condition], **count}


def _script(pod: Object) -> tuple[float, int]:
    """Return the runtime and the exit code of a pod, from a command such as `sleep 0.5; exit 3`."""
    line = pod["containers"][0]["command"][-1]
    seconds, code = re.search(r"sleep ([\d.]+)", line), re.search(r"exit (\d+)", line)
    return float(seconds[1]) if seconds else 0.05, int(code[1]) if code else 0


def _wanted(request: web.Request) -> dict[str, str]:
    selector = request.query.get("labelSelector", "")
    return dict([selector.split("=", 1)]) if selector else {}


def _has(metadata: Object, wanted: dict[str, str]) -> bool:
    labels = metadata.get("labels", {})
    return all(labels.get(name) == value for name, value in wanted.items())


def _status(code: int, message: str = "not found") -> web.Response:
    return web.json_response(
        {"kind": "Status", "code": code, "message": message, "reason": "Soak"}, status=code
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
