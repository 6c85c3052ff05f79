"""A real agent runs containers through a real engine, for a scripted server."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from spillover.model.inside import cpu_mask, cpu_numbers
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.agent_process import AgentProcess, a_grant
from tests.support.containers import IMAGE, ContainerEngine, missing
from tests.support.processes import wait_until
from tests.support.scripted_server import ScriptedServer, key_of


@pytest.fixture(scope="module")
def loaded() -> Iterator[ContainerEngine]:
    if (why := missing()) is not None:
        pytest.skip(why)
    # Sockets of an engine are below its folder, and their paths have 107 characters at the most.
    with tempfile.TemporaryDirectory(prefix="e-") as folder:
        engine = ContainerEngine(Path(folder))
        engine.load()
        yield engine
        engine.clear()


@pytest.fixture
def engine(loaded: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> ContainerEngine:
    for name, value in loaded.env.items():
        monkeypatch.setenv(name, value)
    return loaded


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(tmp_path / "data") as server:
        yield server


@pytest.fixture
async def agent(engine: ContainerEngine, server: ScriptedServer) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(server.data, "--engine", "podman") as agent:
        await server.connected()
        yield agent


def a_container(job: str, *command: str, image: str = IMAGE, **more: Any) -> pb.Grant:
    memory = more.pop("memory", 0)
    grant = a_grant(job, "", **more)
    grant.task.container.CopyFrom(pb.Container(image=image, command=command))
    grant.task.resources.memory = memory
    return grant


def a_manifest(job: str, container: dict[str, Any], **pod: Any) -> pb.Grant:
    grant = a_container(job)
    manifest = {"spec": {"template": {"spec": {"containers": [{"image": IMAGE} | container], **pod}}}}
    grant.task.container.manifest = json.dumps(manifest).encode()
    return grant


async def result_of(server: ScriptedServer, grant: pb.Grant) -> pb.TaskResult:
    server.grant(grant)
    key = (grant.lease.job, grant.lease.attempt, grant.lease.seq, grant.lease.task)
    await server.until(lambda: key in server.results)
    return server.results[key]


async def output_of(server: ScriptedServer, job: str) -> bytes:
    read = pb.OutputRead(id=len(server.output) + 1, job=job, attempt=1)
    server.read(read)
    await server.until(lambda: read.id in server.output_ended)
    return bytes(server.output[read.id])


async def test_a_container_runs_in_the_work_folder_with_its_environment(
    server: ScriptedServer, agent: AgentProcess, engine: ContainerEngine, tmp_path: Path
) -> None:
    assert {"container", "container:python"} <= {*server.registrations[0].offers}
    words = ("sh", "-c", "pwd; echo $MINE $SPILL_JOB_ID $SPILL_ARRAY_INDEX; touch made; exit 3")
    done = await result_of(server, a_container("a.7", *words, workdir=str(tmp_path), env={"MINE": "yes"}))
    assert (done.outcome, done.exit_code) == (pb.EXITED, 3)
    assert await output_of(server, "a.7") == f"{tmp_path}\nyes a.7 7\n".encode()
    assert (tmp_path / "made").exists()
    assert engine.containers() == []


async def test_what_a_container_s_variables_hold_is_on_no_command_line(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    words = ("sh", "-c", "echo $MINE $PATH; sleep 2")
    env = {"MINE": "hunter2", "PATH": "/bin:/mine"}
    server.grant(a_container("a", *words, workdir="/tmp", env=env))
    await server.until(lambda: bool(server.started))
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert any("spill-a-1" in line for line in lines)
    assert not any("hunter2" in line for line in lines)
    await server.until(lambda: bool(server.results))
    assert await output_of(server, "a") == b"hunter2 /bin:/mine\n"


async def test_a_container_gets_secrets_as_variables_and_files_and_none_on_a_command_line(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    server.secrets = {"db": b"hunter2", "license": b"of-mine"}
    grant = a_container("a", "sh", "-c", "echo $DB $(cat $L); sleep 2", workdir="/tmp")
    grant.task.secrets.add(name="db", variable="DB")
    grant.task.secrets.add(name="license", variable="L", file=True)
    server.grant(grant)
    await server.until(lambda: bool(server.started))
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert any("spill-a-1" in line for line in lines)
    assert not any("hunter2" in line or "of-mine" in line for line in lines)
    await server.until(lambda: bool(server.results))
    assert await output_of(server, "a") == b"hunter2 of-mine\n"
    for path in server.data.rglob("*"):
        if path.is_file() and path.suffix != ".out":
            assert b"hunter2" not in path.read_bytes()


async def test_without_a_command_the_image_says_what_runs(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    assert (await result_of(server, a_container("a", workdir="/tmp"))).exit_code == 0
    assert await output_of(server, "a") == b"the image's own command\n"


async def test_an_image_that_is_not_there_is_named(server: ScriptedServer, agent: AgentProcess) -> None:
    done = await result_of(
        server, a_container("a", "true", image="localhost/no-such-image:1", workdir="/tmp")
    )
    assert done.outcome == pb.NOT_STARTED
    assert done.message.startswith("podman could not run it: ")
    assert "no-such-image" in done.message


async def test_what_the_engine_refuses_is_told_in_its_words(
    engine: ContainerEngine, server: ScriptedServer
) -> None:
    option = "--engine-option=--ulimit=nofile=99999999:99999999"
    async with AgentProcess(server.data, "--engine", "podman", option):
        await server.connected()
        done = await result_of(server, a_container("a", "true", workdir="/tmp"))
    assert (done.outcome, done.message.startswith("podman could not run it: ")) == (pb.NOT_STARTED, True)
    assert "rlimit" in done.message
    assert engine.containers() == []


async def test_what_the_program_in_a_container_ends_with_is_its_own(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    own = await result_of(server, a_container("a", "sh", "-c", "exit 126", workdir="/tmp"))
    assert (own.outcome, own.exit_code) == (pb.EXITED, 126)
    absent = await result_of(server, a_container("b", "no-such-program", workdir="/tmp"))
    assert (absent.outcome, absent.exit_code) == (pb.EXITED, 127)


async def test_more_memory_than_was_asked_for_is_named(server: ScriptedServer, agent: AgentProcess) -> None:
    words = ("dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1")
    done = await result_of(server, a_container("a", *words, memory=32 << 20, workdir="/tmp"))
    assert done.outcome == pb.OUT_OF_MEMORY


async def test_a_container_that_ignores_term_is_killed_after_its_grace(
    server: ScriptedServer, agent: AgentProcess, engine: ContainerEngine
) -> None:
    words = ("sh", "-c", "trap '' TERM; while true; do sleep 1; done")
    done = await result_of(
        server,
        a_container("a", *words, walltime=2 * SECOND, grace=SECOND // 2, workdir="/tmp"),
    )
    assert done.outcome == pb.WALLTIME
    assert engine.containers() == []


async def test_a_container_that_hears_term_ends_by_itself(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    words = ("sh", "-c", "trap 'echo bye; exit 5' TERM; while true; do sleep 0.1; done")
    done = await result_of(
        server,
        a_container("a", *words, walltime=2 * SECOND, grace=20 * SECOND, workdir="/tmp"),
    )
    assert (done.outcome, done.exit_code) == (pb.WALLTIME, 5)
    assert await output_of(server, "a") == b"bye\n"


@pytest.mark.slow  # it does not hear TERM, and the engine gives it ten seconds
async def test_what_an_agent_left_is_removed_by_the_next(
    server: ScriptedServer, agent: AgentProcess, engine: ContainerEngine
) -> None:
    grant = a_container("a", "sleep", "1000", workdir="/tmp")
    server.grant(grant)
    await server.until(lambda: server.started[("a", 1, 1, 0)] > 0)
    await asyncio.to_thread(
        wait_until, lambda: engine.containers() == ["spill-a-1-0-1"], "the container to be"
    )
    agent.signal(signal.SIGKILL)
    await agent.wait()
    await agent.start()
    await server.until(lambda: ("a", 1, 1, 0) in server.results)
    assert server.results[("a", 1, 1, 0)].outcome == pb.LOST
    assert engine.containers() == []


async def test_a_kubernetes_job_runs_its_container(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    container = {
        "command": ["sh", "-c"],
        "args": ["pwd; cat /data/file; echo more > /scratch/x; cat /scratch/x; echo $0", "word"],
        "workingDir": "/tmp",
        "volumeMounts": [
            {"name": "host", "mountPath": "/data", "readOnly": True},
            {"name": "empty", "mountPath": "/scratch"},
        ],
    }
    (tmp_path / "file").write_text("from the host\n")
    volumes = [{"name": "host", "hostPath": {"path": str(tmp_path)}}, {"name": "empty", "emptyDir": {}}]
    done = await result_of(server, a_manifest("a", container, volumes=volumes))
    assert done.exit_code == 0, done
    assert await output_of(server, "a") == b"/tmp\nfrom the host\nmore\nword\n"


async def test_without_an_engine_the_agent_says_why(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with AgentProcess(server.data):
        await server.connected()
    (told,) = server.registrations[:1]
    assert "container" not in told.offers
    assert "container:python" not in told.offers
    for word in ("container", "container:python"):
        assert told.labels[f"without.{word}"] == "PATH has neither podman nor docker"


# --- CPUs


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
async def test_containers_stay_off_the_cpus_that_other_tasks_have_for_themselves(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    look = "while [ ! -e done ]; do cat /proc/self/status | head -n 60 > new; cat new > now; sleep 0.1; done"
    server.grant(a_container("loose", "sh", "-c", look, workdir=str(tmp_path), cpu=100))

    def allowed() -> set[int]:
        told = (tmp_path / "now").read_text() if (tmp_path / "now").exists() else ""
        found = [line.split()[1] for line in told.splitlines() if line.startswith("Cpus_allowed_list")]
        return set(cpu_numbers(cpu_mask(found[0]))) if found else set()

    await asyncio.to_thread(wait_until, lambda: {first, second} <= allowed(), "the container to run")
    pinned = a_grant("pinned", f"read x < {tmp_path}/stay", workdir=str(tmp_path), cpu=1000)
    pinned.cpus = str(second)
    os.mkfifo(tmp_path / "stay")
    server.grant(pinned)
    await asyncio.to_thread(wait_until, lambda: second not in allowed() and first in allowed(), "it to move")
    later = a_container("later", "cat", "/proc/self/status", workdir=str(tmp_path), cpu=100)
    assert (await result_of(server, later)).exit_code == 0
    (line,) = [
        line
        for line in (await output_of(server, "later")).decode().splitlines()
        if "Cpus_allowed_list" in line
    ]
    assert second not in cpu_numbers(cpu_mask(line.split()[1]))
    (tmp_path / "stay").write_text("go\n")
    await asyncio.to_thread(wait_until, lambda: second in allowed(), "it to have all CPUs again")
    (tmp_path / "done").touch()
    await server.until(lambda: len(server.results) == 3)


# --- gangs


def a_gang(job: str, *command: str, image: str = IMAGE, tasks: int = 2) -> list[pb.Grant]:
    grants = [a_container(job, *command, image=image, workdir="/tmp") for _ in range(tasks)]
    for rank, grant in enumerate(grants):
        grant.lease.task, grant.task.tasks = rank, tasks
    return grants


async def test_a_gang_whose_image_cannot_be_pulled_gives_its_tasks_back_before_any_starts(
    server: ScriptedServer, agent: AgentProcess, engine: ContainerEngine
) -> None:
    there, absent = a_gang("a", "true")
    absent.task.container.image = "localhost/no-such-image:1"
    server.grant(there, absent)
    failed = key_of(absent.lease)
    await server.until(lambda: failed in server.results and key_of(there.lease) in server.prepared)
    done = server.results[failed]
    assert done.outcome == pb.NOT_STARTED
    assert done.message.startswith("podman cannot pull localhost/no-such-image:1: ")
    assert failed not in server.prepared
    assert not server.started
    assert engine.containers() == []


async def test_a_gang_is_prepared_once_its_missing_image_is_there(
    server: ScriptedServer, agent: AgentProcess, engine: ContainerEngine, tmp_path: Path
) -> None:
    engine.run("save", "--format", "oci-archive", "--output", str(tmp_path / "other.tar"), IMAGE)
    engine.run("rmi", IMAGE)
    try:
        grants = a_gang("a", "sh", "-c", "echo $SPILL_TASK", image=f"oci-archive:{tmp_path}/other.tar")
        server.grant(*grants)
        keys = [key_of(grant.lease) for grant in grants]
        await server.until(lambda: all(key in server.prepared for key in keys))
        assert len(engine.run("images", "--quiet").split()) == 1, "both tasks share one pull"
        assert engine.containers() == []
        assert not server.started
        (tmp_path / "other.tar").rename(tmp_path / "gone.tar")
        server.start_gang(grants[0].lease, len(grants))
        await server.until(lambda: all(key in server.results for key in keys))
    finally:
        engine.run("rmi", "--all", "--force")
        engine.load()
    assert [server.results[key].exit_code for key in keys] == [0, 0], server.results
