"""How far two lives of the same jobs are apart, by hand."""

import pytest

from spillover.model.units import MONEY, SECOND
from spillover.sim.fleet import read_owned
from spillover.sim.outcome import JobOutcome
from spillover.sim.reports.statistics import Statistics, summarize
from spillover.sim.studies.comparing import by_project, deviation
from spillover.sim.trace import TraceJob

JOBS = [
    TraceJob(str(at), at * SECOND, 10 * SECOND, 1, project=project)
    for at, project in enumerate(("speech", "vision", "vision", "maps", "speech"))
]
ALL = range(len(JOBS))


def life(*waits: int | None, rented: tuple[int, ...] = (), cost: int = 1) -> list[JobOutcome]:
    """Outcomes by how long each job waits, in seconds; None never runs."""
    return [
        JobOutcome(
            at,
            JOBS[at].submit,
            JOBS[at].submit + wait * SECOND,
            JOBS[at].submit + (wait + 10) * SECOND,
            "rented" if at in rented else "owned",
            "",
            cost * MONEY if at in rented else 0,
            "",
        )
        for at, wait in enumerate(waits)
        if wait is not None
    ]


def told(outcomes: list[JobOutcome], counted: range = ALL) -> Statistics:
    return summarize(JOBS, outcomes, read_owned("1x4gpu"), counted)


def test_a_simulation_that_is_what_happened_has_no_error() -> None:
    happened = life(0, 5, 7, 0, 3, rented=(2,))
    error = deviation(happened, happened, told(happened), told(happened), ALL)
    assert (error.jobs, error.mean_wait_s, error.cost, error.mean_start_s) == (5, 0, 0, 0)
    assert (error.elsewhere_jobs, error.elsewhere, error.never_ran) == (0, 0, 0)


def test_errors_of_both_signs_do_not_cancel_in_starts() -> None:
    happened, simulated = life(10, 10, 0, 0, 0, rented=(0,), cost=4), life(0, 20, 0, 0, 5, rented=(1,))
    error = deviation(happened, simulated, told(happened), told(simulated), ALL)
    assert (error.mean_wait_s, error.mean_wait_share) == (1.0, 0.25)
    assert (error.mean_start_s, error.p50_start_s, error.p90_start_s) == (5.0, 5.0, 10.0)
    assert (error.cost, error.cost_share) == (-3.0, -0.75)
    assert (error.elsewhere_jobs, error.elsewhere) == (2, 0.4)


def test_jobs_that_never_run_in_the_simulation_are_told_and_compared_with_nothing() -> None:
    happened, simulated = life(0, 0, 0, 0, 0), life(0, None, 0, 0, 1)
    error = deviation(happened, simulated, told(happened), told(simulated), ALL)
    assert (error.jobs, error.never_ran, error.mean_start_s) == (4, 1, 0.25)
    assert (error.mean_wait_share, error.cost_share) == (None, None)


def test_only_jobs_that_count_are_compared() -> None:
    happened, simulated = life(0, 0, 0, 0, 0), life(9, 0, 2, 0, 9)
    counted = range(1, 4)
    error = deviation(happened, simulated, told(happened, counted), told(simulated, counted), counted)
    assert error.jobs == 3
    assert error.mean_start_s == pytest.approx(2 / 3)


def test_projects_that_gain_most_come_first_and_changes_within_the_error_are_unclear() -> None:
    happened = life(10, 4, 4, 3, 10)
    as_ran = life(10, 4, 6, 1, 10)
    then = life(0, 8, 8, 2, 0, rented=(0,), cost=2)
    speech, maps, vision = by_project(JOBS, happened, as_ran, then, ALL)
    assert (speech.project, speech.jobs, speech.verdict) == ("speech", 2, "wins")
    assert (speech.wait_s, speech.wait_then_s, speech.wait_change_s) == (10.0, 0.0, -10.0)
    assert (speech.cost, speech.cost_then, speech.cost_change) == (0.0, 2.0, 2.0)
    assert (maps.project, maps.wait_change_s, maps.wait_as_ran_s, maps.verdict) == (
        "maps",
        -1.0,
        1.0,
        "unclear",
    )
    assert (vision.project, vision.wait_change_s, vision.wait_as_ran_s, vision.verdict) == (
        "vision",
        4.0,
        5.0,
        "loses",
    )


def test_a_project_is_judged_by_jobs_that_run_in_all_lives() -> None:
    changes = by_project(JOBS, life(1, 1, 1, 1, 1), life(1, 1, 1, 1, None), life(1, 1, None, None, 1), ALL)
    assert [(one.project, one.jobs, one.verdict) for one in changes] == [
        ("speech", 1, "same"),
        ("vision", 1, "same"),
    ]
