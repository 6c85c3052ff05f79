"""What would happen to a job under other conditions."""

from spillover.core.invariants import breaches
from spillover.core.proposals import Refusal
from spillover.deciding.engine import Step
from spillover.deciding.explain.explain import explain
from spillover.deciding.whatif import Assumption, MoreMachines, OtherPolicies, OtherRequest, Snapshot, assume
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import NoRoom
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from tests.support.sameness import said_by

TRAIN = JobId("train")


def a_lab() -> World:
    """A machine of four CPUs, three of which are used, a rented one, and a job that waits for four."""
    world = World(load, PolicySet(wait=Choice("never")))
    world.agent("n1", cpus=4)
    world.agent("vm", cluster="cloud", cpus=8)
    world.submit(a_job("small").cpus(3))
    world.submit(a_job("train").cpus(4))
    assert world.state_of("train") == "QUEUED"
    return world


def where(snapshot: Snapshot, job: str = "train") -> str:
    """The cluster of a job; empty if it waits."""
    return getattr(snapshot.state.jobs[JobId(job)].phase, "cluster", "")


def test_a_job_that_asks_for_less_would_start() -> None:
    world = a_lab()
    before = said_by(world.state)
    snapshot = Snapshot(world.engine)
    assert isinstance(assume(snapshot, world.now, [OtherRequest(TRAIN, Resources(1000))]), Step)
    assert where(snapshot) == OWNED.name
    assert said_by(world.state) == before
    assert world.state_of("train") == "QUEUED"


def test_one_that_still_asks_for_too_much_would_wait() -> None:
    world = a_lab()
    snapshot = Snapshot(world.engine)
    assert isinstance(assume(snapshot, world.now, [OtherRequest(TRAIN, Resources(2000))]), Step)
    assert where(snapshot) == ""
    assert isinstance(explain(snapshot, snapshot.state.jobs[TRAIN]).reason, NoRoom)


def compute_lab() -> World:
    """Four CPUs in use, a rented machine, and a policy whose waits grow with the request."""
    world = World(load, PolicySet(wait=Choice("compute", {"coefficient": 0.25})))
    world.agent("n1", cpus=4)
    world.agent("vm", cluster="cloud", cpus=8)
    world.submit(a_job("full").cpus(4).burst(Burst.NEVER))
    return world


def test_another_request_gets_another_wait_that_counts_from_the_arrival() -> None:
    world = compute_lab()
    arrived = world.now
    world.submit(a_job("train").cpus(2).terms(walltime=HOUR))
    world.wait(seconds=60)
    before = said_by(world.state)
    snapshot = Snapshot(world.engine)
    assert explain(snapshot, snapshot.state.jobs[TRAIN]).spills_at == arrived + HOUR // 2
    assert isinstance(assume(snapshot, world.now, [OtherRequest(TRAIN, Resources(1000))]), Step)
    assert explain(snapshot, snapshot.state.jobs[TRAIN]).spills_at == arrived + HOUR // 4
    assert said_by(world.state) == before
    found = [each for each in breaches(snapshot.state) if "findable" not in each]
    assert found == [], "a snapshot has no lookup by name; all else is in order"


def test_one_that_has_waited_long_enough_for_a_smaller_request_would_be_rented() -> None:
    world = compute_lab()
    world.submit(a_job("train").cpus(2).terms(walltime=HOUR))
    world.wait(seconds=20 * 60)
    snapshot = Snapshot(world.engine)
    assert isinstance(assume(snapshot, world.now, [OtherRequest(TRAIN, Resources(1000))]), Step)
    assert where(snapshot) == RENTED.name


def test_one_that_may_be_rented_would_wait_again_with_a_larger_request() -> None:
    world = compute_lab()
    world.submit(a_job("rented").cpus(8).burst(Burst.ALWAYS))
    arrived = world.now
    world.submit(a_job("train").cpus(1).terms(walltime=HOUR))
    world.wait(seconds=20 * 60)
    assert world.job("train").due is not None, "the rented machine is full"
    snapshot = Snapshot(world.engine)
    assert isinstance(assume(snapshot, world.now, [OtherRequest(TRAIN, Resources(4000))]), Step)
    assert snapshot.state.jobs[TRAIN].due is None
    assert explain(snapshot, snapshot.state.jobs[TRAIN]).spills_at == arrived + HOUR


def test_with_more_machines_it_would_start() -> None:
    world = a_lab()
    snapshot = Snapshot(world.engine)
    assert isinstance(assume(snapshot, world.now, [MoreMachines(OWNED.name, 1)]), Step), (
        "as large as the largest"
    )
    assert where(snapshot) == OWNED.name
    too_small = Snapshot(world.engine)
    assert isinstance(assume(too_small, world.now, [MoreMachines(OWNED.name, 5, Resources(2000))]), Step)
    assert where(too_small) == ""


def test_with_another_policy_it_would_be_rented() -> None:
    world = a_lab()
    snapshot = Snapshot(world.engine)
    policies = PolicySet(wait=Choice("zero"))
    assert isinstance(assume(snapshot, world.now, [OtherPolicies(policies)]), Step)
    assert where(snapshot) == RENTED.name
    assert world.state.facts.policies != policies


def test_several_things_are_assumed_together() -> None:
    world = a_lab()
    snapshot = Snapshot(world.engine)
    both: list[Assumption] = [
        MoreMachines(OWNED.name, 1, Resources(2000)),
        OtherRequest(TRAIN, Resources(2000)),
    ]
    assert isinstance(assume(snapshot, world.now, both), Step)
    assert where(snapshot) == OWNED.name


def test_who_is_ahead_comes_first_there_too() -> None:
    world = a_lab()
    world.submit(a_job("later").cpus(4))
    snapshot = Snapshot(world.engine)
    assert isinstance(assume(snapshot, world.now, [MoreMachines(OWNED.name, 1)]), Step)
    assert (where(snapshot), where(snapshot, "later")) == (OWNED.name, "")


def test_what_cannot_be_assumed_is_said() -> None:
    world = a_lab()
    cases: list[tuple[Assumption, str]] = [
        (MoreMachines(ClusterName("moon"), 1), "there is no cluster moon; known clusters: onprem, cloud"),
        (OtherRequest(JobId("small"), Resources(1)), "small is PLACED; only a queued job"),
        (OtherRequest(JobId("nobody"), Resources(1)), "there is no job nobody"),
    ]
    for assumption, word in cases:
        refusal = assume(Snapshot(world.engine), world.now, [assumption])
        assert isinstance(refusal, Refusal)
        assert word in refusal.message
