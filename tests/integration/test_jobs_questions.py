"""What else programs ask for over real gRPC: lists, reasons, results, output, changes, queues and usage."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from spillover.api.grpc.jobs import PROBLEMS, SERVICE
from spillover.model.ids import JobId
from spillover.wire import jobs_pb2 as pb
from tests.support.grpc_programs import Program, a_program, job, refused

S = pb.JobState


@pytest.fixture
async def program() -> AsyncIterator[Program]:
    async with a_program() as program:
        yield program


async def listed(program: Program, token: str = "admin", **filters: Any) -> pb.ListJobsReply:
    reply: pb.ListJobsReply = await program.ask(
        "ListJobs", pb.ListJobsRequest(**filters), pb.ListJobsReply, token
    )
    return reply


def names(reply: pb.ListJobsReply) -> list[str]:
    return [each.name for each in reply.jobs]


def problems_of(trailing: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.path, each.message) for each in pb.Problems.FromString(trailing[PROBLEMS]).problems]


async def test_jobs_are_listed_by_filters_in_pages(program: Program) -> None:
    await program.submit(job("a"), job("b", queue="night"), job("c", hold=True), token="vision")
    await program.submit(job("d", project="film"))
    assert names(await listed(program)) == ["d", "c", "b", "a"]
    assert names(await listed(program, project="film")) == ["d"]
    assert names(await listed(program, user="mira", queue="night")) == ["b"]
    assert names(await listed(program, states=[S.JOB_STATE_HELD])) == ["c"]
    assert names(await listed(program, name="a")) == ["a"]
    assert names(await listed(program, token="vision")) == ["c", "b", "a"]
    assert names(await listed(program, since=Timestamp(seconds=2**33))) == []
    first = await listed(program, limit=3)
    assert (names(first), names(await listed(program, limit=3, cursor=first.next))) == (
        ["d", "c", "b"],
        ["a"],
    )
    assert not (await listed(program, limit=4)).next
    (held,) = (await listed(program, name="c")).jobs
    assert (held.state, held.user, held.reason.code) == (S.JOB_STATE_HELD, "mira", "held")


async def test_why_a_job_waits_is_explained(program: Program) -> None:
    large = pb.Resources(cpu=2)
    _, second = await program.submit(job("first", resources=large), job("second", resources=large))
    reply = await program.ask("ExplainJob", pb.ExplainJobRequest(job="second"), pb.ExplainJobReply)
    assert (reply.id, reply.state) == (second, S.JOB_STATE_QUEUED)
    assert reply.sentence
    assert [each.cluster for each in reply.clusters] == ["onprem", "cloud"]
    assert all(each.reason.code for each in reply.clusters)
    assert (reply.HasField("ahead"), reply.ahead) == (True, 0)


async def test_the_end_of_a_job_is_waited_for_and_its_results_are_read(program: Program) -> None:
    (done,) = await program.submit(job())
    asked = pb.WaitJobRequest(job=done, timeout=Duration(nanos=1))
    assert (await program.ask("WaitJob", asked, pb.JobStatus)).state == S.JOB_STATE_PLACED
    results = pb.GetResultsRequest(jobs=[done])
    assert not (await program.ask("GetResults", results, pb.GetResultsReply)).results
    await program.start(done)
    await program.end(done, code=3)
    ended = await program.ask("WaitJob", pb.WaitJobRequest(job=done), pb.JobStatus)
    assert (ended.state, ended.exit_code) == (S.JOB_STATE_FAILED, 3)
    (result,) = (await program.ask("GetResults", results, pb.GetResultsReply)).results
    assert (result.job, result.state, result.exit_code, result.HasField("value")) == (
        *(done, S.JOB_STATE_FAILED, 3, False),
    )
    array = await program.submit(job(array="0-1"))
    for index in range(2):
        await program.start(f"{array[0]}.{index}")
        await program.end(f"{array[0]}.{index}")
    members = pb.GetResultsRequest(jobs=array, members="0-1", timeout=Duration(seconds=20))
    found = (await program.ask("GetResults", members, pb.GetResultsReply)).results
    assert [each.job for each in found] == [f"{array[0]}.0", f"{array[0]}.1"]


async def test_jobs_are_held_released_and_requeued(program: Program) -> None:
    (first,) = await program.submit(job(), token="vision")
    asked = pb.ActionRequest(jobs=[first])
    assert (await program.ask("RequeueJobs", asked, pb.ChangedJobs)).jobs == [first]
    many = await program.submit(*[job(resources=pb.Resources(cpu=2)) for _ in range(3)])
    dry = pb.ActionRequest(jobs=many, states=[S.JOB_STATE_QUEUED], dry_run=True)
    told = (await program.ask("HoldJobs", dry, pb.ChangedJobs)).jobs
    assert told
    assert S.JOB_STATE_HELD not in {each.state for each in await program.status(*many)}
    one = pb.ActionRequest(jobs=[many[2]])
    assert (await program.ask("HoldJobs", one, pb.ChangedJobs)).jobs == [many[2]]
    assert (await program.status(many[2]))[0].state == S.JOB_STATE_HELD
    assert (await program.ask("ReleaseJobs", one, pb.ChangedJobs)).jobs == [many[2]]
    cancel = pb.CancelJobRequest(jobs=many, states=[S.JOB_STATE_RUNNING])
    assert (await program.ask("CancelJob", cancel, pb.CancelJobReply)).jobs == []
    ended = pb.ActionRequest(jobs=many, states=[S.JOB_STATE_FAILED])
    code, said, _ = await refused(program.ask("HoldJobs", ended, pb.ChangedJobs))
    assert (code, "FAILED" in said) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_a_job_that_waits_is_changed(program: Program) -> None:
    (waits,) = await program.submit(
        job(hold=True, walltime=Duration(seconds=60), resources=pb.Resources(cpu=1, memory=2**30))
    )
    change = pb.ChangeJobRequest(
        job=waits,
        name="other",
        priority=7,
        cpu=2,
        gpu=0,
        estimate=Duration(seconds=30),
        deadline=Timestamp(seconds=2**33),
        queue="night",
        remove=["walltime", "memory"],
    )
    reply = await program.ask("ChangeJob", change, pb.ChangedJobs)
    assert reply.jobs == [waits]
    assert any("priority has no effect" in warning for warning in reply.warnings)
    (view,) = await program.status("other")
    assert (view.queue, view.estimate.seconds) == ("night", 30)
    spec = program.control.loop.state.jobs[JobId(waits)]
    assert (spec.shape.resources.cpu, spec.shape.resources.memory, spec.terms.walltime) == (2000, 0, None)
    code, _, trailing = await refused(
        program.ask(
            "ChangeJob",
            pb.ChangeJobRequest(job=waits, estimate=Duration(seconds=1), remove=["estimate", "name"]),
            pb.ChangedJobs,
        )
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert problems_of(trailing) == [
        ("remove[1]", "'name' cannot be removed; write one of walltime, estimate, deadline, memory, after"),
        ("estimate", "is given and removed; leave one of them out"),
    ]


async def test_jobs_run_again_with_changes(program: Program) -> None:
    (old,) = await program.submit(job(hold=True))
    asked = pb.RerunJobsRequest(jobs=[old], changes='{"spec": {"walltime": "2m"}}')
    (again,) = (await program.ask("RerunJobs", asked, pb.ChangedJobs)).jobs
    assert again != old
    assert program.control.loop.state.jobs[JobId(again)].terms.walltime == 120 * 10**9
    broken = pb.RerunJobsRequest(jobs=[old], changes="[1]")
    code, said, _ = await refused(program.ask("RerunJobs", broken, pb.ChangedJobs))
    assert (code, said) == (grpc.StatusCode.INVALID_ARGUMENT, "changes: is not a JSON object")


async def test_a_forecast_submits_nothing(program: Program) -> None:
    asked = pb.SubmitJobRequest(jobs=[job("a"), job("b", resources=pb.Resources(cpu=2))])
    first, _ = (await program.ask("ForecastJobs", asked, pb.ForecastJobsReply)).jobs
    assert (first.name, first.cluster, first.node, first.reason.code != "") == ("a", "onprem", "n1", True)
    assert names(await listed(program)) == []


async def test_queues_and_usage_are_told(program: Program) -> None:
    reply = await program.ask("ListQueues", pb.ListQueuesRequest(), pb.ListQueuesReply)
    assert list(reply.queues) == [], "this server has none"
    (done,) = await program.submit(job())
    await program.start(done)
    await program.end(done)
    usage = await program.ask("GetUsage", pb.GetUsageRequest(by=["user", "cluster"]), pb.GetUsageReply)
    (row,) = usage.rows
    assert (dict(row.key)["cluster"], row.jobs, row.owned.cpu > 0) == ("onprem", 1, True)
    assert usage.total.jobs == 1
    code, _, trailing = await refused(
        program.ask("GetUsage", pb.GetUsageRequest(by=["user", "team"]), pb.GetUsageReply)
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert problems_of(trailing) == [
        ("by[1]", "'team' is not one of project, user, cluster, queue, day, week, month")
    ]


@pytest.mark.parametrize(
    ("method", "request_", "path"),
    [
        ("ListJobs", pb.ListJobsRequest(limit=5000), "limit"),
        ("ListJobs", pb.ListJobsRequest(user="not a name"), "user"),
        ("WaitJob", pb.WaitJobRequest(job="train", timeout=Duration(seconds=61)), "timeout"),
        ("GetResults", pb.GetResultsRequest(jobs=["a", "b"], members="0-1"), "members"),
        ("GetResults", pb.GetResultsRequest(jobs=["a"], limit=2000), "limit"),
        ("GetResults", pb.GetResultsRequest(), "jobs"),
        ("HoldJobs", pb.ActionRequest(), "jobs"),
        ("RerunJobs", pb.RerunJobsRequest(), "jobs"),
    ],
)
async def test_wrong_questions_name_their_field(
    program: Program, method: str, request_: Any, path: str
) -> None:
    code, said, trailing = await refused(program.ask(method, request_, pb.JobStatus))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [found for found, _ in problems_of(trailing)] == [path]
    assert "\n" not in said


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("ExplainJob", pb.ExplainJobRequest(job="gone")),
        ("WaitJob", pb.WaitJobRequest(job="gone")),
        ("ChangeJob", pb.ChangeJobRequest(job="gone", priority=1)),
        ("HoldJobs", pb.ActionRequest(jobs=["gone"])),
        ("ExplainJob", pb.ExplainJobRequest()),
    ],
)
async def test_a_job_that_is_not_there_is_not_found(program: Program, method: str, request_: Any) -> None:
    code, _, _ = await refused(program.ask(method, request_, pb.JobStatus))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_readers_ask_and_do_not_change(program: Program) -> None:
    (mine,) = await program.submit(job(hold=True), token="vision")
    assert names(await listed(program, token="reader")) == ["train"]
    for method in ("HoldJobs", "ReleaseJobs", "RequeueJobs"):
        code, _, _ = await refused(
            program.ask(method, pb.ActionRequest(jobs=[mine]), pb.ChangedJobs, "reader")
        )
        assert code is grpc.StatusCode.PERMISSION_DENIED
    for method, request in (
        ("ChangeJob", pb.ChangeJobRequest(job=mine, priority=1)),
        ("RerunJobs", pb.RerunJobsRequest(jobs=[mine])),
    ):
        code, _, _ = await refused(program.ask(method, request, pb.ChangedJobs, "reader"))
        assert code is grpc.StatusCode.PERMISSION_DENIED
    code, said, _ = await refused(
        program.ask("ReleaseJobs", pb.ActionRequest(jobs=[mine]), pb.ChangedJobs, "other")
    )
    assert (code, "mira" in said) == (grpc.StatusCode.PERMISSION_DENIED, True)


async def test_output_of_a_job_that_is_not_there_ends_with_a_status(program: Program) -> None:
    call = program.channel.unary_stream(
        f"/{SERVICE}/ReadOutput",
        request_serializer=pb.ReadOutputRequest.SerializeToString,
        response_deserializer=pb.OutputPiece.FromString,
    )
    asked = call(pb.ReadOutputRequest(job="gone"), metadata=(("authorization", "Bearer admin"),))
    code, _, _ = await refused(asked.read())
    assert code is grpc.StatusCode.NOT_FOUND
