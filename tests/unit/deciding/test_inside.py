"""Jobs that ask for cores of their own, for one socket, or for linked GPUs; and which cores and GPUs they get."""

import pytest
from msgspec.structs import replace

from spillover.core.events import JobPlaced
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.cycle.plan import RULES
from spillover.deciding.explain.explain import explain
from spillover.deciding.explain.feasibility import too_large
from spillover.deciding.replay import Replay
from spillover.model.ids import NodeName
from spillover.model.inside import Domain, Granted, Inside, Link, cpu_list, cpu_mask, wrong_inside
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NoRoomInside, Reason, TooBigInside
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LAB = replace(OWNED, gangs=True)
TWO_SOCKETS = Inside(
    (Domain(0, ("0-3",), ("0", "1")), Domain(1, ("4-7",), ("2", "3"))),
    ("0", "1", "2", "3"),
    (Link("nvlink", ("0", "1")), Link("nvlink", ("2", "3"))),
)
IN_A_SOCKET = Topology(pin="socket")
OWN_CORES = Topology(pin="core")
LINKED = Topology(link="nvlink")


class Lab(World):
    """One node with two sockets of four cores and two linked GPUs each."""

    def __init__(self, *, backfill: str = "out_of_order", inside: Inside | None = TWO_SOCKETS) -> None:
        super().__init__(load, PolicySet(wait=Choice("never"), backfill=Choice(backfill)), (LAB,))
        self.agent("n1", cpus=8, gpus=4, queue=4, inside=inside)

    def granted(self, job: str) -> list[str]:
        """What the tasks of a placed job have for themselves, by rank; empty if it is not placed."""
        found = self.job(job)
        if not isinstance(found.phase, Placed | Running):
            return []
        return [str(found.granted(task.rank) or "shared") for task in found.tasks]

    def why(self, job: str) -> Reason | None:
        return explain(self.engine, self.job(job)).reason


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_lists_of_cpus_are_read_and_written() -> None:
    for text in ("", "0", "0-7", "0-7,16", "1,3,5-6", "0-1,8191"):
        assert cpu_list(cpu_mask(text)) == text
    for wrong in ("x", "3-1", "-", "1-", "8192", "0-9999999"):
        with pytest.raises(ValueError, match="CPU"):
            cpu_mask(wrong)


def test_each_task_that_asks_for_cores_gets_its_own(lab: Lab) -> None:
    lab.submit(a_job("one").cpus(2).together(OWN_CORES), a_job("two").cpus(2).together(OWN_CORES))
    assert lab.granted("one") == ["CPUs 0-1"]
    assert lab.granted("two") == ["CPUs 2-3"]
    lab.finish("one")
    lab.submit(a_job("three").cpus(2).together(OWN_CORES))
    assert lab.granted("three") == ["CPUs 0-1"]


def test_the_cores_of_a_task_are_in_one_socket(lab: Lab) -> None:
    lab.submit(a_job("first").cpus(3).together(IN_A_SOCKET), a_job("second").cpus(3).together(IN_A_SOCKET))
    assert lab.granted("first") == ["CPUs 0-2"]
    assert lab.granted("second") == ["CPUs 4-6"]
    lab.submit(a_job("third").cpus(2).together(IN_A_SOCKET))
    assert lab.granted("third") == []
    told = "waits for 2 CPU in one socket of onprem; the 2 free CPUs of n1 are on 2 sockets"
    assert str(lab.why("third")) == told
    assert isinstance(lab.why("third"), NoRoomInside)
    lab.submit(a_job("anywhere").cpus(2).together(OWN_CORES))
    assert lab.granted("anywhere") == ["CPUs 3,7"]


def test_gpus_of_a_pinned_task_are_near_its_cores(lab: Lab) -> None:
    lab.submit(a_job("a").cpus(1).gpus(1).together(IN_A_SOCKET))
    lab.submit(a_job("b").cpus(4).gpus(1).together(IN_A_SOCKET))
    assert lab.granted("a") == ["CPUs 0, GPU 0"]
    assert lab.granted("b") == ["CPUs 4-7, GPU 2"]


