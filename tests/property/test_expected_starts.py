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
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.sim.runner import Simulation
from spillover.sim.setting import Fleet, FleetMachine, Rent, Scene, Setting
from spillover.sim.trace import TraceJob

NODE = Resources(4000, 8, 2)
BACKFILLS = (
    Choice("strict"),
    Choice("out_of_order"),
    Choice("easy"),
    Choice("hybrid", {"depth": 2}),
    Choice("conservative"),
)
ORDERS = ("fifo", "sjf", "fair_share")


@st.composite
def job_lists(draw: st.DrawFn) -> list[TraceJob]:
    """Jobs whose runtimes are known exactly, some larger than one machine."""
    submits = sorted(draw(st.lists(st.integers(0, 60), min_size=1, max_size=25)))
    return [
        TraceJob(
            str(number),
            submit * SECOND,
            (runtime := draw(st.integers(1, 40)) * SECOND),
            gpus=draw(st.sampled_from([0, 0, 1, 2])),
            cpus=draw(st.sampled_from([1000, 2000, 4000, 8000])),
            memory=draw(st.sampled_from([0, 1, 4, 8])),
            estimate=runtime,
            user=draw(st.sampled_from(["ada", "bob"])),
        )
        for number, submit in enumerate(submits)
    ]


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
@settings(max_examples=40)
@given(
    job_lists(),
    st.integers(2, 4),
    st.integers(0, 2),
    st.sampled_from(ORDERS),
    st.sampled_from([None, 10 * SECOND]),
)
def test_the_expected_start_is_the_real_start(
    backfill: Choice, jobs: list[TraceJob], nodes: int, others: int, order: str, rents_after: int | None
) -> None:
    wait = Choice("never") if rents_after is None else Choice("constant", {"wait": rents_after})
    where = Setting(
        Fleet(nodes, NODE),
        Rent(Price(), Billing(), startup=5 * SECOND),
        PolicySet(order=Choice(order), backfill=backfill, wait=wait, place=Choice("best_fit")),
    )
    foresight = Foresight(jobs[-1].submit)
    simulation = Simulation(jobs, with_another_cluster(where.scene, others), foresight)
    foresight.engine = simulation.engine
    real = {str(each.job): each.start for each in simulation.run()}
    assert foresight.forecasts
    for forecast in foresight.forecasts:
        assert forecast.at == {job: real[job] for job in forecast.at}
    assert all(job in real for job in foresight.forecasts[0].at)
