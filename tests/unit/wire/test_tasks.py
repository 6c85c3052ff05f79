"""Tasks and their results on the wire between server and agents."""

import pytest

from spillover.agent.connection.convert import grant_in
from spillover.agent.leases.values import CallInImage
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome
from spillover.forms.jobs.reading import read_job
from spillover.model.ids import ClusterName, JobId, NodeKey
from spillover.model.job import JobSpec, PythonCall
from spillover.model.units import DAY, FOREVER
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import (
    MOST_CHUNK,
    MOST_VALUE,
    NO_LEASE,
    chunk_in,
    lease_in,
    lease_out,
    result_in,
    started_in,
    task_out,
)

NODE = NodeKey("onprem/n1")
LEASE = Lease(JobId("a"), 1, 7)


OUR_OWN = {Outcome.UNUSABLE, Outcome.RELEASED, Outcome.NO_SECRET}
"""Outcomes that no agent reports as a result."""


def spec(**fields: object) -> JobSpec:
    return read_job({"apiVersion": "spillover/v1", "kind": "Job", "spec": fields}).spec


@pytest.mark.parametrize("known", [each for each in Outcome if each not in OUR_OWN])
def test_every_outcome_is_read(known: Outcome) -> None:
    said = pb.TaskResult(lease=lease_out(LEASE), outcome=known.name, message="as it was said")
    told = result_in(NODE, said)
    assert (told.outcome, told.message) == (known, "as it was said")


def test_an_outcome_of_a_newer_agent_counts_as_lost() -> None:
    said = pb.TaskResult.FromString(
        pb.TaskResult(lease=lease_out(LEASE), message="evicted").SerializeToString() + b"\x10\x2a"
    )
    told = result_in(NODE, said)
    assert (told.lease, told.outcome) == (LEASE, Outcome.LOST)
    assert told.message == "its agent reports outcome 42, which this server does not know: evicted"


@pytest.mark.parametrize(
    "work",
    [
        {"run": "x | y"},
        {"command": ["a", "b c"]},
        {"python": {"call": "m:f", "args": [1, "a", {"b": [None, 2.5]}]}},
        {"python": {"call": "m:f"}},
        {"python": {"function": "ab" * 32, "arguments": "gAVOLg==", "items": "cd" * 32, "first": 3}},
        {"container": {"image": "x", "command": ["a", "b"]}},
        {
            "container": {
                "image": "x",
                "manifest": {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
            }
        },
    ],
)
def test_every_kind_of_work_arrives_as_it_was(work: dict[str, object]) -> None:
    sent = spec(**work)
    grant = grant_in(pb.Grant(lease=lease_out(LEASE), task=task_out(sent, ClusterName("onprem"))))
    assert grant.lease == LEASE
    assert grant.task is not None
    assert grant.task.work == sent.work


def test_a_value_is_read_unless_it_is_far_too_large_for_the_journal() -> None:
    small = pb.TaskResult(lease=lease_out(LEASE), value=b"v", value_digest="ab" * 32)
    assert (result_in(NODE, small).value, result_in(NODE, small).value_digest) == (b"v", "ab" * 32)
    assert result_in(NODE, pb.TaskResult(lease=lease_out(LEASE), value=b"x" * 40_000)).value == b""


DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("field", "said", "told"),
    [
        (
            "value_digest",
            "/etc/passwd",
            "value_digest is '/etc/passwd', which is not a SHA-256",
        ),
        ("value_digest", DIGEST[:-1] + "\0", "value_digest is "),
        ("value_digest", DIGEST.upper(), "value_digest is "),
        ("outputs", "../" * 1000, "outputs is '../../"),
        ("value", b"x" * (MOST_VALUE + 1), "its value has 32769 bytes; more than 32768 have to be uploaded"),
    ],
)
def test_a_result_that_cannot_be_used_says_so_and_leaves_out_what_is_wrong(
    field: str, said: object, told: str
) -> None:
    good = pb.TaskResult(lease=lease_out(LEASE), exit_code=0, value_digest=DIGEST, outputs=DIGEST)
    setattr(good, field, said)
    result = result_in(NODE, good)
    assert (result.lease, result.outcome, result.exit_code) == (LEASE, Outcome.UNUSABLE, 0)
    assert result.message.startswith(told)
    assert len(result.message) < 200
    assert not getattr(result, field)


def test_a_task_that_was_stopped_stays_so_whatever_else_is_wrong_with_its_report() -> None:
    said = pb.TaskResult(lease=lease_out(LEASE), outcome=pb.STOPPED, value_digest="/x", outputs="y")
    result = result_in(NODE, said)
    assert (result.outcome, result.value_digest, result.outputs) == (Outcome.STOPPED, "", "")


def test_numbers_and_texts_of_a_report_are_brought_within_bounds() -> None:
    most = 2**64 - 1
    said = pb.TaskResult(
        lease=lease_out(LEASE),
        exit_code=-(2**31),
        signal=-4,
        ran=most,
        cpu=most,
        peak_memory=most,
        age=most,
        message="\0" + "x" * 1000,
    )
    result = result_in(NODE, said)
    assert result.usage == Usage(3650 * DAY, FOREVER, FOREVER)
    assert (result.age, result.signal, result.exit_code) == (FOREVER, None, 1 - 2**31)
    assert result.message == "\ufffd" + "x" * 499
    assert started_in(NODE, pb.StartedTask(lease=lease_out(LEASE), age=most)).age == FOREVER


@pytest.mark.parametrize(
    "lease",
    [
        pb.Lease(job="", attempt=1, seq=1),
        pb.Lease(job="../../x", attempt=1, seq=1),
        pb.Lease(job="a\0", attempt=1, seq=1),
        pb.Lease(job="a" * 101, attempt=1, seq=1),
        pb.Lease(job="a", attempt=1, seq=2**63),
    ],
)
def test_a_lease_that_no_server_grants_is_one_that_nobody_holds(lease: pb.Lease) -> None:
    assert lease_in(lease) == NO_LEASE


def test_output_that_is_too_much_at_once_ends_the_reading() -> None:
    chunk = chunk_in(pb.OutputChunk(incarnation=3, id=7, data=b"x" * (MOST_CHUNK + 1)))
    assert (chunk.id, chunk.incarnation, chunk.end, chunk.data) == (7, 3, True, b"")
    assert "bytes of it at once" in chunk.error
    assert chunk_in(pb.OutputChunk(error="\x1bgone")).error == "\ufffdgone"


def test_a_call_in_an_image_is_work_of_its_own_kind_on_the_agent() -> None:
    asked = spec(python={"call": "m:f"}, environment={"image": "python:3.12"})
    sent = task_out(asked, ClusterName("onprem"))
    task = grant_in(pb.Grant(lease=lease_out(LEASE), task=sent)).task
    assert task is not None
    assert task.work == CallInImage(PythonCall("m:f"), "python:3.12")
    assert task.environment is None, "the agent builds none"
