from msgspec.structs import replace

from spillover.core.events import JobState
from spillover.core.proposals import Act, ChangeJob, Done, Outcome, Refusal
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.explain.explain import explain
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import ArrayThrottled, Held
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints, said_by


def world(wait: str = "never") -> World:
    w = World(load, PolicySet(wait=Choice(wait), order=Choice("priority")))
    w.agent("n1", cpus=8)
    return w


def members(w: World) -> list[str]:
    return [
        job.id for job in w.state.jobs.values() if "." in job.id and isinstance(job.phase, Placed | Running)
    ]


def test_an_array_places_no_more_members_at_a_time_than_it_may() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 5).at_a_time(2))
    assert members(w) == ["arr.1", "arr.2"]
    assert w.state_of("arr") is JobState.HELD
    reason = explain(w.engine, w.job("arr")).reason
    assert reason == ArrayThrottled(2)
    assert str(reason) == "the array runs at most 2 members at a time; the next one starts when one ends"
    w.start("arr.1")
    w.finish("arr.1")
    assert members(w) == ["arr.2", "arr.3"]
    for index in (2, 3, 4, 5):
        w.finish(f"arr.{index}")
    assert w.state_of("arr") is JobState.SUCCEEDED


def test_other_jobs_start_beside_a_throttled_array() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9).at_a_time(1), a_job("b"))
    assert members(w) == ["arr.1"]
    assert w.where("b") == "onprem/n1"


def test_a_throttled_array_is_rented_no_faster_than_it_may_run() -> None:
    w = world("zero")
    w.agent("c1", cpus=8, cluster="cloud")
    w.submit(a_job("arr").array(1, 9).at_a_time(3).cpus(8))
    assert len(members(w)) == 2  # as many as fit on one machine each
    w.agent("c2", cpus=32, cluster="cloud")
    assert len(members(w)) == 3


def test_a_member_that_is_lost_keeps_its_turn() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 3).at_a_time(1))
    w.start("arr.1")
    w.finish("arr.1", outcome=Outcome.LOST)
    assert members(w) == ["arr.1"]
    assert w.job("arr.1").attempt == 2


def test_a_throttled_array_can_be_held_released_and_cancelled() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 5).at_a_time(1))
    refused = w.act(Act.RELEASE, "arr")
    assert isinstance(refused, Refusal)
    assert w.act(Act.HOLD, "arr") == Done()
    w.finish("arr.1")
    assert members(w) == []
    assert explain(w.engine, w.job("arr")).reason == Held("ada")
    assert w.act(Act.RELEASE, "arr") == Done()
    assert members(w) == ["arr.2"]
    assert w.act(Act.HOLD, "arr") == Done()
    assert w.act(Act.RELEASE, "arr") == Done()  # while its member runs, it waits again for that
    assert members(w) == ["arr.2"]
    assert explain(w.engine, w.job("arr")).reason == ArrayThrottled(1)
    w.finish("arr.2")
    assert members(w) == ["arr.3"]
    w.cancel("arr")
    w.finish("arr.3", outcome=Outcome.STOPPED)
    assert w.state_of("arr") is JobState.CANCELLED


def test_a_throttled_array_survives_a_checkpoint() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 5).at_a_time(2))
    checkpoints = Checkpoints()
    checkpoints.write(w.state)
    again = checkpoints.load()
    assert said_by(again) == said_by(w.state)
    assert again.jobs[w.job("arr").id].waits_for_members


def running(size: int, most: int = 0) -> World:
    """An array of which each member runs."""
    w = world()
    w.submit(a_job("arr").array(1, size).at_a_time(most))
    for index in range(1, size + 1):
        w.start(f"arr.{index}")
    return w


def throttle(w: World, most: int) -> None:
    job = w.job("arr")
    spec = replace(a_job("arr").array(1, 9).at_a_time(most).build().spec, terms=job.terms)
    reply = w.propose(ChangeJob(job.id, job.spec, spec, job.spec, ("throttle",), "ada"))
    assert reply == Done()


def requeue(w: World, *indexes: int) -> None:
    for index in indexes:
        assert w.act(Act.REQUEUE, f"arr.{index}") == Done()
        w.finish(f"arr.{index}", outcome=Outcome.STOPPED)


