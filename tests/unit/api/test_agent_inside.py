"""What a registration says of the inside of a machine is checked before the server uses it."""

import pytest

from spillover.agent.connection.convert import grant_in, inside_out
from spillover.api.grpc.agent_checks import PROTOCOL, wrong_registration
from spillover.clusters.agents.hub import Hub
from spillover.core.events import Lease
from spillover.model.ids import ClusterName, JobId
from spillover.model.inside import Domain, Granted, Inside, Link
from spillover.ports.cluster import Start
from spillover.testing.builders import a_job
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import inside_in

INSIDE = Inside(
    (Domain(0, ("0-1", "4-5"), ("0",), 2**30), Domain(1, ("2-3", "6-7"), ("1",))),
    ("0", "1"),
    (Link("nvlink", ("0", "1")),),
)


def told(inside: Inside | pb.Inside, *, cpu: int = 8000, gpu: int = 2) -> str | None:
    message = inside_out(inside) if isinstance(inside, Inside) else inside
    return wrong_registration(
        pb.RegisterRequest(
            protocol=PROTOCOL,
            cluster="lab",
            name="n1",
            capacity=pb.Resources(cpu=cpu, memory=1, gpu=gpu),
            inside=message,
        )
    )


def test_an_inside_arrives_as_the_agent_sent_it() -> None:
    assert told(INSIDE) is None
    assert inside_in(inside_out(INSIDE)) == INSIDE


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        (Inside((Domain(0, ("0-1",)),)), "has 2 CPUs, and the capacity 8; report all, or none"),
        (Inside(gpus=("0",)), "has 1 GPUs, and the capacity 2"),
        (Inside(gpus=("0", "0")), "has GPU 0 twice"),
        (
            Inside(gpus=("0", "a\n")),
            "has the id or kind 'a\\n'; write 1 to 100 printable characters without commas",
        ),
        (Inside((Domain(0, ("0-99999",)),)), "'0-99999' is not a range of CPUs up to 8191"),
        (Inside(tuple([Domain(0)] * 300)), "has more than 256 NUMA nodes or 100000 GPUs"),
    ],
)
def test_a_wrong_inside_is_refused_in_one_line(inside: Inside, problem: str) -> None:
    assert told(inside) == f"inside {problem}"


async def test_the_cores_and_gpus_of_a_task_travel_with_its_lease() -> None:
    hub = Hub()
    hub.open("lab/n1", 1, 0)
    hub.activate("lab/n1", 1)
    spec = a_job("j").cpus(3).gpus(1).spec()
    lease = Lease(JobId("aaaaaaaaaaaa"), 1, 1)
    start = Start(lease, spec, ClusterName("lab"), granted=Granted("0-1,4-5", ("1",)), binds=True)
    assert not hub.start("lab/n1", 1, [start])
    session = hub.session(1)
    assert session is not None
    (grant,) = session._next_grants()
    task = grant_in(grant).task
    assert task is not None
    assert (task.cpus, task.gpus, task.need.cpu) == ("0-1,4-5", ("1",), 4000)
    assert task.binds_memory
