"""break_even: rents at once what would be rented anyway, and waits only where room is near enough to be worth it."""

import pytest
from msgspec.structs import replace

from spillover.core.events import AnyEvent, Evidence, Like, MemberPlaced
from spillover.core.learned.tally import Tally
from spillover.deciding.forecast.starts import Late, Outlook
from spillover.deciding.protocols import Case, Policies
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName
from spillover.model.job import Burst, Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NotInTime, WaitOver
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.policies.break_even import BreakEven
from spillover.policies.loading import UnknownPolicy, load
from spillover.testing.builders import a_job
from spillover.testing.world import World

TOGETHER = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True)
ELSEWHERE = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, gangs=True)
FOUR_GPUS = Shape(Resources(8000, 2**30, 4))


def a_world(
    coefficient: float = 0.5, *, cpus: int = 1, backfill: str = "out_of_order", **options: int
) -> World:
    """One owned machine, and one that is rented and large enough for anything; whoever has priority comes first."""
    wait = Choice("break_even", {"coefficient": coefficient, **options})
    policies = PolicySet(order=Choice("priority"), backfill=Choice(backfill), wait=wait)
    w = World(load, policies, (TOGETHER, ELSEWHERE))
    w.agent("n1", cpus=cpus)
    w.agent("v1", cpus=1000, cluster="cloud")
    return w


def late(w: World, job: str) -> bool:
    """Whether a job was rented because it would not have started in time; else it has to wait still."""
    if w.where(job) is None:
        return False
    assert w.where(job) == "cloud/v1"
    assert isinstance(w.placed_because(job), NotInTime)
    return True


def places(w: World, job: str) -> list[str]:
    """Where the members of an array were placed."""
    return [event.cluster for event in w.happened(MemberPlaced) if event.array == job]


# --- the wait of one job


def test_nobody_waits_longer_than_three_times_what_it_is_worth() -> None:
    case = Case(FOUR_GPUS, HOUR, 0, Tally(), HOUR, known=True)
    assert BreakEven(0.1).wait(case) == 3 * 4 * HOUR // 10


def test_what_a_job_is_likely_to_run_counts_not_the_limit_that_it_asked_for() -> None:
    case = Case(FOUR_GPUS, 10 * HOUR, 0, Tally(), HOUR, known=True)
    assert BreakEven(0.1).wait(case) == 3 * 4 * HOUR // 10


def test_a_job_that_asks_for_much_more_than_a_few_others_took_may_be_as_long_as_it_says() -> None:
    """Three short runs leave a chance of one in four, twenty hardly any; a few long jobs would cost more than all others."""

    def wait(runs: int, walltime: int | None) -> int:
        w = a_world()
        w.submit(a_job("x").gpus(4).terms(walltime=walltime))
        job = w.job("x")
        job.predicted, job.evidence = HOUR, Evidence(Like.SHAPE, runs, runs)
        return BreakEven(0.1).wait(w.engine.policies.case_of(job, Tally()))

    assert wait(3, 13 * HOUR) == 3 * 4 * 4 * HOUR // 10, "(3 x 1 h + 13 h) / 4 = 4 h"
    assert wait(11, 13 * HOUR) == 3 * 4 * 2 * HOUR // 10
    assert wait(3, HOUR // 2) == 3 * 4 * HOUR // 20, "its walltime, if that is shorter"
    assert wait(3, None) == 3 * 4 * HOUR // 10


def test_a_job_of_which_nothing_is_known_waits_as_long_as_a_mean_job_is_worth() -> None:
    tally = Tally(jobs=4, expected=8 * HOUR)
    case = Case(FOUR_GPUS, HOUR, 0, tally, HOUR, known=False)
    assert BreakEven(0.1).wait(case) == 4 * 2 * HOUR // 10


def test_the_first_job_of_which_nothing_is_known_is_taken_to_run_as_long_as_is_assumed() -> None:
    case = Case(FOUR_GPUS, HOUR, 0, Tally(), HOUR, known=False)
    assert BreakEven(0.1).wait(case) == 4 * HOUR // 10


def test_a_coefficient_has_to_be_given() -> None:
    with pytest.raises(UnknownPolicy, match="coefficient"):
        load(PolicySet(wait=Choice("break_even")))


# --- looking ahead


def test_a_job_that_would_be_rented_in_the_end_is_rented_at_once() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=60))
    w.submit(a_job("hopeless").expected(minutes=60))
    assert late(w, "hopeless")
    assert w.placed_because("hopeless") == NotInTime(30 * MINUTE)


