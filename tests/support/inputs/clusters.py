"""Odd data from a Kubernetes cluster: nodes, pods, Jobs and events of any form, over lists, watches and answers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from aiohttp import web
from hypothesis import strategies as st

from spillover.clusters.kubernetes.api import requests as api
from tests.support.inputs.odd import LongText, Values, mutated, odd_bytes, odd_json, odd_text
from tests.support.inputs.serving import CONFIG, PATIENCE, Broken, LiveServer
from tests.support.inputs.source import Source, with_server

KUBE: Final = "kube"
NAMESPACE: Final = "batch"
SAID: Final = 0.04
"""Seconds in which the server usually reads and handles a message."""
MINE: Final = "$mine"
"""Placeholder for the labels or the name of one of our Jobs, depending on its position."""
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PATHS: Final = {
    "node": "/api/v1/nodes",
    "pod": "/api/v1/pods",
    "job": JOBS,
    "event": f"/api/v1/namespaces/{NAMESPACE}/events",
}

DESCRIBED: Final = f"""
- name: {KUBE}
  kind: kubernetes
  role: owned
  kubernetes:
    {{kubeconfig: DATA/kubeconfig, namespace: {NAMESPACE}, image: x, bind_within: 1s, start_within: 1s, keep: 0s, failed_after: 1s}}
