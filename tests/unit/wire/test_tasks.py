"""Tasks and their results on the wire between server and agents."""

import pytest

from spillover.core.events import Lease
from spillover.core.proposals import Outcome
from spillover.forms.jobs import read_job
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import JobSpec
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import lease_out, result_in, task_out

NODE = NodeName("n1")
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
    ("work", "why"),
    [
        ({"container": {"image": "x"}}, "agents cannot run containers yet"),
        ({"python": {"call": "m:f"}}, "agents cannot call Python functions yet"),
    ],
)
def test_work_that_agents_do_not_do_is_not_encoded(work: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        task_out(spec(**work), ClusterName("onprem"))
