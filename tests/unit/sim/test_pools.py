"""Simulated pools: machines boot, fail, are refused and taken back, and what they cost is told apart."""

import pytest

from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.reports.statistics import Statistics
from spillover.sim.studies.study import Study, read_jobs, run


def simulated(rented: str, policy: str = "wait=compute(0.076)", jobs: int = 300) -> Statistics:
    study = Study(f"synthetic:jobs={jobs},load=1.2", read_owned("4x8gpu"), read_rented(rented))
    return run(study, read_jobs(study).jobs, read_policies(policy))[0].statistics


def test_every_paid_hour_is_useful_or_boot_or_idle_or_interrupted() -> None:
    numbers = simulated("pool:8gpu,hour=20,boot=90s,step=1h")
    pool = numbers.pool
    assert pool is not None
    assert pool.machines > 0
    parts = pool.useful_hours + pool.boot_hours + pool.idle_hours + pool.interrupted_hours
    assert parts == pytest.approx(pool.paid_hours)
    assert numbers.rented_cost == pytest.approx(20 * pool.paid_hours)
    assert numbers.never_ran == 0


def test_the_same_study_gives_the_same_numbers() -> None:
    text = "pool:8gpu,hour=20,boot=90s,fail=0.1,scarce=0.2;8gpu,spot,hour=7,hazard=0.2"
    assert simulated(text) == simulated(text)


def test_longer_boots_and_longer_steps_cost_more_than_unlimited_capacity() -> None:
    ideal = simulated("gpu=2.5")
    quick = simulated("pool:8gpu,hour=20,boot=1s,step=1s")
    slow = simulated("pool:8gpu,hour=20,boot=300s,step=1h")
    assert ideal.rented_cost < quick.rented_cost < slow.rented_cost
    assert ideal.mean_wait_s < slow.mean_wait_s


def test_machines_that_never_join_are_replaced_and_all_jobs_run() -> None:
    numbers = simulated("pool:8gpu,hour=20,boot=60s,join_within=5m,fail=0.2")
    assert numbers.never_ran == 0
    assert numbers.pool is not None
    assert numbers.pool.boot_hours > simulated("pool:8gpu,hour=20,boot=60s").pool.boot_hours  # type: ignore[union-attr]


def test_scarce_zones_refuse_orders_and_other_zones_take_them() -> None:
    numbers = simulated("pool:8gpu,hour=20,zone=a,scarce=0.5;8gpu,hour=21,zone=b")
    assert numbers.pool is not None
    assert numbers.pool.refused > 0
    assert numbers.never_ran == 0


def test_spot_machines_that_are_taken_back_waste_work_and_lose_no_job() -> None:
    numbers = simulated("pool:8gpu,spot,hour=7,hazard=0.5;8gpu,hour=20")
    assert numbers.pool is not None
    assert numbers.pool.interrupted_hours > 0
    assert numbers.never_ran == 0


def test_a_pool_that_always_has_machines_comes_to_an_end() -> None:
    assert simulated("pool:8gpu,hour=20,min=2,max=4", jobs=50).never_ran == 0


def test_a_pool_is_read_with_its_options() -> None:
    rent = read_rented("pool:8gpu,96cpu,hour=20,boot=2m,step=1h,max=7;4gpu,spot,zone=b,hour=3")
    assert rent.pool is not None
    pool = rent.pool.pool
    assert [(each.resources.gpu, each.hour, each.spot, each.zone) for each in pool.offers] == [
        (8, 20_000_000, False, ""),
        (4, 3_000_000, True, "b"),
    ]
    assert (pool.boot, pool.max, rent.billing.step) == (2 * MINUTE, 7, HOUR)
    assert read_rented("pool:8gpu,hour=1").billing.step == SECOND


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pool:8gpu", "an offer needs a price; write hour=20"),
        ("pool:hour=20", "an offer has neither GPUs nor CPUs"),
        ("pool:8gpu,hour=20,colour=red", "'colour' is not an option of a pool; known are hour, zone"),
        ("pool:8gpu,hour=20,fail=x", "'x' is not a number from 0 to 1000"),
        ("pool:8gpu,hour=20,boot=x", "boot"),
        ("pool:8gpu,hour=20,max=1,min=2", "max, 1, is below min, 2; raise max or lower min"),
        ("pool:8gpu,hour=20,min=2;4gpu,hour=9,max=1", "max, 1, is below min, 2; raise max or lower min"),
    ],
)
def test_what_is_wrong_with_a_pool_is_said_in_one_line(text: str, told: str) -> None:
    with pytest.raises(BadForm) as wrong:
        read_rented(text)
    assert told in str(wrong.value)