def test_a_job_waits_when_room_is_near() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=20))
    w.submit(a_job("patient").expected(minutes=60))
    assert not late(w, "patient")
    w.wait(seconds=20 * 60)
    w.finish("running")
    assert w.where("patient") == "onprem/n1"


def test_room_that_jobs_ahead_will_take_is_not_counted_on() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=20))
    w.submit(a_job("first").expected(minutes=60))
    w.submit(a_job("second").expected(minutes=60))
    assert not late(w, "first")
    assert late(w, "second")


def test_a_newcomer_that_comes_first_tips_one_that_waited() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=20))
    w.submit(a_job("waiting").expected(minutes=60))
    assert not late(w, "waiting")
    w.submit(a_job("urgent").priority(1).expected(minutes=60))
    assert not late(w, "urgent")
    assert late(w, "waiting")


@pytest.mark.parametrize(("longer", "rented"), [(24, False), (26, True)])
def test_of_the_time_that_a_job_has_waited_a_third_counts(longer: int, *, rented: bool) -> None:
    w = a_world(cpus=2)
    w.submit(a_job("running").cpus(2).expected(minutes=45))
    w.submit(a_job("old").cpus(2).expected(minutes=50))
    w.wait(seconds=30 * 60)
    # It would start 15 minutes and `longer` from now; of its 50 minutes 50 - 30 / 3 are left.
    w.submit(a_job("newcomer").cpus(2).priority(1).expected(minutes=longer))
    assert not late(w, "newcomer")
    assert late(w, "old") is rented


def test_nothing_changes_for_others_when_all_that_comes_is_hopeless() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=20))
    w.submit(a_job("patient").expected(minutes=60))
    w.submit(a_job("brief").priority(1).expected(minutes=1))
    assert late(w, "brief")
    assert not late(w, "patient")


@pytest.mark.parametrize(("expected", "rented"), [(23, True), (25, False)])
def test_what_outran_its_estimate_is_expected_to_take_longer_the_longer_it_ran(
    expected: int, *, rented: bool
) -> None:
    w = a_world()
    w.submit(a_job("overdue").expected(minutes=10))
    w.wait(seconds=40 * 60)
    w.submit(
        a_job("newcomer").expected(minutes=expected)
    )  # worth half of that; it is expected to end in 12 minutes
    assert late(w, "newcomer") is rented


@pytest.mark.parametrize(("expected", "rented"), [(119, True), (121, False)])
def test_what_outran_its_estimate_is_expected_to_take_a_minute_at_the_least(
    expected: int, *, rented: bool
) -> None:
    w = a_world()
    w.submit(a_job("overdue").expected(seconds=10))
    w.wait(seconds=20)
    w.submit(a_job("newcomer").expected(seconds=expected))
    assert late(w, "newcomer") is rented


def test_whatever_was_predicted_a_job_is_rented_after_three_times_what_waiting_was_worth() -> None:
    w = a_world()
    w.submit(a_job("endless").expected(minutes=20))
    w.submit(a_job("misled").expected(minutes=60))
    w.wait(seconds=90 * 60 - 1)
    assert w.where("misled") is None
    w.wait(seconds=1)
    assert w.where("misled") == "cloud/v1"
    assert w.placed_because("misled") == WaitOver(90 * MINUTE)


