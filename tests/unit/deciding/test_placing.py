from spillover.core.events import JobEnded, JobState, Usage
from spillover.core.proposals import Act, Jump, Outcome, Refusal, Result, SetPriority, Verdict
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import JobId, NodeKey
from spillover.model.job import Burst, On, Retry
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import AlwaysRented, QueueFull, Reason, RoomOwned, WaitOver
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World


def world(
    *,
    wait: Choice = Choice("never"),  # noqa: B008 - frozen
    order: Choice = Choice("fifo"),  # noqa: B008 - frozen
    backfill: Choice = Choice("out_of_order"),  # noqa: B008 - frozen
    place: Choice = Choice("best_fit"),  # noqa: B008 - frozen
) -> World:
    return World(load, PolicySet(wait=wait, order=order, backfill=backfill, place=place))


def placed_because(w: World, job: str) -> Reason:
    phase = w.job(job).phase
    assert isinstance(phase, Placed | Running)
    return phase.why


def test_a_job_starts_where_there_is_room() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"))
    assert w.where("a") == "onprem/n1"
    w.start("a")
    assert w.state_of("a") is JobState.RUNNING
    assert w.finish("a") is Verdict.ACCEPTED
    assert w.state_of("a") is JobState.SUCCEEDED


def test_jobs_start_in_the_order_of_submission_as_room_comes() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"), a_job("b"), a_job("c"))
    assert w.placed() == ["a"]
    w.finish("a")
    assert w.placed() == ["b"]
    w.finish("b")
    assert w.placed() == ["c"]


def test_out_of_order_starts_what_fits_past_what_does_not() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("a"), a_job("big").cpus(2), a_job("c"))
    assert w.placed() == ["a", "c"]


def test_strict_order_stops_at_the_first_that_does_not_fit() -> None:
    w = world(backfill=Choice("strict"))
    w.agent("n1", cpus=2)
    w.submit(a_job("a"), a_job("big").cpus(2), a_job("c"))
    assert w.placed() == ["a"]
    w.finish("a")
    assert w.placed() == ["big"]


def test_a_higher_priority_goes_first_and_can_be_changed() -> None:
    w = world(order=Choice("priority"))
    w.agent("n1")
    w.submit(a_job("a"))
    w.submit(a_job("b"), a_job("c").priority(5), a_job("d"))
    w.finish("a")
    assert w.placed() == ["c"]
    w.propose(SetPriority(JobId("d"), 1, "ada"))
    w.finish("c")
    assert w.placed() == ["d"]


def test_best_fit_takes_the_fullest_machine_and_first_fit_the_first() -> None:
    for place, expected in (("best_fit", "onprem/small"), ("first_fit", "onprem/large")):
        w = world(place=Choice(place))
        w.agent("large", cpus=4)
        w.agent("small", cpus=2)
        w.submit(a_job("a"))
        assert w.where("a") == expected


def test_low_and_high_go_by_names_whatever_joined_first() -> None:
    for place, expected in (("low", "onprem/n2"), ("high", "onprem/n10"), ("first", "onprem/n10")):
        w = world(place=Choice(place))
        w.agent("n10", cpus=2)
        w.agent("n2", cpus=2)
        w.submit(a_job("a"))
        assert w.where("a") == expected


def test_a_job_is_rented_when_its_wait_is_over_and_not_before() -> None:
    w = world(wait=Choice("constant", {"wait": 10 * SECOND}))
    w.agent("n1")
    w.agent("v1", cluster="cloud")
    w.submit(a_job("a"), a_job("b"))
    w.wait(seconds=9)
    assert w.placed() == ["a"]
    w.wait(seconds=1)
    assert w.where("b") == "cloud/v1"
    assert w.placed_because("b") == WaitOver(10 * SECOND)


def test_a_job_whose_wait_is_over_takes_whichever_has_room_first() -> None:
    w = world(wait=Choice("constant", {"wait": 10 * SECOND}))
    w.agent("n1")
    w.agent("v1", cluster="cloud")
    w.submit(a_job("a"), a_job("b"), a_job("c"))
    w.wait(seconds=11)
    assert w.where("b") == "cloud/v1"
    assert w.where("c") is None
    w.finish("a")
    assert w.where("c") == "onprem/n1"
    assert w.placed_because("c") == RoomOwned()


def test_zero_wait_tries_owned_capacity_once_and_rents_in_the_same_instant() -> None:
    w = world(wait=Choice("zero"))
    w.agent("n1")
    w.agent("v1", cluster="cloud", cpus=2)
    w.submit(a_job("a"), a_job("b"))
    assert w.where("a") == "onprem/n1"
    assert w.where("b") == "cloud/v1"