"""

_TIMES: Final = st.sampled_from(
    [
        "2026-11-16T07:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "1969-12-31T23:59:59-12:00",
        "soon",
        "",
    ]
)
_AMOUNTS: Final = st.sampled_from(
    [
        "1",
        "0",
        "-1",
        "1e30",
        "1e-30",
        "9" * 40,
        "999Ei",
        "0.0000001",
        "1m",
        "nan",
        "1e999",
        "1Gi1",
        "²",
        ".",
        "+5k",
    ]
)
_VERSIONS: Final = st.sampled_from(
    ["1", "0", "-1", "²", "٣", LongText("9" * 5000), "99999999999999999999", "abc", ""]
)
_TEXTS: Final = st.one_of(odd_text, _TIMES, _AMOUNTS, _VERSIONS)

_META: Final = {"uid": "u1", "resourceVersion": "50", "creationTimestamp": "2026-11-16T07:00:00Z"}
_NODE: Final = {
    "metadata": {"name": "node-1", "labels": {"zone": "a"}, **_META},
    "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {
            "cpu": "8",
            "memory": "16Gi",
            "pods": "110",
            "nvidia.com/gpu": "2",
            "example.com/fpga": "1",
        },
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T07:00:00Z"}],
    },
}
_POD: Final = {
    "metadata": {"name": MINE, "namespace": NAMESPACE, "labels": MINE, **_META},
    "spec": {
        "nodeName": "node-1",
        "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
    },
    "status": {
        "phase": "Failed",
        "startTime": "2026-11-16T07:00:01Z",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-16T07:00:01Z"}
        ],
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 0,
                "state": {
                    "terminated": {
                        "exitCode": 3,
                        "signal": 0,
                        "reason": "Error",
                        "message": "no",
                        "startedAt": "2026-11-16T07:00:01Z",
                        "finishedAt": "2026-11-16T07:00:02Z",
                    }
                },
            }
        ],
    },
}
_JOB: Final = {
    "metadata": {"name": MINE, "namespace": NAMESPACE, "labels": MINE, **_META},
    "status": {
        "succeeded": 0,
        "failed": 1,
        "startTime": "2026-11-16T07:00:01Z",
        "completionTime": "2026-11-16T07:00:03Z",
        "conditions": [
            {
                "type": "Failed",
                "status": "True",
                "reason": "BackoffLimitExceeded",
                "message": "too often",
                "lastTransitionTime": "2026-11-16T07:00:03Z",
            }
        ],
    },
}
_EVENT: Final = {
    "metadata": {"name": "e1", "namespace": NAMESPACE, **_META},
    "involvedObject": {"kind": "Pod", "name": MINE},
    "reason": "FailedMount",
    "message": "no such volume",
    "firstTimestamp": "2026-11-16T07:00:01Z",
}
_OBJECTS: Final[Mapping[str, Any]] = {"node": _NODE, "pod": _POD, "job": _JOB, "event": _EVENT}


def _utterances() -> Values:
    """A line of a watch, a list, or an answer to the creation or deletion of a Job."""
    kinds = st.sampled_from(sorted(_OBJECTS))
    types = st.one_of(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]), odd_text)
    objects = {kind: mutated(made, _TEXTS) for kind, made in _OBJECTS.items()}
    line = kinds.flatmap(lambda kind: st.tuples(st.just("line"), st.just(kind), types, objects[kind]))
    listed = kinds.flatmap(
        lambda kind: st.tuples(
            st.just("list"),
            st.just(kind),
            st.fixed_dictionaries(
                {
                    "metadata": mutated({"resourceVersion": "60", "continue": ""}, _TEXTS),
                    "items": st.lists(objects[kind], max_size=3),
                }
            ),
        )
    )
    answer = st.tuples(
        st.just("answer"),
        st.sampled_from(["POST", "DELETE", "GET"]),
        st.sampled_from([200, 201, 204, 301, 400, 401, 404, 409, 410, 422, 429, 500, 503]),
        st.one_of(
            odd_json,
            mutated(
                {"kind": "Status", "code": 409, "reason": "X", "message": "no", "details": {"causes": []}},
                odd_json,
            ),
            objects["job"],
        ),
    )
    raw = st.tuples(st.just("raw"), kinds, odd_bytes)
    return st.one_of(line, line, line, listed, listed, answer, raw)


class _Cluster:
    """An API server that has one node and creates every Job, unless a story says otherwise."""

    def __init__(self) -> None:
        self.url = ""
        self.made: list[dict[str, Any]] = []
        self._watches: dict[str, asyncio.Queue[bytes | None]] = {}
        self._lists: dict[str, Any] = {}
        self._answers: dict[str, tuple[int, Any]] = {}
        self._version = 100

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        if "watch" in request.query:
            return await self._watch(request)
        if request.path.endswith("selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}}, status=201)
        said = self._answers.pop(request.method, None)
        if said is not None and not request.query.get("dryRun"):
            return _as_json(said[1], said[0])
        if request.method == "POST":
            return await self._make(request)
        if request.path in PATHS.values() and request.path in self._lists:
            return _as_json(self._lists.pop(request.path))
        if request.path in PATHS.values():
            items = {PATHS["node"]: [{**_NODE, "spec": {}}], JOBS: self.made}.get(request.path, [])
            return _as_json({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        if request.method == "DELETE":
            name = request.path.rpartition("/")[2]
            gone = [job for job in self.made if job["metadata"]["name"] == name]
            self.made = [job for job in self.made if job not in gone]
            for job in gone:
                self.line("job", "DELETED", job)
            return _as_json({})
        return _as_json({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}, 404)

    async def _make(self, request: web.Request) -> web.StreamResponse:
        job = await request.json()
        self._version += 1
        job["metadata"] |= {"uid": f"u{self._version}", "resourceVersion": str(self._version)}
        if not request.query.get("dryRun"):
            self.made.append(job)
        return _as_json(job, 201)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        queue = self._watches[request.path] = asyncio.Queue()
        with contextlib.suppress(ConnectionError):
            while (line := await queue.get()) is not None:
                await stream.write(line + b"\n")
        return stream

    def line(self, kind: str, change: Any, thing: Any) -> None:
        """Send a change over a watch."""
        self.raw(kind, _encoded({"type": change, "object": thing}))

    def raw(self, kind: str, line: bytes | None) -> None:
        """Send bytes over a watch, or end it."""
        if (queue := self._watches.get(PATHS[kind])) is not None:
            queue.put_nowait(line)

    def say(self, utterance: Sequence[Any]) -> None:
        """Send one item of a story."""
        match utterance:
            case ("line", kind, change, thing):
                self.line(kind, change, self._meant(thing))
            case ("raw", kind, data):
                self.raw(kind, bytes(data).replace(b"\n", b" "))
            case ("list", kind, page):
                self._lists[PATHS[kind]] = self._meant(page)
                self.line(kind, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
                self.raw(kind, None)
            case ("answer", method, status, body):
                self._answers[method] = (status, self._meant(body))

    def be_well(self) -> None:
        """Stop sending odd data, and make clients list everything again."""
        self._lists.clear()
        self._answers.clear()
        self._version += 10**6
        for kind in PATHS:
            self.line(kind, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
            self.raw(kind, None)

    def _meant(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._meant(part, key) for key, part in value.items()}
        if isinstance(value, list):
            return [self._meant(part) for part in value]
        if value == MINE and isinstance(value, str):
            meta = self.made[0]["metadata"] if self.made else {"name": "none", "labels": {}}
            return meta["labels"] if name == "labels" else meta["name"]
        return value


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _as_json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=_encoded(value), status=status, content_type="application/json")


@asynccontextmanager
async def _cluster() -> AsyncIterator[_Cluster]:
    made = _Cluster()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }


async def _play(story: Sequence[Sequence[Any]], cluster: _Cluster, server: LiveServer) -> None:
    job = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", "where": {"cluster": [KUBE]}}}
    async with (
        server.session() as session,
        session.post(f"{server.url}/v1/jobs", json={"jobs": [job, job]}) as reply,
    ):
        server.jobs += (await reply.json())["jobs"]
    async with asyncio.timeout(PATIENCE):
        while not cluster.made:
            server.alive()
            await asyncio.sleep(0.005)
    for utterance in story:
        cluster.say(utterance)
        await asyncio.sleep(SAID)
        await server.check()
    cluster.be_well()
    await _recovers(server)


async def _recovers(server: LiveServer) -> None:
    """Raise Broken unless the server uses the cluster again after its data make sense again."""
    health = None
    try:
        async with server.session() as session, asyncio.timeout(PATIENCE):
            while health != "READY":
                async with session.get(f"{server.url}/v1/clusters") as reply:
                    views = {view["name"]: view for view in await reply.json()}
                health = views[KUBE]["state"]
                server.alive()
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise Broken(f"a cluster that makes sense again is {health}") from None


async def play(story: Sequence[Sequence[Any]]) -> None:
    """See Source."""
    with patch.object(api, "PAUSE", 0.01), patch.object(api, "LONGEST_PAUSE", 0.2):
        async with _cluster() as cluster:
            server = LiveServer(CONFIG + DESCRIBED)
            (server.data / "kubeconfig").write_text(json.dumps(_kubeconfig(cluster.url)))
            await with_server(partial(_play, story, cluster), server)


CLUSTERS: Final = Source("clusters", st.lists(_utterances(), min_size=1, max_size=8), play)
