"""Odd requests of clients: every route of the HTTP API with any body and query, job files, and gRPC calls."""

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import grpc
import yarl
from hypothesis import strategies as st

from spillover.api.grpc.jobs import SERVICE
from spillover.wire import jobs_pb2 as pb
from spillover.wire.endpoints import ENDPOINTS
from tests.support.inputs.odd import Values, fields_of, filled, mutated, odd_bytes, odd_json, odd_text
from tests.support.inputs.serving import NOISY, PATIENCE, QUIET, Broken, LiveServer
from tests.support.inputs.source import Source, with_server

JOB: Final = "$job"
"""Placeholder for the id of an existing job."""
LIMIT: Final = 0.1
"""Seconds after which to cancel a call that waits for something."""
_DOCUMENT: Final[Mapping[str, Any]] = {
    "apiVersion": "spillover/v1",
    "kind": "Job",
    "metadata": {"name": "train", "project": "default", "labels": {"a": "b"}},
    "spec": {
        "run": "true",
        "env": {"A": "1"},
        "workdir": "/tmp",
        "resources": {"cpu": 1, "memory": "1Gi", "gpu": 0},
        "tasks": 1,
        "array": "1-3",
        "after": [JOB],
        "walltime": "1h",
        "estimate": "10m",
        "grace": "5s",
        "lost_after": "5m",
        "deadline": "2030-01-01T00:00:00Z",
        "not_before": "2026-01-01T00:00:00Z",
        "priority": 5,
        "needs": ["word"],
        "retry": {"exit": 1, "lost": 1},
        "burst": "auto",
        "max_cost": 10,
        "where": {"cluster": [NOISY], "region": ["x"], "labels": {"a": "b"}, "avoid": [QUIET]},
        "key": "once",
        "queue": "main",
        "outputs": ["out/*.txt"],
        "inputs": [{"path": "in", "digest": "0" * 64, "size": 1}],
        "data": "1Gi",
        "on_cluster_failure": "wait",
    },
}
_MANIFEST: Final[Mapping[str, Any]] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "pi", "annotations": {"spillover.dev/estimate": "5m"}},
    "spec": {
        "parallelism": 1,
        "completions": 1,
        "activeDeadlineSeconds": 60,
        "template": {
            "metadata": {"labels": {"app": "pi"}},
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "busybox",
                        "command": ["true"],
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                    }
                ],
                "nodeSelector": {"zone": "a"},
                "restartPolicy": "Never",
            },
        },
    },
}
_BODIES: Final[Mapping[str, Any]] = {
    "/v1/jobs": _DOCUMENT,
    "/v1/forecast": _DOCUMENT,
    "/v1/jobs/{job}": {"priority": 5},
    "/v1/jobs/{job}/results": {"first": 0, "limit": 10},
    "/v1/results": {"jobs": [JOB], "limit": 10},
    "/v1/actions": {"act": "cancel", "jobs": [JOB]},
    "/v1/policy": {"policy": "wait=constant(1h)", "dry_run": True},
    "/v1/blobs/missing": {"digests": ["0" * 64]},
    "/v1/clusters": {"cluster": {"name": "lab", "kind": "agents", "labels": {"a": "b"}}, "check": False},
    "/v1/clusters/actions": {"act": "drain", "clusters": ["lab"], "jobs": "move"},
    "/v1/config": {"dry_run": True, "jobs": "finish"},
    "/v1/agents/actions": {"act": "drain", "agents": ["n1"]},
    "/v1/tokens": {"name": "a-token", "role": "submit", "project": "default"},
    "/v1/tokens/revoke": {"id": "none"},
    "/v1/secrets": {"name": "a", "project": "default", "value": "v", "users": ["ada"]},
    "/v1/secrets/remove": {"name": "a", "project": "default"},
    "/v1/notifications/actions": {"act": "drop", "ids": ["a"]},
    "/v1/notifications/test": {"to": "a@b.c"},
}
_METHODS: Final[Mapping[str, Any]] = {
    "SubmitJob": pb.SubmitJobRequest,
    "GetJobStatus": pb.GetJobStatusRequest,
    "CancelJob": pb.CancelJobRequest,
    "WatchJobs": pb.WatchJobsRequest,
}
_FAILED: Final = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
_names = st.one_of(st.just(JOB), odd_text)
_SPECIAL: Final = {
    "GetJobStatusRequest.jobs": st.lists(_names, max_size=3),
    "CancelJobRequest.jobs": st.lists(_names, max_size=3),
    "WatchJobsRequest.jobs": st.lists(_names, max_size=3),
    "NewJob.document": st.one_of(mutated(_DOCUMENT).map(json.dumps), odd_text),
    "Job.after": st.lists(_names, max_size=2),
}


