"""A real agent runs real processes for a scripted server."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from spillover.agent.nursery.affinity import numbers
from spillover.agent.tasks.topology import memory_nodes
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.agent_process import AgentProcess, a_grant
from tests.support.processes import alive
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(tmp_path / "data") as server:
        yield server


@pytest.fixture
async def agent(server: ScriptedServer) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(server.data) as agent:
        await server.connected()
        yield agent


async def result_of(server: ScriptedServer, grant: pb.Grant) -> pb.TaskResult:
    server.grant(grant)
    return await result(server, grant)


async def result(server: ScriptedServer, grant: pb.Grant) -> pb.TaskResult:
    key = (grant.lease.job, grant.lease.attempt, grant.lease.seq, grant.lease.task)
    await server.until(lambda: key in server.results)
    return server.results[key]


async def output_of(server: ScriptedServer, job: str, *, stderr: bool = False, offset: int = 0) -> bytes:
    read = pb.OutputRead(id=len(server.output) + 1, job=job, attempt=1, stderr=stderr, offset=offset)
    server.read(read)
    await server.until(lambda: read.id in server.output_ended)
    assert not server.output_ended[read.id]
    return bytes(server.output[read.id])


async def lines(server: ScriptedServer, read: pb.OutputRead, count: int) -> None:
    await server.until(lambda: server.output[read.id].count(b"\n") >= count)


async def test_a_task_is_reported_with_its_exit_code_and_what_it_used(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_grant("a", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3"))
    assert (done.outcome, done.exit_code, done.HasField("signal")) == (pb.EXITED, 3, False)
    assert done.ran > 0
    assert 0 < done.cpu < 10 * SECOND
    assert 0 < done.peak_memory < 40 << 20, "the agent's own memory must not count"


async def test_peak_memory_is_that_of_the_largest_process(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    size = 150 << 20
    done = await result_of(server, a_grant("a", f"head -c {size} /dev/zero | tail -c {size} >/dev/null"))
    assert done.exit_code == 0
    assert done.peak_memory >= size


async def test_a_task_that_dies_of_a_signal_is_reported_with_it(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_grant("a", "kill -USR1 $$"))
    assert (done.outcome, done.signal, done.HasField("exit_code")) == (pb.EXITED, signal.SIGUSR1, False)


NOTICED = """
trap 'echo noticed' USR1
sleep 1000 & asleep=$!
echo ready
wait
kill -0 $asleep && echo "the other sleeps on"
"""


async def test_the_signal_before_a_walltime_goes_to_those_who_handle_it(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", NOTICED, walltime=20 * SECOND)
    grant.task.signal, grant.task.signal_before = "USR1", 19 * SECOND + SECOND // 2
    done = await result_of(server, grant)
    assert (done.outcome, done.exit_code) == (pb.EXITED, 0)
    assert await output_of(server, "a") == b"ready\nnoticed\nthe other sleeps on\n"


async def test_words_are_run_as_they_are(server: ScriptedServer, agent: AgentProcess) -> None:
    await result_of(server, a_grant("a", argv=("printf", "%s|", "a b", "$HOME", "*")))
    assert await output_of(server, "a") == b"a b|$HOME|*|"


async def test_a_program_that_is_missing_ends_as_in_a_shell(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_grant("a", argv=("no-such-program",)))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 127)
    assert await output_of(server, "a", stderr=True) == b"no-such-program: No such file or directory\n"


async def test_a_file_that_is_no_program_ends_as_in_a_shell(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("hello")
    done = await result_of(server, a_grant("a", argv=(str(plain),)))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 126)


async def test_a_missing_workdir_is_a_start_that_failed_and_says_so(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_grant("a", "true", workdir="/no/such/folder"))
    assert done.outcome == pb.NOT_STARTED
    assert done.message == "workdir '/no/such/folder': No such file or directory"
    assert not done.HasField("exit_code")


async def test_an_environment_that_cannot_be_is_a_start_that_failed(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_grant("a", "true", env={"BAD": "a\0b"}))
    assert done.outcome == pb.NOT_STARTED
    assert "null" in done.message


async def test_tasks_run_in_their_workdir_with_a_clean_environment(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    grants = [
        a_grant(f"job{i}", "pwd; env; cat", workdir=str((first, second)[i % 2]), env={"COLOUR": "red"})
        for i in range(6)
    ]
    server.grant(*grants, a_grant("array.7", "env"))
    await server.until(lambda: len(server.results) == 7)
    for i in range(6):
        text = (await output_of(server, f"job{i}")).decode().splitlines()
        assert text[0] == str((first, second)[i % 2])
        env = dict(line.split("=", 1) for line in text[1:])
        assert env["COLOUR"] == "red"
        assert (env["SPILL_JOB_ID"], env["SPILL_ATTEMPT"], env["SPILL_CLUSTER"]) == (f"job{i}", "1", "lab")
        assert "SPILL_ARRAY_INDEX" not in env
        assert "VIRTUAL_ENV" not in env
        assert not [name for name in env if name.startswith("PYTEST")]
    assert b"SPILL_ARRAY_INDEX=7\n" in await output_of(server, "array.7")


# --- stopping


async def test_what_ignores_term_is_killed_after_its_grace_with_all_its_children(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    run = "trap '' TERM; (sleep 600 & echo $!; wait) & sleep 600 & echo $!; wait; wait; wait"
    grant = a_grant("a", run, grace=SECOND // 2)
    server.grant(grant)
    read = pb.OutputRead(id=1, job="a", attempt=1, follow=True)
    server.read(read)
    await lines(server, read, 2)
    server.order(pb.HeartbeatReply(epoch=1, stops=[pb.StopOrder(lease=grant.lease)]))
    done = await result(server, grant)
    assert (done.outcome, done.signal) == (pb.STOPPED, signal.SIGKILL)
    assert not [pid for pid in map(int, server.output[1].split()) if alive(pid)]


async def test_a_stop_lets_a_task_end_by_itself_within_its_grace(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant(
        "a", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done", grace=20 * SECOND
    )
    server.grant(grant)
    read = pb.OutputRead(id=1, job="a", attempt=1, follow=True)
    server.read(read)
    await lines(server, read, 1)
    server.order(pb.HeartbeatReply(epoch=1, stops=[pb.StopOrder(lease=grant.lease)]))
    done = await result(server, grant)
    assert (done.outcome, done.exit_code) == (pb.STOPPED, 5)
    assert await output_of(server, "a") == b"up\nbye\n"


async def test_children_that_outlive_their_leader_are_killed_wherever_they_fled(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    run = f"sleep 600 & echo $! >> {pids}; setsid sleep 601 & echo $! >> {pids}; (setsid sh -c 'setsid sleep 602 & sleep 603' &) ; sleep 0.2"
    done = await result_of(server, a_grant("a", run))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 0)
    assert not [pid for pid in map(int, pids.read_text().split()) if alive(pid)]
    left = [p for p in psutil.process_iter() if _mark(p) == str(agent.folder)]
    assert not left


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("SPILL_AGENT")
    except psutil.Error:
        return None


async def test_a_task_is_stopped_at_its_walltime(server: ScriptedServer, agent: AgentProcess) -> None:
    done = await result_of(server, a_grant("a", "sleep 600", walltime=SECOND // 5))
    assert (done.outcome, done.signal) == (pb.WALLTIME, signal.SIGTERM)
    assert SECOND // 5 <= done.ran < 10 * SECOND


async def test_a_lease_that_waits_is_stopped_without_a_start(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    first, second = a_grant("a", "sleep 600", cpu=2000), a_grant("b", "true", cpu=2000)
    server.grant(first, second)
    await server.until(lambda: len(server.started) == 1)
    stops = [pb.StopOrder(lease=second.lease), pb.StopOrder(lease=first.lease, kill=True)]
    server.order(pb.HeartbeatReply(epoch=1, stops=stops))
    assert (await result(server, second)).outcome == pb.STOPPED
    assert (await result(server, first)).signal == signal.SIGKILL


# --- output


async def test_both_streams_are_kept_apart_and_read_from_any_offset(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    await result_of(server, a_grant("a", "echo to out; echo to err >&2"))
    assert await output_of(server, "a") == b"to out\n"
    assert await output_of(server, "a", offset=3) == b"out\n"
    assert await output_of(server, "a", stderr=True) == b"to err\n"


async def test_large_output_comes_whole(server: ScriptedServer, agent: AgentProcess) -> None:
    await result_of(server, a_grant("a", "seq 1 10000; head -c 1000000 /dev/zero"))
    expected = "".join(f"{i}\n" for i in range(1, 10_001)).encode() + bytes(1_000_000)
    assert await output_of(server, "a") == expected


async def test_a_task_without_output_has_empty_output_and_no_files(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    await result_of(server, a_grant("a", "true"))
    assert await output_of(server, "a") == b""
    files = [path for path in (agent.folder / "output").rglob("*") if path.is_file()]
    assert {path.parent.parent.name for path in files} == {"spool"}


async def test_output_is_followed_live_until_the_end(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    grant = a_grant("a", f"echo one; while [ ! -e {go} ]; do sleep 0.02; done; echo two")
    server.grant(grant)
    read = pb.OutputRead(id=1, job="a", attempt=1, follow=True)
    server.read(read)
    await lines(server, read, 1)
    assert not server.results
    assert 1 not in server.output_ended
    go.touch()
    await server.until(lambda: 1 in server.output_ended)
    assert bytes(server.output[1]) == b"one\ntwo\n"


async def test_a_read_without_follow_ends_while_the_task_runs(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", "echo one; exec sleep 600")
    server.grant(grant)
    follow = pb.OutputRead(id=1, job="a", attempt=1, follow=True)
    server.read(follow)
    await lines(server, follow, 1)
    assert await output_of(server, "a") == b"one\n"
    server.read(pb.OutputRead(id=1, job="a", attempt=1, stop=True))
    server.order(pb.HeartbeatReply(epoch=1, stops=[pb.StopOrder(lease=grant.lease)]))
    await result(server, grant)
    assert 1 not in server.output_ended


async def test_two_followers_of_one_task_both_see_its_end(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    grant = a_grant("a", f"echo one; while [ ! -e {go} ]; do sleep 0.02; done; echo two")
    server.grant(grant)
    reads = [pb.OutputRead(id=i, job="a", attempt=1, follow=True) for i in (1, 2)]
    for read in reads:
        server.read(read)
    for read in reads:
        await lines(server, read, 1)
    go.touch()
    await server.until(lambda: set(server.output_ended) == {1, 2})
    assert server.output[1] == server.output[2] == b"one\ntwo\n"


async def test_a_request_for_an_impossible_job_is_answered_with_an_error(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    server.read(pb.OutputRead(id=1, job="../../etc/passwd", attempt=1))
    await server.until(lambda: 1 in server.output_ended)
    assert "not an id" in server.output_ended[1]


async def test_output_of_one_task_never_shows_in_another(server: ScriptedServer, agent: AgentProcess) -> None:
    grants = [a_grant(f"job{i}", f"echo {i}" if i % 3 else "true") for i in range(60)]
    server.grant(*grants)
    await server.until(lambda: len(server.results) == 60)
    for i in range(60):
        assert await output_of(server, f"job{i}") == (f"{i}\n".encode() if i % 3 else b"")


async def test_two_tasks_see_different_gpus(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: Fake (UUID: GPU-0)'\necho 'GPU 1: Fake (UUID: GPU-1)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    show = 'echo "$CUDA_VISIBLE_DEVICES"; while [ ! -e go ]; do sleep 0.01; done'
    async with AgentProcess(server.data, cpu="3"):
        await server.connected()
        assert server.registrations[-1].capacity.gpu == 2
        grants = [a_grant(f"g{n}", show, gpu=1, cpu=1, workdir=str(tmp_path)) for n in range(2)]
        server.grant(*grants, a_grant("none", show, cpu=1, workdir=str(tmp_path)))
        reads = [
            pb.OutputRead(id=n, job=job, attempt=1, follow=True)
            for n, job in enumerate(("g0", "g1", "none"), 1)
        ]
        for read in reads:
            server.read(read)
            await lines(server, read, 1)
        assert [bytes(server.output[read.id]) for read in reads] == [b"0\n", b"1\n", b"\n"]
        (tmp_path / "go").touch()
        for grant in grants:
            await result(server, grant)
        await result_of(server, a_grant("after", show, gpu=2, workdir=str(tmp_path), seq=2))
        assert await output_of(server, "after") == b"0,1\n"


async def test_work_that_is_too_large_for_a_message_is_run_as_it_is(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    words = [str(number) * 20_000 for number in range(5)]
    await result_of(server, a_grant("a", argv=("printf", "%s", *words), env={"LARGE": "x" * 100_000}))
    assert await output_of(server, "a") == "".join(words).encode()
    assert not list(agent.folder.glob("large-*"))


async def test_outputs_that_arrive_after_the_walltime_are_those_of_a_task_that_ended_well(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", "echo 1 > result", walltime=2 * SECOND)
    grant.task.outputs.append("result")
    server.taking.clear()
    server.grant(grant)
    await server.until(lambda: server.uploads > 0)
    beats = server.heartbeats
    overdue = [pb.StopOrder(lease=grant.lease, overdue=True)]
    # One in 0.2 s: past the walltime, and the server says so as well.
    server.next_heartbeat += [pb.HeartbeatReply(epoch=1, stops=overdue) for _ in range(12)]
    await server.until(lambda: server.heartbeats >= beats + 12)
    assert not server.results
    server.taking.set()
    done = await result(server, grant)
    assert (done.outcome, done.exit_code, done.message) == (pb.EXITED, 0, "")
    assert len(done.outputs) == 64


SHOW = "grep Cpus_allowed_list /proc/self/status | cut -f2"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("isolation", ["auto", "none"])
async def test_a_task_runs_on_the_cpus_that_it_has_for_itself_and_others_on_the_rest(
    server: ScriptedServer, isolation: str
) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    rest = sorted(os.sched_getaffinity(0) - {second})
    async with AgentProcess(server.data, "--isolation", isolation, cpu="4") as agent:
        await server.connected()
        loose = a_grant("loose", f"read x < {agent.folder}/go; {SHOW}")
        os.mkfifo(agent.folder / "go")
        server.grant(loose)
        await server.until(lambda: any(lease[0] == "loose" for lease in server.started))
        assert agent.folder.exists()
        (member,) = [
            each
            for each in psutil.Process(agent.pid).children(recursive=True)
            if "/go" in " ".join(each.cmdline())
        ]
        before = member.cpu_affinity()
        show_memory = SHOW.replace("Cpus", "Mems")
        pinned = a_grant("pinned", f"{SHOW}; {show_memory}; read x < {agent.folder}/stay")
        pinned.cpus, pinned.binds_memory = str(second), True
        os.mkfifo(agent.folder / "stay")
        server.grant(pinned)
        await server.until(lambda: any(lease[0] == "pinned" for lease in server.started))
        later = a_grant("later", SHOW)
        await result_of(server, later)
        assert numbers((await output_of(server, "later")).decode()) == set(rest)
        await server.until(lambda: member.cpu_affinity() == rest)
        assert set(before or ()) >= {first, second}
        for each in ("go", "stay"):
            (agent.folder / each).write_text("go\n")
        await result(server, loose)
        await result(server, pinned)
        cpus, memory = (await output_of(server, "pinned")).decode().split()
        assert numbers(cpus) == {second}
        assert numbers(memory_nodes(str(second))) <= numbers(memory)
        await result_of(server, a_grant("after", SHOW))
        assert numbers((await output_of(server, "after")).decode()) >= {first, second}