def test_every_task_with_gpus_gets_them_by_id(lab: Lab) -> None:
    lab.submit(a_job("one").gpus(1), a_job("two").gpus(2), a_job("three").gpus(1))
    assert [lab.granted(name) for name in ("one", "two", "three")] == [["GPU 0"], ["GPUs 2, 3"], ["GPU 1"]]
    assert [event.granted for event in lab.happened(JobPlaced)][:1] == [Granted("", ("0",))]


def test_linked_gpus_are_all_of_one_link(lab: Lab) -> None:
    lab.submit(a_job("a").gpus(1), a_job("b").gpus(2).together(LINKED), a_job("c").gpus(2).together(LINKED))
    assert lab.granted("b") == ["GPUs 2, 3"]
    assert lab.granted("c") == []
    lab.finish("b")
    assert lab.granted("c") == ["GPUs 2, 3"]
    lab.finish("c")
    lab.submit(a_job("d").gpus(2))
    lab.finish("a")
    lab.submit(a_job("e").gpus(1), a_job("f").gpus(1), a_job("g").gpus(2).together(LINKED))
    assert [lab.granted(name) for name in "defg"] == [["GPUs 2, 3"], ["GPU 0"], ["GPU 1"], []]
    lab.finish("d")
    assert lab.granted("g") == ["GPUs 2, 3"]


def test_free_gpus_without_a_common_link_are_told(lab: Lab) -> None:
    lab.submit(*[a_job(name).gpus(1) for name in "abcd"])
    for name in "ac":
        lab.finish(name)
    lab.submit(a_job("linked").gpus(2).together(LINKED))
    told = "waits for 1 CPU, 2 GPU with nvlink in one node of onprem; the 2 free GPUs of n1 are on 2 nvlink groups"
    assert str(lab.why("linked")) == told


def test_any_link_is_the_first_kind_that_the_machine_reports(lab: Lab) -> None:
    lab.submit(a_job("a").gpus(2).together(Topology(link="any")))
    assert lab.granted("a") == ["GPUs 0, 1"]


def test_tasks_without_cores_of_their_own_share_the_others(lab: Lab) -> None:
    lab.submit(a_job("loose").cpus(5), a_job("pinned").cpus(3).together(IN_A_SOCKET), a_job("more").cpus(1))
    assert lab.granted("loose") == ["shared"]
    assert lab.granted("pinned") == ["CPUs 0-2"]  # where the shared tasks are does not matter
    assert lab.granted("more") == []  # 5 shared and 3 own CPUs are all


def test_whole_cores_are_granted_on_machines_with_two_threads_a_core() -> None:
    lab = Lab(inside=Inside((Domain(0, ("0-3", "4-7"), ()),), ("0", "1", "2", "3")))
    lab.submit(a_job("three").cpus(3).together(OWN_CORES))
    assert lab.granted("three") == ["CPUs 0-1,4-5"]
    assert lab.state.nodes["onprem/n1"].used.cpu == 4000
    lab.submit(a_job("loose").cpus(5), a_job("four").cpus(4).together(OWN_CORES))
    assert lab.granted("loose") == []
    assert lab.granted("four") == ["CPUs 2-3,6-7"]


def test_tasks_of_a_gang_each_get_cores_and_gpus(lab: Lab) -> None:
    lab.submit(a_job("gang").cpus(2).gpus(1).tasks(4).together(IN_A_SOCKET))
    assert lab.granted("gang") == ["CPUs 0-1, GPU 0", "CPUs 2-3, GPU 1", "CPUs 4-5, GPU 2", "CPUs 6-7, GPU 3"]
    lab.finish_task("gang", 1)
    lab.submit(a_job("next").cpus(2).gpus(1).together(IN_A_SOCKET))
    assert lab.granted("next") == ["CPUs 2-3, GPU 1"]


def test_all_tasks_of_a_gang_within_one_node_get_sockets() -> None:
    lab = Lab()
    lab.agent("n2", cpus=8, gpus=4, inside=TWO_SOCKETS)
    lab.submit(a_job("small").cpus(3).together(IN_A_SOCKET))
    lab.submit(a_job("gang").cpus(3).tasks(2).together(Topology(within="node", pin="socket")))
    assert [task.node for task in lab.job("gang").tasks] == ["n2", "n2"]