def test_a_job_of_which_nothing_is_known_is_rented_when_it_has_waited_what_renting_a_mean_one_costs() -> None:
    w = a_world(2)
    w.submit(a_job("endless").expected(minutes=10))
    w.submit(a_job("unknown"))
    granted = 20 * MINUTE
    assert w.job("unknown").latest == w.now + granted
    w.wait(seconds=granted / SECOND)
    assert w.placed_because("unknown") == WaitOver(granted)


def test_of_an_array_those_members_are_rented_that_would_not_start_in_time() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=20))
    w.submit(a_job("array").array(1, 4).expected(minutes=60))
    assert places(w, "array") == ["cloud"] * 3
    w.finish("running")
    assert places(w, "array") == ["cloud", "cloud", "cloud", "onprem"]


@pytest.mark.parametrize(("last", "rented"), [(59, False), (61, True)])
def test_a_gang_waits_for_the_last_of_its_machines(last: int, *, rented: bool) -> None:
    w = a_world()
    w.agent("n2")
    w.submit(a_job("one").expected(minutes=30))
    w.submit(a_job("other").expected(minutes=last))
    w.submit(a_job("gang").tasks(2).expected(minutes=60))
    assert late(w, "gang") is rented


def test_a_job_that_no_owned_machine_is_large_enough_for_does_not_wait() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=1))
    w.submit(a_job("huge").cpus(2).expected(minutes=600))
    assert late(w, "huge")


@pytest.mark.parametrize(("backfill", "rented"), [("out_of_order", False), ("strict", True)])
def test_in_strict_order_nothing_is_expected_to_pass_the_first(backfill: str, *, rented: bool) -> None:
    w = a_world(cpus=2, backfill=backfill)
    w.submit(a_job("short").expected(minutes=10), a_job("long").expected(minutes=100))
    w.submit(a_job("wide").cpus(2).expected(minutes=300))
    w.submit(a_job("behind").expected(minutes=60))
    assert not late(w, "wide")
    assert late(w, "behind") is rented


@pytest.mark.parametrize(("most", "rented"), [(1, False), (2, True)])
def test_it_looks_no_further_than_so_many_ends(most: int, *, rented: bool) -> None:
    w = a_world(cpus=3, most_ends=most)
    w.submit(*(a_job(f"running-{each}").expected(minutes=10 * each) for each in (1, 2, 3)))
    w.submit(a_job("wide").cpus(3).expected(minutes=10))  # worth 15 minutes; has room after 30
    assert late(w, "wide") is rented


def test_it_looks_at_no_more_than_five_waiting_jobs_for_each_end_and_at_those_that_come() -> None:
    seen: list[list[str]] = []

    class Spy(BreakEven):
        def review(self, outlook: Outlook) -> list[Late]:
            seen.append([each.job for each in outlook.queue])
            return super().review(outlook)

    def load_spy(chosen: PolicySet) -> Policies:
        return replace(load(chosen), wait=Spy(100, most_ends=1))

    w = World(load_spy, PolicySet(wait=Choice("break_even", {"coefficient": 100})))
    w.agent("n1")
    w.submit(a_job("running").expected(minutes=10))
    for each in range(8):
        w.submit(a_job(f"job-{each}").expected(minutes=10))
    first = [f"job-{each}" for each in range(5)]
    assert seen[4:] == [first, [*first, "job-5"], [*first, "job-6"], [*first, "job-7"]]


def test_a_cap_on_the_wait_does_not_make_room_worth_less_that_comes_before_it() -> None:
    w = a_world(max_wait=40 * MINUTE)
    w.submit(a_job("running").expected(minutes=29))
    w.submit(a_job("patient").expected(minutes=60))
    assert not late(w, "patient")
    w.submit(a_job("capped").expected(minutes=600), a_job("brief").priority(1).expected(minutes=60))
    assert not late(w, "brief")
    assert late(w, "capped")