def test_requeued_members_wait_for_a_throttle_that_was_lowered_meanwhile() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9))
    throttle(w, 2)
    requeue(w, 1, 2, 3)
    assert members(w) == [f"arr.{index}" for index in (4, 5, 6, 7, 8)]
    assert explain(w.engine, w.job("arr.1")).reason == ArrayThrottled(2)
    assert isinstance(w.act(Act.RELEASE, "arr.1"), Refusal)
    for index in (4, 5, 6):
        w.finish(f"arr.{index}")
        assert w.state_of("arr.1") is JobState.HELD
    w.finish("arr.7")
    assert members(w) == ["arr.1", "arr.8"]
    for index in (1, 2, 3, 8):
        w.finish(f"arr.{index}")
    assert members(w) == ["arr.9"]


def test_requeued_members_run_before_those_that_never_did() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9).at_a_time(2))
    throttle(w, 1)
    requeue(w, 2)
    assert members(w) == ["arr.1"]
    w.finish("arr.1")
    assert members(w) == ["arr.2"]
    w.finish("arr.2")
    assert members(w) == ["arr.3"]


def test_a_throttle_that_is_raised_or_removed_lets_requeued_members_go_on() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9))
    throttle(w, 1)
    requeue(w, *range(1, 7))
    throttle(w, 3)
    assert members(w) == ["arr.1", "arr.7", "arr.8"]
    throttle(w, 0)
    assert len(members(w)) == 8


def test_a_throttle_that_is_lowered_takes_requeued_members_out_of_the_queue() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9))
    w.submit(a_job("first").priority(1), a_job("second").priority(1))
    requeue(w, 1, 2)
    assert w.state_of("arr.2") is JobState.QUEUED
    throttle(w, 7)
    assert (w.state_of("arr.1"), w.state_of("arr.2")) == (JobState.QUEUED, JobState.HELD)


def test_requeued_members_of_a_held_array_are_held_with_it() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9))
    assert w.act(Act.HOLD, "arr") == Done()
    requeue(w, 1, 2)
    assert explain(w.engine, w.job("arr.1")).reason == Held("ada")
    refused = w.act(Act.RELEASE, "arr.1")
    assert isinstance(refused, Refusal)
    assert refused.message == "arr.1 is held with its array; release arr instead"
    w.finish("arr.3")
    assert members(w) == [f"arr.{index}" for index in (4, 5, 6, 7, 8)]
    assert w.act(Act.RELEASE, "arr") == Done()
    assert len(members(w)) == 8


def test_a_hold_of_an_array_takes_its_requeued_members_out_of_the_queue() -> None:
    w = running(8)
    w.submit(a_job("first").priority(1), a_job("second").priority(1))
    requeue(w, 1, 2)
    assert w.act(Act.HOLD, "arr") == Done()  # all its members were placed before
    for index in range(3, 9):
        w.finish(f"arr.{index}")
    assert members(w) == []
    assert w.act(Act.RELEASE, "arr") == Done()
    assert members(w) == ["arr.1", "arr.2"]


def test_the_end_of_a_hold_lets_no_more_members_go_on_than_the_throttle() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9))
    assert w.act(Act.HOLD, "arr") == Done()
    requeue(w, 1, 2, 3)
    throttle(w, 6)
    assert w.act(Act.RELEASE, "arr") == Done()
    assert members(w) == [f"arr.{index}" for index in (1, 4, 5, 6, 7, 8)]
    assert explain(w.engine, w.job("arr.2")).reason == ArrayThrottled(6)


def test_a_member_that_a_person_holds_leaves_its_place_to_one_that_waits() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9))
    w.submit(*[a_job(f"other-{each}").priority(1) for each in range(3)])
    throttle(w, 6)
    requeue(w, 1, 2, 3)
    assert w.state_of("arr.1") is JobState.HELD
    assert w.state_of("arr.3") is JobState.QUEUED
    assert w.act(Act.HOLD, "arr.3") == Done()
    assert w.state_of("arr.1") is JobState.QUEUED
    assert w.act(Act.RELEASE, "arr.3") == Done()
    assert explain(w.engine, w.job("arr.3")).reason == ArrayThrottled(6)


def test_waiting_members_survive_a_checkpoint() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 9))
    throttle(w, 2)
    requeue(w, 1, 2)
    checkpoints = Checkpoints()
    checkpoints.write(w.state)
    again = checkpoints.load()
    assert said_by(again) == said_by(w.state)
    assert len(again.waiting_members[JobId("arr")]) == 2
