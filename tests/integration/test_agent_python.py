"""A real agent makes Python calls in warm workers, for a scripted server."""

import asyncio
import json
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from spillover.agent.runners.workers import MOST_CONTEXTS
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.agent_process import AgentProcess, a_grant
from tests.support.processes import alive
from tests.support.scripted_server import ScriptedServer

MODULE = """
import gc, os, signal, subprocess, sys, time

def double(x):
    return 2 * x

def where():
    return [os.getpid(), os.getcwd(), os.environ["SPILL_JOB_ID"], os.environ.get("SPILL_ARRAY_INDEX")]

def talk():
    print("from Python")
    print("an error", file=sys.stderr)
    os.system("echo from a child")

def fail():
    raise ValueError("no such thing")

def meddle():
    os.environ["MEDDLED"] = "yes"
    os.environ.pop("PATH")
    os.chdir("/")
    sys.stdout = None

def meddled():
    return [os.environ.get("MEDDLED"), "PATH" in os.environ, os.getcwd(), sys.stdout is None]

def sleep(seconds):
    print("sleeps", flush=True)
    time.sleep(seconds)

def crash():
    print("last words")
    sys.stdout.flush()
    os.kill(os.getpid(), 11)

def leave(code):
    os._exit(code)

def stop(code):
    sys.exit(code)

def child():
    return subprocess.Popen(["sleep", "1000"]).pid

def odd():
    return object()

def write(megabytes, pause):
    for _ in range(megabytes):
        os.write(1, b"x" * 1023 * 1024 + b"." * 1023 + b"\\n")
        time.sleep(pause / megabytes)

def hog(megabytes):
    kept = [b"x" * (1 << 20) for _ in range(megabytes)]
    return len(kept)

def getenv(name):
    return os.environ.get(name)

def pause(seconds):
    time.sleep(seconds)

def heed(name, seconds):
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    with open("begun", "a") as file:
        print(name, file=file)
    until = time.monotonic() + seconds
    while not told and time.monotonic() < until:
        time.sleep(0.001)
    return os.getpid()

def contexts(_):
    return [os.getpid(), sum(type(each).__name__ == "_Context" for each in gc.get_objects())]

def work(most):
    import threading
    from spillover import checkpoint
    saved = []
    asked = threading.Event()
    def ask():
        while not checkpoint():
            time.sleep(0.001)
        asked.set()
    threading.Thread(target=ask).start()
    asked.wait(most)
    return asked.is_set()

def stops(most):
    from spillover import checkpoint
    print("works", flush=True)
    until = time.monotonic() + most
    while time.monotonic() < until:
        if checkpoint():
            print("saves", flush=True)
            return "saved"
        time.sleep(0.001)

async def later():
    return "later"
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(tmp_path / "data") as server:
        yield server


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mine.py").write_text(MODULE)
    return folder


@pytest.fixture
async def agent(server: ScriptedServer) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(server.data) as agent:
        await server.connected()
        yield agent


def a_call(job: str, function: str, *args: object, workdir: Path, walltime: int = 0) -> pb.Grant:
    grant = a_grant(job, "", workdir=str(workdir), walltime=walltime)
    call = pb.PythonCall(call=f"mine:{function}", args=json.dumps(args).encode())
    grant.task.python.CopyFrom(call)
    return grant


async def result_of(server: ScriptedServer, grant: pb.Grant) -> pb.TaskResult:
    server.grant(grant)
    return await result(server, grant)


async def result(server: ScriptedServer, grant: pb.Grant) -> pb.TaskResult:
    key = (grant.lease.job, grant.lease.attempt, grant.lease.seq, grant.lease.task)
    await server.until(lambda: key in server.results)
    return server.results[key]


async def output_of(server: ScriptedServer, job: str, *, stderr: bool = False) -> bytes:
    read = pb.OutputRead(id=len(server.output) + 1, job=job, attempt=1, stderr=stderr)
    server.read(read)
    await server.until(lambda: read.id in server.output_ended)
    assert not server.output_ended[read.id]
    return bytes(server.output[read.id])


async def test_an_agent_offers_python(server: ScriptedServer, agent: AgentProcess) -> None:
    offers = server.registrations[0].offers
    assert "python" in offers
    assert f"python:{sys.version_info[0]}.{sys.version_info[1]}" in offers


async def test_an_agent_offers_the_version_of_the_interpreter_that_it_was_given(
    server: ScriptedServer, tmp_path: Path
) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.42\n")
    other.chmod(0o755)
    async with AgentProcess(server.data, "--python", str(other)):
        await server.connected()
    assert [word for word in server.registrations[0].offers if word.startswith("python")] == [
        "python",
        "python:3.42",
    ]


async def test_calls_ask_whether_to_save_before_their_walltime_each_for_itself(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    for job in ("a", "b"):
        grant = a_call(job, "work", 15, workdir=workdir, walltime=20 * SECOND)
        grant.task.signal, grant.task.signal_before = "TERM", 19 * SECOND + SECOND // 2
        assert json.loads((await result_of(server, grant)).value) is True
    assert not list((agent.folder / "signals").iterdir())


async def test_a_call_that_is_stopped_saves_in_its_grace(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    done = await result_of(server, a_call("a", "stops", 15, workdir=workdir, walltime=SECOND))
    assert (done.outcome, json.loads(done.value)) == (pb.WALLTIME, "saved")
    assert await output_of(server, "a") == b"works\nsaves\n"


async def test_a_call_returns_plain_data(server: ScriptedServer, agent: AgentProcess, workdir: Path) -> None:
    done = await result_of(server, a_call("a", "double", 21, workdir=workdir))
    assert (done.outcome, done.exit_code, json.loads(done.value)) == (pb.EXITED, 0, 42)
    assert done.ran > 0
    assert done.peak_memory > 0


async def test_calls_share_a_process_and_know_whose_they_are(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    first = json.loads((await result_of(server, a_call("a", "where", workdir=workdir))).value)
    second = json.loads((await result_of(server, a_call("b.7", "where", workdir=workdir))).value)
    third = json.loads((await result_of(server, a_call("c", "where", workdir=workdir))).value)
    assert first == [first[0], str(workdir), "a", None]
    assert second == [first[0], str(workdir), "b.7", "7"]
    assert third == [first[0], str(workdir), "c", None]


async def test_output_is_that_of_its_call(server: ScriptedServer, agent: AgentProcess, workdir: Path) -> None:
    await result_of(server, a_call("a", "double", 1, workdir=workdir))
    await result_of(server, a_call("b", "talk", workdir=workdir))
    await result_of(server, a_call("c", "double", 1, workdir=workdir))
    assert await output_of(server, "b") == b"from Python\nfrom a child\n"
    assert await output_of(server, "b", stderr=True) == b"an error\n"
    assert await output_of(server, "a") == b""
    assert await output_of(server, "c") == b""


async def test_an_exception_is_a_failure_with_its_traceback(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    done = await result_of(server, a_call("a", "fail", workdir=workdir))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 1)
    told = json.loads(done.value)
    assert told["error"] == "ValueError: no such thing"
    assert 'in fail\n    raise ValueError("no such thing")' in told["traceback"]
    assert "worker.py" not in told["traceback"]
    assert (await output_of(server, "a", stderr=True)).decode() == told["traceback"]


async def test_what_a_call_changed_is_undone(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    await result_of(server, a_call("a", "meddle", workdir=workdir))
    done = await result_of(server, a_call("b", "meddled", workdir=workdir))
    assert json.loads(done.value) == [None, True, str(workdir), False]


async def test_code_that_changed_is_used_by_the_next_job(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    before = await result_of(server, a_call("a", "double", 1, workdir=workdir))
    (workdir / "mine.py").write_text("def double(x):\n    return 'another ' + str(x)\n")
    after = await result_of(server, a_call("b", "double", 2, workdir=workdir))
    assert (json.loads(before.value), json.loads(after.value)) == (2, "another 2")


async def test_a_worker_that_crashes_fails_its_call_only(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    grants = [a_call(f"a{n}", "double", n, workdir=workdir) for n in range(40)]
    crash = a_call("crash", "crash", workdir=workdir)
    server.grant(*grants[:20], crash, *grants[20:])
    done = await result(server, crash)
    assert (done.outcome, done.signal) == (pb.EXITED, signal.SIGSEGV)
    assert done.message == "its worker process ended of signal 11 before the call returned"
    assert await output_of(server, "crash") == b"last words\n"
    assert done.message.encode() in await output_of(server, "crash", stderr=True)
    for n, grant in enumerate(grants):
        assert json.loads((await result(server, grant)).value) == 2 * n
    assert all(count == 1 for count in server.told.values())


@pytest.mark.parametrize(("code", "told"), [(0, 1), (7, 7)])
async def test_a_worker_that_leaves_has_not_returned(
    server: ScriptedServer, agent: AgentProcess, workdir: Path, code: int, told: int
) -> None:
    done = await result_of(server, a_call("a", "leave", code, workdir=workdir))
    assert (done.outcome, done.exit_code, done.value) == (pb.EXITED, told, b"")


@pytest.mark.parametrize(("code", "told"), [(0, 0), (3, 3), ("bad", 1), (None, 0)])
async def test_sys_exit_ends_the_call_and_not_the_worker(
    server: ScriptedServer, agent: AgentProcess, workdir: Path, code: object, told: int
) -> None:
    first = json.loads((await result_of(server, a_call("a", "where", workdir=workdir))).value)
    done = await result_of(server, a_call("b", "stop", code, workdir=workdir))
    after = json.loads((await result_of(server, a_call("c", "where", workdir=workdir))).value)
    assert (done.exit_code, first[0]) == (told, after[0])


async def test_what_is_no_plain_data_is_a_clear_failure(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    done = await result_of(server, a_call("a", "odd", workdir=workdir))
    assert done.exit_code == 1
    assert "returned a object that is not plain data" in json.loads(done.value)["error"]


async def test_a_coroutine_is_run(server: ScriptedServer, agent: AgentProcess, workdir: Path) -> None:
    done = await result_of(server, a_call("a", "later", workdir=workdir))
    assert json.loads(done.value) == "later"


async def test_a_function_that_is_not_there_is_named(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    done = await result_of(server, a_call("a", "nothing", workdir=workdir))
    assert done.exit_code == 1
    assert "has no attribute 'nothing'" in json.loads(done.value)["error"]


async def test_children_are_gone_when_a_call_has_ended(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    done = await result_of(server, a_call("a", "child", workdir=workdir))
    assert not psutil.pid_exists(json.loads(done.value))
    assert json.loads((await result_of(server, a_call("b", "double", 2, workdir=workdir))).value) == 4


async def test_walltime_ends_a_call_and_a_new_worker_makes_the_next(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    first = json.loads((await result_of(server, a_call("a", "where", workdir=workdir))).value)
    done = await result_of(server, a_call("b", "sleep", 100, workdir=workdir, walltime=SECOND))
    assert done.outcome == pb.WALLTIME
    assert await output_of(server, "b") == b"sleeps\n"
    after = json.loads((await result_of(server, a_call("c", "where", workdir=workdir))).value)
    assert after[0] != first[0]
    assert not alive(first[0])


async def test_a_running_call_is_told_of_can_be_read_and_be_stopped(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    grant = a_call("a", "sleep", 100, workdir=workdir)
    server.grant(grant)
    await server.until(lambda: server.started[("a", 1, 1, 0)] > 0)
    read = pb.OutputRead(id=1, job="a", attempt=1, follow=True)
    server.read(read)
    await server.until(lambda: bytes(server.output[1]) == b"sleeps\n")
    server.next_heartbeat.append(pb.HeartbeatReply(epoch=1, stops=[pb.StopOrder(lease=grant.lease)]))
    done = await result(server, grant)
    assert (done.outcome, done.signal) == (pb.STOPPED, signal.SIGTERM)
    await server.until(lambda: 1 in server.output_ended)


async def test_short_calls_behind_a_long_one_are_made_elsewhere(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    """The pace of the function is known, so many are handed ahead; then one takes for ever."""
    short = [a_call(f"s{n}", "sleep", 0, workdir=workdir) for n in range(20)]
    server.grant(*short)
    for grant in short:
        await result(server, grant)
    long = a_call("long", "sleep", 100, workdir=workdir)
    more = [a_call(f"m{n}", "sleep", 0, workdir=workdir) for n in range(40)]
    server.grant(long, *more)
    for grant in more:
        await result(server, grant)
    assert ("long", 1, 1, 0) not in server.results


async def test_short_calls_behind_one_that_returns_at_its_walltime_are_made_elsewhere(
    server: ScriptedServer, workdir: Path
) -> None:
    """Sooner than those behind a long one are had back."""
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        for name in ("w0", "w1", "w2"):
            await result_of(server, a_call(name, "heed", name, 0, workdir=workdir))
        first = a_call("a", "heed", "a", 100, workdir=workdir, walltime=SECOND // 50)
        behind = [a_call(name, "heed", name, 0, workdir=workdir) for name in ("b", "c", "d")]
        server.grant(first, *behind)
        done = [await result(server, grant) for grant in (first, *behind)]
    assert [each.outcome for each in done] == [pb.WALLTIME, pb.EXITED, pb.EXITED, pb.EXITED]
    assert done[0].value not in {each.value for each in done[1:]}, "or it was the same worker"
    begun = (workdir / "begun").read_text().split()
    assert len(begun) == len(set(begun)), "each once"
    assert all(count == 1 for count in server.told.values())


async def test_nothing_is_left_when_the_agent_is_killed(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    first = json.loads((await result_of(server, a_call("a", "where", workdir=workdir))).value)
    grant = a_call("b", "sleep", 100, workdir=workdir)
    server.grant(grant)
    await server.until(lambda: server.started[("b", 1, 1, 0)] > 0)
    await agent.kill()
    await agent.start()
    assert (await result(server, grant)).outcome == pb.LOST
    assert not alive(first[0])


async def test_output_is_bounded_while_a_call_writes_and_at_its_end(
    server: ScriptedServer, workdir: Path
) -> None:
    async with AgentProcess(server.data, "--output-limit", "1Mi") as agent:
        await server.connected()
        done = await result_of(server, a_call("a", "write", 64, 0.5, workdir=workdir))
        assert done.exit_code == 0
        done = await result_of(server, a_call("b", "write", 8, 0, workdir=workdir))
        for job in ("a", "b"):
            (file,) = (agent.folder / "output" / job[:2]).glob(f"{job}.*.out")
            assert file.stat().st_blocks * 512 < 3 << 20
            told = await output_of(server, job)
            assert b"bytes left out" in told
            assert len(told) < 2 << 20


async def test_more_memory_than_was_asked_for_ends_the_call_and_is_named(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    hog = a_call("a", "hog", 600, workdir=workdir)
    hog.task.resources.memory = 100 << 20
    done = await result_of(server, hog)
    assert done.outcome == pb.OUT_OF_MEMORY
    small = a_call("b", "double", 2, workdir=workdir)
    small.task.resources.memory = 100 << 20
    assert json.loads((await result_of(server, small)).value) == 4


async def test_a_worker_is_replaced_after_some_calls(server: ScriptedServer, workdir: Path) -> None:
    async with AgentProcess(server.data, "--python-calls", "2", cpu="1"):
        await server.connected()
        pids = [
            json.loads((await result_of(server, a_call(f"a{n}", "where", workdir=workdir))).value)[0]
            for n in range(4)
        ]
    assert (pids[0], pids[2]) == (pids[1], pids[3])
    assert pids[1] != pids[2]


async def test_calls_of_other_variables_need_another_worker_and_idle_ones_make_room(
    server: ScriptedServer, workdir: Path
) -> None:
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        first = json.loads((await result_of(server, a_call("a", "where", workdir=workdir))).value)[0]
        idle = psutil.Process(first)
        other = a_call("b", "getenv", "MINE", workdir=workdir)
        other.task.env["MINE"] = "yes"
        assert json.loads((await result_of(server, other)).value) == "yes"
        unset = await result_of(server, a_call("c", "getenv", "MINE", workdir=workdir))
        assert json.loads(unset.value) is None
        _, left = await asyncio.to_thread(psutil.wait_procs, [idle], 10)
        assert not left


async def test_a_folder_that_is_not_there_is_not_blamed_on_the_interpreter(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    done = await result_of(server, a_call("a", "double", 21, workdir=Path("/no/such/folder")))
    assert done.outcome == pb.NOT_STARTED
    assert done.message == "workdir '/no/such/folder': No such file or directory"


async def test_an_interpreter_that_does_not_work_is_named(server: ScriptedServer, workdir: Path) -> None:
    async with AgentProcess(server.data, "--python", "/bin/false"):
        await server.connected()
        done = await result_of(server, a_call("a", "double", 1, workdir=workdir))
    assert done.outcome == pb.NOT_STARTED
    assert done.message.startswith("/bin/false does not work: ")


async def test_a_call_that_is_stopped_before_it_began_never_does(
    server: ScriptedServer, workdir: Path
) -> None:
    async with AgentProcess(server.data, cpu="1"):
        await server.connected()
        for n in range(3):
            await result_of(server, a_call(f"w{n}", "pause", 0, workdir=workdir))
        slow = a_call("slow", "pause", 1.0, workdir=workdir)
        behind = [a_call(f"b{n}", "pause", 0, workdir=workdir) for n in range(6)]
        server.grant(slow, *behind)
        stops = [pb.StopOrder(lease=grant.lease) for grant in behind[:3]]
        server.next_heartbeat.append(pb.HeartbeatReply(epoch=1, stops=stops))
        for grant in (slow, *behind):
            await result(server, grant)
    outcomes = {key[0]: done.outcome for key, done in server.results.items()}
    assert {outcomes[f"b{n}"] for n in range(3, 6)} | {outcomes["slow"]} == {pb.EXITED}
    assert all(count == 1 for count in server.told.values())


async def test_calls_go_on_after_the_process_that_starts_workers_died(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    first = json.loads((await result_of(server, a_call("a", "where", workdir=workdir))).value)
    grant = a_call("b", "sleep", 100, workdir=workdir)
    server.grant(grant)
    await server.until(lambda: server.started[("b", 1, 1, 0)] > 0)
    children = psutil.Process(agent.pid).children()
    for nursery in children:
        if any(each.pid == first[0] for each in nursery.children()):
            nursery.kill()
    assert (await result(server, grant)).outcome == pb.LOST
    after = json.loads((await result_of(server, a_call("c", "where", workdir=workdir))).value)
    assert after[0] != first[0]
    assert not alive(first[0])


async def test_a_work_folder_that_is_missing_is_named(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    done = await result_of(server, a_call("a", "double", 1, workdir=tmp_path / "none"))
    assert done.outcome == pb.NOT_STARTED
    assert "No such file or directory" in done.message


def test_pickle_begins_as_no_json_does() -> None:
    assert pickle.dumps(None, 5)[:1] == b"\x80"
    assert os.sep == "/"


async def test_a_worker_does_not_keep_what_calls_were_made_with(
    server: ScriptedServer, agent: AgentProcess, workdir: Path
) -> None:
    pids = set()
    for at in range(3 * MOST_CONTEXTS):
        call = a_call(f"job{at}", "contexts", "x" * 1000 + str(at), workdir=workdir)
        pid, kept = json.loads((await result_of(server, call)).value)
        pids.add(pid)
        assert kept <= MOST_CONTEXTS
    assert len(pids) == 1, "or it was another worker each time"
