"""When waiting jobs are expected to start: arrays, dependencies, prefetched jobs, and what was learned of runtimes."""

from bisect import bisect_right

import pytest

from spillover.core.learned import spread
from spillover.core.proposals import Act, Submit
from spillover.deciding.corrections import Corrections
from spillover.deciding.expected import StartRange, expected_starts, starts_if_submitted
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World

TOGETHER = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True)


def world(wait: str = "never", *clusters: ClusterSpec, backfill: str = "easy") -> World:
    return World(load, PolicySet(backfill=Choice(backfill), wait=Choice(wait)), clusters or (OWNED,))


def seconds(w: World, *jobs: str) -> list[tuple[float, float]]:
    """Return the expected starts in seconds from now, in half and in nine of ten cases."""
    found = expected_starts(w.engine, w.now).starts
    return [
        ((found[JobId(job)].p50 - w.now) / SECOND, (found[JobId(job)].p90 - w.now) / SECOND)  # type: ignore[operator]
        for job in jobs
    ]


def certain(*starts: float) -> list[tuple[float, float]]:
    return [(start, start) for start in starts]


def test_jobs_start_one_after_the_other() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(*(a_job(name).cpus(2).expected(seconds=30) for name in ("first", "second", "third")))
    assert seconds(w, "second", "third") == certain(30, 60)


def test_a_forecast_changes_nothing() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(*(a_job(name).cpus(2).expected(seconds=30) for name in ("first", "second")))
    expected_starts(w.engine, w.now)
    assert w.placed() == ["first"]
    w.finish("first")
    assert w.placed() == ["second"]


def test_an_array_has_the_start_of_its_next_member_and_each_member_its_own() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("running").cpus(2).expected(seconds=30))
    w.submit(a_job("array").cpus(2).expected(seconds=10).array(1, 3), a_job("after it").cpus(2))
    assert seconds(w, "array", "array.1", "array.2", "array.3", "after it") == certain(30, 30, 40, 50, 60)


def test_a_gang_starts_when_all_its_tasks_fit() -> None:
    w = world("never", TOGETHER)
    w.agent("n1", cpus=2)
    w.agent("n2", cpus=2)
    w.submit(a_job("short").cpus(2).expected(seconds=10), a_job("long").cpus(2).expected(seconds=50))
    w.submit(a_job("gang").tasks(2).cpus(2).expected(seconds=10), a_job("last").cpus(2).expected(seconds=10))
    assert seconds(w, "gang", "last") == certain(50, 10)


def test_a_job_starts_after_the_jobs_that_it_waits_for_and_not_before_its_time() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("first").cpus(1).expected(seconds=30))
    w.submit(
        a_job("next").after("first").expected(seconds=10),
        a_job("later").between(not_before=w.now + 20 * SECOND).expected(seconds=5),
    )
    assert seconds(w, "next", "later") == certain(30, 20)


def test_a_held_job_has_no_expected_start() -> None:
    w = world()
    w.agent("n1", cpus=1)
    w.submit(a_job("running").expected(seconds=30), a_job("held"))
    w.act(Act.HOLD, "held")
    assert expected_starts(w.engine, w.now).starts == {}


def test_a_job_that_will_be_rented_starts_when_its_wait_is_over_and_the_machine_is_up() -> None:
    policies = PolicySet(wait=Choice("constant", {"wait": 20 * SECOND}))
    w = World(load, policies, (OWNED, ClusterSpec(RENTED.name, "agents", Role.RENTED, startup=5 * SECOND)))
    w.agent("n1", cpus=1)
    w.agent("v1", cpus=1, cluster="cloud")
    w.submit(a_job("running").expected(seconds=60), a_job("waits").expected(seconds=30))
    assert seconds(w, "waits") == certain(25)


def test_a_job_that_runs_longer_than_expected_is_expected_to_end_in_a_minute() -> None:
    w = world()
    w.agent("n1", cpus=1)
    w.submit(a_job("running").expected(seconds=30), a_job("waits"))
    w.wait(seconds=40)
    assert seconds(w, "waits") == certain(60)


