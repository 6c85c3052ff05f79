"""Programs that speak gRPC with a real server: a job runs, a watch outlives the server, and the example does both."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import msgspec

from spillover.wire import jobs_pb2 as pb
from tests.support.processes import ServerProcess, clean_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpc_client.py"


def address_of(server: ServerProcess) -> str:
    """Where a server says that it answers gRPC."""
    return str(msgspec.json.decode((server.data / "server.json").read_bytes())["grpc"])


def call(server: ServerProcess, channel: grpc.Channel, method: str, request: Any, reply: Any) -> Any:
    token = (server.data / "token").read_text().strip()
    make = channel.unary_stream if method == "WatchJobs" else channel.unary_unary
    ask = make(f"/spillover.jobs.v1.Jobs/{method}", type(request).SerializeToString, reply.FromString)
    return ask(request, metadata=(("authorization", f"Bearer {token}"),), timeout=60)


def test_a_job_is_submitted_watched_and_looked_at(server: ServerProcess, tmp_path: Path) -> None:
    with grpc.insecure_channel(address_of(server)) as channel:
        new = pb.NewJob(job=pb.Job(name="hello", command=["sh", "-c", "exit 7"], workdir=str(tmp_path)))
        (job,) = call(server, channel, "SubmitJob", pb.SubmitJobRequest(jobs=[new]), pb.SubmitJobReply).jobs
        watching = call(server, channel, "WatchJobs", pb.WatchJobsRequest(jobs=[job]), pb.WatchJobsReply)
        changes = [change for reply in watching for change in reply.changes]
        assert (changes[-1].state, changes[-1].exit_code) == (pb.JOB_STATE_FAILED, 7)
        (status,) = call(
            server, channel, "GetJobStatus", pb.GetJobStatusRequest(jobs=["hello"]), pb.GetJobStatusReply
        ).jobs
        assert (status.id, status.exit_code, status.node) == (job, 7, changes[-2].node or status.node)


def test_the_example_outlives_a_restart_of_the_server(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers().up()
    gate = tmp_path / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3"
    words = [sys.executable, str(EXAMPLE), address_of(server), str(server.data / "token"), command]
    with subprocess.Popen(words, env=clean_environment(), stdout=subprocess.PIPE, text=True) as example:
        try:
            assert example.stdout is not None
            while "RUNNING" not in (line := example.stdout.readline()):
                assert line, "the example ended before its job ran"
            server.kill()
            gate.touch()
            server.up()
            said = example.stdout.read()
            assert example.wait(timeout=60) == 3
            assert said.splitlines()[-1].endswith("JOB_STATE_FAILED")
        finally:
            example.kill()
