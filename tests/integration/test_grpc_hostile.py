"""Whatever a program asks of the real inside of a server, over gRPC: an answer, or a refusal of one line; never a fault of ours."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Final, NoReturn

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from spillover.api.grpc.jobs import SERVICE, JobsService
from spillover.clusters.agents.hub import Hub
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.ports.callers import OneToken
from spillover.wire import jobs_pb2 as pb
from tests.support.inside import leading

TOKEN = "the-token-of-the-server"
OURS: Final = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}
TEXTS: Final = (
    "\0",
    "a\0b",
    "../../etc/passwd",
    "a" * 5000,
    "\u202e",
    "1-1000000000",
    "0-18446744073709551615",
    "-1",
    "NaN",
    "\n",
)
DURATIONS: Final = (Duration(), Duration(seconds=-1), Duration(seconds=2**63 - 1), Duration(nanos=-(2**31)))
MOMENTS: Final = (
    Timestamp(),
    Timestamp(seconds=-1),
    Timestamp(seconds=2**63 - 1),
    Timestamp(seconds=-(2**63)),
    Timestamp(seconds=253402300800),
    Timestamp(nanos=2**31 - 1),
    Timestamp(nanos=-1),
)
NUMBERS: Final = (math.nan, math.inf, -math.inf, -1.0, 1e308, 5e-324, 0.5)
DOCUMENTS: Final = (
    "",
    "{",
    "null",
    "NaN",
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "\\ud800"}}',
    '{"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", "priority": 1e400}}',
    '{"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", "array": "1-1000000000"}}',
    '{"apiVersion": "batch/v1", "kind": "Job", "spec": {}}',
)


class Ended(Exception):
    """A call that was refused."""


class Context:
    """What gRPC gives a method."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.details = ""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {TOKEN}"),)

    async def abort(self, code: grpc.StatusCode, details: str, trailing: object = ()) -> NoReturn:
        del trailing
        self.code, self.details = code, details
        raise Ended


class Asking:
    """Somebody who asks strange things."""

    def __init__(self, service: JobsService) -> None:
        self._handler = service.handler()

    async def ask(self, method: str, raw: bytes) -> grpc.StatusCode | None:
        found = self._handler.service(SimpleNamespace(method=f"/{SERVICE}/{method}", invocation_metadata=()))
        context = Context()
        try:
            if found.response_streaming:
                async with asyncio.timeout(0.01):
                    async for _ in found.unary_stream(raw, context):
                        pass
            else:
                await found.unary_unary(raw, context)
        except (Ended, TimeoutError):
            pass
        assert context.code not in OURS, (raw[:200], context.details)
        assert "\n" not in context.details
        assert len(context.details) <= 1000
        return context.code


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    async with leading() as control:
        store = control.store
        parts = Parts(
            control.loop,
            store.journal,
            store.archive,
            Hub(),
            control.specs,
            control.lookup,
            control.submitting,
        )
        yield Asking(JobsService(LiveCommands(parts).of, OneToken(TOKEN)))


def jobs() -> Iterator[pb.Job]:
    """Jobs of which one field is strange."""
    for text in TEXTS:
        for name in ("name", "project", "queue", "run", "workdir", "array", "key"):
            job = pb.Job(run="true")
            setattr(job, name, text)
            yield job
        yield pb.Job(command=[text, text])
        yield pb.Job(run="true", needs=[text, text])
        yield pb.Job(run="true", after=[text, text])
        yield pb.Job(run="true", labels={text: text})
        yield pb.Job(run="true", env={text: text})
    for span in DURATIONS:
        yield pb.Job(run="true", walltime=span)
        yield pb.Job(run="true", estimate=span)
    for moment in MOMENTS:
        yield pb.Job(run="true", deadline=moment)
        yield pb.Job(run="true", not_before=moment)
    for number in NUMBERS:
        yield pb.Job(run="true", resources=pb.Resources(cpu=number))
    for count in (2**31 - 1, 2**32 - 1):
        yield pb.Job(run="true", tasks=count)
        yield pb.Job(run="true", resources=pb.Resources(gpu=count))
        yield pb.Job(run="true", priority=min(count, 2**31 - 1))
    yield pb.Job(run="true", resources=pb.Resources(memory=2**64 - 1))
    yield pb.Job(run="true", priority=-(2**31))


async def test_any_job_is_answered(asking: Asking) -> None:
    news = [pb.NewJob(), *(pb.NewJob(job=job) for job in jobs())]
    news += [pb.NewJob(document=text) for text in (*DOCUMENTS, *TEXTS)]
    answers = {
        await asking.ask("SubmitJob", pb.SubmitJobRequest(jobs=[new]).SerializeToString()) for new in news
    }
    assert answers >= {None, grpc.StatusCode.INVALID_ARGUMENT}
    await asking.ask("SubmitJob", pb.SubmitJobRequest(jobs=news).SerializeToString())


@pytest.mark.parametrize("method", ["GetJobStatus", "CancelJob", "WatchJobs"])
async def test_any_name_of_a_job_is_answered(asking: Asking, method: str) -> None:
    for text in ("", *TEXTS):
        await asking.ask(method, pb.CancelJobRequest(jobs=[text]).SerializeToString())


async def test_any_place_to_watch_from_is_answered(asking: Asking) -> None:
    for request in (
        pb.WatchJobsRequest(after=2**64 - 1),
        pb.WatchJobsRequest(after=2**63),
        pb.WatchJobsRequest(project="\0"),
        pb.WatchJobsRequest(project="a" * 5000),
    ):
        await asking.ask("WatchJobs", request.SerializeToString())


@pytest.mark.parametrize("method", ["SubmitJob", "GetJobStatus", "CancelJob", "WatchJobs"])
async def test_text_that_is_no_text_is_answered(asking: Asking, method: str) -> None:
    for raw in (b"\x0a\x02\xed\xa0", b"\x0a\x03\xed\xa0\x80", b"\x0a\x04\x12\x02\xff\xff", b"\x12\x01\xff"):
        await asking.ask(method, raw)