def test_compute_waits_in_proportion_to_the_work() -> None:
    w = world(wait=Choice("compute", {"coefficient": 0.1}))
    w.agent("n1")
    w.agent("v1", cluster="cloud", cpus=8)
    w.submit(a_job("a"), a_job("long").cpus(2).expected(seconds=100), a_job("short").expected(seconds=100))
    w.wait(seconds=10)
    assert w.where("short") == "cloud/v1"
    assert w.where("long") is None
    w.wait(seconds=10)
    assert w.where("long") == "cloud/v1"


def test_jobs_past_max_queue_are_rented_at_once() -> None:
    w = world(wait=Choice("never", {"max_queue": 1}))
    w.agent("n1")
    w.agent("v1", cluster="cloud", cpus=8)
    w.submit(a_job("a"), a_job("b"), a_job("c"))
    assert w.where("b") is None
    assert w.where("c") == "cloud/v1"
    assert w.placed_because("c") == QueueFull()


def test_only_the_members_past_max_queue_are_rented() -> None:
    w = world(wait=Choice("never", {"max_queue": 2}))
    w.agent("n1")
    w.agent("v1", cluster="cloud", cpus=8)
    w.submit(a_job("a").array(1, 6))
    assert sorted(each for each in w.placed() if w.where(each) == "cloud/v1") == ["a.2", "a.3", "a.4"]
    assert w.state.queued == 2


def test_burst_never_stays_and_burst_always_goes() -> None:
    w = world(wait=Choice("zero"))
    w.agent("n1")
    w.agent("v1", cluster="cloud", cpus=8)
    w.submit(a_job("a"), a_job("stay").burst(Burst.NEVER), a_job("go").burst(Burst.ALWAYS))
    assert w.where("stay") is None
    assert w.where("go") == "cloud/v1"
    assert w.placed_because("go") == AlwaysRented()


def test_min_and_max_wait_bound_every_wait() -> None:
    w = world(wait=Choice("never", {"max_wait": 5 * SECOND}))
    w.agent("v1", cluster="cloud")
    w.submit(a_job("a"))
    w.wait(seconds=4)
    assert w.where("a") is None
    w.wait(seconds=1)
    assert w.where("a") == "cloud/v1"


def test_needs_have_to_be_offered() -> None:
    w = world()
    w.agent("n1", cpus=4)
    w.agent("n2", offers=("gpu:a100",))
    w.submit(a_job("a").needing("gpu:a100"), a_job("b").needing("container"))
    assert w.where("a") == "onprem/n2"
    assert w.where("b") is None


def test_an_array_runs_one_member_at_a_time_and_ends_with_the_last() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("arr").array(3, 6))
    assert w.placed() == ["arr.3", "arr.4"]
    w.finish("arr.3")
    w.finish("arr.4", 1)
    assert w.placed() == ["arr.5", "arr.6"]
    w.finish("arr.5")
    w.finish("arr.6")
    assert w.state_of("arr") is JobState.FAILED


def test_cancelling_an_array_stops_its_members_and_drops_the_rest() -> None:
    w = world()
    w.agent("n1", cpus=1)
    w.submit(a_job("arr").array(1, 5))
    w.start("arr.1")
    w.cancel("arr")
    assert w.state_of("arr") is JobState.RUNNING
    w.finish("arr.1", outcome=Outcome.STOPPED)
    assert w.state_of("arr.1") is JobState.CANCELLED
    assert w.state_of("arr") is JobState.CANCELLED


def test_after_waits_for_success_and_a_failure_cancels_the_rest() -> None:
    w = world()
    w.agent("n1", cpus=4)
    w.submit(a_job("a"), a_job("b").after("a"), a_job("c").after("b"), a_job("any").after("a", On.ANY))
    assert w.placed() == ["a"]
    w.finish("a", 1)
    assert w.state_of("b") is JobState.CANCELLED
    assert w.state_of("c") is JobState.CANCELLED
    assert w.placed() == ["any"]


def test_a_circle_of_after_is_refused() -> None:
    w = world()
    refusal = w.refused(a_job("a").after("c"), a_job("b").after("a"), a_job("c").after("b"))
    assert "cycle" in refusal.message
    assert not w.state.jobs


def test_not_before_and_deadline_are_kept_by_time_alone() -> None:
    w = world()
    w.agent("n1", cpus=4)
    w.submit(
        a_job("later").between(not_before=w.now + 10 * SECOND),
        a_job("big").cpus(9).between(deadline=w.now + 20 * SECOND),
    )
    w.wait(seconds=9)
    assert w.placed() == []
    w.wait(seconds=1)
    assert w.placed() == ["later"]
    w.wait(seconds=10)
    assert w.state_of("big") is JobState.TIMED_OUT


def test_a_running_job_past_its_deadline_is_stopped_and_keeps_its_room_until_that_is_confirmed() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a").between(deadline=w.now + 5 * SECOND), a_job("b"))
    w.start("a")
    w.wait(seconds=5)
    assert w.placed() == ["a"]
    w.finish("a", outcome=Outcome.STOPPED)
    assert w.state_of("a") is JobState.TIMED_OUT
    assert w.placed() == ["b"]


