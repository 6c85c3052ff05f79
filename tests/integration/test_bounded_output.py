"""Output beyond its limit, on a real agent: head and tail are kept, and the disk is never full of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spillover.wire import agents_pb2 as pb
from tests.support.agent_process import AgentProcess, a_grant
from tests.support.scripted_server import ScriptedServer

MIB = 1 << 20
LIMIT = 2 * MIB


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(tmp_path / "data") as server:
        yield server


@pytest.fixture
async def agent(server: ScriptedServer) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(server.data, "--output-limit", "2Mi") as agent:
        await server.connected()
        yield agent


async def read(server: ScriptedServer, job: str, *, offset: int = 0, follow: bool = False) -> bytes:
    asked = pb.OutputRead(id=len(server.output) + 1, job=job, attempt=1, offset=offset, follow=follow)
    server.read(asked)
    await server.until(lambda: asked.id in server.output_ended, seconds=60)
    assert not server.output_ended[asked.id]
    return bytes(server.output[asked.id])


def on_disk(agent: AgentProcess) -> int:
    total = 0
    for path in (agent.folder / "output").rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


async def test_a_gigabyte_ends_normally_and_never_fills_the_disk(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", "head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo the end")
    server.grant(grant)
    most = 0
    while ("a", 1, 1, 0) not in server.results:
        most = max(most, on_disk(agent))
        await asyncio.sleep(0.005)
    done = server.results["a", 1, 1, 0]
    assert (done.outcome, done.exit_code) == (pb.EXITED, 0)
    assert most < 300 * MIB, "some is written between two looks, but not all"
    assert on_disk(agent) <= LIMIT + MIB
    text = await read(server, "a")
    head, line, tail = text.partition(b"\n[... ")
    count, _, tail = tail.partition(b" bytes left out ...]\n")
    assert line
    assert len(head) == MIB
    assert int(count) + len(head) + len(tail) == 1_000_000_009
    assert tail.endswith(b"xxx\nthe end\n")
    assert MIB <= len(tail) <= LIMIT
    for offset in (0, 5, MIB - 1, MIB, MIB + 10, MIB + 40, len(text) - 8, len(text)):
        assert await read(server, "a", offset=offset) == text[offset:], offset


async def test_what_is_within_the_limit_is_whole(server: ScriptedServer, agent: AgentProcess) -> None:
    grant = a_grant("a", f"head -c {LIMIT} /dev/zero")
    server.grant(grant)
    await server.until(lambda: ("a", 1, 1, 0) in server.results)
    assert await read(server, "a") == bytes(LIMIT)


async def test_a_follower_sees_the_beginning_and_the_end(server: ScriptedServer, agent: AgentProcess) -> None:
    server.grant(a_grant("a", "echo first; sleep 0.2; head -c 300000000 /dev/zero; echo last"))
    text = await read(server, "a", follow=True)
    assert text.startswith(b"first\n")
    assert text.endswith(b"\0last\n")
    assert b" bytes left out ...]\n" in text
    assert len(text) < 300_000_000
