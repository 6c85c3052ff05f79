"""Gangs with groups of unlike tasks: all start or none, each on a machine with room for it."""

import pytest
from msgspec.structs import replace

from spillover.core.records.jobs import Placed, Queued, Running
from spillover.core.records.tasks import asked_by
from spillover.deciding.explain.explain import explain
from spillover.deciding.explain.feasibility import too_large
from spillover.model.cluster import Price, Role, rate_of, rate_of_job
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import GangTooBig, NoRoomTogether, TooBig
from spillover.model.resources import Resources
from spillover.model.topology import Level, Topology
from spillover.model.units import HOUR
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

LAB = replace(OWNED, gangs=True, levels=(Level("rack", "rack"),))
BACKFILLS = ("out_of_order", "easy", "conservative")


class Lab(World):
    """Four machines with four CPUs in two racks; one machine of each rack has a GPU."""

    def __init__(self, backfill: str = "out_of_order") -> None:
        super().__init__(load, PolicySet(wait=Choice("never"), backfill=Choice(backfill)), (LAB,))
        for rack in ("r1", "r2"):
            self.agent(f"{rack}cpu", cpus=4, labels={"rack": rack})
            self.agent(f"{rack}gpu", cpus=4, gpus=1, labels={"rack": rack})

    def nodes(self, job: str) -> list[str]:
        """The nodes of the tasks of a job, by rank; empty if it is not placed."""
        found = self.job(job)
        return [task.node for task in found.tasks] if isinstance(found.phase, Placed | Running) else []


def led_gang(name: str = "gang", workers: int = 2) -> JobBuilder:
    """A leader of one CPU, and workers that need three CPUs and a GPU each."""
    return a_job(name).cpus(1).group("leader").cpus(3).gpus(1).group("worker", workers)


@pytest.fixture(params=BACKFILLS)
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(request.param)


def test_each_task_gets_a_machine_with_room_for_its_group(lab: Lab) -> None:
    lab.submit(led_gang())
    leader, *workers = lab.nodes("gang")
    assert sorted(workers) == ["r1gpu", "r2gpu"]
    assert leader
    held = {key: asked for node in lab.state.nodes.values() for key, asked in node.holding.items()}
    assert sorted(held.values(), key=lambda each: each.cpu) == [Resources(1000), *[Resources(3000, 0, 1)] * 2]


def test_ranks_run_through_the_groups_in_their_order() -> None:
    shape = led_gang(workers=3).spec().shape
    assert [asked_by(shape, rank).gpu for rank in range(4)] == [0, 1, 1, 1]
    assert [part.first for part in shape.parts] == [1, 0], "the largest tasks are placed first"


def test_a_gang_of_which_one_group_does_not_fit_holds_nothing(lab: Lab) -> None:
    lab.submit(a_job("other").cpus(1).gpus(1).expected(minutes=5))
    lab.submit(led_gang())
    assert isinstance(lab.job("gang").phase, Queued)
    assert sum(len(node.holding) for node in lab.state.nodes.values()) == 1
    reason = explain(lab.engine, lab.job("gang")).reason
    assert isinstance(reason, NoRoomTogether)
    assert str(reason) == "waits for room for 3 tasks on onprem; at most 2 fit now"
    assert str(replace(reason, fitting=0)).endswith("; none fits now")
    lab.finish("other")
    assert len(lab.nodes("gang")) == 3


def test_a_gang_that_waits_has_a_reservation_for_all_of_its_groups() -> None:
    lab = Lab("easy")
    lab.submit(a_job("other").cpus(1).gpus(1).expected(minutes=5))
    lab.submit(led_gang())
    lab.submit(a_job("long").cpus(3).gpus(1).expected(minutes=50))
    assert isinstance(lab.job("long").phase, Queued), "it would delay the gang"
    lab.submit(a_job("short").cpus(3).gpus(1).expected(minutes=4))
    assert not isinstance(lab.job("short").phase, Queued)


