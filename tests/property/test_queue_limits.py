"""However jobs come, start, end, return and move, and limits change: no start exceeds a limit of a named queue."""

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.proposals import Act, Configure, Outcome
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.replay import Replay
from spillover.model.ids import job_id
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from spillover.wire.journal import decode_event, encode_event
from tests.support.sameness import Checkpoints, said_by

USERS = ("ann", "bob", "cat")
NAMES = ("a", "b", "c")
POLICIES = [
    PolicySet(wait=Choice("zero")),
    PolicySet(wait=Choice("never"), order=Choice("priority")),
    PolicySet(wait=Choice("zero"), order=Choice("fair_share"), backfill=Choice("conservative")),
    PolicySet(wait=Choice("zero"), size=Choice("share")),
    PolicySet(wait=Choice("never"), backfill=Choice("easy"), size=Choice("share")),
    PolicySet(wait=Choice("compute", {"coefficient": 0.1, "max_queue": 2}), backfill=Choice("easy")),
]
limits = st.builds(
    QueueLimits,
    st.sampled_from([0, 1, 2, 5]),
    st.builds(Resources, st.sampled_from([0, 3000, 6000]), st.just(0), st.sampled_from([0, 2])),
)
queues = st.tuples(
    *[
        st.builds(QueueSpec, st.just(name), total=limits, each=limits, priority=st.just(at))
        for at, name in enumerate(NAMES)
    ]
)
jobs = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([1, 1, 2]),  # CPUs
        st.sampled_from([0, 0, 1]),  # GPUs
        st.sampled_from(["one", "one", "array", "gang", "elastic"]),
        st.sampled_from(Burst),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(USERS), jobs),
        st.tuples(st.just("limit"), queues),
        st.tuples(
            st.sampled_from(["start", "end", "lose", "requeue", "cancel", "hold", "release", "return"]),
            st.integers(0, 60),
        ),
    ),
    max_size=30,
)


def use(world: World) -> Counter[tuple[str, str, str]]:
    """What is in use by queue, user (empty for all) and resource, counted anew."""
    found: Counter[tuple[str, str, str]] = Counter()
    for job in world.state.jobs.values():
        if isinstance(job.phase, Placed | Running):
            held = job.shape.total
            for user in ("", job.user):
                found[job.kind.queue, user, "jobs"] += 1
                found[job.kind.queue, user, "cpu"] += held.cpu
                found[job.kind.queue, user, "gpu"] += held.gpu
    return found


def most(spec: QueueSpec, user: str, what: str) -> int:
    limits = spec.each if user else spec.total
    return limits.running if what == "jobs" else getattr(limits.resources, what)


@given(STEPS, queues, st.sampled_from(POLICIES))
def test_no_start_exceeds_a_limit(
    steps: list[tuple[object, ...]], queues: tuple[QueueSpec, ...], policies: PolicySet
) -> None:
    clusters = (replace(OWNED, gangs=True), replace(RENTED, gangs=True))
    world = World(load, policies, clusters, queues=queues)
    world.agent("n1", cpus=6, gpus=2, queue=2)
    world.agent("c1", cpus=8, gpus=2, cluster="cloud")
    names, specs, before = count(1), {each.name: each for each in queues}, use(world)
    for step in steps:
        match step:
            case ("submit", str(user), list(wanted)):
                for each in wanted:
                    _submit(world, job_id(next(names) << 20), user, each)
            case ("limit", tuple(others)):
                specs = {each.name: each for each in others}
                world.propose(Configure("root", policies, queues=others))
            case (str(what), int(which)):
                _change(world, what, which)
        now = use(world)
        for (name, user, what), used in now.items():
            limit = most(specs[name], user, what)
            assert not limit or used <= max(limit, before[name, user, what]), (name, user, what, used, limit)
        before = now
        _check_index(world)
    replayed = Replay(load, None)
    for revision, event in enumerate(world.events, 1):
        assert replayed.take(revision, decode_event(encode_event(event))), replayed.difference
    checkpoints = Checkpoints()
    checkpoints.write(world.state)
    assert said_by(checkpoints.load()) == said_by(world.state)


def _submit(world: World, name: str, user: str, wanted: tuple[str, int, int, str, Burst]) -> None:
    queue, cpus, gpus, how, burst = wanted
    job = a_job(name).queue(queue).cpus(cpus).gpus(gpus).burst(burst)
    match how:
        case "array":
            job = job.array(1, 4)
        case "gang":
            job = job.tasks(2)
        case "elastic":
            job = job.tasks(1, most=4)
    spec = world.state.queues.get(queue)
    assert spec is not None
    if any(True for _ in spec.problems(spec.completed(job.spec()), user)):
        world.refused(job, user=user)
    else:
        world.submit(job, user=user)


def _change(world: World, what: str, which: int) -> None:
    placed, known = world.placed(), list(world.state.jobs)
    if what in {"start", "end", "lose", "return"}:
        if not placed:
            return
        job = placed[which % len(placed)]
        phase = world.job(job).phase
        if what == "start":
            world.start(job)
        elif what == "return":
            if isinstance(phase, Placed):
                world.hand_back(job)
        else:
            world.finish(job, outcome=Outcome.EXITED if what == "end" else Outcome.LOST)
    elif known:
        world.act(Act(what), known[which % len(known)])


def _check_index(world: World) -> None:
    """The index counts what the state says, as one that is built anew does."""
    for index in (world.engine.index, SchedulingIndex(world.state, world.engine.policies)):
        counted = index.queue_use
        for (name, user, what), used in use(world).items():
            limits = None if counted is None else counted.used_by(name, user or None)
            if limits is not None:
                assert (limits.jobs if what == "jobs" else getattr(limits.used, what)) == used
