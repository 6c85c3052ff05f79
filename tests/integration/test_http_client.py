"""Both faces of the client against a real HTTP server."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from spillover.client import AsyncClient, Client, NoEffect, Refused, Unavailable, Unreachable, WaitTimeout
from spillover.core.proposals import Configure
from spillover.model.queues import QueueSpec
from spillover.model.units import HOUR
from spillover.ports.commands import CommandError, ErrorKind, JobQuery
from spillover.wire.api import JobPage
from spillover.wire.keepalive import KEPT_ALIVE
from tests.support.http import TOKEN, Threaded, http_server, listen, threaded_server
from tests.support.served import Served, failing, served
from tests.support.waiting import turn


@pytest.fixture
def server() -> Iterator[Threaded[Served]]:
    with threaded_server(served) as server:
        yield server


@pytest.fixture
def client(server: Threaded[Served]) -> Iterator[Client]:
    with Client(server.url, TOKEN, user="ada") as client:
        yield client


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


@pytest.fixture
async def asked(inside: Served) -> AsyncIterator[AsyncClient]:
    async with http_server(inside.commands) as url, AsyncClient(url, TOKEN, user="ada") as client:
        yield client


def test_the_synchronous_face_does_everything(client: Client, server: Threaded[Served]) -> None:
    (job,) = client.submit(run="echo hi", cpu=2, memory="1Gi", name="hello", walltime="10m", key="k")
    assert client.submit(run="echo hi", cpu=2, memory="1Gi", name="hello", walltime="10m", key="k") == [job]
    assert client.forecast(run="true", name="f")[0].name == "f"
    shown = client.job("hello")
    assert (shown.user, shown.spec["spec"]["resources"]) == ("ada", {"cpu": 2, "memory": "1Gi"})
    assert client.why(job).reason is not None
    assert client.change(job, cpu=1, walltime=None) == client.change(job, priority=0) == [job]
    assert client.job(job).spec["spec"]["resources"] == {"cpu": 1, "memory": "1Gi"}
    assert client.hold(job, states="QUEUED", dry_run=True) == client.hold(job, states=["QUEUED"]) == [job]
    assert client.cancel(job, states=["RUNNING"]) == []
    assert client.release(job, states="held") == [job]
    assert client.set_priority(job, 0) == client.hold(job) == client.release(job) == [job]
    assert [view.id for view in client.jobs(state="QUEUED", since=datetime(2027, 1, 1, tzinfo=UTC))] == [job]
    agent = server.run(server.inside.agent())
    assert client.requeue(job) == [job]
    server.run(agent.write(job, b"hi\n"))
    assert b"".join(client.logs(job)) == b"hi\n"
    assert client.cancel(job) == [job]
    assert client.wait(job)[0].state == "CANCELLED"
    assert client.drain("n1", reason="new disk") == ["onprem/n1"]
    assert client.agent("n1").drain_reason == "new disk"
    client.resume("n1")
    assert client.usage(["user", "project"]).rows[0].key == {"user": "ada", "project": "default"}
    did = list(client.audit(user="ada", job=job))
    assert [each.type for each in did[:2]] == ["job_ended", "job_stopping"]
    assert (did[-1].type, did[-1].user, did[-1].text) == ("job_submitted", "ada", "ada submitted hello")
    assert list(client.audit(until="2001-01-01T00:00:00Z")) == []
    (again,) = client.rerun(job, changes={"spec": {"walltime": "20m"}})
    assert client.job(again).walltime_s == 1200
    assert next(client.events(0, follow=False)).type == "epoch_started"
    assert client.clusters()[0].name == "onprem"
    assert client.agents()[0].name == "n1"
    assert client.nodes() == []
    assert client.server().currency == "USD"
    assert "order=fifo" in client.policy().policy
    assert "order=priority" in client.set_policy("order=priority", dry_run=True).after
    assert client.set_policy("order=priority").done
    assert client.policy_history()[0].who == "ada"
    assert client.ready() is None
    server.inside.journal.fault = "before"
    with pytest.raises(Unavailable, match="the disk is full"):
        client.submit(run="true")
    assert client.ready() == "the disk is full"


GPU = QueueSpec("gpu", "for GPUs", default=True, walltime=HOUR)


async def named_queue(inside: Served) -> None:
    loop = inside.control.loop
    await loop.propose(Configure("root", loop.state.facts.policies, queues=(GPU,)))


def test_the_synchronous_face_shows_queues(client: Client, server: Threaded[Served]) -> None:
    assert client.queues() == []
    server.run(named_queue(server.inside))
    client.submit(run="true", queue="gpu")
    (queue,) = client.queues()
    assert (queue.name, queue.description, queue.queued) == ("gpu", "for GPUs", 1)


async def test_the_asynchronous_face_shows_queues(asked: AsyncClient, inside: Served) -> None:
    assert await asked.queues() == []
    await named_queue(inside)
    await asked.submit(run="true")
    (queue,) = await asked.queues()
    assert (queue.name, queue.description, queue.queued) == ("gpu", "for GPUs", 1)


def test_the_synchronous_face_warns_of_what_has_no_effect(client: Client) -> None:
    with pytest.warns(NoEffect, match="the priority has no effect") as told:
        (job,) = client.submit(run="true", priority=5)
    assert told[0].filename == __file__
    with pytest.warns(NoEffect, match="the priority has no effect") as told:
        assert client.set_priority(job, 6) == [job]
    assert told[0].filename == __file__
    with pytest.warns(NoEffect, match="queue 'gpu' is only a label"):
        assert client.change(job, queue="gpu") == [job]
    client.change(job, queue="default")
    with pytest.warns(NoEffect, match="the priority has no effect"):
        client.rerun(job)
    with pytest.warns(NoEffect, match="the priority has no effect"):
        client.forecast(run="true", priority=5)
    with pytest.warns(NoEffect, match="`max_cost` has no effect on jobs that are never rented") as told:
        client.call(abs, -1, options={"burst": "never", "max_cost": 3})
    assert told[0].filename == __file__


async def test_the_asynchronous_face_warns_of_what_has_no_effect(asked: AsyncClient) -> None:
    with pytest.warns(NoEffect, match="the priority has no effect") as told:
        await asked.submit(run="true", priority=5)
    assert told[0].filename == __file__


async def test_the_asynchronous_face_does_everything(asked: AsyncClient, inside: Served) -> None:
    (job,) = await asked.submit(run="echo hi", name="hello")
    assert (await asked.forecast(run="true", name="f"))[0].name == "f"
    assert (await asked.job("hello")).user == "ada"
    assert (await asked.why(job)).reason is not None
    for act in (asked.hold, asked.release):
        assert await act(job) == [job]
    assert await asked.set_priority(job, 0) == [job]
    assert [view.id async for view in asked.jobs(name="hello")] == [job]
    agent = await inside.agent()
    assert await asked.requeue(job) == [job]
    await agent.write(job, b"hi\n")
    assert b"".join([chunk async for chunk in asked.logs(job)]) == b"hi\n"
    assert await asked.cancel(job) == [job]
    assert [view.state for view in await asked.wait(job)] == ["CANCELLED"]
    assert len(await asked.rerun(job)) == 1
    assert (await asked.usage("cluster")).by == ["cluster"]
    assert (await asked.agent("onprem/n1")).name == "n1"
    assert len([each async for each in asked.audit(limit=2)]) == 2
    own = [each async for each in asked.events(follow=False, job=job, user="ada", cycles=False)]
    assert {each.user for each in own} == {"ada"}
    assert {event.job async for event in asked.events(follow=False, job=job)} == {job}
    assert (await asked.clusters())[0].name == "onprem"
    assert (await asked.agents())[0].name == "n1"
    assert (await asked.server()).currency == "USD"
    assert "order=fifo" in (await asked.policy()).policy
    assert (await asked.set_policy("order=priority")).done
    assert (await asked.policy_history())[0].who == "ada"
    assert await asked.ready() is None


def test_a_listing_fetches_page_by_page(
    client: Client, server: Threaded[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[JobQuery] = []
    jobs = server.inside.commands.jobs

    async def noted(query: JobQuery) -> JobPage:
        asked.append(query)
        return await jobs(query)

    monkeypatch.setattr(server.inside.commands, "jobs", noted)
    doc = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"}}
    ids = client.submit([doc] * 1500)
    assert [job.id for job in client.jobs()] == ids[::-1]
    assert [job.id for job in client.jobs(limit=1200)] == ids[:299:-1]
    asked.clear()
    assert next(client.jobs()).id == ids[-1]
    assert len(asked) == 1
    assert list(client.jobs(limit=0)) == []


async def test_waiting_ends_with_the_job(asked: AsyncClient, inside: Served) -> None:
    agent = await inside.agent()
    ids = [(await asked.submit(run="true", name=name))[0] for name in ("a", "b")]
    waiting = asyncio.create_task(asked.wait(*ids))
    await inside.waited_for(ids[0])
    for job in ids:
        await agent.end(job, 3)
    assert [(view.id, view.exit_code) for view in await waiting] == [(job, 3) for job in ids]


async def test_waiting_can_time_out(asked: AsyncClient) -> None:
    await asked.submit(run="true", name="a")
    with pytest.raises(WaitTimeout) as error:
        await asked.wait("a", timeout=0.01)
    assert error.value.jobs == ("a",)


def test_a_client_works_after_an_interrupt_that_left_its_connections_locked(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = client.submit(run="true")

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt  # between two steps of the pool, whose lock stays locked

    connections = client._http
    monkeypatch.setattr(connections, "request", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.wait(job)
    assert client.cancel(job) == [job]
    connections.close()


def alive(response: httpx.Response, lacking: str | None) -> None:
    """Check that the socket of an answer notices when the other side is gone, as far as the system can."""
    sock = response.extensions["network_stream"].get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    expected = {getattr(socket, name): value for name, value in KEPT_ALIVE if name != lacking}
    assert {option: sock.getsockopt(socket.IPPROTO_TCP, option) for option in expected} == expected


@pytest.fixture(params=[None, "TCP_KEEPIDLE"])
def lacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """An option of sockets that this system does not have."""
    name: str | None = request.param
    if name is not None:
        monkeypatch.delattr(socket, name)
    return name


def test_a_server_whose_machine_is_gone_is_noticed(client: Client, lacking: str | None) -> None:
    alive(client._http.get(f"{client.url}/v1/health"), lacking)


async def test_a_server_whose_machine_is_gone_is_noticed_by_asyncio(
    asked: AsyncClient, lacking: str | None
) -> None:
    alive(await asked._http.get(f"{asked.url}/v1/health"), lacking)


def test_waiting_can_time_out_in_the_synchronous_face(client: Client) -> None:
    client.submit(run="true", name="a")
    with pytest.raises(WaitTimeout):
        client.wait("a", timeout=0)


async def test_following_starts_where_it_was_asked_for(asked: AsyncClient, inside: Served) -> None:
    await inside.happen("old")
    async with aclosing(asked.events()) as events:
        coming = asyncio.create_task(anext(events))
        await inside.followed()
        revision = await inside.happen("new")
        assert (await coming).revision == revision


async def test_history_is_followed_across_a_restart_without_loss(inside: Served) -> None:
    with listen() as sock:
        port = sock.getsockname()[1]
    seen: list[int] = []
    news = asyncio.Event()

    async def follow(client: AsyncClient) -> None:
        async with aclosing(client.events(after=0)) as events:
            async for event in events:
                seen.append(event.revision)
                news.set()

    async def see(revision: int) -> None:
        while revision not in seen:
            news.clear()
            await news.wait()

    async with AsyncClient(f"http://127.0.0.1:{port}", TOKEN) as client:
        async with http_server(inside.commands, port=port):
            following = asyncio.create_task(follow(client))
            await inside.happen("one")
            await see(await inside.happen("two"))
        await inside.happen("three")
        async with http_server(inside.commands, port=port):
            last = await inside.happen("four")
            await see(last)
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
    assert seen == list(range(1, last + 1))


async def test_output_is_followed_across_a_restart_without_loss_or_repeat(inside: Served) -> None:
    with listen() as sock:
        port = sock.getsockname()[1]
    got: list[bytes] = []
    first = threading.Event()

    def follow() -> None:
        with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
            for chunk in client.logs("j", follow=True):
                got.append(chunk)
                first.set()

    agent = await inside.agent()
    (job,) = await inside.control.submit("j")
    async with http_server(inside.commands, port=port):
        await agent.write(job, b"one ")
        following = asyncio.create_task(asyncio.to_thread(follow))
        assert await asyncio.to_thread(first.wait, 10)
    async with http_server(inside.commands, port=port):
        await agent.write(job, b"two")
        await agent.end(job)
        async with asyncio.timeout(10):
            await following
    assert b"".join(got) == b"one two"


async def test_a_wait_survives_a_restart(inside: Served) -> None:
    with listen() as sock:
        port = sock.getsockname()[1]
    agent = await inside.agent()
    async with AsyncClient(f"http://127.0.0.1:{port}", TOKEN) as client:
        async with http_server(inside.commands, port=port):
            (job,) = await client.submit(run="true", name="j")
            waiting = asyncio.create_task(client.wait("j"))
            await inside.waited_for(job)
        async with http_server(inside.commands, port=port):
            await agent.end(job)
            assert (await waiting)[0].state == "SUCCEEDED"


async def test_patience_waits_for_a_server_that_starts(inside: Served) -> None:
    with listen() as sock:
        port = sock.getsockname()[1]
    async with AsyncClient(f"http://127.0.0.1:{port}", TOKEN, patience=10) as client:
        asking = asyncio.create_task(client.server())
        submitting = asyncio.create_task(client.submit(run="true"))
        await turn()
        async with http_server(inside.commands, port=port):
            assert (await asking).epoch == 1
            assert len(await submitting) == 1


def test_a_server_that_moved_is_found_in_its_data_folder(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with listen() as sock:
        gone = f"http://127.0.0.1:{sock.getsockname()[1]}"
    (tmp_path / "server.json").write_text(f'{{"http": "{gone}"}}')
    with threaded_server(served) as server, Client(data=tmp_path, patience=10) as client:
        assert client.url == gone
        threading.Timer(0.01, (tmp_path / "server.json").write_text, [f'{{"http": "{server.url}"}}']).start()
        assert client.server().epoch == 1
        assert client.url == server.url


def test_no_server_is_told_with_what_to_do() -> None:
    with listen() as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    with Client(url, TOKEN) as client:
        for ask in (client.server, lambda: client.submit(run="true"), lambda: list(client.logs("x"))):
            with pytest.raises(
                Unreachable, match=r"no server answers at .*; start it with `spill up`"
            ) as error:
                ask()
            assert not error.value.sent


def test_a_wrong_token_is_told(server: Threaded[Served]) -> None:
    with Client(server.url, "wrong") as client, pytest.raises(Refused, match="the token is invalid") as error:
        client.server()
    assert (error.value.status, error.value.kind) == (401, "unauthorized")


def test_a_wrong_token_is_told_with_where_it_is_from(
    server: Threaded[Served], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    printed = "a token from `spill token create`"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spill-data").mkdir()
    (tmp_path / "spill-data" / "token").write_text("wrong")
    monkeypatch.delenv("SPILL_TOKEN", raising=False)
    folder = Path("spill-data", "token")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"token": "wrong"}, "use one from `spill token create`"),
        ({"token_file": folder}, f"write {printed} to {folder}"),
        ({}, f"it came from {folder}; set SPILL_TOKEN to {printed}"),
    ]
    for how, says in cases:
        with Client(server.url, **how) as client, pytest.raises(Refused) as error:
            client.server()
        assert str(error.value) == f"the token is invalid; {says}"
    monkeypatch.setenv("SPILL_TOKEN", "wrong")
    with Client(server.url) as client:
        for ask in (client.server, lambda: list(client.logs("x"))):
            with pytest.raises(Refused) as error:
                ask()
            assert str(error.value) == f"the token is invalid; set SPILL_TOKEN to {printed}"


def test_an_address_with_a_path_is_told(server: Threaded[Served]) -> None:
    with Client(f"{server.url}/foo", TOKEN) as client, pytest.raises(Refused) as error:
        client.server()
    assert (
        str(error.value)
        == f"there is no server at {server.url}/foo; write its address without a path: {server.url}"
    )


def test_a_name_that_nobody_knows_is_told() -> None:
    with (
        Client("https://nohost.invalid:7070", TOKEN) as client,
        pytest.raises(Unreachable, match=r"cannot resolve nohost\.invalid; correct the address") as error,
    ):
        client.server()
    assert not error.value.sent


async def test_the_port_for_agents_is_not_that_for_people() -> None:
    agents = grpc.aio.server()
    port = agents.add_insecure_port("127.0.0.1:0")
    await agents.start()
    url = f"http://127.0.0.1:{port}"
    told = f"the program at {url} does not speak HTTP; if that is the port for agents, use the HTTP port instead (default: 7070)"
    try:
        async with AsyncClient(url, TOKEN) as client:
            with pytest.raises(Unreachable) as error:
                await client.server()
    finally:
        await agents.stop(0)
    assert str(error.value) == told


def test_refusals_carry_their_problems(client: Client) -> None:
    with pytest.raises(Refused) as error:
        client.submit(run="true", walltime="soon", cpus=2)
    assert {problem.path for problem in error.value.problems} == {
        "jobs[0].spec.walltime",
        "jobs[0].spec.cpus",
    }
    with pytest.raises(Refused) as error:
        client.job("nobody")
    assert error.value.kind == "unknown"
    with pytest.raises(Refused):
        list(client.logs("nobody", follow=True))


@pytest.mark.parametrize("key", [None, "k"])
def test_only_keyed_submissions_are_repeated(
    server: Threaded[Served], monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    # A disk that is full is full for a second or more: what is tested is what the client does about it once.
    full = CommandError(ErrorKind.UNAVAILABLE, "the disk is full", retry_after=0.01)
    commands = server.inside.commands
    monkeypatch.setattr(commands, "submit", failing(full, then=commands.submit))
    with Client(server.url, TOKEN, patience=5) as client:
        if key:
            client.submit(run="true", key=key)
        else:
            with pytest.raises(Unavailable, match="the disk is full; the request may have taken effect"):
                client.submit(run="true")
    assert len(server.inside.jobs) == (1 if key else 0)


def test_a_server_that_does_not_accept_changes_does_not_leave_open_whether_it_did_one(
    server: Threaded[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.inside.control.loop, "problem", "cannot write spill.db: the disk is full")
    with Client(server.url, TOKEN, patience=0) as client, pytest.raises(Unavailable) as refused:
        client.submit(run="true")
    assert str(refused.value) == "not accepting changes: cannot write spill.db: the disk is full"


def test_faults_of_the_server_are_not_repeated(
    server: Threaded[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No request is known to make a command fail so; were there one, it would be mended. A second try would get an answer.
    commands = server.inside.commands
    monkeypatch.setattr(commands, "server", failing(ZeroDivisionError(), then=commands.server))
    with (
        Client(server.url, TOKEN, patience=5) as client,
        pytest.raises(Unavailable, match="internal server error"),
    ):
        client.server()


def test_a_connection_that_breaks_leaves_the_outcome_unknown() -> None:
    with listen() as sock, Client(f"http://127.0.0.1:{sock.getsockname()[1]}", TOKEN, patience=5) as client:
        thread = threading.Thread(target=_hang_up, args=(sock,))
        thread.start()
        with pytest.raises(
            Unreachable, match=r"closed the connection before it answered; the request may have taken effect"
        ) as error:
            client.submit(run="true")
        thread.join()
    assert error.value.sent


def test_the_client_is_loaded_only_when_it_is_asked_for() -> None:
    code = (
        "import sys, spillover; assert 'spillover.client' not in sys.modules; from spillover import Client;"
        " assert 'httpx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def _hang_up(sock: socket.socket) -> None:
    """Take one request and close without an answer."""
    connection, _ = sock.accept()
    connection.recv(65536)
    connection.close()
