"""Arrays whose members are gangs."""

import pytest
from msgspec.structs import replace

from spillover.core.events import GangPlaced, JobState, MemberSplit
from spillover.core.proposals import Act, Done, Outcome
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.explain.explain import explain
from spillover.deciding.replay import Replay
from spillover.model.ids import JobId
from spillover.model.job import On
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import ArrayThrottled, NoRoomTogether
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from tests.support.sameness import Checkpoints, said_by

CLUSTERS = (replace(OWNED, gangs=True), replace(RENTED, gangs=True))


def world(wait: str = "never", backfill: str = "out_of_order") -> World:
    w = World(load, PolicySet(wait=Choice(wait), backfill=Choice(backfill)), CLUSTERS)
    for node in ("n1", "n2", "n3", "n4"):
        w.agent(node, cpus=2)
    return w


def placed(w: World, array: str = "arr") -> dict[str, list[str]]:
    return {
        job.id: [str(task.node) for task in job.tasks]
        for job in w.state.jobs.values()
        if job.id.startswith(f"{array}.") and isinstance(job.phase, Placed | Running)
    }


def test_each_member_is_a_gang_of_its_own() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 3).tasks(2).cpus(2))
    assert placed(w) == {"arr.1": ["n1", "n2"], "arr.2": ["n3", "n4"]}
    assert isinstance(explain(w.engine, w.job("arr")).reason, NoRoomTogether)
    w.start("arr.1")
    assert w.state_of("arr.1") is JobState.RUNNING
    w.finish("arr.1")
    assert w.state_of("arr.1") is JobState.SUCCEEDED
    assert list(placed(w)) == ["arr.2", "arr.3"]
    w.finish("arr.2", 1)
    w.finish("arr.3")
    assert w.state_of("arr") is JobState.FAILED


def test_they_are_throttled_held_requeued_and_cancelled_like_others() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 4).at_a_time(1).tasks(2).cpus(2))
    assert list(placed(w)) == ["arr.1"]
    assert explain(w.engine, w.job("arr")).reason == ArrayThrottled(1)
    w.start("arr.1")
    assert w.act(Act.REQUEUE, "arr.1") == Done()
    w.finish("arr.1", outcome=Outcome.STOPPED)
    assert w.job("arr.1").attempt == 2
    assert list(placed(w)) == ["arr.1"]
    w.finish("arr.1")
    assert list(placed(w)) == ["arr.2"]
    w.cancel("arr")
    w.finish("arr.2", outcome=Outcome.STOPPED)
    assert w.state_of("arr") is JobState.CANCELLED


def test_a_member_of_elastic_size_takes_what_there_is() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 2).tasks(2, most=3).cpus(2))
    assert placed(w) == {"arr.1": ["n1", "n2", "n3"]}
    w.finish("arr.1")
    assert placed(w) == {"arr.2": ["n1", "n4"]}  # as soon as the least number fits


def test_they_are_rented_after_their_wait_as_many_as_may_be() -> None:
    w = world("zero")
    for node in ("c1", "c2", "c3", "c4"):
        w.agent(node, cpus=4, cluster="cloud")
    w.submit(a_job("arr").array(1, 5).tasks(2).cpus(4))
    assert placed(w) == {"arr.1": ["c1", "c2"], "arr.2": ["c3", "c4"]}
    assert w.job("arr.1").due is not None


@pytest.mark.parametrize("backfill", ["easy", "conservative", "strict", "out_of_order"])
def test_every_backfill_starts_them_all(backfill: str) -> None:
    w = world(backfill=backfill)
    w.submit(a_job("arr").array(1, 5).tasks(3).cpus(2).terms(walltime=600), a_job("small").cpus(1))
    for index in range(1, 6):
        assert f"arr.{index}" in placed(w)
        w.finish(f"arr.{index}")
    assert w.state_of("arr") is JobState.SUCCEEDED


def test_members_wait_for_gangs_with_their_indexes() -> None:
    w = world()
    w.submit(
        a_job("arr").array(1, 2).tasks(2).cpus(1),
        a_job("then").array(1, 2).tasks(2).cpus(1).after("arr", On.SUCCESS, same=True),
    )
    w.finish("arr.2")
    assert list(placed(w, "then")) == ["then.2"]


def test_they_survive_a_checkpoint_and_a_replay() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 5).tasks(2).cpus(2))
    w.finish("arr.1")
    checkpoints = Checkpoints()
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)
    splits = [event.index for event in w.happened(MemberSplit)]
    assert [event.job for event in w.happened(GangPlaced)] == [JobId(f"arr.{index}") for index in splits]
    replay = Replay(load)
    for revision, event in enumerate(w.events, 1):
        replay.take(revision, event)
    assert replay.difference is None
