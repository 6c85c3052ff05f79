"""Whatever the agents and the route: a lease finds a queue if there is one with room, and no queue is ever exceeded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.events import Lease
from spillover.core.holding import ahead_of
from spillover.core.proposals import Register, StartEpoch
from spillover.core.records.jobs import Placed
from spillover.deciding.cycle.draws import two_of
from spillover.deciding.guard import ShownMachine
from spillover.deciding.replay import Replay
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from tests.support.tiers import examples

LAB = ClusterName("onprem")
routes = st.sampled_from(
    [
        Choice("least_loaded"),
        Choice("round_robin"),
        Choice("power_of_two"),
        Choice("biased"),
        Choice("biased", {"share": 0.7}),
    ]
)
queues = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 10**9), st.integers(0, 99)), min_size=1, max_size=9
)


@given(route=routes, made=queues, more=st.integers(0, 5), seed=st.integers(0, 2**64 - 1))
def test_a_route_returns_one_of_those_that_have_room(
    route: Choice, made: list[tuple[int, int, int]], more: int, seed: int
) -> None:
    some = [ShownMachine(2 * index, *each) for index, each in enumerate(made)]
    policy = load(PolicySet(route=route)).route
    picked = policy.pick(some, 2 * len(some) + more, seed)
    assert picked in some
    assert policy.pick(some, 2 * len(some) + more, seed) == picked


@given(count=st.integers(2, 50), bits=st.integers(0, 2**64 - 1))
def test_two_that_are_drawn_are_two(count: int, bits: int) -> None:
    first, second = two_of(count, bits)
    assert first != second
    assert 0 <= first < count
    assert 0 <= second < count


agents = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 6), st.sampled_from([0.001, 0.02, 0.09, 3.0])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(60))
@given(
    route=routes,
    made=agents,
    ahead=st.sampled_from([0, SECOND // 10, 20 * SECOND]),
    bursts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    smaller=st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 3)),
)
def test_while_a_queue_has_room_no_job_waits_and_none_is_exceeded(
    route: Choice,
    made: list[tuple[int, int, float]],
    ahead: int,
    bursts: list[int],
    smaller: tuple[int, int, int],
) -> None:
    world = World(load, PolicySet(wait=Choice("never"), route=route))
    world.propose(StartEpoch(2, (OWNED,), world.state.facts.policies, ahead=ahead))
    for number, (cpus, queue, _) in enumerate(made):
        world.agent(f"n{number}", cpus=cpus, queue=queue)
    for number, (cpus, _, pace) in enumerate(made):
        names = [f"warm{number}-{at}" for at in range(cpus)]
        world.submit(*[a_job(name) for name in names])
        for name in names:
            world.start(name)
            world.finish(name, ran=pace)
    for burst, count in enumerate(bursts):
        world.submit(*[a_job(f"j{burst}-{at}") for at in range(count)])
        _nobody_waits_in_vain(world)
    number, cpus, queue = smaller
    name = NodeName(f"n{number % len(made)}")
    held = tuple(
        Lease(job.id, job.attempt, job.seq)
        for job in world.state.jobs.values()
        if isinstance(job.phase, Placed) and job.phase.node == name
    )
    incarnation = world.state.facts.incarnations + 1
    less = Register(LAB, name, incarnation, Resources(1000 * cpus, 2**40), (), {}, queue, held, waiting=held)
    world.propose(less)
    _nobody_waits_in_vain(world)
    for job in list(world.placed()):
        if world.state_of(job) == "PLACED" and job in world.state.nodes[world.where(job) or ""].holding:
            world.start(job)
            world.finish(job, ran=0.001)
            _nobody_waits_in_vain(world)
    replay = Replay(load)
    for revision, event in enumerate(world.events, 1):
        replay.take(revision, event)
    replay.end(len(world.events))
    assert replay.difference is None


def _nobody_waits_in_vain(world: World) -> None:
    """Every job asks for one CPU, so any agent could run any."""
    for node in world.state.nodes.values():
        assert len(node.ahead) <= node.queue
        if world.state.queued:
            assert len(node.ahead) >= ahead_of(node, world.state.facts.ahead)
            assert node.ahead or node.capacity.cpu - node.used.cpu < 1000