def test_a_lost_task_is_tried_again_within_its_budget() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a").terms(retry=Retry(lost=1)))
    w.start("a")
    w.agent("n1")
    assert w.job("a").attempt == 2
    w.start("a")
    w.agent("n1")
    assert w.state_of("a") is JobState.FAILED


def test_a_lease_that_never_started_goes_back_without_costing_an_attempt() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"))
    w.agent("n1")
    assert w.job("a").attempt == 1
    assert w.job("a").seq > 1
    assert w.where("a") == "onprem/n1"


def test_an_exit_code_is_retried_within_its_budget() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a").terms(retry=Retry(exit=1)))
    w.finish("a", 3)
    assert w.where("a") == "onprem/n1"
    w.finish("a", 3)
    assert w.state_of("a") is JobState.FAILED


def test_a_result_counts_once_and_only_under_its_lease() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"))
    old = w.job("a").lease
    w.agent("n1")
    stale = Result(NodeKey("onprem/n1"), old, Outcome.EXITED, 0, None, Usage(), 0)
    assert w.propose(stale) is Verdict.FENCED
    fresh = Result(NodeKey("onprem/n1"), w.job("a").lease, Outcome.EXITED, 0, None, Usage(), 0)
    assert w.propose(fresh) is Verdict.ACCEPTED
    assert w.propose(fresh) is Verdict.DUPLICATE
    assert len(list(w.happened(JobEnded))) == 1


def test_hold_and_release_and_requeue() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"), a_job("b"))
    w.act(Act.HOLD, "b")
    w.finish("a")
    assert w.placed() == []
    w.act(Act.RELEASE, "b")
    assert w.placed() == ["b"]
    w.start("b")
    w.act(Act.REQUEUE, "b")
    w.finish("b", outcome=Outcome.STOPPED)
    assert w.job("b").attempt == 2
    assert isinstance(w.act(Act.HOLD, "b"), Refusal)


def test_the_same_key_gives_the_same_job_and_another_body_is_refused() -> None:
    w = world()
    first = w.submit(a_job("a").key("k"))
    assert w.submit(a_job("b").key("k")) == first
    assert "b" not in w.state.jobs


def test_cost_follows_the_price_and_the_billing_step() -> None:
    w = world(wait=Choice("zero"))
    w.agent("v1", cluster="cloud", cpus=2)
    w.submit(a_job("a").cpus(2))
    w.finish("a", ran=1.5)
    assert w.job("a").cost == 2 * 2 * 1000  # two CPUs for two started seconds at 3.6 an hour


def test_short_tasks_let_an_agent_be_given_work_ahead_of_room() -> None:
    w = world()
    w.agent("n1", queue=4)
    w.submit(*[a_job(f"j{index}") for index in range(10)])
    assert len(w.placed()) == 1
    w.finish("j0", ran=0.01)
    assert len(w.placed()) == 5
    node = w.state.nodes["onprem/n1"]
    assert (len(node.holding), len(node.ahead)) == (1, 4)
    w.finish("j1", ran=0.01)
    assert len(w.placed()) == 5


def test_a_jump_of_the_clock_rents_nothing_early() -> None:
    w = world(wait=Choice("constant", {"wait": 600 * SECOND}))
    w.agent("v1", cluster="cloud")
    w.submit(a_job("a"))
    w.now += 3600 * SECOND
    w.propose(Jump(3600 * SECOND))
    assert w.where("a") is None
    w.wait(seconds=599)
    assert w.where("a") is None
    w.wait(seconds=1)
    assert w.where("a") == "cloud/v1"


def test_a_wait_begins_when_a_job_could_first_be_placed() -> None:
    w = world(wait=Choice("constant", {"wait": 5 * SECOND}))
    w.agent("v1", cluster="cloud")
    w.submit(a_job("later").between(not_before=w.now + 60 * SECOND))
    w.wait(seconds=64)
    assert w.where("later") is None
    w.wait(seconds=1)
    assert w.where("later") == "cloud/v1"
    assert w.placed_because("later") == WaitOver(5 * SECOND)


def test_a_pending_member_can_be_cancelled_alone() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("arr").array(1, 3))
    w.cancel("arr.2")
    assert w.state_of("arr") is JobState.QUEUED
    w.finish("arr.1")
    assert w.placed() == ["arr.3"]
    w.finish("arr.3")
    assert w.state_of("arr") is JobState.CANCELLED
    assert isinstance(w.cancel("arr.2"), Refusal)


def test_an_array_whose_last_pending_members_are_cancelled_ends() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 2))
    assert isinstance(w.act(Act.HOLD, "arr.1"), Refusal)
    w.cancel("arr.1", "arr.2")
    assert w.state_of("arr") is JobState.CANCELLED
