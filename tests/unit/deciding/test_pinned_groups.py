"""Groups of unlike tasks that ask for cores of their own, for one socket, or for linked GPUs."""

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from spillover.core.events import GangPlaced
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.explain.explain import explain
from spillover.deciding.explain.feasibility import too_large
from spillover.model.inside import Domain, Inside, Link
from spillover.model.job import TaskGroup
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NoRoomInside, NoRoomTogether
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

LAB = replace(OWNED, gangs=True)
TWO_SOCKETS = Inside(
    (Domain(0, ("0-3",), ("0", "1")), Domain(1, ("4-7",), ("2", "3"))),
    ("0", "1", "2", "3"),
    (Link("nvlink", ("0", "1")), Link("nvlink", ("2", "3"))),
)
FOUR_NUMA_NODES = Inside(
    (Domain(0, ("0-1",)), Domain(0, ("2-3",)), Domain(1, ("4-5",)), Domain(1, ("6-7",))),
)
BACKFILLS = ("out_of_order", "easy", "conservative")


class Lab(World):
    """One node with two sockets of four cores and two linked GPUs each."""

    def __init__(self, backfill: str = "out_of_order", *, inside: Inside = TWO_SOCKETS) -> None:
        super().__init__(load, PolicySet(wait=Choice("never"), backfill=Choice(backfill)), (LAB,))
        self.agent("n1", cpus=8, gpus=len(inside.gpus), inside=inside)

    def granted(self, job: str) -> list[str]:
        """What the tasks of a placed job have for themselves, by rank; empty if it is not placed."""
        found = self.job(job)
        if not isinstance(found.phase, Placed | Running):
            return []
        return [str(found.granted(task.rank) or "shared") for task in found.tasks]

    def why(self, job: JobBuilder) -> str:
        """Why no cluster can ever hold a job."""
        return str(too_large(self.engine.index.capacity.values(), job.spec().shape))


@pytest.fixture(params=BACKFILLS)
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(request.param)


def led_gang(name: str = "gang", workers: int = 2) -> JobBuilder:
    """A leader that shares CPUs, and workers of three cores and a GPU in one socket each."""
    return a_job(name).cpus(1).group("leader").cpus(3).gpus(1).group("worker", workers, pin="socket")


def test_each_task_gets_what_its_group_asks_for(lab: Lab) -> None:
    lab.submit(led_gang())
    assert lab.granted("gang") == ["shared", "CPUs 0-2, GPU 0", "CPUs 4-6, GPU 2"]
    [placed] = lab.happened(GangPlaced)
    assert [str(one or "shared") for one in placed.granted] == lab.granted("gang"), "the journal has it"


def test_a_later_group_gets_cores_that_an_earlier_one_left(lab: Lab) -> None:
    pinned = a_job("gang").cpus(2).group("small", pin="socket").cpus(3).group("large", 2, pin="socket")
    lab.submit(pinned)
    assert lab.granted("gang") == [], "each socket has one core left beside a large task"
    lab.submit(a_job("core").cpus(2).group("small", pin="core").cpus(3).group("large", 2, pin="socket"))
    assert lab.granted("core") == ["CPUs 3,7", "CPUs 0-2", "CPUs 4-6"]


def test_groups_share_a_socket_if_both_fit_there(lab: Lab) -> None:
    lab.submit(a_job("gang").cpus(1).group("a", 2, pin="socket").cpus(3).group("b", 2, pin="socket"))
    assert lab.granted("gang") == ["CPUs 3", "CPUs 7", "CPUs 0-2", "CPUs 4-6"]


def test_linked_gpus_of_one_group_leave_whole_links_to_another(lab: Lab) -> None:
    lab.submit(a_job("one").gpus(1))
    lab.submit(a_job("gang").gpus(2).group("pair", link="nvlink").gpus(1).group("single"))
    assert lab.granted("gang") == ["GPUs 2, 3", "GPU 1"]


def test_all_groups_of_a_gang_within_one_node_get_their_sockets(lab: Lab) -> None:
    lab.agent("n2", cpus=8, gpus=4, inside=TWO_SOCKETS)
    lab.submit(a_job("other").cpus(2).together(Topology(pin="socket")))
    lab.submit(led_gang().together(Topology(within="node")))
    assert lab.granted("gang") == ["shared", "CPUs 0-2, GPU 0", "CPUs 4-6, GPU 2"]
    assert {task.node for task in lab.job("gang").tasks} == {"n2"}


def test_a_group_that_pins_needs_a_machine_that_reports_its_cores(lab: Lab) -> None:
    lab.agent("n0", cpus=64, gpus=8)
    lab.submit(led_gang())
    assert [task.node for task in lab.job("gang").tasks][1:] == ["n1", "n1"]


