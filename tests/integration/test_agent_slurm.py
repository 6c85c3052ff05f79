"""A real agent runs tasks with the variables of Slurm, and writes their output where the submitter said."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from pwd import getpwuid

import pytest

from spillover.agent.leases.slurm import slurm_id
from spillover.model.ids import JobId
from spillover.wire import agents_pb2 as pb
from tests.integration.test_agent_tasks import output_of, result_of
from tests.support.agent_process import AgentProcess, a_grant
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


def writing(
    job: str, run: str, folder: Path, stdout: str, stderr: str = "", *, append: bool = False
) -> pb.Grant:
    grant = a_grant(job, run, workdir=str(folder))
    grant.task.stdout, grant.task.stderr, grant.task.append = stdout, stderr, append
    grant.task.name = "sweep"
    return grant


async def test_a_task_has_the_variables_of_slurm(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    grant = a_grant("abc.7", "env", workdir=str(tmp_path))
    grant.task.name, grant.task.queue, grant.task.project = "sweep", "long", "physics"
    grant.task.resources.cpu, grant.task.resources.memory = 1000, 512 << 20
    grant.task.array.first, grant.task.array.last, grant.task.array.size = 1, 9, 5
    grant.task.env["SLURM_NTASKS"] = "4"
    await result_of(server, grant)
    text = (await output_of(server, "abc.7")).decode()
    env = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("SLURM"))
    assert (
        env.items()
        >= {
            "SLURM_JOB_ID": slurm_id(JobId("abc.7")),
            "SLURM_JOBID": slurm_id(JobId("abc.7")),
            "SLURM_JOB_NAME": "sweep",
            "SLURM_JOB_PARTITION": "long",
            "SLURM_JOB_ACCOUNT": "physics",
            "SLURM_ARRAY_JOB_ID": slurm_id(JobId("abc")),
            "SLURM_ARRAY_TASK_ID": "7",
            "SLURM_ARRAY_TASK_COUNT": "5",
            "SLURM_ARRAY_TASK_MIN": "1",
            "SLURM_ARRAY_TASK_MAX": "9",
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_CPUS_ON_NODE": "1",
            "SLURM_MEM_PER_NODE": "512",
            "SLURM_NTASKS": "4",  # variables of the job win
            "SLURM_PROCID": "0",
            "SLURM_NNODES": "1",
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "SLURM_JOB_UID": str(os.getuid()),
            "SLURM_JOB_USER": getpwuid(os.getuid()).pw_name,
        }.items()
    )
    assert env["SLURM_JOB_NODELIST"] == env["SLURMD_NODENAME"]
    assert slurm_id(JobId("abc.7")) != slurm_id(JobId("abd.7"))


async def test_output_goes_to_the_file_of_the_submitter_and_to_the_log(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    grant = writing("abc.7", "echo out; echo err >&2", tmp_path, "res/%x_%A_%3a.out", "%j.err")
    assert (await result_of(server, grant)).exit_code == 0
    assert (tmp_path / "res/sweep_abc_007.out").read_text() == "out\n"
    assert (tmp_path / "abc.7.err").read_text() == "err\n"
    assert await output_of(server, "abc.7") == b"out\n"
    assert await output_of(server, "abc.7", stderr=True) == b"err\n"


async def test_both_streams_may_go_to_one_file(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    grant = writing("a", "echo 1; echo 2 >&2; echo 3", tmp_path, "all_%j.txt", "all_%j.txt")
    await result_of(server, grant)
    assert (tmp_path / "all_a.txt").read_text() == "1\n2\n3\n"
    assert await output_of(server, "a") == b"1\n2\n3\n"
    assert await output_of(server, "a", stderr=True) == b""


async def test_a_file_is_truncated_or_appended_to(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("before\n")
    await result_of(server, writing("a", "echo one", tmp_path, "log"))
    assert (tmp_path / "log").read_text() == "one\n"
    await result_of(server, writing("b", "echo two", tmp_path, "log", append=True))
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


async def test_a_stream_without_a_file_stays_in_the_log(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    await result_of(server, writing("a", "echo out; echo err >&2", tmp_path, "", "errors"))
    assert (tmp_path / "errors").read_text() == "err\n"
    assert await output_of(server, "a") == b"out\n"
    assert await output_of(server, "a", stderr=True) == b"err\n"
    await result_of(
        server, a_grant("b", "echo again; echo more >&2")
    )  # its thread has written none of it elsewhere
    assert await output_of(server, "b") == b"again\n"
    assert await output_of(server, "b", stderr=True) == b"more\n"


async def test_output_can_be_read_while_the_task_runs(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    go_on = tmp_path / "go"
    grant = writing("a", f"echo 1; while [ ! -e {go_on} ]; do sleep 0.05; done; echo 2", tmp_path, "out")
    server.grant(grant)
    read = pb.OutputRead(id=1, job="a", attempt=1, follow=True)
    server.read(read)
    await server.until(lambda: server.output[1].count(b"\n") >= 1)
    go_on.touch()
    await server.until(lambda: 1 in server.output_ended)
    assert bytes(server.output[1]) == b"1\n2\n"


async def test_a_file_that_cannot_be_written_is_a_start_that_failed_and_says_so(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    done = await result_of(server, writing("a", "true", tmp_path, "folder"))
    assert done.outcome == pb.NOT_STARTED
    assert done.message == f"cannot write to '{tmp_path}/folder': Is a directory"


async def test_a_missing_program_is_told_in_the_file_for_errors(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    grant = a_grant("a", argv=("no-such-program",), workdir=str(tmp_path))
    grant.task.stderr = "errors"
    assert (await result_of(server, grant)).exit_code == 127
    assert (tmp_path / "errors").read_text() == "no-such-program: No such file or directory\n"