def test_jobs_that_are_never_rented_stay_and_those_that_always_are_go() -> None:
    w = a_world()
    w.submit(a_job("running").expected(minutes=60))
    w.submit(a_job("ours").burst(Burst.NEVER).expected(minutes=1))
    w.submit(a_job("theirs").burst(Burst.ALWAYS).expected(minutes=1))
    assert w.where("ours") is None
    assert w.where("theirs") == "cloud/v1"


def test_the_same_jobs_get_the_same_plans() -> None:
    def events() -> list[AnyEvent]:
        w = a_world(cpus=4)
        for each in range(40):
            w.submit(a_job(f"job-{each}").cpus(1 + each % 3).expected(minutes=1 + each * 7 % 30))
            w.wait(seconds=40)
            for done in [job for job in w.placed() if w.where(job) == "onprem/n1"][: each % 2]:
                w.finish(done)
        return w.events

    assert events() == events()


# --- gangs and reservations


def a_gang_and_a_long_job(backfill: str) -> World:
    """Two machines, free in 10 and in 20 minutes. A gang asks for both, and a long job behind it for one."""
    w = a_world(backfill=backfill)
    w.agent("n2", cpus=1)
    w.submit(a_job("one").expected(minutes=10), a_job("two").expected(minutes=20))
    w.submit(a_job("gang").tasks(2).expected(minutes=60))
    w.submit(a_job("long").expected(minutes=120))
    return w


def test_a_gang_that_loses_the_race_for_each_machine_is_rented_at_once() -> None:
    w = a_gang_and_a_long_job("out_of_order")
    assert late(w, "gang")
    assert w.where("long") is None


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_gang_with_a_reservation_waits_for_it_and_jobs_behind_it_do_not_count_on_its_room(
    backfill: str,
) -> None:
    w = a_gang_and_a_long_job(backfill)
    assert w.where("gang") is None
    assert late(w, "long")


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_gang_whose_reservation_is_too_late_is_rented_and_keeps_nothing_from_others(backfill: str) -> None:
    w = a_world(backfill=backfill)
    w.agent("n2", cpus=1)
    w.submit(a_job("one").expected(minutes=10), a_job("two").expected(minutes=90))
    w.submit(a_job("long").expected(minutes=120))  # in ten minutes
    assert w.where("long") is None
    w.submit(a_job("gang").tasks(2).expected(minutes=60).priority(1))
    assert late(w, "gang")
    assert w.where("long") is None


@pytest.mark.parametrize("backfill", ["out_of_order", "easy", "conservative"])
def test_a_gang_that_no_rented_cluster_can_hold_waits_with_its_place_in_the_queue(backfill: str) -> None:
    wait = Choice("break_even", {"coefficient": 0.5})
    w = World(load, PolicySet(backfill=Choice(backfill), wait=wait), (TOGETHER, ELSEWHERE))
    w.agent("n1", cpus=1)
    w.agent("n2", cpus=1)
    w.agent("v1", cpus=1, cluster="cloud")
    w.submit(a_job("one").expected(minutes=90), a_job("two").expected(minutes=90))
    w.submit(a_job("gang").tasks(2).expected(minutes=60))
    assert w.job("gang").due is None
    w.submit(a_job("alone").expected(minutes=60))
    assert late(w, "alone")
    assert w.job("gang").due is None


def test_members_of_an_array_behind_a_reserved_gang_are_rented_as_far_as_they_would_be_late() -> None:
    w = a_world(1.5, backfill="easy")
    w.agent("n2", cpus=1)
    w.submit(a_job("one").expected(minutes=10), a_job("two").expected(minutes=20))
    w.submit(a_job("gang").tasks(2).expected(minutes=60))
    # The first fits before the gang. The others would start behind it, after their limit of 15 minutes.
    w.submit(a_job("array").expected(minutes=10).array(0, 2))
    assert places(w, "array") == ["cloud", "cloud"]