def _requests() -> Values:
    """A request: HTTP with method, path, query and body, or gRPC with method and fields."""
    routes = st.sampled_from([(endpoint.method, endpoint.path) for endpoint in ENDPOINTS])
    words = st.sampled_from(sorted({name for endpoint in ENDPOINTS for name in endpoint.in_query}))
    query = st.dictionaries(st.one_of(words, odd_text), odd_text, max_size=3)
    http = routes.flatmap(
        lambda route: st.tuples(
            st.just("http"), st.just(route[0]), st.just(route[1]), _names, query, _body(route[1])
        )
    )
    submitted = st.one_of(
        mutated(_DOCUMENT), mutated(_MANIFEST), st.lists(mutated(_DOCUMENT), max_size=3)
    ).flatmap(
        lambda body: st.tuples(
            st.just("http"), st.just("POST"), st.just("/v1/jobs"), st.just(""), st.just({}), st.just(body)
        )
    )
    called = st.sampled_from(sorted(_METHODS)).flatmap(
        lambda method: st.tuples(
            st.just("grpc"), st.just(method), fields_of(_METHODS[method].DESCRIPTOR, _SPECIAL)
        )
    )
    return st.one_of(http, http, submitted, submitted, called)


def _body(path: str) -> Values:
    usual = _BODIES.get(path)
    return (
        st.one_of(odd_bytes, odd_json)
        if usual is None
        else st.one_of(mutated(usual), mutated(usual), odd_bytes)
    )


class _Asker:
    """A client that may send anything."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        self._channel = grpc.aio.insecure_channel(server.grpc)

    async def begin(self) -> None:
        """Submit a job."""
        await self._http(
            "POST", "/v1/jobs", "", {}, {**_DOCUMENT, "spec": {"run": "true", "needs": ["word"]}}
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(None)

    async def ask(self, request: Sequence[Any]) -> None:
        """Send one request; raise Broken if the answer shows that a handler failed."""
        match request:
            case ("http", method, path, name, query, body):
                await self._http(method, path, name, query, body)
            case ("grpc", method, fields):
                await self._grpc(method, fields)

    async def _http(self, method: str, path: str, name: str, query: Mapping[str, str], body: Any) -> None:
        stands = quote(self._meant(name), safe="", errors="replace")
        said = "&".join(
            f"{quote(key, errors='replace')}={quote(value, errors='replace')}" for key, value in query.items()
        )
        where = re.sub(r"{\w+}", lambda _: stands, path)
        url = yarl.URL(f"{self._server.url}{where}?{said}", encoded=True)
        data = bytes(body) if isinstance(body, bytes) else json.dumps(self._meant(body)).encode()
        headers = {"Content-Type": "application/json"}
        async with self._server.session() as session:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIMIT if _waits(path, query) else PATIENCE):
                    async with session.request(method, url, data=data, headers=headers) as reply:
                        said_back = await reply.read()
                        if reply.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                            raise Broken(f"{method} {path} is answered {reply.status}: {said_back[:300]!r}")
                        if method == "POST" and path == "/v1/jobs" and reply.status == HTTPStatus.CREATED:
                            self._server.jobs += json.loads(said_back)["jobs"][:3]
                    return
            if not _waits(path, query):
                raise Broken(f"{method} {path} is not answered")

    async def _grpc(self, method: str, fields: Mapping[str, Any]) -> None:
        metadata = (("authorization", f"Bearer {self._server.token}"),)
        request = filled(_METHODS[method](), self._meant(fields))
        path = f"/{SERVICE}/{method}"
        try:
            async with asyncio.timeout(LIMIT if method == "WatchJobs" else PATIENCE):
                if method == "WatchJobs":
                    async for _ in self._channel.unary_stream(path, _bytes_of, None)(
                        request, metadata=metadata
                    ):
                        pass
                else:
                    await self._channel.unary_unary(path, _bytes_of, None)(request, metadata=metadata)
        except TimeoutError:
            if method != "WatchJobs":
                raise Broken(f"{method} is not answered") from None
        except grpc.aio.AioRpcError as error:
            if error.code() in _FAILED:
                raise Broken(f"{method} is answered {error.code().name}: {error.details()}") from error

    def _meant(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._meant(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self._meant(part) for part in value]
        if value == JOB and isinstance(value, str):
            return self._server.jobs[0] if self._server.jobs else "none"
        return value


def _waits(path: str, query: Mapping[str, str]) -> bool:
    """Tell whether a request may wait until something happens."""
    return path.endswith("/wait") or "follow" in query


def _bytes_of(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def _play(story: Sequence[Sequence[Any]], server: LiveServer) -> None:
    asker = _Asker(server)
    try:
        await asker.begin()
        for request in story:
            await asker.ask(request)
            server.jobs = server.jobs[-4:]
            await server.check()
    finally:
        await asker.close()


async def play(story: Sequence[Sequence[Any]]) -> None:
    """See Source."""
    await with_server(partial(_play, story), LiveServer())


REQUESTS: Final = Source("requests", st.lists(_requests(), min_size=1, max_size=8), play)