def test_members_of_an_array_get_gpus_by_id(lab: Lab) -> None:
    lab.submit(a_job("array").gpus(2).array(1, 3))
    assert [lab.granted(f"array.{index}") for index in (1, 2)] == [["GPUs 0, 1"], ["GPUs 2, 3"]]


def test_an_exclusive_job_gets_gpus_by_id_and_gives_them_back(lab: Lab) -> None:
    lab.submit(a_job("alone").gpus(2).together(Topology(exclusive=True)))
    assert lab.granted("alone") == ["GPUs 0, 1"]
    lab.submit(a_job("other").gpus(1))
    assert lab.granted("other") == []
    lab.finish("alone")
    assert lab.granted("other") == ["GPU 0"]


def test_a_task_that_gets_gpus_by_id_is_not_prefetched() -> None:
    lab = Lab()
    lab.submit(a_job("short").gpus(1))
    lab.start("short")
    lab.finish("short", ran=0.001)
    lab.submit(*[a_job(f"job{number}").gpus(1) for number in range(6)])
    assert not lab.state.nodes["onprem/n1"].ahead
    lab.submit(*[a_job(f"loose{number}").cpus(1) for number in range(6)])
    assert lab.state.nodes["onprem/n1"].ahead  # others still are


def test_gpus_that_an_agent_gave_itself_are_not_given_again() -> None:
    lab = Lab(inside=None)
    lab.submit(a_job("old").gpus(1))
    lab.start("old")
    lab.agent("n1", cpus=8, gpus=4, inside=TWO_SOCKETS, held=(lab.job("old").lease,))
    lab.submit(a_job("new").gpus(1), a_job("cores").cpus(2).together(IN_A_SOCKET))
    assert lab.granted("cores") == ["CPUs 0-1"]
    assert lab.granted("new") == []
    lab.finish("old")
    assert lab.granted("new") == ["GPU 0"]


def test_too_large_knows_sockets_and_links(lab: Lab) -> None:
    clusters = list(lab.engine.index.capacity.values())

    def told(topology: Topology, cpus: int, gpus: int = 0, tasks: int = 1) -> str:
        return str(
            too_large(clusters, Shape(Resources(cpus * 1000, 0, gpus), tasks=tasks, topology=topology))
        )

    assert told(IN_A_SOCKET, 4) == "None"
    assert told(IN_A_SOCKET, 5) == "requests 5 CPU in one socket; the largest has 4 CPU"
    assert told(IN_A_SOCKET, 4, 3) == "requests 4 CPU, 3 GPU in one socket; the largest has 4 CPU and 2 GPU"
    assert (
        told(LINKED, 1, 3)
        == "requests 1 CPU, 3 GPU with nvlink in one machine; the largest has 2 GPU with nvlink"
    )
    xgmi = "no machine reports GPUs with the link xgmi; they have nvlink"
    assert told(Topology(link="xgmi"), 1, 2) == xgmi
    assert told(IN_A_SOCKET, 3, tasks=3) == "requests 3 such tasks at once; onprem can hold at most 2"
    small = World(load, clusters=(OWNED,))
    small.agent("tiny", cpus=1)
    clusters = [*clusters, *small.engine.index.capacity.values()]
    assert "one socket" in told(IN_A_SOCKET, 5), "a large machine comes closer than one that is too small"
    lab.submit(a_job("big").cpus(5).together(IN_A_SOCKET))
    assert isinstance(lab.why("big"), TooBigInside)
    assert "no machine reports its cores" in str(
        too_large(Lab(inside=None).engine.index.capacity.values(), Shape(Resources(1000), topology=OWN_CORES))
    )


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_reserved_socket_is_not_delayed(backfill: str) -> None:
    lab = Lab(backfill=backfill)
    lab.submit(a_job("left").cpus(4).expected(minutes=10).together(IN_A_SOCKET))
    lab.submit(a_job("right").cpus(2).expected(minutes=20).together(IN_A_SOCKET))
    for name in ("left", "right"):
        lab.start(name)
    lab.submit(a_job("head").cpus(3).expected(minutes=5).together(IN_A_SOCKET))
    assert lab.granted("head") == []
    # Two cores of the right socket are free: for ten minutes, or for as long as anybody wants.
    lab.submit(a_job("long").cpus(2).expected(minutes=60).together(IN_A_SOCKET))
    assert lab.granted("long") == ["CPUs 6-7"]
    lab.wait(seconds=600)
    lab.finish("left")
    assert lab.granted("head") == ["CPUs 0-2"]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_long_job_does_not_take_linked_gpus_from_a_reservation(backfill: str) -> None:
    lab = Lab(backfill=backfill)
    lab.submit(a_job("one").gpus(1).expected(minutes=10), a_job("pair").gpus(2).expected(minutes=60))
    assert lab.granted("pair") == ["GPUs 2, 3"]
    for name in ("one", "pair"):
        lab.start(name)
    lab.submit(a_job("head").gpus(2).expected(minutes=10).together(LINKED))
    lab.submit(a_job("long").gpus(1).expected(minutes=60), a_job("short").gpus(1).expected(minutes=5))
    assert lab.granted("long") == []
    assert lab.granted("short") == ["GPU 1"]
    lab.finish("short")
    lab.wait(seconds=600)
    lab.finish("one")
    assert lab.granted("head") == ["GPUs 0, 1"]


