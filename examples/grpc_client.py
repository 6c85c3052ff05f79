"""Submit a job over gRPC, watch it until it ends, also across restarts of the server, and print how it ended.

Needs grpcio, and messages generated from jobs.proto: `python -m grpc_tools.protoc -I... --python_out=. jobs.proto`.
This program uses the messages that Spillover installs.

    python grpc_client.py 127.0.0.1:7071 spill-data/token 'echo hello'
"""

import sys
import time
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration

from spillover.wire import jobs_pb2 as pb

ENDED = {pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED, pb.JOB_STATE_TIMED_OUT}


class Jobs:
    """The calls of the service that this program needs."""

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        self._metadata = (("authorization", f"Bearer {token}"), ("spill-user", "example"))
        self._submit = channel.unary_unary(
            "/spillover.jobs.v1.Jobs/SubmitJob",
            pb.SubmitJobRequest.SerializeToString,
            pb.SubmitJobReply.FromString,
        )
        self._watch = channel.unary_stream(
            "/spillover.jobs.v1.Jobs/WatchJobs",
            pb.WatchJobsRequest.SerializeToString,
            pb.WatchJobsReply.FromString,
        )

    def submit(self, job: pb.Job) -> str:
        """Submit a job and return its id. The job has a key, so repeated requests create it only once."""
        while True:
            try:
                reply = self._submit(pb.SubmitJobRequest(jobs=[pb.NewJob(job=job)]), metadata=self._metadata)
                return str(reply.jobs[0])
            except grpc.RpcError as error:
                time.sleep(pause(error))

    def end(self, job: str) -> pb.JobChange:
        """Return how a job ended. A broken watch continues after the last revision seen."""
        request = pb.WatchJobsRequest(jobs=[job])
        while True:
            try:
                for reply in self._watch(request, metadata=self._metadata):
                    request.after = reply.revision
                    for change in reply.changes:
                        print(
                            change.at.ToJsonString(), change.job, pb.JobState.Name(change.state), flush=True
                        )
                        if change.job == job and change.state in ENDED:
                            return change
            except grpc.RpcError as error:
                time.sleep(pause(error))


def pause(error: grpc.RpcError) -> float:
    """Return the seconds to wait before the next try; raise the error if no retry can help."""
    if error.code() not in {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
    }:
        raise error
    return int(dict(error.trailing_metadata() or ()).get("retry-after-ms", "500")) / 1000


def main(address: str, token: str, command: str) -> int:
    """Run a command, and return its exit code."""
    with grpc.insecure_channel(address) as channel:
        jobs = Jobs(channel, Path(token).read_text().strip())
        key = f"example-{time.time_ns()}"
        walltime, here = Duration(seconds=600), str(Path.cwd())
        job = jobs.submit(pb.Job(name="example", run=command, workdir=here, walltime=walltime, key=key))
        ended = jobs.end(job)
    print(f"{job} {pb.JobState.Name(ended.state)}")
    return ended.exit_code if ended.HasField("exit_code") else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
