"""What was to happen to an attempt does not happen to the next one, and one for good comes before one for now."""

from spillover.core.events import JobState, Stop
from spillover.core.proposals import Outcome
from spillover.core.records.jobs import Running
from spillover.model.budget import Budget, Of, Per
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import HOUR, MINUTE
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World

STAR = PolicySet(wait=Choice("star", {"coefficient": HOUR, "h": 15 * MINUTE, "k": 1.0}))


def test_a_rented_job_that_was_lost_is_not_brought_back_from_an_owned_machine() -> None:
    world = lost_on_rented(World(load, STAR))
    world.wait(seconds=700)
    assert phase(world).stopping is None


def test_the_time_that_a_cap_paid_for_does_not_end_a_job_on_an_owned_machine() -> None:
    caps = (Budget(Of.PROJECT, "default", Per.EVER, 1_000_000),)
    world = lost_on_rented(World(load, PolicySet(wait=Choice("zero")), budgets=caps))
    assert world.job("b").walltime is None
    world.wait(seconds=2000)
    assert phase(world).stopping is None


def test_a_job_that_is_being_brought_back_can_be_cancelled() -> None:
    world = returning()
    world.cancel("b")
    world.finish("b", outcome=Outcome.STOPPED, ran=900)
    assert world.state_of("b") is JobState.CANCELLED


def test_a_deadline_passes_for_a_job_that_is_being_brought_back() -> None:
    world = returning(deadline=16 * MINUTE)
    world.wait(seconds=120)
    world.finish("b", outcome=Outcome.STOPPED, ran=900)
    assert world.state_of("b") is JobState.TIMED_OUT


def test_a_job_that_starts_later_than_it_was_placed_lets_others_pass_that_end_before_it() -> None:
    easy = PolicySet(wait=Choice("never"), backfill=Choice("easy"))
    world = World(load, easy)
    world.agent("n1", cpus=2)
    world.submit(a_job("a").expected(minutes=60))
    world.submit(a_job("head").cpus(2).expected(minutes=60))
    world.wait(seconds=600)
    world.submit(a_job("s").expected(minutes=55))
    assert world.where("s") is None
    world.start("a")
    assert world.where("s") == "onprem/n1"


def lost_on_rented(world: World) -> World:
    """A job was rented, lost, and runs on owned capacity now."""
    world.agent("n1")
    world.agent("v1", cpus=10, cluster="cloud")
    world.submit(a_job("a").expected(minutes=600))
    world.start("a")
    world.submit(a_job("b"))
    world.start("b")
    world.wait(seconds=300)
    world.finish("a", ran=300)
    world.finish("b", outcome=Outcome.LOST, ran=300)
    assert world.where("b") == "onprem/n1"
    world.start("b")
    return world


def returning(deadline: int | None = None) -> World:
    """A job is being brought back from rented capacity."""
    world = World(load, STAR)
    world.agent("n1")
    world.agent("v1", cpus=10, cluster="cloud")
    world.submit(a_job("a").expected(minutes=600))
    world.start("a")
    until = None if deadline is None else world.now + deadline
    expected = 600 if until is None else 15
    world.submit(a_job("b").expected(minutes=expected).between(deadline=until))
    world.start("b")
    world.wait(seconds=901)
    assert phase(world).stopping is Stop.RETURN
    return world


def phase(world: World) -> Running:
    """Where the job runs."""
    found = world.job("b").phase
    assert isinstance(found, Running)
    return found
