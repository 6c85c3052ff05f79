from spillover.core.events import JobState
from spillover.core.proposals import Act, Done, Outcome, Refusal
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.explain.explain import explain
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import ArrayThrottled, Held
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints, said_by


def world(wait: str = "never") -> World:
    w = World(load, PolicySet(wait=Choice(wait)))
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
    assert again.jobs[w.job("arr").id].throttled
