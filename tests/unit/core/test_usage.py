"""What projects are counted to have used, beside what they really did."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.learned import usage
from spillover.core.learned.sharing import LONG, STEPS, Measure, Sharing, Using
from spillover.core.proposals import SetPolicies
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints, said_by

HALF_LIFE = HOUR
FAIR = PolicySet(order=Choice("fair_share", {"half_life": HALF_LIFE}), wait=Choice("never"))


def a_world(policies: PolicySet = FAIR, cpus: int = 4) -> World:
    world = World(load, policies)
    world.agent("n1", cpus=cpus, gpus=4)
    return world


def of(project: str, name: str) -> JobBuilder:
    return a_job(name).project(project)


def used(world: World, now: int) -> dict[str, int]:
    """What each project has used that is known."""
    meter = usage.Meter(world.state, now)
    return {project: meter.used(project) for project in world.state.usage}


def shares(world: World) -> dict[str, float]:
    """What part of all that was used each project used."""
    found = used(world, world.now)
    return {project: amount / sum(found.values()) for project, amount in found.items()}


@given(st.integers(0, 100 * 64), st.integers(0, 1000))
def test_the_clock_runs_twice_as_fast_after_each_half_life(step: int, rest: int) -> None:
    sharing = Sharing(Measure(STEPS * 1000, 0), 0, 0)
    at, later = step * 1000 + rest, (step + STEPS) * 1000 + rest
    assert sharing.grown(later) == sharing.grown(STEPS * 1000) + 2 * sharing.grown(at)
    assert sharing.grown(at + 1) > sharing.grown(at)


@given(
    st.integers(1, 300),
    st.integers(0, STEPS * 1000 * 5),
    st.integers(0, 1000),
    st.integers(-(2**90), 2**90),
)
def test_a_clock_that_is_set_back_measures_the_same(
    half_lives: int, after: int, rate: int, spent: int
) -> None:
    sharing = Sharing(Measure(STEPS * 1000, 0), 0, 0)
    using = Using("p", rate, spent)
    later = sharing.set_back(half_lives)
    at = later.since + after
    before = rate * sharing.grown(at) + spent
    now = rate * later.grown(at) + sharing.carried(using, half_lives)
    assert now == before >> half_lives


def test_what_was_used_one_half_life_ago_counts_half() -> None:
    world = a_world()
    world.submit(of("old", "a"))
    world.wait(seconds=600)
    world.finish("a")
    world.wait(seconds=3600 - 600)
    world.submit(of("new", "b"))
    world.wait(seconds=600)
    assert shares(world) == pytest.approx({"old": 1 / 3, "new": 2 / 3}, rel=0.02)


def test_running_jobs_count_while_they_run_by_their_size() -> None:
    world = a_world()
    world.submit(of("small", "a"), of("large", "b").cpus(3))
    world.wait(seconds=60)
    assert shares(world) == pytest.approx({"small": 1 / 4, "large": 3 / 4})
    world.submit(of("gpus", "c").cpus(0).gpus(1))
    world.wait(seconds=60)
    assert shares(world)["gpus"] == pytest.approx(53 / (53 + 2 * 4), rel=0.02)


def test_members_and_requeued_jobs_count_as_long_as_they_hold_their_place() -> None:
    world = a_world()
    world.submit(of("array", "sweep").array(1, 2), of("single", "a"))
    world.wait(seconds=60)
    assert shares(world)["array"] == pytest.approx(2 / 3)
    world.hand_back("a")
    assert world.where("a") == "onprem/n1", "placed again at once"
    world.finish("sweep.1")
    world.finish("sweep.2")
    world.wait(seconds=60)
    assert shares(world)["array"] == pytest.approx(1 / 2, rel=0.02)


def test_measuring_begins_with_the_policy_and_ends_with_it() -> None:
    world = a_world(PolicySet(wait=Choice("never")))
    world.submit(of("p", "a"))
    world.wait(seconds=600)
    assert (world.state.facts.sharing, world.state.usage) == (None, {})
    world.propose(SetPolicies(FAIR, "ada"))
    assert used(world, world.now) == {"p": 0}, "what runs counts from now on"
    world.wait(seconds=60)
    before = used(world, world.now)
    assert before["p"] > 0
    options = {**FAIR.order.options, "shares": "p=2"}
    world.propose(SetPolicies(PolicySet(order=Choice("fair_share", options), wait=FAIR.wait), "ada"))
    assert used(world, world.now) == before, "other shares measure the same"
    options = {**options, "half_life": DAY}
    world.propose(SetPolicies(PolicySet(order=Choice("fair_share", options), wait=FAIR.wait), "ada"))
    assert used(world, world.now) == {"p": 0}, "another half life measures anew"
    world.propose(SetPolicies(PolicySet(wait=FAIR.wait), "ada"))
    assert (world.state.facts.sharing, world.state.usage) == (None, {})


def test_numbers_stay_small_and_old_projects_are_forgotten_however_long_it_lasts() -> None:
    world, checkpoints = a_world(cpus=100), Checkpoints()
    world.submit(of("gone", "once"), of("there", "always"))
    world.wait(seconds=60)
    world.finish("once")
    for number in range(5):
        world.wait(seconds=(LONG + 7) * HALF_LIFE / SECOND)
        assert list(used(world, world.now)) == list(world.state.usage)
        world.submit(of("new", f"job-{'abcde'[number]}"))
        checkpoints.write(world.state)
        assert said_by(checkpoints.load()) == said_by(world.state)
    assert list(world.state.usage) == ["there", "new"]
    assert max(abs(using.spent) for using in world.state.usage.values()) < 2**300
    world.wait(seconds=1000 * 365 * 24 * 3600)
    assert shares(world)["there"] == pytest.approx(1 / 6, rel=0.01), "what runs on and on"


def test_projects_are_compared_anew_every_minute_and_whenever_something_starts_or_ends() -> None:
    world = a_world()
    world.now -= world.now % MINUTE - 5 * SECOND
    world.now += MINUTE
    world.submit(of("p", "a"))
    assert used(world, world.now) == used(world, world.now + 54 * SECOND) == {"p": 0}
    assert used(world, world.now + 56 * SECOND)["p"] > 0
    world.now += 20 * SECOND
    world.submit(of("q", "b"))
    assert used(world, world.now)["p"] > 0
