"""Whoever may not call is refused before anything of their message is received; messages are bounded before they are decoded."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
import structlog

from spillover.api.grpc import methods
from spillover.api.grpc.agents import SERVICE as AGENTS
from spillover.api.grpc.agents import AgentsService, serve_agents
from spillover.api.grpc.entry import SESSION, GrpcEntry
from spillover.api.grpc.jobs import MOST_JOB, JobsService
from spillover.api.grpc.jobs import SERVICE as JOBS
from spillover.api.grpc.people import MOST_JOBS
from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.limits import Gauge
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY
from spillover.ports.callers import ADMIN, Caller, Stranger
from spillover.wire import agents_pb2, jobs_pb2
from tests.support.inside import HandClock, leading

LARGE = 24 << 20
UNARY = {
    JOBS: ("SubmitJob", "GetJobStatus", "CancelJob"),
    AGENTS: ("Register", "Heartbeat", "Report", "GetTasks", "GetSecrets"),
}
CALLS = [(service, method) for service, names in UNARY.items() for method in names]
Call = Callable[..., Any]


class Known:
    """Tokens that are names."""

    def caller(self, shown: str) -> Caller:
        known = {
            "admin": ADMIN,
            "submit": Caller(TokenRole.SUBMIT, "t1"),
            "agent": Caller(TokenRole.AGENT, "t2"),
        }
        if shown not in known:
            raise Stranger("the token is invalid")
        return known[shown]

    def is_valid(self, token: str) -> bool:
        return bool(token)

    def machine(self, shown: str) -> Caller:
        raise Stranger(f"{len(shown)} characters that are no join token")


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each message that a method was given."""
    sizes: list[int] = []

    def note(raw: bytes) -> bytes:
        sizes.append(len(raw))
        return raw

    monkeypatch.setattr(methods, "_as_it_is", note)
    return sizes


@pytest.fixture
def gauge() -> Gauge:
    return Gauge(HandClock())


@pytest.fixture
async def call(received: list[int], gauge: Gauge) -> AsyncIterator[Call]:
    """Ask a method with some bytes; what it answers, or the error."""
    del received
    async with leading() as control:
        hub, known = Hub(), Known()
        parts = Parts(
            control.loop,
            control.store.journal,
            control.store.archive,
            hub,
            control.specs,
            control.lookup,
            control.submitting,
        )
        agents = AgentsService(AgentRequests(control.loop, hub, DAY), hub, known, lambda: control.loop.epoch)
        jobs = JobsService(LiveCommands(parts).of, known, gauge)
        server, port = await serve_agents(agents, "127.0.0.1:0", None, [jobs])
        options = (("grpc.max_send_message_length", -1),)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:

            async def ask(
                service: str, method: str, body: bytes, token: str | None = None, session: bytes = b"x" * 40
            ) -> Any:
                metadata = () if token is None else (("authorization", f"Bearer {token}"), (SESSION, session))
                stub = channel.unary_unary(f"/{service}/{method}", bytes, bytes)
                try:
                    return await stub(body, metadata=metadata, timeout=20)
                except grpc.aio.AioRpcError as error:
                    return error

            yield ask
        await server.stop(0)


@pytest.mark.parametrize(("service", "method"), CALLS)
async def test_the_message_of_a_stranger_is_never_received(
    call: Call, received: list[int], service: str, method: str
) -> None:
    for token in (None, "wrong", "agent" if service == JOBS else "submit"):
        error = await call(service, method, b"\x0a\x00" * (LARGE // 2), token)
        denied = grpc.StatusCode.PERMISSION_DENIED if token in {"agent", "submit"} else None
        assert error.code() is (denied or grpc.StatusCode.UNAUTHENTICATED)
        assert "token" in error.details()
    assert received == []


@pytest.mark.parametrize("method", ["Heartbeat", "Report", "GetTasks", "GetSecrets"])
async def test_the_message_of_an_agent_without_a_session_is_never_received(
    call: Call, received: list[int], method: str
) -> None:
    error = await call(AGENTS, method, b"\x0a\x00" * (LARGE // 2), "agent", session=b"none")
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert received == []


@pytest.mark.parametrize(
    ("service", "method", "body", "said"),
    [
        (JOBS, "SubmitJob", b"\x0a\x00" * (MOST_JOBS + 1), f"more than {MOST_JOBS} jobs in one request"),
        (JOBS, "CancelJob", b"\x0a\x01a" * (MOST_JOBS + 20), "at most"),
        (JOBS, "GetJobStatus", b"\x0a\x01a" * (4 << 20), "too large"),
        (AGENTS, "Register", b"\x4a\x00" * 200_000, "at most 100000 fields"),
        (AGENTS, "Register", b"\x1a\x80\x80\x80\x04" + b"x" * (8 << 20), "too large"),
    ],
)
async def test_a_message_beyond_its_bounds_is_refused(
    call: Call, service: str, method: str, body: bytes, said: str
) -> None:
    error = await call(service, method, body, "admin" if service == AGENTS else "submit")
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert said in error.details()


async def test_one_job_has_a_bound_of_its_own(call: Call) -> None:
    large = jobs_pb2.NewJob(document="x" * (MOST_JOB + 1))
    small = jobs_pb2.NewJob(job=jobs_pb2.Job(name="small", run="true"))
    request = jobs_pb2.SubmitJobRequest(jobs=[small, large])
    error = await call(JOBS, "SubmitJob", request.SerializeToString(), "submit")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "jobs[1]: has" in error.details()


@pytest.mark.parametrize(("service", "method"), CALLS)
@pytest.mark.parametrize("body", [b"\xff\xff", b"\x0a\xff\x01", b"\x0b", b"\x0a\x01", b"\x08"])
async def test_what_is_no_message_is_refused_with_one_line(
    call: Call, service: str, method: str, body: bytes
) -> None:
    error = await call(service, method, body, "agent" if method == "Register" else "submit")
    if service == AGENTS and method != "Register":
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        return
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith("the request is not a valid ")


async def test_the_limit_of_a_request_is_that_of_its_bytes(call: Call, gauge: Gauge) -> None:
    gauge.body = 1000
    error = await call(JOBS, "SubmitJob", b"\x0a\x00" * 501, "submit")
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "the request has 1002 bytes, of at most 1000; send several"
    assert gauge.refused["body"] == 1


@pytest.mark.parametrize("method", ["Register", "Listen", "Output"])
async def test_a_fault_of_ours_costs_one_call_and_is_in_the_log(
    call: Call, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(GrpcEntry, "caller", broken)
    monkeypatch.setattr(GrpcEntry, "session", broken)
    with structlog.testing.capture_logs() as logs:
        error = await call(AGENTS, method, b"", "agent")
    assert error.code() is grpc.StatusCode.INTERNAL
    (entry,) = logs
    assert error.details() == f"internal server error; the server logged it as {entry['fault']}"
    assert entry["method"] == f"/{AGENTS}/{method}"
    monkeypatch.undo()
    assert (await call(AGENTS, "Register", b"", "agent")).code() is grpc.StatusCode.INVALID_ARGUMENT


def test_fields_are_found_as_they_were_written() -> None:
    lease = agents_pb2.Lease(job="abc", attempt=300, seq=2**40, task=1)
    request = agents_pb2.ReportRequest(incarnation=2**63, released=[lease, lease], leaving=True)
    raw = request.SerializeToString()
    found = [(number, raw[start:end]) for number, start, end in methods.fields(raw)]
    assert [number for number, _ in found] == [1, 4, 4, 5]
    assert agents_pb2.Lease.FromString(found[1][1]) == lease
