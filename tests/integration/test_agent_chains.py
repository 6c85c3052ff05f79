"""Short commands that a real agent hands to its nursery ahead of their turn: in order, one at a time, and had back from behind a long one."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from spillover.wire import agents_pb2 as pb
from tests.support.agent_process import AgentProcess, a_grant
from tests.support.scripted_server import ScriptedServer, key_of
from tests.support.waiting import until

WORK = 'echo "$WHO" >>seen; [ -z "$DEADLY" ] || kill -9 "$PPID"; exec sleep "$LONG"'


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(tmp_path / "data") as server:
        yield server


def work(job: str, folder: Path, long: int = 0, cpu: int = 1000) -> pb.Grant:
    return a_grant(job, WORK, workdir=str(folder), env={"WHO": job, "LONG": str(long)}, cpu=cpu)


async def ended(server: ScriptedServer, *grants: pb.Grant) -> None:
    await server.until(lambda: all(key_of(grant.lease) in server.results for grant in grants))


async def begun(server: ScriptedServer, grant: pb.Grant, folder: Path) -> None:
    """Wait until a job runs, and has said so itself."""
    seen = folder / "seen"
    await server.until(lambda: key_of(grant.lease) in server.started)
    await until(lambda: seen.exists() and grant.lease.job in seen.read_text().split(), "its first line")


async def learn(server: ScriptedServer, folder: Path) -> None:
    """Let the agent see that this work is short."""
    for number in range(3):
        grant = work(f"warm{number}", folder)
        server.grant(grant)
        await ended(server, grant)
    (folder / "seen").unlink()


def kill(server: ScriptedServer, *grants: pb.Grant) -> None:
    stops = [pb.StopOrder(lease=grant.lease, kill=True) for grant in grants]
    server.order(pb.HeartbeatReply(epoch=1, stops=stops))


async def test_short_commands_run_in_order_and_each_once(server: ScriptedServer, tmp_path: Path) -> None:
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        await learn(server, tmp_path)
        grants = [work(f"j{number}", tmp_path) for number in range(100)]
        server.grant(*grants)
        await ended(server, *grants)
        assert (tmp_path / "seen").read_text().split() == [grant.lease.job for grant in grants]


async def test_those_behind_a_long_one_run_where_there_is_room(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with AgentProcess(server.data, cpu="2"):
        await server.connected()
        await learn(server, tmp_path)
        long = work("long", tmp_path, 600)
        short = [work(f"j{number}", tmp_path) for number in range(40)]
        server.grant(long, *short)
        await ended(server, *short)
        assert key_of(long.lease) not in server.results
        await begun(server, long, tmp_path)
        seen = (tmp_path / "seen").read_text().split()
        assert sorted(seen) == sorted(grant.lease.job for grant in (long, *short)), "each ran once"
        kill(server, long)
        await ended(server, long)
        assert server.results[key_of(long.lease)].signal == signal.SIGKILL


async def test_one_behind_another_is_stopped_without_having_run(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        await learn(server, tmp_path)
        long, behind = work("long", tmp_path, 600), work("behind", tmp_path)
        server.grant(long, behind)
        await begun(server, long, tmp_path)
        kill(server, behind)
        await ended(server, behind)
        assert server.results[key_of(behind.lease)].outcome == pb.STOPPED
        kill(server, long)
        await ended(server, long)
        assert (tmp_path / "seen").read_text().split() == ["long"]


async def test_ends_before_a_long_one_are_told_while_it_runs(server: ScriptedServer, tmp_path: Path) -> None:
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        await learn(server, tmp_path)
        short = [work(f"j{number}", tmp_path) for number in range(5)]
        long = work("long", tmp_path, 600)
        server.grant(*short, long)
        await ended(server, *short)
        await begun(server, long, tmp_path)
        kill(server, long)
        await ended(server, long)


async def test_what_waits_in_the_nursery_is_not_begun_after_the_agent_died(
    server: ScriptedServer, tmp_path: Path
) -> None:
    agent = AgentProcess(server.data, cpu="1")
    async with agent:
        await server.connected()
        await learn(server, tmp_path)
        long = work("long", tmp_path, 600)
        server.grant(long, *(work(f"j{number}", tmp_path) for number in range(5)))
        await begun(server, long, tmp_path)
        nurseries = psutil.Process(agent.pid).children()
        await agent.kill()
        _, left = psutil.wait_procs(nurseries, timeout=20)
        assert not left
        assert (tmp_path / "seen").read_text().split() == ["long"]
        await agent.start()


async def test_what_waits_in_a_nursery_that_dies_is_run_by_the_next_one(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        await learn(server, tmp_path)
        deadly = work("deadly", tmp_path, 600)
        deadly.task.env["DEADLY"] = "yes"
        behind = [work(f"j{number}", tmp_path) for number in range(10)]
        server.grant(deadly, *behind)
        await ended(server, deadly, *behind)
        assert server.results[key_of(deadly.lease)].outcome == pb.LOST
        assert {server.results[key_of(grant.lease)].outcome for grant in behind} == {pb.EXITED}
        seen = (tmp_path / "seen").read_text().split()
        assert seen == [grant.lease.job for grant in (deadly, *behind)]


async def test_commands_too_large_to_be_sent_together_all_run(server: ScriptedServer, tmp_path: Path) -> None:
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        await learn(server, tmp_path)
        grants = [work(f"j{number}", tmp_path) for number in range(20)]
        for number, grant in enumerate(grants):
            grant.task.env["LARGE"] = "x" * (10_000 * number % 90_000)
        server.grant(*grants)
        await ended(server, *grants)
        assert (tmp_path / "seen").read_text().split() == [grant.lease.job for grant in grants]