def test_a_job_that_is_asked_to_stop_ends_within_its_grace() -> None:
    w = world()
    w.agent("n1", cpus=1)
    w.submit(a_job("running").expected(seconds=300), a_job("waits"))
    w.start("running")
    w.cancel("running")
    assert seconds(w, "waits") == certain(w.job("running").terms.grace / SECOND)


def test_a_prefetched_job_starts_on_its_node_and_others_behind_it() -> None:
    w = world(backfill="out_of_order")
    w.agent("n1", cpus=1, queue=1)
    w.submit(a_job("pace").expected(seconds=1))
    w.start("pace")
    w.finish("pace", ran=0.1)  # short tasks are prefetched
    w.submit(a_job("first").expected(seconds=10), a_job("second").expected(seconds=10), a_job("third"))
    assert w.where("second") == "onprem/n1"
    assert seconds(w, "third") == certain(20)


def test_jobs_that_are_only_tried_have_an_expected_start_too() -> None:
    w = world()
    w.agent("n1", cpus=1)
    w.submit(a_job("running").expected(seconds=30))
    tried = starts_if_submitted(w.engine, w.now, Submit((a_job("tried").build(),), "ada"))
    at = w.now + 30 * SECOND
    assert tried == {"tried": StartRange(at, at)}
    assert "tried" not in w.state.jobs


def test_a_job_that_never_fits_has_no_expected_start() -> None:
    w = world()
    w.agent("n1", cpus=1)
    w.submit(a_job("running").expected(seconds=30), a_job("huge").cpus(9))
    forecast = expected_starts(w.engine, w.now)
    assert "huge" in forecast.wanted
    assert "huge" not in forecast.starts


# --- what was learned


def ran(w: World, *, expected: float, seconds: float, count: int) -> None:
    """Let jobs run for a time that differs from what was expected."""
    for number in range(count):
        (job,) = w.submit(a_job(f"past {number} of {seconds}").expected(seconds=expected))
        w.start(job)
        w.finish(job, ran=seconds)


def test_a_range_follows_from_how_jobs_ran_compared_with_what_was_expected() -> None:
    w = world()
    w.agent("n1", cpus=1)
    ran(w, expected=100, seconds=100, count=30)
    ran(w, expected=100, seconds=10, count=30)
    w.submit(a_job("running").expected(seconds=1000), a_job("waits"))
    ((p50, p90),) = seconds(w, "waits")
    assert p90 == 1000
    assert p50 == 1000 or 80 <= p50 <= 130  # half of them end early


def test_a_job_that_has_run_for_a_while_is_compared_with_jobs_that_ran_as_long() -> None:
    w = world()
    w.agent("n1", cpus=1)
    ran(w, expected=100, seconds=100, count=20)
    ran(w, expected=100, seconds=10, count=200)
    w.submit(a_job("running").expected(seconds=1000), a_job("waits"))
    w.start("running")
    w.wait(seconds=200)
    assert seconds(w, "waits") == certain(800)


def test_exact_runtimes_leave_no_range() -> None:
    w = world()
    w.agent("n1", cpus=1)
    ran(w, expected=7, seconds=7, count=40)
    w.submit(a_job("running").expected(seconds=30), a_job("second").expected(seconds=20), a_job("third"))
    assert seconds(w, "second", "third") == certain(30, 50)


def test_a_walltime_ends_the_range() -> None:
    w = world()
    w.agent("n1", cpus=1)
    ran(w, expected=10, seconds=60, count=40)
    w.submit(a_job("running").terms(walltime=40 * SECOND, estimate=20 * SECOND), a_job("waits"))
    assert seconds(w, "waits") == certain(40)


@pytest.mark.parametrize("ratio", [0, 1, 1953, 500_000, 998_999, spread.ONE, 1_500_000, 10**9])
def test_a_ratio_is_drawn_from_where_it_was_counted(ratio: int) -> None:
    bins = [0] * spread.BINS
    bins[bisect_right(spread.EDGES, ratio)] += 1
    drawn = [spread.draw_ratio(bins, 0, chance) for chance in (0, 1 << 15, (1 << 16) - 1)]
    assert drawn == sorted(drawn)  # type: ignore[type-var]
    for each in drawn:
        assert bins[bisect_right(spread.EDGES, each or 0)] == 1