def test_a_wrong_inside_is_told() -> None:
    def told(*domains: Domain, gpus: tuple[str, ...] = ("0",), links: tuple[Link, ...] = ()) -> str | None:
        return wrong_inside(Inside(domains, gpus, links))

    assert wrong_inside(TWO_SOCKETS) is None
    assert told(Domain(0, ("0-3",)), Domain(1, ("3-5",))) == "has CPU 3 twice"
    assert told(Domain(0, ("0-3", "4-5"))) == "has cores with different numbers of threads"
    assert told(Domain(0, ("zero",))) == "'zero' is not a CPU or a range of CPUs"
    assert told(Domain(-1)) == "has a negative number of a socket or negative memory"
    assert told(Domain(0, (), ("0",)), Domain(0, (), ("0",))) == "has GPU 0 near two NUMA nodes"
    assert told(Domain(0, (), ("7",))) == "names GPU 7, which is not among its GPUs"
    assert told(gpus=("0", "0")) == "has GPU 0 twice"
    pairs = (Link("nvlink", ("0", "1")), Link("nvlink", ("1", "2")))
    assert told(gpus=("0", "1", "2"), links=pairs) == "has GPU 1 in two groups of nvlink"


def test_machines_that_are_alike_inside_share_their_structure(lab: Lab) -> None:
    lab.agent("n2", cpus=8, gpus=4, inside=replace(TWO_SOCKETS, gpus=tuple("0123")))
    machines = lab.engine.index.capacity[OWNED.name].by_name
    assert machines[NodeName("n1")].inside is machines[NodeName("n2")].inside


# --- the memory of NUMA nodes

GIB = 2**30
IN_A_NUMA_NODE = Topology(pin="numa")


def of_memory(*memories: int, sockets: int = 2) -> Inside:
    """Two NUMA nodes of four CPUs, with so much memory, in one socket or two."""
    first, second = memories
    return Inside((Domain(0, ("0-3",), (), first), Domain(sockets - 1, ("4-7",), (), second)))


def numa_lab(inside: Inside) -> Lab:
    lab = Lab(inside=inside)
    lab.agent("n1", cpus=8, memory=16 * GIB, inside=inside)
    return lab


@pytest.mark.parametrize("pin", ["numa", "socket"])
def test_the_memory_of_a_task_is_that_of_the_numa_node_of_its_cores(pin: str) -> None:
    lab = numa_lab(of_memory(8 * GIB, 8 * GIB))
    own = Topology(pin=pin)
    lab.submit(*[a_job(name).cpus(1).memory(5 * GIB).together(own) for name in ("one", "two", "three")])
    assert [lab.granted(name) for name in ("one", "two", "three")] == [["CPUs 0"], ["CPUs 4"], []]
    part = "NUMA node" if pin == "numa" else "socket"
    told = (
        f"waits for 1 CPU, 5Gi in one {part} of onprem; a {part} of n1 with enough CPUs has at most 3Gi free"
    )
    assert str(lab.why("three")) == told
    lab.submit(a_job("small").cpus(1).memory(3 * GIB).together(own))
    assert lab.granted("small") == ["CPUs 1"]
    lab.finish("two")
    assert lab.granted("three") == ["CPUs 4"]


