"""Limits of a real server: what is too much is refused in one line with when to ask again, counted, and asked again by the client."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import msgspec
import pytest

from spillover.client import Client, Refused, Unavailable
from spillover.wire import jobs_pb2 as pb
from tests.support.processes import ServerProcess


def document(name: str = "job", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"run": "sleep 600", "resources": {"cpu": 1}} | spec,
    }


def refused_of(server: ServerProcess) -> dict[str, float]:
    """What was refused, as the server counts it."""
    token = (server.data / "token").read_text().strip()
    text = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {token}"}).text
    found = re.findall(r'^spill_refused_total\{limit="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {limit: float(count) for limit, count in found}


@pytest.fixture
def limited(servers: Callable[..., ServerProcess]) -> Callable[..., ServerProcess]:
    """A server with limits and no agent."""

    def start(**limits: Any) -> ServerProcess:
        return servers(limits=limits, clusters=[{"name": "onprem", "role": "owned"}]).up()

    return start


def test_a_full_queue_takes_all_of_a_submission_or_none(limited: Callable[..., ServerProcess]) -> None:
    server = limited(queued=10, queued_per_project=8)
    with Client(data=server.data) as client:
        client.submit([document(array="1-6"), document("two")])
        with pytest.raises(
            Unavailable, match="holds 7 of at most 8 jobs; 2 more would exceed that"
        ) as caught:
            client.submit([document("three"), document("four")])
        assert (caught.value.kind, caught.value.retry_after) == ("limited", 5.0)
        assert client.server().queued == 7
        other = document("other", array="1-4")
        other["metadata"]["project"] = "vision"
        with pytest.raises(
            Unavailable, match="the queue holds 7 of at most 10 jobs; 4 more would exceed that"
        ):
            client.submit(other)
        client.cancel("two")
        client.submit(document("three"))
    assert refused_of(server) == {
        "body": 0,
        "connections": 0,
        "queued": 1,
        "queued_in_queue": 0,
        "queued_per_project": 1,
        "submissions_per_second": 0,
    }


def test_the_command_line_says_so_in_a_line(limited: Callable[..., ServerProcess], tmp_path: Path) -> None:
    server = limited(queued=1)
    done = server.spill("run", "--detach", "--array", "1-5", "--", "true")
    assert done.returncode == 2
    assert done.stderr == (
        "spill: the queue holds 0 of at most 1 job; 5 more would exceed that, so none was accepted; try "
        "again when some have started\n"
    )


def test_who_submits_too_fast_is_told_when_to_come_back(limited: Callable[..., ServerProcess]) -> None:
    server = limited(submissions_per_second={"rate": 2, "burst": 3})
    token = (server.data / "token").read_text().strip()
    body = {"jobs": [document(str(at)) for at in range(3)]}
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as http:
        assert http.post("/v1/jobs", json=body).status_code == 201
        answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 429
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["type"] == "urn:spillover:problem:limited"
        assert 0 < problem["retry_after_s"] <= 1.5
        assert int(answer.headers["retry-after"]) >= 1
        other = http.post("/v1/tokens", json={"role": "submit"}).json()["token"]
        theirs = http.post("/v1/jobs", json=body, headers={"Authorization": f"Bearer {other}"})
        assert theirs.status_code == 201, "each token has its own"
    assert refused_of(server)["submissions_per_second"] == 1


def test_the_client_asks_again_for_jobs_with_a_key(limited: Callable[..., ServerProcess]) -> None:
    server = limited(submissions_per_second={"rate": 10, "burst": 1})
    with Client(data=server.data) as client:
        ids = {client.submit(document(f"j{at}", key=f"k{at}"))[0] for at in range(5)}
        assert len(ids) == 5
        client.submit([document(f"m{at}", key=f"m{at}") for at in range(100)])  # overdrawn for ten seconds
        with pytest.raises(Unavailable, match="more than 10 jobs a second"):
            client.submit(document("keyless"))
    assert refused_of(server)["submissions_per_second"] >= 5


def test_a_request_that_is_too_large_is_refused(limited: Callable[..., ServerProcess]) -> None:
    server = limited(body="64Ki")
    with Client(data=server.data) as client:
        client.submit(document(run="true # " + "x" * 30_000))
        with pytest.raises(Refused, match="larger than 65536 bytes") as caught:
            client.submit(document(run="true # " + "x" * 70_000))
        assert caught.value.kind == "too_large"
    assert refused_of(server)["body"] == 1


def test_programs_are_limited_alike(limited: Callable[..., ServerProcess]) -> None:
    server = limited(body="64Ki", queued=2, submissions_per_second={"rate": 1, "burst": 10})
    address = msgspec.json.decode((server.data / "server.json").read_bytes())["grpc"]
    token = (server.data / "token").read_text().strip()

    def submit(count: int, run: str = "true") -> tuple[grpc.StatusCode, dict[str, Any]]:
        jobs = [pb.NewJob(job=pb.Job(run=run, workdir="/")) for _ in range(count)]
        with grpc.insecure_channel(address) as channel:
            call = channel.unary_unary(
                "/spillover.jobs.v1.Jobs/SubmitJob",
                pb.SubmitJobRequest.SerializeToString,
                pb.SubmitJobReply.FromString,
            )
            try:
                call(pb.SubmitJobRequest(jobs=jobs), metadata=(("authorization", f"Bearer {token}"),))
            except grpc.RpcError as error:
                trailing: Any = error.trailing_metadata()
                return error.code(), dict(trailing)
        return grpc.StatusCode.OK, {}

    assert submit(1, "x" * 70_000)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    code, trailing = submit(3)
    assert (code, trailing["retry-after-ms"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "5000")
    assert submit(2)[0] is grpc.StatusCode.OK
    code, trailing = submit(10)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert 0 < int(trailing["retry-after-ms"]) <= 10_000
    assert refused_of(server) == {
        "body": 1,
        "connections": 0,
        "queued": 1,
        "queued_in_queue": 0,
        "queued_per_project": 0,
        "submissions_per_second": 1,
    }
