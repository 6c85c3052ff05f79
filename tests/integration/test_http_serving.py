"""The HTTP API on a real socket: start and stop, streams, what is not a request, and large bodies."""

import asyncio
import contextlib
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import structlog

from spillover.api.http import bodies, build_app, serving, streams
from spillover.clusters.agents import hub
from spillover.core.proposals import AgentGone
from spillover.model.ids import ClusterName, NodeName
from spillover.ports.journal import Stored
from spillover.server.certificates import make_certificates
from spillover.wire.keepalive import KEPT_ALIVE
from tests.support.http import TOKEN, http_server, listen
from tests.support.served import Served, served
from tests.support.waiting import until

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
JOB = {"apiVersion": "spillover/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"run": "true"}}


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


@pytest.fixture
async def url(inside: Served) -> AsyncIterator[str]:
    async with http_server(inside.commands) as url:
        yield url


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False, timeout=10) as client:
        yield client


async def raw(url: str, data: bytes) -> bytes:
    """Send bytes as they are and read until the server closes."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_it_answers_while_it_serves_and_not_after(inside: Served) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with http_server(inside.commands) as url, httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{url}/v1/health")).status_code == 200
        assert before == {number: signal.getsignal(number) for number in before}
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"{url}/v1/health")


async def test_the_same_port_can_be_served_again_at_once(inside: Served) -> None:
    async with http_server(inside.commands) as url:
        port = int(url.rpartition(":")[2])
    async with http_server(inside.commands, port=port) as again, httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{again}/v1/health")).status_code == 200


async def test_small_answers_are_sent_at_once(inside: Served) -> None:
    sock = listen()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with (
        serving(build_app(inside.commands, TOKEN, None), sock) as server,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        await http.get(f"{url}/v1/health")
        (connection,) = server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("lacking", [None, "TCP_KEEPIDLE"])
@pytest.mark.parametrize("secure", [False, True])
async def test_a_caller_whose_machine_is_gone_is_noticed(
    inside: Served,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    secure: bool,
    lacking: str | None,
) -> None:
    tls, ca = None, ssl.create_default_context()
    if secure:
        make_certificates(tmp_path, ["127.0.0.1"], 1)
        tls = tmp_path / "server.pem", tmp_path / "server-key.pem"
        ca.load_verify_locations(tmp_path / "ca.pem")
    expected = {(getattr(socket, name), value) for name, value in KEPT_ALIVE if name != lacking}
    if lacking is not None:
        monkeypatch.delattr(socket, lacking)
    sock = listen()
    url = f"{'https' if secure else 'http'}://127.0.0.1:{sock.getsockname()[1]}"
    async with (
        serving(build_app(inside.commands, TOKEN, None), sock, tls) as server,
        httpx.AsyncClient(trust_env=False, verify=ca) as http,
    ):
        await http.get(f"{url}/v1/health")
        (connection,) = server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert {
            (option, accepted.getsockopt(socket.IPPROTO_TCP, option)) for option, _ in expected
        } == expected


async def test_an_error_inside_the_block_stops_the_server_too(inside: Served) -> None:
    sock = listen()
    with pytest.raises(ZeroDivisionError):
        async with serving(build_app(inside.commands, TOKEN, None), sock):
            raise ZeroDivisionError
    assert sock.fileno() == -1


async def test_it_stops_within_a_second_with_streams_and_waits_open(inside: Served) -> None:
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx.AsyncClient(headers=HEADERS, trust_env=False, timeout=10)
        )
        server = http_server(inside.commands)
        url = await server.__aenter__()
        (job,) = (await http.post(f"{url}/v1/jobs", json=JOB)).json()["jobs"]
        waiting = asyncio.create_task(http.get(f"{url}/v1/jobs/j/wait?timeout=60"))
        await inside.waited_for(job)
        followed = [
            await stack.enter_async_context(http.stream("GET", url + path))
            for path in ("/v1/events?follow=true", "/v1/jobs/j/logs?follow=true")
        ]
        began = time.monotonic()
        await server.__aexit__(None, None, None)
        assert time.monotonic() - began < 2
        answer = await waiting
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:spillover:problem:unavailable")
        assert answer.headers["retry-after"] == "1"
        for response in followed:
            with pytest.raises(httpx.RemoteProtocolError):  # cut off: not to be taken for their end
                await response.aread()


async def test_a_caller_that_does_not_read_does_not_keep_it_from_stopping(inside: Served) -> None:
    agent = await inside.agent()
    (job,) = await inside.control.submit("j")
    await agent.write(job, b"x" * 50_000_000)
    server = http_server(inside.commands)
    url = await server.__aenter__()
    host, port = url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(
        f"GET /v1/jobs/j/logs?follow=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    await agent.asked_for_output()
    began = time.monotonic()
    await server.__aexit__(None, None, None)
    assert time.monotonic() - began < 2
    writer.transport.abort()


async def test_followed_history_comes_as_it_happens(http: httpx.AsyncClient, inside: Served) -> None:
    await inside.happen("old")
    async with http.stream("GET", "/v1/events?follow=true") as response:
        lines = response.aiter_lines()
        for note in ("one", "two"):
            await inside.happen(note)
            assert f'"note":"{note}"' in await anext(lines)


async def test_a_silent_history_says_that_it_is_alive(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.01)
    async with http.stream("GET", "/v1/events?follow=true") as response:
        chunks = response.aiter_raw()
        assert [await anext(chunks), await anext(chunks)] == [b"\n", b"\n"]
        await inside.happen("one")
        async for chunk in chunks:
            if chunk != b"\n":
                assert b'"one"' in chunk
                break


async def test_followed_output_ends_with_its_job(http: httpx.AsyncClient, inside: Served) -> None:
    agent = await inside.agent()
    (job,) = (await http.post("/v1/jobs", json=JOB)).json()["jobs"]
    async with http.stream("GET", "/v1/jobs/j/logs?follow=true") as response:
        chunks = response.aiter_raw()
        for part in (b"one", b"two"):
            await agent.write(job, part)
            assert await anext(chunks) == part
        await agent.end(job)
        assert [chunk async for chunk in chunks] == []


async def test_a_caller_that_goes_away_ends_its_stream(http: httpx.AsyncClient, inside: Served) -> None:
    async with http.stream("GET", "/v1/events?follow=true"):
        await inside.followed()
    await until(lambda: not inside.control.loop.subscribers._to_all, "the end of a stream", seconds=5)


async def test_a_stream_that_fails_midway_is_cut_off_and_logged(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = asyncio.Event()

    # A journal that can be read fails in no other way than those that it names.
    async def failing(after: int) -> AsyncIterator[Stored]:
        async for stored in tail(after, 1):
            yield stored
        await broken.wait()
        raise ZeroDivisionError

    tail = inside.journal.tail
    monkeypatch.setattr(inside.journal, "tail", failing, raising=False)
    with structlog.testing.capture_logs() as logs:
        async with http.stream("GET", "/v1/events") as response:
            chunks = response.aiter_raw()
            await anext(chunks)
            broken.set()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(chunks)
    assert [log["event"] for log in logs] == ["stream was cut"]


async def test_a_stream_that_cannot_go_on_is_logged_as_what_it_is_and_not_as_a_fault(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "LOOK", 0.01)
    agent = await inside.agent()
    (job,) = await inside.control.submit("j")
    await agent.write(job, b"one")
    with structlog.testing.capture_logs() as logs:
        async with http.stream("GET", "/v1/jobs/j/logs?follow=true&attempt=1") as response:
            chunks = response.aiter_raw()
            assert await anext(chunks) == b"one"
            await agent.leave()
            await agent.end(job)
            await inside.control.propose(AgentGone(ClusterName("onprem"), NodeName("n1"), agent.incarnation))
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(chunks)
    (log,) = [log for log in logs if log["event"] == "stream was cut"]
    assert log["log_level"] == "warning"
    assert log["error"] == "the output is on agent onprem/n1, which is not connected"
    assert "exc_info" not in log


async def test_a_long_history_arrives_whole(http: httpx.AsyncClient, inside: Served) -> None:
    await inside.control.submit(*[f"j{at}" for at in range(5000)])
    assert (await http.get("/v1/events")).text.count("\n") == inside.control.loop.gate.durable > 5000


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", 431),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /v1/health HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (
            b"GET http://evil.example/v1/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            421,
        ),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /v1/health HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
    ],
)
async def test_what_is_hardly_a_request_is_answered(url: str, data: bytes, status: int) -> None:
    answer = await raw(url, data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:100]
    if status >= 400:
        assert b"application/problem+json" in answer


async def test_heads_are_counted_anew_for_each_request(http: httpx.AsyncClient) -> None:
    for _ in range(3):
        assert (await http.get("/v1/health", headers={"X": "y" * 40_000})).status_code == 200


async def test_a_body_that_is_too_large_is_refused(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES", 1000)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    for content in (b" " * 10_000, parts()):
        answer = await http.post("/v1/jobs", content=content)
        assert (answer.status_code, answer.json()["type"]) == (413, "urn:spillover:problem:too_large")
    assert (await http.get("/v1/health")).status_code == 200


async def test_a_body_without_a_length_that_comes_at_once_is_measured_too(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES", 1000)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = await raw(url, head.encode() + b"7d0\r\n" + b" " * 2000 + b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("begun", [b"{", b""])
async def test_a_body_that_does_not_arrive_is_not_waited_for(
    url: str, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(bodies, "PATIENCE", 0.05)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n"
    assert (await raw(url, head.encode() + begun)).startswith(b"HTTP/1.1 408 ")


async def test_a_caller_that_leaves_before_its_body_submits_nothing(url: str, inside: Served) -> None:
    host, port = url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n{{".encode()
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False) as http:
        assert (await http.get("/v1/server")).status_code == 200
    assert not inside.jobs


async def test_many_jobs_in_one_body_do_not_keep_others_waiting(
    http: httpx.AsyncClient, inside: Served
) -> None:
    answer = asyncio.create_task(http.post("/v1/jobs", json={"jobs": [JOB] * 20_000}))
    assert (await http.get("/v1/health")).status_code == 200
    assert len((await answer).json()["jobs"]) == 20_000


async def test_a_silent_stream_ends_too_when_its_sign_in_is_revoked(
    inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.01)
    agent = await inside.agent()
    ours = {"Sec-Fetch-Site": "same-origin"}
    async with (
        http_server(inside.commands, callers=inside.tokens) as url,
        httpx.AsyncClient(base_url=url, headers=ours, trust_env=False) as person,
    ):
        sign_in = (await person.post("/v1/sign-in", json={"token": TOKEN})).json()["id"]
        (job,) = (await person.post("/v1/jobs", json=JOB)).json()["jobs"]
        async with person.stream("GET", f"/v1/jobs/{job}/logs?follow=true") as response:
            chunks = response.aiter_raw()
            await agent.write(job, b"one")
            assert await anext(chunks) == b"one"
            await inside.commands.revoke_token(sign_in, "admin")
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(chunks)
        assert (await person.get("/v1/me")).status_code == 401


async def test_an_open_page_is_told_what_happens_as_server_sent_events(
    http: httpx.AsyncClient, inside: Served
) -> None:
    async with http.stream("GET", "/v1/live") as response:
        assert response.headers["content-type"] == "text/event-stream"
        lines = response.aiter_lines()
        seen: dict[str, str] = {}
        async for line in lines:
            if line.startswith("event: "):
                data = await anext(lines)
                seen.setdefault(line.removeprefix("event: "), data.removeprefix("data: "))
            if seen.keys() >= {"overview", "machines"} and not inside.jobs:
                await inside.control.submit("news")
            if "jobs" in seen:
                break
        assert '"queued":0' in seen["overview"]
        (job,) = inside.jobs
        assert f'"jobs":["{job}"]' in seen["jobs"]
    await until(
        lambda: all(task.get_name() != "live pages" for task in asyncio.all_tasks()), "the end of a page"
    )
