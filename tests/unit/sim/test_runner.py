"""The simulator is the engine on a virtual clock."""

import pytest
from msgspec import structs

from spillover.core.events import AnyEvent, Decided, JobRequeued, JobStopping, Stop
from spillover.model.cluster import Billing, Price
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.sim.outcome import JobOutcome
from spillover.sim.runner import simulate
from spillover.sim.setting import Fleet, Rent, Setting
from spillover.sim.trace import TraceJob


def setting(
    wait: Choice, *, nodes: int = 1, gpus: int = 8, startup: int = 0, backfill: str = "out_of_order"
) -> Setting:
    return Setting(
        Fleet(nodes, Resources(10**9, 2**50, gpus), limits_cpu=False, limits_memory=False),
        Rent(Price(gpu_hour=1_000_000), Billing(step=1), startup),
        PolicySet(wait=wait, backfill=Choice(backfill), place=Choice("first_fit")),
    )


def a_job(name: str, at: float, runs: float, gpus: int = 1) -> TraceJob:
    """Times in hours."""
    return TraceJob(name, int(at * HOUR), int(runs * HOUR), gpus, estimate=int(runs * HOUR))


def by_name(jobs: list[TraceJob], outcomes: list[JobOutcome]) -> dict[str, JobOutcome]:
    return {jobs[each.job].id: each for each in outcomes}


def test_a_job_larger_than_one_machine_takes_whole_ones_and_the_rest() -> None:
    jobs = [a_job("gang", 0, 1, gpus=20), a_job("small", 0.5, 1, gpus=4), a_job("large", 0.5, 1, gpus=8)]
    found = by_name(jobs, simulate(jobs, setting(Choice("never"), nodes=3)))
    assert found["gang"].node == "n1+n2+n3"
    assert found["small"].start == jobs[1].submit
    assert found["small"].node == "n3"
    assert found["large"].start == HOUR


def test_plans_have_digests_where_somebody_keeps_them_and_are_the_same_without() -> None:
    jobs = [a_job(str(number), number / 4, 1, gpus=5) for number in range(20)]
    kept: list[AnyEvent] = []
    found = simulate(jobs, setting(Choice("constant", {"wait": HOUR})), lambda _, events: kept.extend(events))
    plans = [event for event in kept if isinstance(event, Decided)]
    assert plans
    assert all(len(event.plan) == len(event.policy) == 16 for event in plans)
    assert simulate(jobs, setting(Choice("constant", {"wait": HOUR}))) == found


def test_a_gang_that_does_not_fit_takes_nothing() -> None:
    jobs = [a_job("one", 0, 1), a_job("gang", 0.1, 1, gpus=16), a_job("two", 0.2, 1, gpus=8)]
    found = by_name(jobs, simulate(jobs, setting(Choice("never"), nodes=2)))
    assert found["two"].node == "n2"
    assert found["gang"].start == found["two"].end


def test_a_gang_on_rented_capacity_pays_for_all_of_its_tasks() -> None:
    jobs = [a_job("gang", 0, 2, gpus=20)]
    found = by_name(jobs, simulate(jobs, setting(Choice("zero"), nodes=2)))
    assert found["gang"].cluster == "rented"
    assert found["gang"].cost == 40_000_000


def test_what_waits_when_nothing_runs_any_more_is_rented_when_its_wait_is_over() -> None:
    jobs = [a_job("large", 0, 1, gpus=100)]
    (outcome,) = simulate(jobs, setting(Choice("constant", {"wait": 10 * MINUTE})))
    assert (outcome.cluster, outcome.start) == ("rented", 10 * MINUTE)


def test_what_can_never_run_does_not_keep_a_simulation_from_ending() -> None:
    jobs = [a_job("large", 0, 1, gpus=100), a_job("small", 0, 1)]
    assert [each.job for each in simulate(jobs, setting(Choice("never")))] == [1]