def test_no_ratio_is_drawn_below_what_a_job_has_reached() -> None:
    bins = [0] * spread.BINS
    for ratio in range(0, 2_000_000, 10_000):
        bins[bisect_right(spread.EDGES, ratio)] += 1
    for above in (0, 300_000, 999_999, 1_000_000, 1_900_000):
        assert all(
            (spread.draw_ratio(bins, above, chance) or 0) >= above for chance in range(0, 1 << 16, 999)
        )
    assert spread.draw_ratio(bins, 10**9, 0) is None


# --- how forecasts came true

SPAN = StartRange(100 * SECOND, 200 * SECOND)


def test_forecasts_are_stretched_as_on_real_clusters_until_enough_jobs_have_started() -> None:
    corrections = Corrections()
    assert corrections.corrected(SPAN, 0) == StartRange(125 * SECOND, 280 * SECOND)
    for number in range(40):
        corrections.given(JobId(str(number)), SPAN, 0)
    assert corrections.corrected(SPAN, 0) == StartRange(125 * SECOND, 280 * SECOND)


def test_forecasts_come_true_as_often_as_they_say() -> None:
    corrections = Corrections()
    for number in range(100):
        corrections.given(JobId(str(number)), SPAN, 0)
        corrections.started(JobId(str(number)), (number + 1) * 10 * SECOND)  # from 10 to 1,000 seconds
    found = corrections.corrected(SPAN, 0)
    assert found.p50 == pytest.approx(500 * SECOND, rel=0.02)
    assert found.p90 == pytest.approx(910 * SECOND, rel=0.02)
    later = corrections.corrected(StartRange(1100 * SECOND, 1200 * SECOND), 1000 * SECOND)
    assert later.p50 == pytest.approx(1500 * SECOND, rel=0.02)


def test_only_the_first_forecast_of_a_job_counts_and_only_once() -> None:
    corrections = Corrections()
    for number in range(50):
        job = JobId(str(number))
        corrections.given(job, SPAN, 0)
        corrections.given(job, StartRange(SECOND, SECOND), 0)
        corrections.started(job, 100 * SECOND)
        corrections.started(job, 10**6 * SECOND)
        corrections.started(JobId("unknown"), 0)
    assert corrections.corrected(SPAN, 0) == StartRange(100 * SECOND, 100 * SECOND)


def test_a_forecast_without_a_range_is_left_alone() -> None:
    certain_start = StartRange(100 * SECOND, 100 * SECOND)
    assert Corrections().corrected(certain_start, 0) == certain_start
    assert Corrections().corrected(StartRange(None, None), 0) == StartRange(None, None)
    assert Corrections().corrected(StartRange(100 * SECOND, None), 0).p90 is None


def test_forecasts_of_jobs_that_never_start_are_forgotten_in_the_end() -> None:
    corrections = Corrections()
    for number in range(6000):
        corrections.given(JobId(str(number)), SPAN, 0)
    for number in range(1000):
        corrections.started(JobId(str(number)), 10**6 * SECOND)
    assert corrections.corrected(SPAN, 0) == StartRange(125 * SECOND, 280 * SECOND)


def test_a_forecast_that_takes_too_long_is_made_of_the_cases_so_far() -> None:
    w = world()
    w.agent("n1", cpus=1)
    ran(w, expected=100, seconds=10, count=30)
    ran(w, expected=100, seconds=100, count=30)
    w.submit(a_job("running").expected(seconds=1000), a_job("waits").expected(seconds=1000), a_job("last"))
    calls = 0

    def enough() -> bool:
        nonlocal calls
        calls += 1
        return calls > 7

    cut = expected_starts(w.engine, w.now, enough=enough).starts
    assert cut.keys() == {"waits", "last"}
    assert all(each.p90 is not None for each in cut.values())
    calls = 6
    assert expected_starts(w.engine, w.now, enough=enough).starts == {}  # cut before anything ended
