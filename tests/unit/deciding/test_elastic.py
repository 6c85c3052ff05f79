"""Gangs of elastic size: as many tasks as fit at the start, and at least the lower number."""

import pytest
from msgspec.structs import replace

from spillover.core.records.jobs import Placed, Queued, Running
from spillover.deciding.explain.explain import explain
from spillover.deciding.explain.feasibility import too_large
from spillover.deciding.forecast.costs import quote
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.ids import ClusterName
from spillover.model.job import Retry
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import GangTooBig, NoRoomTogether
from spillover.model.resources import Resources
from spillover.model.topology import Level, Topology
from spillover.model.units import HOUR, MONEY
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LAB = replace(OWNED, gangs=True, levels=(Level("rack", "rack"),))
CLOUD = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=MONEY), gangs=True)


def a_lab(
    backfill: str = "out_of_order", wait: str = "never", clusters: tuple[ClusterSpec, ...] = (LAB,)
) -> World:
    """Two racks with two machines of two CPUs each."""
    lab = World(load, PolicySet(wait=Choice(wait), backfill=Choice(backfill)), clusters)
    for name in ("r1a", "r1b", "r2a", "r2b"):
        lab.agent(name, cpus=2, labels={"rack": name[:2]})
    return lab


def size(lab: World, job: str) -> int:
    """How many tasks a job got; 0 if it is not placed."""
    found = lab.job(job)
    return len(found.tasks) if isinstance(found.phase, Placed | Running) else 0


@pytest.fixture(params=["out_of_order", "easy", "conservative"])
def lab(request: pytest.FixtureRequest) -> World:
    return a_lab(request.param)


@pytest.mark.parametrize(("least", "most", "got"), [(2, 4, 4), (2, 8, 8), (2, 20, 8), (8, 9, 8), (1, 3, 3)])
def test_a_gang_gets_the_largest_size_that_fits(lab: World, least: int, most: int, got: int) -> None:
    lab.submit(a_job("gang").tasks(least, most=most))
    assert size(lab, "gang") == got
    assert sum(len(node.holding) for node in lab.state.nodes.values()) == got


def test_a_gang_waits_for_no_more_than_its_least_size(lab: World) -> None:
    lab.submit(*[a_job(f"{each}job").expected(minutes=5) for each in "abcdef"])
    lab.submit(a_job("gang").tasks(2, most=8))
    assert size(lab, "gang") == 2


def test_a_gang_below_its_least_size_holds_nothing_and_says_its_range(lab: World) -> None:
    lab.submit(*[a_job(f"{each}job").expected(minutes=5) for each in "abcdefg"])
    lab.submit(a_job("gang").tasks(2, most=8))
    assert isinstance(lab.job("gang").phase, Queued)
    reason = explain(lab.engine, lab.job("gang")).reason
    assert isinstance(reason, NoRoomTogether)
    assert str(reason) == "waits for room for 2 to 8 tasks on onprem; at most 1 fits now"
    lab.finish("ajob")
    assert size(lab, "gang") == 2


def test_one_task_is_a_gang_too_if_it_could_be_more(lab: World) -> None:
    lab.submit(*[a_job(f"{each}job") for each in "abcdefg"])
    lab.submit(a_job("gang").tasks(1, most=4))
    assert size(lab, "gang") == 1
    assert lab.job("gang").extra.gang is not None
    assert lab.job("gang").shape.is_gang
    lab.start("gang")
    lab.finish("gang")
    assert lab.state_of("gang") == "SUCCEEDED"


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_it_grows_only_where_it_delays_no_reserved_job(backfill: str) -> None:
    lab = a_lab(backfill)
    lab.submit(a_job("first").cpus(2).expected(minutes=5))
    lab.submit(a_job("head").cpus(2).tasks(4).expected(minutes=5))
    lab.submit(a_job("gang").tasks(1, most=8).expected(minutes=50))
    assert size(lab, "gang") == 0, "all machines are reserved for the head in five minutes"
    lab.submit(a_job("quick").tasks(1, most=8).expected(minutes=2))
    assert size(lab, "quick") == 6, "it ends before the head starts"


def test_an_attempt_may_get_another_size_than_the_one_before() -> None:
    lab = a_lab()
    lab.submit(a_job("gang").tasks(2, most=8).terms(retry=Retry(exit=1)))
    assert size(lab, "gang") == 8
    lab.start("gang")
    lab.submit(a_job("other").cpus(2).priority(5))
    lab.finish("gang", exit_code=1)
    assert size(lab, "gang") == 6
    assert lab.job("gang").attempt == 2


def test_it_stays_in_one_rack_and_spreads_over_nodes(lab: World) -> None:
    lab.submit(a_job("gang").tasks(2, most=8).together(Topology(within="rack")))
    assert size(lab, "gang") == 4
    assert len({task.node[:2] for task in lab.job("gang").tasks}) == 1
    lab.submit(a_job("wide").tasks(1, most=8).together(Topology(spread="node")))
    assert size(lab, "wide") == 2
    assert len({task.node for task in lab.job("wide").tasks}) == 2


def test_it_may_share_one_machine_or_have_machines_alone(lab: World) -> None:
    lab.submit(a_job("gang").tasks(1, most=8).together(Topology(within="node")))
    assert size(lab, "gang") == 2
    lab.submit(a_job("alone").cpus(1).tasks(1, most=3).together(Topology(exclusive=True)))
    assert size(lab, "alone") == 3
    assert len({task.node for task in lab.job("alone").tasks}) == 2


def test_only_its_least_size_can_be_too_large() -> None:
    clusters = list(a_lab().engine.index.capacity.values())
    assert too_large(clusters, a_job().tasks(8, most=100).spec().shape) is None
    assert isinstance(too_large(clusters, a_job().tasks(9, most=100).spec().shape), GangTooBig)


def test_a_rented_gang_costs_and_holds_as_much_as_it_got() -> None:
    lab = a_lab(wait="zero", clusters=(LAB, CLOUD))
    lab.agent("large", cluster="cloud", cpus=16)
    lab.submit(a_job("filler").cpus(2).tasks(4).expected(minutes=300))
    job = a_job("gang").tasks(2, most=8).terms(walltime=HOUR).max_cost(5 * MONEY + MONEY // 2)
    lab.submit(job)
    assert size(lab, "gang") == 5, "an hour and the grace of six tasks cost more than its cap"
    found = lab.job("gang")
    assert found.extra.hold is not None
    assert 5 * MONEY <= found.extra.hold.amount <= 5 * MONEY + MONEY // 2
    quoted = quote(lab.engine.index, found, HOUR)
    assert quoted is not None
    assert quoted.expected == 5 * MONEY
    lab.start("gang")
    lab.wait(seconds=1800)
    lab.finish("gang", ran=1800)
    assert lab.job("gang").cost == 5 * MONEY // 2


def test_limits_of_a_cluster_bound_the_size() -> None:
    lab = a_lab(clusters=(replace(LAB, most=Resources(5000)),))
    lab.submit(a_job("gang").tasks(2, most=8))
    assert size(lab, "gang") == 5
    lab.submit(a_job("more").tasks(1, most=8))
    assert size(lab, "more") == 0
    lab.finish("gang")
    assert size(lab, "more") == 5
