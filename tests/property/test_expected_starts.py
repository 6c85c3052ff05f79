"""With exact runtimes, and if nobody submits more jobs, each job starts when it is expected to."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.events import AnyEvent
from spillover.deciding.engine import Engine
from spillover.deciding.forward import Starts, as_expected, first_jobs, run_forward
from spillover.deciding.whatif import Snapshot
from spillover.model.cluster import Billing, Price
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.sim.runner import Simulation
from spillover.sim.setting import Fleet, FleetMachine, Rent, ReservedNodes, Scene, Setting
from spillover.sim.trace import TraceJob
from tests.support.exact_jobs import NODE, gang_lists, job_lists, on_machines
from tests.support.tiers import examples

BACKFILLS = (
    Choice("strict"),
    Choice("out_of_order"),
    Choice("easy"),
    Choice("hybrid", {"depth": 2}),
    Choice("conservative"),
)
ORDERS = ("fifo", "sjf", "fair_share")
WAITS = (
    Choice("never"),
    Choice("constant", {"wait": 10 * SECOND}),
    Choice("zero"),
    Choice("compute", {"coefficient": 0.5}),
    Choice("break_even", {"coefficient": 0.2}),
    Choice("break_even", {"coefficient": 2.0}),
)
PLACES = ("best_fit", "first_fit", "worst_fit", "spread", "pack", "locality")
PRICE = Price(cpu_hour=40_000, gpu_hour=2_500_000)


def with_another_cluster(scene: Scene, nodes: int) -> Scene:
    """Add an owned cluster with so many machines."""
    owned, *rest = scene.site.clusters
    second = replace(owned, name=ClusterName("second"))
    machines = [FleetMachine(second.name, NodeName(f"s{number}"), NODE) for number in range(nodes)]
    site = replace(scene.site, clusters=(owned, second, *rest), machines=(*scene.site.machines, *machines))
    return replace(scene, site=site)


class Foresight:
    """Forecasts the starts of waiting jobs after the last submission."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.engine: Engine | None = None
        self.forecasts: list[Starts] = []

    def __call__(self, now: int, events: Sequence[AnyEvent]) -> None:
        del events
        if now >= self.last and self.engine is not None:
            snapshot = Snapshot(self.engine)
            jobs = first_jobs(snapshot, 1000)
            self.forecasts.append(run_forward(snapshot, now, jobs, as_expected(snapshot), 100_000))


@pytest.mark.parametrize("backfill", BACKFILLS, ids=lambda choice: choice.name)
@settings(max_examples=examples(60))
@given(
    job_lists(),
    st.integers(2, 4),
    st.integers(0, 2),
    st.sampled_from(ORDERS),
    st.sampled_from(WAITS),
    st.sampled_from(PLACES),
)
def test_the_expected_start_is_the_real_start(
    backfill: Choice, jobs: list[TraceJob], nodes: int, others: int, order: str, wait: Choice, place: str
) -> None:
    where = Setting(
        Fleet(nodes, NODE),
        Rent(PRICE, Billing(), startup=5 * SECOND),
        PolicySet(order=Choice(order), backfill=backfill, wait=wait, place=Choice(place)),
    )
    check(jobs, with_another_cluster(where.scene, others))


def check(jobs: Sequence[TraceJob], scene: Scene) -> None:
    """Each forecast after the last submission must come true."""
    foresight = Foresight(jobs[-1].submit)
    simulation = Simulation(jobs, scene, foresight)
    foresight.engine = simulation.engine
    real = {str(each.job): each.start for each in simulation.run()}
    assert foresight.forecasts
    for forecast in foresight.forecasts:
        assert forecast.at == {job: real[job] for job in forecast.at}
    assert all(job in real for job in foresight.forecasts[0].at)


RESERVED = st.builds(
    ReservedNodes,
    start=st.integers(0, 60).map(SECOND.__mul__),
    length=st.integers(1, 60).map(SECOND.__mul__),
    count=st.just(1),
    project=st.sampled_from(["", "ours"]),
)


@pytest.mark.parametrize("backfill", BACKFILLS, ids=lambda choice: choice.name)
@settings(max_examples=examples(60))
@given(
    gang_lists(),
    st.integers(3, 4),
    st.sampled_from(ORDERS),
    st.lists(RESERVED, max_size=2),
    st.sampled_from(WAITS),
    st.sampled_from(PLACES),
)
def test_that_holds_for_groups_for_elastic_gangs_and_beside_advance_reservations(
    backfill: Choice,
    jobs: list[TraceJob],
    nodes: int,
    order: str,
    reserved: list[ReservedNodes],
    wait: Choice,
    place: str,
) -> None:
    where = on_machines(nodes, backfill, place, order=order)
    where = replace(where, policies=replace(where.policies, wait=wait), rent=Rent(PRICE, Billing()))
    check(jobs, replace(where, reserved=tuple(reserved)).scene)
