"""Lanes keep no more than they need."""

import pytest

from spillover.core.decide import decide
from spillover.core.events import Usage
from spillover.core.proposals import Archived, Outcome, Result
from spillover.core.records.jobs import Placed
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import DAY, HOUR
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World


def test_heads_of_jobs_that_are_gone_do_not_pile_up() -> None:
    world = World(load, clusters=(OWNED,))
    world.agent("n1", cpus=1)
    world.submit(*(a_job(f"job-{number}").memory(number % 3) for number in range(100)))
    for _ in range(90):
        (running,) = world.placed()[-1:]
        world.finish(running)
    queue = world.engine.index.queue
    assert len(queue.first) == len(queue.heaps) == 3
    assert queue.heads is None  # so few are sorted when somebody asks


@pytest.mark.parametrize("backfill", ["out_of_order", "strict"])
def test_room_that_was_gained_is_seen_by_lanes_that_come_within_depth_later(backfill: str) -> None:
    policies = PolicySet(order=Choice("priority"), backfill=Choice(backfill), wait=Choice("never"), depth=1)
    world = World(load, policies, (OWNED,))
    world.agent("n1", cpus=1)
    world.submit(a_job("runs"))
    world.submit(a_job("small"))
    world.submit(a_job("large").cpus(5).priority(5))
    world.finish("runs")
    assert world.placed() == []
    world.cancel("large")
    assert world.placed() == ["small"]


def test_a_job_that_asks_for_no_cpu_starts_on_a_full_machine() -> None:
    world = World(load, clusters=(OWNED,))
    world.agent("n1", cpus=1, gpus=1)
    world.submit(*(a_job(f"job-{number}").memory(number) for number in range(50)))
    world.submit(a_job("gpu").cpus(0).gpus(1), a_job("nothing").cpus(0))
    assert world.where("gpu") == world.where("nothing") == "onprem/n1"
    world.finish("nothing")
    assert world.engine.index.least_cpu() == 1000


def test_jobs_that_ended_leave_nothing_behind() -> None:
    w = World(load, PolicySet(wait=Choice("constant", {"wait": HOUR})))
    w.engine.debug = False
    w.agent("n1", cpus=1)
    for number in range(3000):
        name = f"j{number}"
        w.submit(a_job(name).terms(walltime=DAY).between(deadline=w.now + DAY))
        w.start(name)
        w.finish(name)
        w.propose(Archived((JobId(name),)))
    index = w.engine.index
    assert not w.state.jobs
    assert len(index.lanes) == 1  # of the shape that they all had, for the next one
    assert max(len(index.alarms), len(index.waits.heap), len(index.least.heap)) <= 2000
    assert max(len(index.queue.heads or ()), len(index.due.heads or ())) <= 2000


def test_lanes_of_one_shape_share_what_they_know_of_rooms() -> None:
    world = World(load, clusters=(OWNED,))
    world.agent("n1", cpus=1)
    world.submit(a_job("one").project("a"), a_job("other").project("b"), a_job("large").cpus(2))
    one, other, large = world.engine.index.lanes.values()
    assert one.owned is not None
    assert one.owned is other.owned
    assert large.owned is not one.owned


def test_rented_room_wakes_nobody_who_may_not_be_rented() -> None:
    world = World(load, PolicySet(wait=Choice("constant", {"wait": HOUR})))
    world.agent("n1", cpus=1)
    world.agent("c1", cpus=1, cluster="cloud")
    world.submit(a_job("runs"))
    world.submit(a_job("rented"))
    world.wait(seconds=3600)
    world.submit(a_job("patient"))
    assert world.placed() == ["runs", "rented"]
    woken = []
    for name in ("rented", "runs"):
        job = world.job(name)
        assert isinstance(job.phase, Placed)
        usage = Usage(HOUR, 0, 0)
        result = Result(job.phase.key, job.lease, Outcome.EXITED, 0, None, usage, 0)
        for event in decide(world.state, result, world.now)[0]:
            world.engine.apply(event)
        woken.append(world.engine.index.may_decide(world.now))
    assert woken == [False, True]
