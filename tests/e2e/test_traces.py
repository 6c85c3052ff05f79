"""Traces of jobs at a real receiver, from a real server and real agents."""

from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.otlp import TraceReceiver, receiving
from tests.support.processes import ServerProcess, wait_until, write_config

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def receiver() -> Iterator[TraceReceiver]:
    with receiving() as there:
        yield there


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, receiver: TraceReceiver) -> Iterator[ServerProcess]:
    """A server that sends traces, with one machine."""
    folder = tmp_path_factory.mktemp("lab")
    clusters = [{"name": "onprem", "kind": "agents", "local": [{"name": "n1", "cpu": 2, "memory": "1Gi"}]}]
    telemetry = {"endpoint": receiver.url, "headers": {"x-key": "abc"}}
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, telemetry=telemetry))
    try:
        yield server.up()
    finally:
        server.clear()


def span_of_job(receiver: TraceReceiver, name: str) -> Span:
    wait_until(lambda: any(whole.name == name for whole in receiver.spans), f"the trace of {name}")
    return next(whole for whole in receiver.spans if whole.name == name)


def test_a_job_becomes_a_trace_that_its_tasks_continue(lab: ServerProcess, receiver: TraceReceiver) -> None:
    done = lab.spill("run", "--wait", "--name", "traced", "--", "sh", "-c", "echo $TRACEPARENT")
    whole = span_of_job(receiver, "traced")
    mine = [span for span in receiver.spans if span.trace_id == whole.trace_id]
    names = {span.name for span in mine} - {"queued"}  # which it may not have been
    assert names == {"attempt 1", "preparing", "running", "traced"}
    attempt = next(span for span in mine if span.name == "attempt 1")
    assert done.stdout == f"00-{attempt.trace_id.hex()}-{attempt.span_id.hex()}-01\n"
    assert receiver.headers[-1]["x-key"] == "abc"
    assert receiver.resource()["service.name"] == "spillover"


def test_a_job_joins_the_trace_of_its_submitter(lab: ServerProcess, receiver: TraceReceiver) -> None:
    variables = {"TRACEPARENT": GIVEN}
    done = lab.spill("run", "--wait", "--name", "joined", "--", "env", variables=variables)
    whole = span_of_job(receiver, "joined")
    assert whole.trace_id.hex() == GIVEN.split("-")[1]
    assert whole.parent_span_id.hex() == GIVEN.split("-")[2]
    assert f"TRACEPARENT=00-{GIVEN.split('-')[1]}-" in done.stdout


def test_a_variable_that_is_no_context_is_told(lab: ServerProcess) -> None:
    done = lab.spill("run", "--", "true", variables={"TRACEPARENT": "yes"})
    assert done.returncode == 0
    assert "traceparent 'yes' is not a W3C trace context, and is ignored" in done.stderr


def test_a_killed_server_goes_on_with_traces_under_the_same_ids(
    lab: ServerProcess, receiver: TraceReceiver
) -> None:
    gate = lab.folder / "gate"
    job = lab.spill(
        "run", "--name", "survivor", "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done"
    ).stdout.split()[0]
    with lab.client() as client:
        wait_until(lambda: client.job(job).state == "RUNNING", "the start")
    lab.kill()
    lab.up()
    gate.touch()
    whole = span_of_job(receiver, "survivor")
    parts = [span.name for span in receiver.spans if span.trace_id == whole.trace_id]
    assert sorted(set(parts) - {"queued"}) == ["attempt 1", "preparing", "running", "survivor"]
    assert len(set(parts)) == len(parts)


def test_doctor_tells_that_the_receiver_takes_no_traces(lab: ServerProcess, receiver: TraceReceiver) -> None:
    receiver.answers += [(503, {}, b"down")] * 1000
    lab.spill("run", "--wait", "--name", "unseen", "--", "true")
    with lab.client() as client:
        wait_until(lambda: client.server().traces, "the problem")
    told = lab.spill("doctor", "--quick").stdout
    assert f"{receiver.url}/v1/traces answers 503; " in told
    assert "waiting, 0 lost; start it, or correct `telemetry.endpoint`" in told
    receiver.answers.clear()
    span_of_job(receiver, "unseen")
    with lab.client() as client:
        wait_until(lambda: client.server().traces is None, "its end")
    assert "traces" not in lab.spill("doctor", "--quick").stdout
