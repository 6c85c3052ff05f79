"""However jobs come, start, end, are held and cancelled, no more of them wait than may, and what is refused changes nothing."""

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from spillover.core.appliers.queue import live_of
from spillover.core.proposals import Act, QueueBounds, Refusal, RefusalKind, Submit, Submitted
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import job_id
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World

BOUNDS = QueueBounds(queued=12, queued_per_project=8)
JOBS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 7), st.booleans(), st.booleans()), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), JOBS),
        st.tuples(st.sampled_from(["cancel", "end", "hold", "release"]), st.integers(0, 30)),
    ),
    max_size=40,
)


def waiting(world: World) -> Counter[str]:
    """Jobs of each project that have no place and have not ended, counted anew."""
    found: Counter[str] = Counter()
    for job in world.state.jobs.values():
        if not isinstance(job.phase, Placed | Running):
            found[job.kind.project] += live_of(job)
    return found


def size_of(jobs: list[tuple[str, int, bool, bool]]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for project, size, *_ in jobs:
        sizes[project] += size
    return sizes


@given(STEPS)
def test_no_more_wait_than_may(steps: list[tuple[str, object]]) -> None:
    world = World(load)
    world.agent("n1", cpus=3)
    names = count()
    for what, how in steps:
        before = waiting(world)
        if what == "submit":
            assert isinstance(how, list)
            _submit(world, [(job_id(next(names) << 20), *job) for job in how], before, size_of(how))
        else:
            _change(world, what, how)
        now = waiting(world)
        assert now.total() <= 12
        assert all(each <= 8 for each in now.values())


def _submit(
    world: World, jobs: list[tuple[str, str, int, bool, bool]], before: Counter[str], sizes: Counter[str]
) -> None:
    built: list[JobBuilder] = []
    for name, project, size, held, keyed in jobs:
        job = a_job(name).project(project)
        job = job.array(1, size) if size > 1 else job
        job = job.between(not_before=world.now + SECOND) if held else job
        built.append(job.key(f"key of {name}") if keyed else job)
    proposal = Submit(tuple(job.build() for job in built), "ada", bounds=BOUNDS)
    events = len(world.events)
    reply = world.propose(proposal)
    fits = (before + sizes).total() <= 12 and all(before[each] + sizes[each] <= 8 for each in sizes)
    if fits:
        assert isinstance(reply, Submitted)
    else:
        assert isinstance(reply, Refusal)
        assert reply.kind in {RefusalKind.FULL, RefusalKind.PROJECT_FULL}
        assert len(world.events) == events, "nothing happened"


def _change(world: World, what: str, how: object) -> None:
    assert isinstance(how, int)
    placed = world.placed()
    if what == "end":
        if placed:
            world.finish(placed[how % len(placed)])
    elif world.state.jobs:
        world.act(Act(what), list(world.state.jobs)[how % len(world.state.jobs)])


def test_a_job_that_is_known_by_its_key_needs_no_room() -> None:
    world = World(load)
    proposal = Submit(tuple(a_job(f"j{at}").key(f"k{at}").build() for at in range(8)), "ada", bounds=BOUNDS)
    assert isinstance(world.propose(proposal), Submitted)
    assert isinstance(world.propose(proposal), Submitted)


def test_a_refusal_has_the_numbers() -> None:
    world = World(load)
    one = Submit((a_job(job_id(1)).array(1, 5).build(),), "ada", bounds=BOUNDS)
    assert isinstance(world.propose(one), Submitted)
    more = Submit((a_job(job_id(2)).array(1, 8).project("other").build(),), "ada", bounds=BOUNDS)
    reply = world.propose(more)
    assert isinstance(reply, Refusal)
    assert (
        reply.message
        == "the queue holds 5 of at most 12 jobs; 8 more would exceed that, so none was accepted"
    )
    reply = world.propose(Submit((a_job(job_id(2)).array(1, 4).build(),), "ada", bounds=BOUNDS))
    assert isinstance(reply, Refusal)
    assert (
        reply.message
        == "the queue of project 'default' holds 5 of at most 8 jobs; 4 more would exceed that, so none was accepted"
    )