def test_tasks_of_a_gang_fill_the_memory_of_each_numa_node() -> None:
    lab = numa_lab(of_memory(8 * GIB, 6 * GIB))
    lab.submit(a_job("gang").cpus(1).memory(2 * GIB).tasks(2, most=8).together(IN_A_NUMA_NODE))
    assert len(lab.granted("gang")) == 7, "four and three"
    assert lab.state.nodes["onprem/n1"].used.memory == 14 * GIB


def test_memory_larger_than_any_numa_node_is_too_large() -> None:
    lab = numa_lab(of_memory(8 * GIB, 8 * GIB))
    shape = Shape(Resources(1000, 10 * GIB), topology=IN_A_NUMA_NODE)
    told = too_large(lab.engine.index.capacity.values(), shape)
    assert isinstance(told, TooBigInside)
    assert str(told) == "requests 1 CPU, 10Gi in one NUMA node; the largest has 8Gi of memory"
    across = Shape(Resources(1000, 10 * GIB), topology=OWN_CORES)
    assert too_large(lab.engine.index.capacity.values(), across) is None


def test_a_socket_of_several_numa_nodes_is_no_bound_for_memory() -> None:
    lab = numa_lab(of_memory(8 * GIB, 8 * GIB, sockets=1))
    lab.submit(a_job("large").cpus(2).memory(12 * GIB).together(IN_A_SOCKET))
    assert lab.granted("large") == ["CPUs 0-1"]
    lab.submit(a_job("near").cpus(1).memory(3 * GIB).together(IN_A_NUMA_NODE))
    assert lab.granted("near") == ["CPUs 4"], "the memory of the first is taken"


@pytest.mark.parametrize("memories", [(0, 0), (8 * GIB, 0)])
def test_memory_that_is_not_known_for_several_numa_nodes_counts_for_the_machine(
    memories: tuple[int, int],
) -> None:
    lab = numa_lab(of_memory(*memories))
    lab.submit(a_job("large").cpus(1).memory(10 * GIB).together(IN_A_NUMA_NODE))
    assert lab.granted("large") == ["CPUs 0"]


def test_machines_that_differ_only_in_the_memory_of_numa_nodes_are_told_apart() -> None:
    lab = numa_lab(of_memory(8 * GIB, 8 * GIB))
    for number in range(2, 140):  # so many that a new shape reads machines by state
        lab.agent(f"n{number}", cpus=8, memory=16 * GIB, inside=of_memory(8 * GIB, 8 * GIB))
    filling = Topology(pin="numa", spread="node", most=2)
    lab.submit(a_job("fill").cpus(1).memory(7 * GIB).tasks(2 * 138).together(filling))
    free = {f"n{number}" for number in range(1, 140)} - {task.node for task in lab.job("fill").tasks}
    assert len(free) == 1
    lab.submit(a_job("new").cpus(1).memory(2 * GIB).together(IN_A_NUMA_NODE))
    assert lab.where("new") == f"onprem/{free.pop()}"
    lab.submit(a_job("gib").cpus(1).memory(GIB).together(IN_A_NUMA_NODE).tasks(4))
    assert len(lab.granted("gib")) == 4
    lab.submit(a_job("none").cpus(1).memory(9 * GIB).together(OWN_CORES))
    assert lab.granted("none") != []


@pytest.mark.parametrize("rules", [6, RULES])
def test_a_replay_counts_the_memory_of_numa_nodes_only_in_plans_that_did(rules: int) -> None:
    halves = Inside((Domain(0, ("0-3",), (), 4 << 30), Domain(1, ("4-7",), (), 4 << 30)))
    w = World(load, PolicySet(wait=Choice("never")), (LAB,))
    w.engine.plan_by(rules)
    w.agent("n1", cpus=8, memory=8 << 30, inside=halves)
    w.submit(a_job("big").cpus(1).memory(6 << 30).together(Topology(pin="numa")))
    assert w.placed() == (["big"] if rules == 6 else [])
    w.engine.plan_by(RULES)
    w.submit(a_job("next").cpus(1).memory(1 << 30).together(Topology(pin="numa")))
    assert "next" in w.placed()
    replay = Replay(load)
    for revision, event in enumerate(w.events, 1):
        replay.take(revision, event)
    replay.end(len(w.events))
    assert replay.difference is None
    assert replay.plans > 0
