"""Tasks and their results on the wire between server and agents."""

import pytest

from spillover.agent.convert import grant_in
from spillover.core.events import Lease
from spillover.core.proposals import Outcome
from spillover.forms.jobs import read_job
from spillover.model.ids import ClusterName, JobId, NodeKey
from spillover.model.job import JobSpec
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import lease_out, result_in, task_out

NODE = NodeKey("onprem/n1")
LEASE = Lease(JobId("a"), 1, 7)


def spec(**fields: object) -> JobSpec:
    return read_job({"apiVersion": "spillover/v1", "kind": "Job", "spec": fields}).spec


@pytest.mark.parametrize("known", list(Outcome))
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
