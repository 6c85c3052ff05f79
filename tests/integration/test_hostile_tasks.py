"""Tasks that do what tasks should not do, on a real agent: each ends as it should, and nothing of it is left."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from spillover.agent.tasks.isolation import RECORD
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.agent_process import AgentProcess, a_grant, ended
from tests.support.processes import alive
from tests.support.scripted_server import ScriptedServer
from tests.support.tiers import few_of
from tests.support.waiting import until

MIB = 1 << 20
ALL = few_of(2, ["auto", "watch", "cgroup-v2"])
"""What tasks are isolated by. `auto` is a version of control groups wherever there is one."""
PYTHON = sys.executable


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(tmp_path / "data") as server:
        yield server


@pytest.fixture(params=ALL)
async def agent(server: ScriptedServer, request: pytest.FixtureRequest) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(server.data, "--isolation", request.param, "--memory", "64Gi") as agent:
        await connected(server, agent)
        groups = groups_of(agent)
        yield agent
    assert not [group for group in groups if group.exists()], agent.said()
    assert not marked(agent), "processes were left behind"
    assert not list((agent.folder / "scratch").glob("*/*/*")), "files were left behind"


async def connected(server: ScriptedServer, agent: AgentProcess) -> None:
    """Wait until the agent is there, or skip where the machine has no such isolation."""
    assert agent.process is not None
    waiting = {asyncio.ensure_future(server.connected()), asyncio.ensure_future(ended(agent.process))}
    _, late = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    if agent.process.returncode is not None and "--isolation" in agent.said():
        pytest.skip(agent.said())


def groups_of(agent: AgentProcess) -> list[Path]:
    record = agent.folder / RECORD
    return [Path(line) for line in record.read_text().splitlines()] if record.exists() else []


def marked(agent: AgentProcess) -> list[int]:
    """Processes of tasks of an agent that are alive, as far as they show it."""
    mark = f"SPILL_AGENT={agent.folder}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                found.append(process.pid)
        except OSError:
            continue
    return found


async def result_of(server: ScriptedServer, grant: pb.Grant) -> pb.TaskResult:
    server.grant(grant)
    key = (grant.lease.job, grant.lease.attempt, grant.lease.seq, grant.lease.task)
    await server.until(lambda: key in server.results, seconds=60)
    return server.results[key]


async def output_of(server: ScriptedServer, job: str, *, offset: int = 0) -> bytes:
    read = pb.OutputRead(id=len(server.output) + 1, job=job, attempt=1, offset=offset)
    server.read(read)
    await server.until(lambda: read.id in server.output_ended, seconds=60)
    return bytes(server.output[read.id])


def pids_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


def script(*lines: str) -> tuple[str, ...]:
    return (PYTHON, "-c", "\n".join(lines))


HIDE = (
    "import os, sys, time",
    "def hide():",
    "    if os.fork() == 0:",
    "        os.setsid()",
    "        if os.fork() == 0:",
    "            open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')",
    "            os.execve('/bin/sleep', ['sleep', '1000'], {})",
    "        os._exit(0)",
    "    os.wait()",
    "open(sys.argv[1], 'a').close()",
    "hide(); hide()",
    "while len(open(sys.argv[1]).read().split()) < 2: time.sleep(0.01)",
)


async def test_a_daemon_that_hides_from_everything_dies_with_its_task(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    done = await result_of(server, a_grant("a", argv=(*script(*HIDE), str(told))))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 0)
    assert len(pids_in(told)) == 2
    assert not [pid for pid in pids_in(told) if alive(pid)]


async def test_a_daemon_of_one_task_does_not_harm_that_of_another(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    server.grant(a_grant("other", argv=(*script(*HIDE, "time.sleep(1000)"), str(other)), seq=7))
    await until(lambda: other.exists() and len(pids_in(other)) == 2, "the start of both")
    await result_of(server, a_grant("a", argv=(*script(*HIDE), str(mine))))
    assert all(alive(pid) for pid in pids_in(other))
    grouped = agent.folder.joinpath(RECORD).exists()
    if grouped:  # without groups nobody can tell whose they are while the other runs
        assert not [pid for pid in pids_in(mine) if alive(pid)]
    stop = pb.StopOrder(lease=pb.Lease(job="other", attempt=1, seq=7), kill=True)
    server.order(pb.HeartbeatReply(epoch=1, stops=[stop]))
    await server.until(lambda: ("other", 1, 7, 0) in server.results)
    assert not [pid for pid in pids_in(other) if alive(pid)] or not grouped
    # Each helper process looks after its own, so without groups those of another one may go a moment later.
    await until(lambda: not any(alive(pid) for pid in (*pids_in(mine), *pids_in(other))), "the end of all")


async def test_a_tree_of_many_processes_is_gone(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    grow = (
        "import os, sys, time",
        "for depth in range(3):",
        "    for _ in range(5):",
        "        if os.fork() == 0:",
        "            os.setsid()",
        "            break",
        "    else:",
        "        break",
        "with open(sys.argv[1], 'a') as f: f.write(f'{os.getpid()}\\n')",
        "if depth: time.sleep(1000)",
        "while len(open(sys.argv[1]).readlines()) < 11: time.sleep(0.01)",
        "sys.exit(5)",
    )
    done = await result_of(server, a_grant("a", argv=(*script(*grow), str(told))))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 5)
    assert len(pids_in(told)) > 10
    assert not [pid for pid in pids_in(told) if alive(pid)]


@pytest.mark.parametrize(
    "agent", ["auto", "cgroup-v2"], indirect=True
)  # only a group can be stopped as a whole
async def test_processes_that_never_stop_to_multiply_are_gone(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    chase = (
        "import os, sys, time",
        "if os.fork():",
        "    time.sleep(0.3); sys.exit(3)",
        "os.setsid()",
        "for _ in range(100_000):",  # each is gone as soon as the next one lives
        "    if os.fork(): os._exit(0)",
        "    if _ % 50 == 0:",
        "        with open(sys.argv[1], 'a') as f: f.write(f'{os.getpid()}\\n')",
    )
    done = await result_of(server, a_grant("a", argv=(*script(*chase), str(told))))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 3)
    before = told.read_text()
    await asyncio.sleep(0.2)
    assert told.read_text() == before, "something still runs"


async def test_a_task_that_ignores_term_and_stops_itself_is_killed_at_its_walltime(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    run = "trap '' TERM; kill -STOP $$; sleep 1000"
    done = await result_of(server, a_grant("a", run, walltime=SECOND, grace=SECOND // 5))
    assert (done.outcome, done.signal) == (pb.WALLTIME, signal.SIGKILL)


async def test_a_task_that_kills_its_own_group_ends_by_that_signal(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_grant("a", "sleep 1000 & kill -9 0"))
    assert (done.outcome, done.signal) == (pb.EXITED, signal.SIGKILL)


async def test_a_task_that_closes_its_output_ends_by_itself(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_grant("a", "echo before; exec >&- 2>&-; sleep 0.1; exit 4"))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 4)
    assert await output_of(server, "a") == b"before\n"


async def test_children_that_hold_the_output_open_do_not_hold_the_task_up(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    done = await result_of(server, a_grant("a", f"echo hello; setsid sleep 1000 & echo $! >{told}; exit 0"))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 0)
    assert await output_of(server, "a") == b"hello\n"
    assert not [pid for pid in pids_in(told) if alive(pid)]


async def test_zombies_are_reaped(server: ScriptedServer, agent: AgentProcess) -> None:
    many = ("import os, time", "for _ in range(50):", "    os.fork() or os._exit(0)", "time.sleep(0.1)")
    done = await result_of(server, a_grant("a", argv=script(*many)))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 0)
    below = psutil.Process(agent.pid).children(recursive=True)
    assert not [each for each in below if each.status() == psutil.STATUS_ZOMBIE]


async def test_memory_beyond_what_was_asked_for_is_named(server: ScriptedServer, agent: AgentProcess) -> None:
    hog = "head -c 300000000 /dev/zero | tail -c 300000000 | sleep 2; sleep 1000"
    done = await result_of(server, a_grant("a", hog, memory=64 * MIB))
    assert (done.outcome, done.signal, done.HasField("exit_code")) == (
        pb.OUT_OF_MEMORY,
        signal.SIGKILL,
        False,
    )
    assert done.peak_memory >= 60 * MIB
    after = await result_of(server, a_grant("b", "true", memory=64 * MIB, seq=2))
    assert (after.outcome, after.exit_code) == (pb.EXITED, 0), "the next task has nothing to do with it"


async def test_memory_within_what_was_asked_for_and_without_a_request_is_let_be(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    eat = script("import time", "x = bytearray(100 << 20)", "time.sleep(0.6)")
    within = await result_of(server, a_grant("a", argv=eat, memory=400 * MIB))
    free = await result_of(server, a_grant("b", argv=eat, seq=2))
    assert [each.outcome for each in (within, free)] == [pb.EXITED] * 2
    assert [each.exit_code for each in (within, free)] == [0, 0]
    assert within.peak_memory >= 100 * MIB


async def test_a_task_has_an_empty_folder_of_its_own_that_is_gone_afterwards(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    fill = 'ls -A "$TMPDIR"; touch "$SPILL_SCRATCH/a"; mkdir -p "$TMPDIR/b/c"; chmod 0 "$TMPDIR/b"; echo done'
    for number in range(4):
        await result_of(server, a_grant(f"a{number}", fill, seq=number + 1))
        assert await output_of(server, f"a{number}") == b"done\n"
    assert not list((agent.folder / "scratch").glob("*/*/*"))


async def test_a_task_that_removes_its_folder_harms_nobody(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    await result_of(server, a_grant("a", 'rmdir "$TMPDIR"'))
    done = await result_of(server, a_grant("b", 'touch "$TMPDIR/x"', seq=2))
    assert done.exit_code == 0


async def test_a_task_that_kills_whoever_made_it_is_lost_and_the_agent_goes_on(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    run = f"setsid env -i sleep 1000 & echo $! >{told}; sleep 0.2; kill -9 $PPID; sleep 1000"
    done = await result_of(server, a_grant("a", run))
    assert done.outcome == pb.LOST
    after = await result_of(server, a_grant("b", "echo fine", seq=2))
    assert (after.outcome, after.exit_code) == (pb.EXITED, 0)
    if "cgroup" in agent.said():
        assert not [pid for pid in pids_in(told) if alive(pid)]
    for pid in pids_in(told):  # without groups one that hides outlives the death of its maker
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """The data folder on a disk of its own, of a few megabytes."""
    where = tmp_path / "data"
    where.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(where)]
    if (
        shutil.which("mount") is None
        or subprocess.run(words, capture_output=True, check=False).returncode != 0
    ):
        pytest.skip("needs the right to mount")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.mark.parametrize("where", ['"$TMPDIR/x"', "/dev/stdout"])
async def test_a_task_that_fills_the_disk_ends_and_the_next_one_has_room(small: Path, where: str) -> None:
    async with ScriptedServer(small) as server, AgentProcess(small, "--output-limit", "2Mi"):
        await server.connected()
        fill = f"head -c 5000000 /dev/zero >{where}; head -c 50000000 /dev/zero >{where.replace('x', 'y')}"
        done = await result_of(server, a_grant("a", fill))
        assert done.outcome == pb.EXITED
        if "TMPDIR" in where:
            assert done.exit_code == 1
        after = await result_of(
            server, a_grant("b", 'head -c 3000000 /dev/zero >"$TMPDIR/x" && echo room', seq=2)
        )
        assert after.exit_code == 0
        assert await output_of(server, "b") == b"room\n"


async def test_what_is_used_is_said_in_the_log_and_in_the_registration(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    kind = server.registrations[-1].labels["isolation"]
    assert kind in {"cgroup-v1", "cgroup-v2", "watch"}
    assert f"isolation of tasks: {kind}" in agent.said()


async def test_isolation_that_cannot_be_had_is_one_clear_line(server: ScriptedServer, tmp_path: Path) -> None:
    agent = AgentProcess(server.data, "--isolation", "bad")
    await agent.start()
    assert await agent.wait() == 2
    assert "invalid choice: 'bad'" in agent.said()


async def test_a_killed_agent_leaves_no_process_and_no_group(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    server.grant(a_grant("a", argv=(*script(*HIDE, "time.sleep(1000)"), str(told))))
    await until(lambda: told.exists() and len(pids_in(told)) == 2, "the start of both")
    groups = groups_of(agent)
    await agent.kill()
    await until(lambda: not any(alive(pid) for pid in pids_in(told)), "the end of both")
    await until(lambda: not any(group.exists() for group in groups), "the end of groups")


async def test_what_an_agent_and_its_nursery_left_when_both_were_killed_ends_with_the_next_life(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    if not groups_of(agent):
        pytest.skip("without groups a process that hides cannot be found")
    told = tmp_path / "pids"
    server.grant(a_grant("a", argv=(*script(*HIDE, "time.sleep(1000)"), str(told))))
    await until(lambda: told.exists() and len(pids_in(told)) == 2, "the start of both")
    nurseries = [each.pid for each in psutil.Process(agent.pid).children()]
    os.kill(agent.pid, signal.SIGSTOP)
    for pid in nurseries:
        os.kill(pid, signal.SIGKILL)
    await agent.kill()
    assert all(alive(pid) for pid in pids_in(told))
    await agent.start()
    await until(lambda: not any(alive(pid) for pid in pids_in(told)), "the end of both")
    await server.until(lambda: server.incarnation == 2)
