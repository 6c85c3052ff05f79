"""What is counted of waits, and which waits begin anew when policies change."""

from spillover.core.learned.tally import Tally
from spillover.core.proposals import Outcome, SetPolicies
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import FOREVER, HOUR, MINUTE
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import START, World

CONSTANT = PolicySet(order=Choice("priority"), wait=Choice("constant", {"wait": HOUR}))
STAR = PolicySet(wait=Choice("star", {"coefficient": HOUR, "h": 15 * MINUTE, "k": 1.0}))


def counted(world: World) -> tuple[int, int, int]:
    """What jobs waited that got a place, what they had been granted, and what they run."""
    tally: Tally = world.state.facts.tally
    return tally.waited, tally.settled, tally.ran


def a_world_with_a_job_that_waited_a_minute() -> World:
    world = World(load, CONSTANT)
    world.submit(a_job("a").expected(minutes=10))
    world.wait(seconds=60)
    world.agent("n1")
    assert world.where("a") == "onprem/n1"
    return world


def test_a_job_that_is_lost_is_not_counted_again() -> None:
    world = a_world_with_a_job_that_waited_a_minute()
    assert counted(world) == (MINUTE, HOUR, 10 * MINUTE)
    world.start("a")
    world.submit(a_job("b").priority(1).expected(minutes=1))
    world.finish("a", outcome=Outcome.LOST, ran=60)
    assert (world.where("b"), world.where("a"), world.job("a").latest) == ("onprem/n1", None, START + HOUR)
    before = counted(world)
    world.wait(seconds=60)
    world.finish("b", ran=60)
    assert (world.where("a"), world.job("a").attempt) == ("onprem/n1", 2)
    assert counted(world) == before


def test_a_lease_that_was_handed_back_is_not_counted_again() -> None:
    world = a_world_with_a_job_that_waited_a_minute()
    world.wait(seconds=60)
    world.hand_back("a")
    assert (world.where("a"), world.job("a").attempt) == ("onprem/n1", 1)
    assert counted(world) == (MINUTE, HOUR, 10 * MINUTE)


def test_a_job_that_came_back_is_counted_once_more_and_not_again_when_it_is_lost() -> None:
    world = World(load, STAR)
    world.agent("v1", cluster="cloud")
    world.submit(a_job("a").expected(minutes=60))
    world.start("a")
    world.wait(seconds=15 * 60)
    world.finish("a", outcome=Outcome.STOPPED, ran=15 * 60)
    assert (world.where("a"), world.job("a").extra.returned) == (None, 1)
    world.wait(seconds=60)
    world.agent("n1")
    assert world.where("a") == "onprem/n1"
    assert counted(world) == (MINUTE, 45 * MINUTE, HOUR)
    world.start("a")
    world.wait(seconds=60)
    world.finish("a", outcome=Outcome.LOST, ran=60)
    assert (world.where("a"), world.job("a").attempt) == ("onprem/n1", 3)
    assert counted(world) == (MINUTE, 45 * MINUTE, HOUR)


def test_members_that_wait_beside_those_that_may_be_rented_wait_by_the_new_policy() -> None:
    world = World(load, PolicySet(wait=Choice("never", {"max_queue": 2})))
    world.submit(a_job("a").array(1, 5).expected(minutes=10))
    job = world.job("a")
    assert job.partly_due
    assert job.latest == FOREVER
    world.propose(SetPolicies(CONSTANT, "ada"))
    assert (job.due, job.partly_due) == (None, False)
    assert job.latest == job.arrived + HOUR
    assert world.state.facts.tally.granted == 5 * HOUR
    world.wait(seconds=3600)
    assert job.due is not None
    assert not job.partly_due


def test_members_are_counted_one_by_one_and_once() -> None:
    world = World(load, CONSTANT)
    world.submit(a_job("a").array(1, 2).expected(minutes=10))
    world.wait(seconds=60)
    world.agent("n1", cpus=2)
    assert counted(world) == (2 * MINUTE, 2 * HOUR, 20 * MINUTE)
    world.hand_back("a.1")
    assert counted(world) == (2 * MINUTE, 2 * HOUR, 20 * MINUTE)