def test_an_exclusive_gang_pins_tasks_on_nodes_of_its_own(lab: Lab) -> None:
    lab.agent("n2", cpus=8, gpus=4, inside=TWO_SOCKETS)
    lab.submit(led_gang().together(Topology(exclusive=True)))
    assert lab.granted("gang") == ["shared", "CPUs 0-2, GPU 0", "CPUs 4-6, GPU 2"]
    assert len({task.node for task in lab.job("gang").tasks}) == 2
    lab.submit(a_job("other"))
    assert lab.granted("other") == []


def test_whole_cores_are_granted_to_each_group_on_machines_with_two_threads_a_core() -> None:
    lab = Lab(inside=Inside((Domain(0, ("0-3", "4-7")),)))
    lab.submit(a_job("gang").cpus(1).group("a", pin="core").cpus(3).group("b", pin="core"))
    assert lab.granted("gang") == ["CPUs 2,6", "CPUs 0-1,4-5"]
    assert lab.state.nodes["onprem/n1"].used.cpu == 6000


def test_a_gang_starts_when_the_cores_that_its_groups_need_are_free(lab: Lab) -> None:
    lab.submit(a_job("other").cpus(2).expected(minutes=10).together(Topology(pin="socket")))
    lab.submit(led_gang())
    assert lab.granted("gang") == []
    reason = explain(lab.engine, lab.job("gang")).reason
    assert isinstance(reason, NoRoomTogether), reason
    lab.submit(a_job("long").cpus(2).expected(minutes=60).together(Topology(pin="socket")))
    lab.finish("other")
    if lab.granted("long"):
        lab.finish("long")
    assert lab.granted("gang") == ["shared", "CPUs 0-2, GPU 0", "CPUs 4-6, GPU 2"]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_long_job_takes_no_core_from_groups_that_have_a_reservation(backfill: str) -> None:
    lab = Lab(backfill)
    lab.submit(a_job("other").cpus(2).expected(minutes=10).together(Topology(pin="socket")))
    lab.start("other")
    lab.submit(led_gang().expected(minutes=10))
    lab.submit(a_job("long").cpus(2).expected(minutes=60).together(Topology(pin="socket")))
    assert lab.granted("long") == []
    lab.submit(a_job("short").cpus(2).expected(minutes=5).together(Topology(pin="socket")))
    assert len(lab.granted("short")) == 1
    lab.wait(seconds=300)
    lab.finish("short")
    lab.wait(seconds=300)
    lab.finish("other")
    assert len(lab.granted("gang")) == 3


def test_groups_that_do_not_fit_into_the_parts_of_a_machine_wait_with_that_reason(lab: Lab) -> None:
    lab.submit(a_job("left").cpus(2).gpus(1).together(Topology(pin="socket")))
    lab.submit(a_job("right").cpus(3).gpus(2).together(Topology(pin="socket")))
    lab.submit(a_job("gang").cpus(3).group("one", pin="socket").cpus(0).group("two"))
    reason = explain(lab.engine, lab.job("gang")).reason
    assert isinstance(reason, NoRoomInside), reason
    assert str(reason).startswith("waits for 3 CPU in one socket of onprem; the 3 free CPUs of n1")


def test_a_group_that_no_socket_can_hold_is_told_at_once() -> None:
    lab = Lab()
    assert lab.why(led_gang()) == "None"
    large = a_job().cpus(1).group("leader").cpus(5).group("worker", pin="socket")
    assert lab.why(large) == "requests 5 CPU in one socket; the largest has 4 CPU"
    assert lab.why(led_gang(workers=3)) == "requests 4 tasks at once; onprem can hold at most 3"
    linked = a_job().cpus(1).group("leader").gpus(3).group("worker", link="nvlink")
    told = "requests 1 CPU, 3 GPU with nvlink in one machine; the largest has 2 GPU with nvlink"
    assert lab.why(linked) == told
    unknown = a_job().cpus(1).group("leader").gpus(2).group("worker", link="xgmi")
    assert lab.why(unknown) == "no machine reports GPUs with the link xgmi; they have nvlink"


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_pinned_groups_start_on_sockets_of_several_numa_nodes(backfill: str) -> None:
    lab = Lab(backfill, inside=FOUR_NUMA_NODES)
    lab.submit(a_job("waits").cpus(8).expected(minutes=5).together(Topology(pin="core")))
    lab.submit(a_job("behind").cpus(9))  # it can never start, and has no reservation
    lab.submit(a_job("gang").cpus(2).group("a", 2, pin="socket").cpus(3).group("b", pin="socket"))
    lab.finish("waits")
    granted = lab.granted("gang")
    assert len(granted) == 3
    assert "shared" not in granted


def test_groups_of_before_read_as_groups_without_pins() -> None:
    assert msgpack.decode(msgpack.encode(["a", 2, [1000]]), type=TaskGroup) == TaskGroup(
        "a", 2, Resources(1000)
    )
