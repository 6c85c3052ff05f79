"""Programs that speak gRPC with a real server: a job runs, a watch outlives the server, and the example does both."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import msgspec
from google.protobuf.duration_pb2 import Duration

from spillover.wire import jobs_pb2 as pb
from tests.support.processes import ServerProcess, clean_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpc_client.py"


def address_of(server: ServerProcess) -> str:
    """Where a server says that it answers gRPC."""
    return str(msgspec.json.decode((server.data / "server.json").read_bytes())["grpc"])


def call(server: ServerProcess, channel: grpc.Channel, method: str, request: Any, reply: Any) -> Any:
    token = (server.data / "token").read_text().strip()
    make = channel.unary_stream if method in {"WatchJobs", "ReadOutput"} else channel.unary_unary
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


def test_a_program_reads_output_changes_jobs_and_sums_them(server: ServerProcess, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with grpc.insecure_channel(address_of(server)) as channel:

        def ask(method: str, request: Any, reply: Any) -> Any:
            return call(server, channel, method, request, reply)

        line = f"echo one; echo wrong >&2; until [ -e {gate} ]; do sleep 0.05; done; echo two"
        new = [
            pb.NewJob(job=pb.Job(name="talks", run=line, workdir=str(tmp_path))),
            pb.NewJob(
                job=pb.Job(
                    name="held", run="true", workdir=str(tmp_path), hold=True, walltime=Duration(seconds=9)
                )
            ),
        ]
        talks, held = ask("SubmitJob", pb.SubmitJobRequest(jobs=new), pb.SubmitJobReply).jobs
        pieces = ask("ReadOutput", pb.ReadOutputRequest(job=talks, follow=True), pb.OutputPiece)
        said = next(pieces).data
        assert said.startswith(b"one")
        gate.touch()
        assert said + b"".join(piece.data for piece in pieces) == b"one\ntwo\n"
        ended = ask("WaitJob", pb.WaitJobRequest(job=talks), pb.JobStatus)
        assert ended.state == pb.JOB_STATE_SUCCEEDED
        errors = ask(
            "ReadOutput", pb.ReadOutputRequest(job=talks, stderr=True, offset=1, attempt=1), pb.OutputPiece
        )
        assert b"".join(piece.data for piece in errors) == b"rong\n"
        ask("ChangeJob", pb.ChangeJobRequest(job=held, name="free", remove=["walltime"]), pb.ChangedJobs)
        assert ask("ReleaseJobs", pb.ActionRequest(jobs=["free"]), pb.ChangedJobs).jobs == [held]
        ended = ask("WaitJob", pb.WaitJobRequest(job=held), pb.JobStatus)
        assert ended.state == pb.JOB_STATE_SUCCEEDED, ended.reason
        (again,) = ask("RerunJobs", pb.RerunJobsRequest(jobs=[talks]), pb.ChangedJobs).jobs
        ask("WaitJob", pb.WaitJobRequest(job=again), pb.JobStatus)
        page = ask("ListJobs", pb.ListJobsRequest(states=[pb.JOB_STATE_SUCCEEDED], limit=2), pb.ListJobsReply)
        assert [each.id for each in page.jobs] == [again, held]
        assert ask("ExplainJob", pb.ExplainJobRequest(job=talks), pb.ExplainJobReply).sentence
        usage = ask("GetUsage", pb.GetUsageRequest(by=["user"]), pb.GetUsageReply)
        assert usage.total.jobs == 3
        assert usage.total.owned.cpu > 0


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