def test_a_machine_that_has_to_start_first_makes_a_rented_job_wait() -> None:
    jobs = [a_job("one", 0, 1, gpus=8), a_job("two", 0.5, 1)]
    found = by_name(jobs, simulate(jobs, setting(Choice("zero"), startup=90 * SECOND)))
    assert found["two"].start == jobs[1].submit + 90 * SECOND
    assert found["two"].end == found["two"].start + HOUR
    assert found["two"].cost == 1_000_000


def test_a_walltime_that_is_too_short_does_not_end_a_job_of_a_trace() -> None:
    jobs = [TraceJob("long", 0, HOUR, 1, walltime=MINUTE), TraceJob("rented", 0, HOUR, 16, walltime=MINUTE)]
    found = simulate(jobs, setting(Choice("zero"), startup=SECOND))
    assert [each.end - each.start for each in found] == [HOUR, HOUR]


def test_star_brings_a_long_job_back_once_and_rents_it_for_good_after_its_wait() -> None:
    star = Choice("star", {"coefficient": HOUR, "h": 15 * MINUTE, "k": 2})
    jobs = [a_job("full", 0, 10, gpus=8), a_job("brief", 1, 0.2), a_job("long", 1, 4)]
    events: list[AnyEvent] = []
    found = by_name(jobs, simulate(jobs, setting(star), lambda _, more: events.extend(more)))
    assert [each.why for each in events if isinstance(each, JobStopping)] == [Stop.RETURN]
    assert len([each for each in events if isinstance(each, JobRequeued)]) == 1
    assert found["brief"].start == HOUR
    # back after a quarter of an hour, then twice the three quarters that its GPU is worth beyond that
    assert found["long"].start == HOUR + 15 * MINUTE + 90 * MINUTE
    assert found["long"].cluster == "rented"
    assert found["long"].cost == 4_250_000
    assert found["long"].abandoned == 15 * MINUTE


def test_star_lets_a_job_that_came_back_run_on_owned_capacity_from_its_beginning() -> None:
    star = Choice("star", {"coefficient": HOUR, "h": 15 * MINUTE, "k": 1})
    jobs = [a_job("full", 0, 1.5, gpus=8), a_job("long", 1, 4)]
    found = by_name(jobs, simulate(jobs, setting(star)))
    assert (found["long"].cluster, found["long"].start) == ("owned", 90 * MINUTE)
    assert found["long"].end == 90 * MINUTE + 4 * HOUR
    assert found["long"].cost == 250_000


def test_in_strict_order_a_head_that_is_rented_makes_way_at_once() -> None:
    jobs = [a_job("runs", 0, 5, gpus=6), a_job("head", 1, 1, gpus=4), a_job("next", 1.1, 1, gpus=2)]
    where = setting(Choice("constant", {"wait": HOUR}), backfill="strict")
    found = by_name(jobs, simulate(jobs, where))
    assert (found["head"].cluster, found["head"].start) == ("rented", 2 * HOUR)
    assert (found["next"].cluster, found["next"].start) == ("owned", 2 * HOUR)


@pytest.mark.parametrize("shape", ["constant", "runtime", "resource", "compute"])
def test_budget_steers_the_waiting_of_all_jobs_to_its_share_of_their_runtime(shape: str) -> None:
    jobs = [
        a_job(f"j{number}", number * 0.11, 1 + number % 3, 1 + 3 * (number % 2)) for number in range(4000)
    ]
    where = setting(Choice("budget", {"b": 0.1, "shape": shape}), nodes=5)
    outcomes = simulate(jobs, where)[1000:]
    waited = sum(each.start - each.submit for each in outcomes)
    ran = sum(each.end - each.start for each in outcomes)
    assert 0.085 < waited / ran < 0.115
    assert 0 < sum(each.cluster == "rented" for each in outcomes) < len(outcomes)


def test_a_simulation_ends_although_a_job_that_never_starts_keeps_others_waiting() -> None:
    jobs = [a_job("runs", 0, 1), a_job("never", 0, 1, gpus=100), a_job("behind", 0, 1)]
    policies = PolicySet(order=Choice("fair_share"), backfill=Choice("strict"), wait=Choice("never"))
    found = simulate(jobs, structs.replace(setting(Choice("never")), policies=policies))
    assert [jobs[each.job].id for each in found] == ["runs"]
