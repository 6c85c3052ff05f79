"""Tests the policies on the real scheduler and a virtual clock. Run `python -m pytest` in this folder."""

from functools import partial

import pytest
from msgspec import structs

from spillover.model.policy import Choice, PolicySet
from spillover.model.units import MINUTE
from spillover.policies.loading import UnknownPolicy, load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from spillover_small_first.order import SmallFirst
from spillover_small_first.wait import Stepped

OURS = {"order.small_first": SmallFirst, "wait.stepped": Stepped}


def a_world(**chosen: Choice) -> World:
    """Return four owned CPUs and four rented ones. Policies need not be installed for tests."""
    world = World(partial(load, more=OURS), structs.replace(PolicySet(wait=Choice("never")), **chosen))
    world.agent("n1", cpus=4)
    world.agent("v1", cpus=4, cluster="cloud")
    return world


def test_small_jobs_are_started_first() -> None:
    world = a_world(order=Choice("small_first"))
    world.submit(a_job("running").cpus(4))
    world.submit(a_job("large").cpus(4), a_job("medium").cpus(3), a_job("small").cpus(1))
    world.finish("running")
    assert world.placed() == ["medium", "small"]


def test_priority_comes_before_size_unless_it_is_turned_off() -> None:
    for priority, first in ((True, "urgent"), (False, "small")):
        world = a_world(order=Choice("small_first", {"priority": priority}))
        world.submit(a_job("running").cpus(4))
        world.submit(a_job("small").cpus(1), a_job("urgent").cpus(4).priority(5))
        world.finish("running")
        assert world.placed() == [first]


def test_short_jobs_are_rented_at_once_and_long_ones_wait() -> None:
    world = a_world(wait=Choice("stepped", {"short": "10m", "long_wait": "1h"}))
    world.submit(a_job("running").cpus(4))
    world.submit(
        a_job("short").terms(estimate=10 * MINUTE),
        a_job("long").terms(estimate=11 * MINUTE),
    )
    assert (world.where("short"), world.where("long")) == ("cloud/v1", None)
    world.wait(seconds=3599)
    assert world.where("long") is None
    world.wait(seconds=1)
    assert world.where("long") == "cloud/v1"


@pytest.mark.parametrize(("written", "told"), [(15, "15 has no unit"), ("soon", "'soon' is not a duration")])
def test_times_that_are_none_are_refused_with_the_option_that_they_are_of(written: object, told: str) -> None:
    with pytest.raises(UnknownPolicy, match=f"^policy wait: stepped: short: {told}; write 90s"):
        a_world(wait=Choice("stepped", {"short": written}))


def test_nothing_failed() -> None:
    world = a_world(order=Choice("small_first"), wait=Choice("stepped"))
    world.submit(*(a_job(f"job{letter}") for letter in "abcdefgh"))
    assert [guard.failures for guard in world.engine.policies.guards] == [0, 0]
