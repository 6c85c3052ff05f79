"""A driver and an API server that answers badly, late or not at all: what was made is known, and nothing is taken for gone."""

import asyncio
import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web

from spillover.clusters.kubernetes import driver
from spillover.clusters.kubernetes.api import requests as api
from spillover.clusters.kubernetes.api import watching
from spillover.clusters.kubernetes.api.kubeconfig import Access, User
from spillover.clusters.kubernetes.attempts import logs
from spillover.clusters.kubernetes.attempts.jobs import job_of
from spillover.clusters.kubernetes.attempts.naming import EPOCH, name_of
from spillover.clusters.kubernetes.driver import Kubernetes
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.core.events import Lease
from spillover.model.ids import ClusterName
from spillover.model.job import JobSpec, Shape, Shell
from spillover.model.resources import Resources
from spillover.ports.cluster import OutputGone, Start
from spillover.ports.driver import Changes, DriverError, DriverLink, Made
from spillover.server.certificates import make_certificates
from tests.support.kubernetes import LEASE, NAMESPACE, OWNER, Leading

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
OPTIONS = KubernetesOptions(cluster=ClusterName("onprem"), owner=OWNER, namespace=NAMESPACE, image="x")
START = Start(LEASE, JobSpec(Shell("true"), "n", "p", "q", Shape(Resources(100))), OPTIONS.cluster)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refusal(code: int, message: str = "no", **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "message": message, "reason": "X"}
    return web.json_response(
        body, status=code, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def a_job(version: int = 7, **changes: Any) -> dict[str, Any]:
    """A Job as the server has it."""
    made = job_of(START, OPTIONS, NAMESPACE, 3)
    made["metadata"] |= {"uid": "u1", "resourceVersion": str(version)} | changes
    return made


class Scripted:
    """An API server that keeps nothing: it does for each question what it was told to, and then what is usual."""

    def __init__(self) -> None:
        self.script: list[tuple[str, str, Handler]] = []
        self.asked: Counter[str] = Counter()
        self.jobs: list[dict[str, Any]] = []
        self.version = 5
        self.watches: dict[str, list[web.StreamResponse]] = {}
        self.ends: dict[str, asyncio.Event] = {}
        """Set, the newest watch ends."""
        self.url = ""
        self.deleted: list[dict[str, Any]] = []
        self.noticed: Callable[[], None] = lambda: None
        """Called when something was asked."""

    def then(self, method: str, path: str, *handlers: Handler) -> None:
        """Have the next questions of a kind answered so."""
        self.script += [(method, path, handler) for handler in handlers]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = "WATCH" if "watch" in request.query else request.method
        self.asked[f"{kind} {request.path}"] += 1
        self.noticed()
        for at, (method, path, handler) in enumerate(self.script):
            if (method, path) == (kind, request.path):
                del self.script[at]
                return await handler(request)
        return await self._usual(kind, request)

    async def _usual(self, kind: str, request: web.Request) -> web.StreamResponse:
        if kind == "WATCH":
            stream = await self.begin(request)
            self.watches.setdefault(request.path, []).append(stream)
            self.noticed()
            self.ends[request.path] = asyncio.Event()
            await self.ends[request.path].wait()
            return stream
        if kind == "POST":
            return web.json_response(a_job(self.version + 1), status=201)
        if kind == "DELETE":
            self.deleted.append(await request.json())
            return web.json_response({})
        if request.path.startswith(JOBS + "/"):
            return web.json_response(self.jobs[0]) if self.jobs else refusal(404)
        items = self.jobs if request.path == JOBS else []
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def begin(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        return stream

    async def say(self, path: str, *changes: tuple[str, dict[str, Any]]) -> None:
        """Have something heard over the newest watch."""
        for kind, thing in changes:
            line = json.dumps({"type": kind, "object": thing}, separators=(",", ":"))
            await self.watches[path][-1].write(line.encode() + b"\n")


async def broken(request: web.Request) -> web.StreamResponse:
    """The connection goes before anything is said."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def unreadable(_: web.Request) -> web.StreamResponse:
    """Something that stands in between answers in its own way, and says that all is well."""
    return web.Response(text="<html>Please sign in</html>")


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


def says(code: int, message: str = "no", **headers: str) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return refusal(code, message, **headers)

    return answer


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    await runner.cleanup()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No longer pauses than a test needs."""
    monkeypatch.setattr(api, "PAUSE", 0.01)


@pytest.fixture
async def lead() -> Leading:
    return Leading()


@pytest.fixture
async def cluster(server: Scripted, lead: Leading) -> AsyncIterator[Kubernetes]:
    made = Kubernetes(OPTIONS, Access(server.url, User(token="t"), origin="the test"), lead)
    yield made
    await made.close()


class Running:
    """A driver that watches, with what it told last."""

    def __init__(self, cluster: Kubernetes, server: Scripted) -> None:
        self.cluster = cluster
        self.server = server
        self.told: list[Changes] = []
        self._news = asyncio.Event()
        server.noticed = self._news.set

    def hear(self) -> None:
        changes = self.cluster.take()
        if changes != Changes(whole=False):
            self.told.append(changes)
        self._news.set()

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await self._news.wait()
                self._news.clear()

    @property
    def leases(self) -> list[Lease]:
        return [seen.lease for changes in self.told for seen in changes.attempts]


@pytest.fixture
async def running(cluster: Kubernetes, server: Scripted) -> AsyncIterator[Running]:
    made = Running(cluster, server)
    task = asyncio.create_task(cluster.run(made.hear))
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def up(running: Running) -> None:
    """Wait until all is listed and watched."""
    await running.until(
        lambda: len(running.server.watches) >= 3 and running.cluster.connection().link is DriverLink.UP
    )


# --- making


async def test_too_many_requests_are_asked_again_when_the_server_says(
    server: Scripted, cluster: Kubernetes
) -> None:
    server.then("POST", JOBS, says(429, "too many", Retry_After="0"), says(429, "too many", Retry_After="0"))
    assert (await cluster.start(START)).made is Made.MADE
    assert server.asked[f"POST {JOBS}"] == 3


async def test_a_server_that_has_no_time_does_not_take_it_now(server: Scripted, cluster: Kubernetes) -> None:
    server.then("POST", JOBS, *[says(429, "too many")] * 10)
    answer = await cluster.start(START)
    assert (answer.made, answer.message) == (Made.NOT_NOW, "too many")


@pytest.mark.parametrize(
    "fault", [broken, says(500, "etcdserver: request timed out"), says(503, "shutting down")]
)
async def test_what_was_not_answered_is_asked_again_and_found(
    server: Scripted, cluster: Kubernetes, fault: Handler
) -> None:
    server.jobs = [a_job()]
    server.then("POST", JOBS, fault, says(409, "already exists"))
    assert (await cluster.start(START)).made is Made.MADE
    assert server.asked[f"GET {JOBS}/{name_of(LEASE)}"] == 1


@pytest.mark.parametrize("fault", [broken, says(500, "broken")])
async def test_what_is_never_answered_may_have_been_made(
    server: Scripted, cluster: Kubernetes, fault: Handler
) -> None:
    server.then("POST", JOBS, *[fault] * 10)
    assert (await cluster.start(START)).made is Made.UNKNOWN
    server.script.clear()
    server.then("POST", JOBS, fault, says(429, "too many"), says(401, "who?"), says(401, "who?"))
    assert (await cluster.start(START)).made is Made.UNKNOWN  # as the first may have been taken


async def test_an_answer_that_cannot_be_read_leaves_open_what_was_made(
    server: Scripted, cluster: Kubernetes
) -> None:
    server.then("POST", JOBS, unreadable)
    assert (await cluster.start(START)).made is Made.MADE
    server.then("POST", JOBS, *[unreadable] * api.TRIES)
    answer = await cluster.start(START)
    assert answer.made is Made.UNKNOWN
    assert "did not answer like a Kubernetes API server" in answer.message
    server.then("POST", JOBS, says(409))
    server.then("GET", f"{JOBS}/{name_of(LEASE)}", unreadable)
    assert (await cluster.start(START)).made is Made.UNKNOWN


async def test_a_server_that_does_not_answer_in_time_may_have_made_it(
    server: Scripted, cluster: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "ANSWER", 0.2)
    monkeypatch.setattr(driver, "SLOW", 0.1)
    server.then("POST", JOBS, silent)
    answer = await cluster.start(START)
    assert answer.made is Made.UNKNOWN
    assert "does not answer in time" in answer.message
    assert server.asked[f"POST {JOBS}"] == 1


@pytest.mark.parametrize(
    ("code", "message", "made"),
    [
        (422, "spec is invalid", Made.REFUSED),
        (400, "cannot decode", Made.REFUSED),
        (403, 'admission webhook "x" denied the request: no', Made.REFUSED),
        (403, "jobs.batch is forbidden: exceeded quota: q", Made.NOT_NOW),
        (403, 'User "x" cannot create resource "jobs" in API group "batch"', Made.NOT_NOW),
        (404, 'namespaces "batch" not found', Made.NOT_NOW),
        (401, "Unauthorized", Made.NOT_NOW),
    ],
)
async def test_what_is_refused_is_told_from_what_may_be_taken_later(
    server: Scripted, cluster: Kubernetes, code: int, message: str, made: Made
) -> None:
    server.then("POST", JOBS, *[says(code, message)] * 2)
    answer = await cluster.start(START)
    assert answer.made is made
    assert message in answer.message or code == 401


@pytest.mark.parametrize("code", [422, 500])
async def test_a_refusal_is_told_in_so_many_words_and_no_more(
    server: Scripted, cluster: Kubernetes, code: int
) -> None:
    """A Job is shown whole by an API server that does not take it."""
    server.then("POST", JOBS, *[says(code, "spec: Invalid value: " + "x" * 100_000)] * api.TRIES)
    message = (await cluster.start(START)).message
    assert "spec: Invalid value: xxx" in message
    assert len(message) < 2100


async def test_a_job_that_is_none_of_ours_is_not_taken_for_ours(
    server: Scripted, cluster: Kubernetes
) -> None:
    server.jobs = [a_job(labels={"app": "other"})]
    server.then("POST", JOBS, says(409))
    answer = await cluster.start(START)
    assert answer.made is Made.REFUSED
    assert "that this server did not create" in answer.message
    await cluster.stop(LEASE, 0)
    assert server.deleted == []


async def test_a_job_that_is_there_and_may_not_be_looked_at_may_be_ours(
    server: Scripted, cluster: Kubernetes
) -> None:
    """An API server that was just started may know a token before it knows what that may do."""
    path = f"{JOBS}/{name_of(LEASE)}"
    server.then("POST", JOBS, says(409))
    server.then("GET", path, says(403, 'User "u" cannot get resource "jobs" in API group "batch"'))
    assert (await cluster.start(START)).made is Made.UNKNOWN
    server.then("POST", JOBS, says(409))
    server.then("GET", path, says(404))
    assert (await cluster.start(START)).made is Made.NOT_NOW


async def test_a_job_that_is_being_deleted_does_not_count_as_made(
    server: Scripted, cluster: Kubernetes
) -> None:
    server.jobs = [a_job(deletionTimestamp="2027-01-31T12:00:00Z")]
    server.then("POST", JOBS, says(409))
    assert (await cluster.start(START)).made is Made.NOT_NOW


@pytest.mark.parametrize("there", [False, True])
async def test_what_was_not_answered_may_be_made_yet_also_if_it_is_not_there_or_not_any_more(
    server: Scripted, cluster: Kubernetes, there: bool
) -> None:
    """Something that stands in between may go on with what it was given after its client has hung up."""
    server.jobs = [a_job(deletionTimestamp="2027-01-31T12:00:00Z")] if there else []
    server.then("POST", JOBS, broken, says(409, "try again"))
    assert (await cluster.start(START)).made is Made.UNKNOWN


async def test_a_new_token_is_shown_when_the_old_one_is_refused(server: Scripted, tmp_path: Any) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    shown: list[str] = []

    async def picky(request: web.Request) -> web.StreamResponse:
        shown.append(request.headers["Authorization"])
        path.write_text("new")
        return refusal(401)

    async def content(request: web.Request) -> web.StreamResponse:
        shown.append(request.headers["Authorization"])
        return web.json_response(a_job(), status=201)

    server.then("POST", JOBS, picky, content)
    cluster = Kubernetes(OPTIONS, Access(server.url, User(token=path)), Leading())
    try:
        assert (await cluster.start(START)).made is Made.MADE
    finally:
        await cluster.close()
    assert shown == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("token", ["to\nken", "to\rken", "tok\0en", "tokén"])
async def test_a_token_that_is_none_is_told_and_not_shown(server: Scripted, token: str) -> None:
    cluster = Kubernetes(OPTIONS, Access(server.url, User(token=token), origin="the test"), Leading())
    try:
        (line,) = await cluster.check()
        answer = await cluster.start(START)
    finally:
        await cluster.close()
    assert line == "the token of the test has invalid characters"
    assert answer.made is Made.UNSENT


# --- deleting


async def test_a_job_is_deleted_only_as_the_one_that_it_was(server: Scripted, cluster: Kubernetes) -> None:
    server.jobs = [a_job()]
    server.then("DELETE", f"{JOBS}/{name_of(LEASE)}", says(500), broken)
    await cluster.stop(LEASE, 0)
    (how,) = server.deleted
    assert (how["propagationPolicy"], how["preconditions"]) == ("Foreground", {"uid": "u1"})


async def test_a_server_deletes_nothing_that_a_later_one_made(
    server: Scripted, cluster: Kubernetes, lead: Leading
) -> None:
    server.jobs = [a_job()]
    lead.epoch = 2
    with pytest.raises(DriverError, match="was created by a server of epoch 3, and this one has epoch 2"):
        await cluster.stop(LEASE, 0)
    assert not server.deleted
    for epoch in (3, 4):
        lead.epoch = epoch
        await cluster.stop(LEASE, 0)
    assert len(server.deleted) == 2


async def test_what_an_older_version_made_says_no_epoch_and_is_deleted(
    server: Scripted, cluster: Kubernetes
) -> None:
    server.jobs = [a_job()]
    del server.jobs[0]["metadata"]["labels"][EPOCH]
    await cluster.stop(LEASE, 0)
    assert len(server.deleted) == 1


async def test_a_server_whose_lead_ends_while_it_tries_again_makes_and_deletes_nothing(
    server: Scripted, cluster: Kubernetes, lead: Leading
) -> None:
    async def too_late(_: web.Request) -> web.StreamResponse:
        lead.surely = False
        return refusal(500)

    server.jobs = [a_job()]
    server.then("DELETE", f"{JOBS}/{name_of(LEASE)}", too_late)
    with pytest.raises(DriverError, match="may no longer be the leader"):
        await cluster.stop(LEASE, 0)
    assert not server.deleted
    assert (await cluster.start(START)).made is Made.UNSENT
    assert not server.asked[f"POST {JOBS}"]


@pytest.mark.parametrize("code", [404, 409])
async def test_what_is_gone_already_is_no_trouble(server: Scripted, cluster: Kubernetes, code: int) -> None:
    server.jobs = [a_job()]
    server.then("DELETE", f"{JOBS}/{name_of(LEASE)}", says(code))
    await cluster.stop(LEASE, 0)


async def test_what_cannot_be_read_is_no_reason_to_think_that_nothing_is_there(
    server: Scripted, cluster: Kubernetes
) -> None:
    server.then("GET", f"{JOBS}/{name_of(LEASE)}", unreadable)
    with pytest.raises(DriverError, match="did not answer like a Kubernetes API server"):
        await cluster.stop(LEASE, 0)


async def test_what_is_no_kubernetes_is_told_in_one_line(server: Scripted, cluster: Kubernetes) -> None:
    server.then("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", unreadable)
    (line,) = await cluster.check()
    assert line.startswith(f"{server.url} did not answer like a Kubernetes API server")


async def test_what_could_not_be_deleted_is_told(server: Scripted, cluster: Kubernetes) -> None:
    server.jobs = [a_job()]
    server.then("DELETE", f"{JOBS}/{name_of(LEASE)}", says(403, "may not"))
    with pytest.raises(DriverError, match="may not"):
        await cluster.stop(LEASE, 0)


# --- watching


async def test_a_job_that_was_made_is_seen_before_the_watch_tells(server: Scripted, running: Running) -> None:
    await up(running)
    await running.cluster.start(START)
    assert running.leases == [LEASE]


async def test_a_watch_that_breaks_goes_on_where_it_was(server: Scripted, running: Running) -> None:
    await up(running)
    await server.say(JOBS, ("ADDED", a_job(9)))
    await running.until(lambda: running.leases)
    versions: list[str] = []

    async def again(request: web.Request) -> web.StreamResponse:
        versions.append(request.query["resourceVersion"])
        return await server._usual("WATCH", request)

    server.then("WATCH", JOBS, again)
    await server.watches[JOBS][-1].write(b'{"type":"MODI')  # and no more
    server.watches[JOBS][-1]._req.transport.abort()  # type: ignore[union-attr]
    await running.until(lambda: versions and running.cluster.connection().link is DriverLink.UP)
    assert versions == ["9"]
    assert server.asked[f"GET {JOBS}"] == 1
    assert not any(changes.gone for changes in running.told)


async def test_a_bookmark_says_from_where_to_go_on(server: Scripted, running: Running) -> None:
    await up(running)
    versions: list[str] = []

    async def again(request: web.Request) -> web.StreamResponse:
        versions.append(request.query["resourceVersion"])
        return await server._usual("WATCH", request)

    server.then("WATCH", JOBS, again)
    await server.say(JOBS, ("BOOKMARK", {"metadata": {"resourceVersion": "77"}}))
    server.ends[JOBS].set()
    await running.until(lambda: versions)
    assert versions == ["77"]


@pytest.mark.parametrize("within", [True, False])
async def test_a_version_that_is_too_old_means_a_new_list(
    server: Scripted, running: Running, within: bool
) -> None:
    server.jobs = [a_job()]
    await up(running)
    await running.until(lambda: running.leases)
    server.jobs, server.version = [], 90
    if within:
        error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        await server.say(JOBS, ("ERROR", error))
    else:
        server.then("WATCH", JOBS, says(410, "too old resource version"))
        server.watches[JOBS][-1]._req.transport.abort()  # type: ignore[union-attr]
    await running.until(lambda: any(LEASE in changes.gone for changes in running.told))
    assert server.asked[f"GET {JOBS}"] == 2


@pytest.mark.parametrize(
    "why", [{"kind": "Status", "code": 500, "message": "the log is compacted"}, ["what", "is", "this"]]
)
async def test_a_watch_that_complains_begins_with_a_new_list(
    server: Scripted, running: Running, why: Any
) -> None:
    await up(running)
    await server.say(JOBS, ("ERROR", why))
    await running.until(lambda: server.asked[f"GET {JOBS}"] == 2 and server.asked[f"WATCH {JOBS}"] == 2)
    await up(running)


async def test_pods_that_cannot_be_read_are_asked_for_again(server: Scripted, running: Running) -> None:
    await up(running)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    server.then("GET", pods, unreadable)
    over = a_job(8) | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    server.jobs = [over]
    await server.say(JOBS, ("ADDED", over))
    await running.until(lambda: server.asked[f"GET {pods}"] == 2)
    await running.until(lambda: any(each.ending for told in running.told for each in told.attempts))


async def test_pods_are_asked_for_again_if_their_job_was_not_over_when_it_was_asked_for(
    server: Scripted, running: Running
) -> None:
    await up(running)

    async def before(_: web.Request) -> web.StreamResponse:
        return web.json_response(a_job(8))

    over = a_job(9) | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    server.jobs = [over]
    server.then("GET", f"{JOBS}/{name_of(LEASE)}", before)
    await server.say(JOBS, ("ADDED", over))
    await running.until(lambda: any(each.ending for told in running.told for each in told.attempts))
    assert server.asked[f"GET /api/v1/namespaces/{NAMESPACE}/pods"] == 2


async def test_what_cannot_be_read_is_listed_anew(server: Scripted, running: Running) -> None:
    await up(running)
    await server.watches[JOBS][-1].write(b'{"type":"ADDED","object":{"metadata":3}}\n')
    await running.until(lambda: server.asked[f"GET {JOBS}"] == 2)
    await up(running)


async def test_a_list_comes_in_pages(server: Scripted, running: Running) -> None:
    def page(number: int, more: str) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            assert request.query.get("continue", "") == (f"after-{number}" if number else "")
            node = {"metadata": {"name": f"node-{number}"}, "status": {"allocatable": {"cpu": "1"}}}
            return web.json_response(
                {"metadata": {"resourceVersion": "5", "continue": more}, "items": [node]}
            )

        return answer

    server.then("GET", "/api/v1/nodes", page(0, "after-1"), page(1, "after-2"), page(2, ""))
    await up(running)
    assert [node.name for node in running.told[0].nodes] == ["node-0", "node-1", "node-2"]


async def test_a_server_that_fails_is_down_and_told_how_often(server: Scripted, running: Running) -> None:
    await up(running)
    server.then("WATCH", JOBS, *[says(500, "oh no")] * 4)
    server.watches[JOBS][-1]._req.transport.abort()  # type: ignore[union-attr]
    await running.until(lambda: running.cluster.connection().failures >= 4)
    connection = running.cluster.connection()
    assert connection.link is DriverLink.DOWN
    assert "oh no" in connection.error
    await up(running)
    assert running.cluster.connection().failures == 0


async def test_before_the_first_list_a_cluster_is_connecting(server: Scripted, running: Running) -> None:
    server.then("GET", "/api/v1/pods", *[says(403, 'cannot list resource "pods"')] * 3)
    await running.until(lambda: running.cluster.connection().failures >= 3)
    assert running.cluster.connection().link is DriverLink.CONNECTING
    assert 'cannot list resource "pods"' in running.cluster.connection().error
    assert running.told == []
    await up(running)


async def test_that_notes_may_not_be_read_keeps_nothing_from_working(
    server: Scripted, running: Running
) -> None:
    events = f"/api/v1/namespaces/{NAMESPACE}/events"
    server.then("GET", events, *[says(403, "may not")] * 100)
    await up(running)
    await running.until(lambda: server.asked[f"GET {events}"] >= 4)
    assert running.cluster.connection().link is DriverLink.UP


async def test_a_watch_over_which_nothing_comes_is_begun_anew(
    server: Scripted, monkeypatch: pytest.MonkeyPatch, running: Running
) -> None:
    monkeypatch.setattr(watching, "SILENCE", 0.1)
    await up(running)
    await running.until(lambda: server.asked[f"WATCH {JOBS}"] >= 2)
    assert server.asked[f"GET {JOBS}"] == 1
    assert running.cluster.connection().failures == 0


async def test_watches_of_a_server_that_stands_still_are_not_waited_for(
    server: Scripted, monkeypatch: pytest.MonkeyPatch, running: Running
) -> None:
    await up(running)
    monkeypatch.setattr(api, "ANSWER", 0.1)
    monkeypatch.setattr(driver, "SLOW", 0.05)
    for path in (JOBS, "/api/v1/nodes", "/api/v1/pods"):
        server.then("WATCH", path, broken)
    server.then("POST", JOBS, silent)
    server.then("GET", "/version", silent)
    assert (await running.cluster.start(START)).made is Made.UNKNOWN
    await running.until(lambda: running.cluster.connection().link is DriverLink.DOWN)
    await up(running)


async def test_watches_that_end_at_once_are_begun_anew_ever_more_rarely(
    server: Scripted, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []

    def noted(tried: int) -> float:
        pauses.append(tried)
        return 0.0

    monkeypatch.setattr(watching, "pause", noted)

    async def short(request: web.Request) -> web.StreamResponse:
        stream = await server.begin(request)
        await stream.write_eof()
        return stream

    server.then("WATCH", "/api/v1/nodes", *[short] * 5)
    await running.until(lambda: server.asked["WATCH /api/v1/nodes"] == 6)
    assert pauses == [0, 1, 2, 3, 4]


async def test_a_log_that_does_not_end_is_not_waited_for_once_its_pod_has_ended(
    server: Scripted, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SILENCE", 1.0)
    await up(running)
    done = {"terminated": {"exitCode": 0, "startedAt": "2027-01-31T12:00:00Z"}}
    labels = a_job()["metadata"]["labels"]
    pod = {
        "metadata": {
            "name": "x",
            "namespace": NAMESPACE,
            "uid": "p1",
            "resourceVersion": "9",
            "labels": labels,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": done}]},
    }
    await server.say("/api/v1/pods", ("ADDED", pod))
    await running.until(lambda: running.leases)

    async def stuck(request: web.Request) -> web.StreamResponse:
        stream = await server.begin(request)
        await stream.write(b"some")
        return await silent(request)

    server.then("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/x/log", stuck)
    output = running.cluster.output(LEASE, 0, 0, follow=False)
    assert await anext(output) == b"some"
    with pytest.raises(OutputGone, match="does not answer in time"):
        await anext(output)


async def test_an_object_that_cannot_be_read_costs_itself(running: Running, server: Scripted) -> None:
    pods, nodes = "/api/v1/pods", "/api/v1/nodes"
    poison = {"name": "c", "resources": {"requests": {"cpu": "9223372036854775807"}}}
    listed = [
        {"metadata": {"name": "odd", "namespace": "x"}, "spec": []},
        {"metadata": {"name": "huge", "namespace": "x"}, "spec": {"nodeName": "n1", "containers": [poison]}},
        {"metadata": {"name": "../../x", "namespace": "x"}, "spec": {"nodeName": "n1"}},
    ]
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}

    def has(*items: Any) -> Handler:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})

        return answer

    odd = {"metadata": {"name": "n2", "resourceVersion": "6"}, "status": []}
    server.then("GET", pods, has(*listed))
    server.then("GET", nodes, has(node, odd))
    await up(running)
    await running.until(lambda: running.told)
    seen = {str(each.name): each for each in running.told[-1].nodes}
    assert seen["n1"].foreign.cpu == 2**62
    assert not seen["n2"].ready
    more = {"metadata": {"name": "n3", "resourceVersion": "7"}}
    await server.say(nodes, ("MODIFIED", odd), ("ADDED", more))
    await running.until(lambda: any(each.name == "n3" for told in running.told for each in told.nodes))
    assert running.cluster.connection().link is DriverLink.UP
    assert server.asked[f"GET {nodes}"] == 1


# --- closing


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator["Deaf"]:
    with Deaf(tmp_path / "tls") as listening:
        yield listening


class Deaf:
    """A server that hears what is asked, and from then on does nothing at all, not even take part in closing a connection."""

    def __init__(self, folder: Path) -> None:
        make_certificates(folder, ["127.0.0.1"], 1)
        self._shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._shown.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._hear)
        self._over = threading.Event()
        self.heard = threading.Event()
        url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.access = Access(url, User(), (folder / "ca.pem").read_text())

    def _hear(self) -> None:
        accepted, _ = self._listener.accept()
        with self._shown.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(10_000)
            self.heard.set()
            self._over.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()


async def test_a_question_that_is_given_up_leaves_no_connection_behind(deaf: Deaf) -> None:
    asked = api.Api(deaf.access)
    asking = asyncio.create_task(asked.ask("GET", "/version"))
    await asyncio.to_thread(deaf.heard.wait, 30)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    (connected,) = asked._sockets
    assert connected.fileno() >= 0
    await asked.close()
    assert connected.fileno() < 0