def test_all_groups_are_in_one_rack(lab: Lab) -> None:
    lab.submit(a_job("filler").cpus(4).expected(minutes=5))
    lab.submit(led_gang(workers=1).together(Topology(within="rack")))
    assert len({node[:2] for node in lab.nodes("gang")}) == 1
    lab.submit(led_gang("more", workers=2).together(Topology(within="rack")))
    assert lab.nodes("more") == [], "a rack has one GPU"


def test_spread_counts_the_tasks_of_all_groups(lab: Lab) -> None:
    lab.submit(led_gang().together(Topology(spread="node")))
    assert len(set(lab.nodes("gang"))) == 3


def test_nodes_of_an_exclusive_gang_have_no_tasks_of_others(lab: Lab) -> None:
    lab.submit(led_gang().together(Topology(exclusive=True)))
    nodes = set(lab.nodes("gang"))
    assert len(nodes) == 3
    lab.submit(*[a_job(f"{letter}job").cpus(1) for letter in "abcde"])
    others = {node for letter in "abcde" for node in lab.nodes(f"{letter}job")}
    assert len(others) == 1
    assert not others & nodes


def test_all_groups_of_a_gang_share_one_machine_if_it_says_so(lab: Lab) -> None:
    lab.submit(led_gang(workers=1).together(Topology(within="node")))
    assert len(set(lab.nodes("gang"))) == 1
    assert len(lab.nodes("gang")) == 2


def test_groups_that_no_cluster_can_ever_hold_are_told_apart() -> None:
    lab = Lab()
    clusters = list(lab.engine.index.capacity.values())

    def why(job: JobBuilder) -> object:
        return too_large(clusters, job.spec().shape)

    assert why(led_gang()) is None
    many = why(led_gang(workers=3))
    assert isinstance(many, GangTooBig)
    assert str(many) == "requests 4 tasks at once; onprem can hold at most 3"
    large = why(a_job().cpus(1).group("leader").cpus(5).group("worker"))
    assert isinstance(large, TooBig)
    assert large.asked == Resources(5000)
    assert why(a_job().cpus(3).group("wide", 4).cpus(1).group("narrow", 5)) is not None, (
        "more CPUs than there are"
    )


def test_a_gang_costs_what_its_groups_cost() -> None:
    price, shape = Price(cpu_hour=1_000_000, gpu_hour=5_000_000), led_gang(workers=3).spec().shape
    alone = rate_of(price, Resources(1000)), rate_of(price, Resources(3000, 0, 1))
    assert rate_of_job(price, shape) == alone[0] + 3 * alone[1]
    assert shape.total == Resources(10_000, 0, 3)


def test_shapes_with_a_smaller_last_task_have_two_parts() -> None:
    shape = Shape(Resources(4000), tasks=3, rest=Resources(1000))
    (first, most), (last, rest) = shape.parts
    assert (first, most.tasks, most.resources) == (0, 2, Resources(4000))
    assert (last, rest.tasks, rest.resources) == (2, 1, Resources(1000))
    assert shape.smallest == Resources(1000)


def test_a_rented_cluster_takes_all_groups_or_none() -> None:
    cloud = replace(LAB, name="cloud", role=Role.RENTED, price=Price(cpu_hour=1_000_000))
    lab = World(load, PolicySet(wait=Choice("zero")), (LAB, cloud))
    lab.agent("small", cpus=1)
    lab.agent("large", cluster="cloud", cpus=8, gpus=2)
    lab.submit(led_gang().terms(walltime=HOUR))
    phase = lab.job("gang").phase
    assert isinstance(phase, Placed | Running)
    assert phase.cluster == "cloud"
    lab.start("gang")
    lab.wait(seconds=1800)
    lab.finish("gang", ran=1800)
    assert lab.job("gang").cost == 7 * 500_000, "seven CPUs for half an hour"
