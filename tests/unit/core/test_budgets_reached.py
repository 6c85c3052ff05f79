"""Budgets that reach 80 and 100 %: told once for each period and limit, as an event."""

import msgspec
from msgspec.structs import replace

from spillover.core.deciders.budgets import limit_of, to_tell
from spillover.core.events import BudgetReached
from spillover.core.proposals import Configure, Done, LookAtBudgets
from spillover.core.rebuild import rebuild
from spillover.core.records.money import BudgetPeriod
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.ids import ClusterName
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import Pool, PoolBudget
from spillover.model.units import MONEY, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from spillover.wire.journal import decode_event, encode_event

CLOUD = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=3600 * MONEY))
"""1 a second, for each CPU."""
ZERO = PolicySet(wait=Choice("zero"))
BEYOND = 40
"""Seconds that are held beyond the walltime."""


def a_world(limit: int, of: Of = Of.PROJECT, name: str = "default", per: Per = Per.DAY) -> World:
    """Owned capacity that is full, rented capacity with room, and a budget."""
    budgets = (Budget(of, name, per, limit * MONEY),)
    world = World(load, ZERO, (OWNED, CLOUD), budgets=budgets)
    world.agent("n1", cpus=1)
    world.submit(a_job("full").burst(Burst.NEVER))
    world.agent("v1", cpus=8, cluster="cloud")
    return world


def rent(world: World, name: str, seconds: int) -> None:
    world.submit(a_job(name).terms(walltime=seconds * SECOND))
    assert world.where(name) == "cloud/v1"


def look(world: World) -> list[int]:
    """Look at all budgets as the server does; return what was told so far."""
    keys = tuple(to_tell(world.state, world.now))
    assert world.propose(LookAtBudgets(keys)) == Done()
    return [event.percent for event in world.happened(BudgetReached)]


def test_a_budget_is_told_when_it_reaches_80_and_when_it_reaches_100_percent() -> None:
    world = a_world(1000)
    rent(world, "a", 700)
    assert look(world) == []
    rent(world, "b", 20)
    assert look(world) == [80]
    (told,) = world.happened(BudgetReached)
    assert (told.spent, told.held, told.limit) == (0, 800 * MONEY, 1000 * MONEY)
    rent(world, "c", 150)
    assert look(world) == [80, 100], "990 of 1000: what is left pays for nothing"


def test_a_share_is_told_once_in_a_period_even_if_it_is_reached_again() -> None:
    world = a_world(1000)
    rent(world, "a", 800)
    assert look(world) == [80]
    world.start("a")
    world.finish("a", ran=10)
    assert look(world) == [80]
    rent(world, "b", 800)
    assert look(world) == [80]
    assert world.propose(LookAtBudgets(tuple(world.state.budget_periods))) == Done()
    assert look(world) == [80], "also if somebody looks without need"


def test_the_highest_share_is_told_alone() -> None:
    world = a_world(1000)
    rent(world, "a", 955)
    assert look(world) == [100]
    assert look(world) == [100]


def test_a_share_of_another_limit_is_told_again() -> None:
    world = a_world(1000)
    rent(world, "a", 800)
    assert look(world) == [80]
    facts = world.state.facts
    more = (Budget(Of.PROJECT, "default", Per.DAY, 900 * MONEY),)
    world.propose(Configure("kim", world.state.policies.configured, more, facts.ahead, facts.queues))
    assert look(world) == [80, 80]
    world.propose(Configure("kim", world.state.policies.configured, (), facts.ahead, facts.queues))
    assert list(to_tell(world.state, world.now)) == [], "its budget is gone"


def test_a_new_period_begins_anew() -> None:
    world = a_world(1000)
    rent(world, "a", 800)
    assert look(world) == [80]
    world.start("a")
    world.finish("a", ran=10)
    world.wait(seconds=86_400)
    rent(world, "b", 800)
    assert look(world) == [80, 80]


def test_the_event_says_whose_budget_it_is_and_what_is_used() -> None:
    told = BudgetReached("project/vision/month/2027-01", 7, 80, 81 * MONEY, 2 * MONEY, 100 * MONEY)
    assert (
        str(told)
        == "the budget of project vision of 2027-01 is used to 80 %: 81.00 spent and 2.00 held of 100.00"
    )
    assert told.of_project() == "vision"
    assert decode_event(encode_event(told)) == told
    ever = BudgetReached("user/ada/ever/ever", 7, 100, MONEY, 0, MONEY)
    assert str(ever) == "the budget of user ada is used to 100 %: 1.00 spent and 0.00 held of 1.00"
    assert (ever.of_project(), ever.caused_by()) == (None, "")


def test_a_limit_is_that_of_the_own_budget_or_that_for_every_name_or_that_of_the_pool() -> None:
    world = a_world(1000, name="*")
    assert limit_of(world.state, "project/vision/day/2027-01-01") == 1000 * MONEY
    assert limit_of(world.state, "project/vision/month/2027-01") is None
    assert limit_of(world.state, "user/ada/day/2027-01-01") is None
    assert limit_of(world.state, "pool/cloud/day/2027-01-01") is None
    world.state.clusters[CLOUD.name] = replace(CLOUD, pool=Pool("p", (), budget=PoolBudget(Per.DAY, 5)))
    assert limit_of(world.state, "pool/cloud/day/2027-01-01") == 5
    assert limit_of(world.state, "pool/cloud/month/2027-01") is None


def test_what_was_told_comes_back_from_a_checkpoint() -> None:
    world = a_world(1000)
    rent(world, "a", 800)
    look(world)
    (period,) = world.state.budget_periods.values()
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(period), type=BudgetPeriod)
    assert rebuild([stored]).budget_periods[period.key] == period
    assert (stored.told, stored.told_of) == (80, 1000 * MONEY)
    old = msgspec.msgpack.encode((period.key, period.until, 1, 2, 3))
    assert msgspec.msgpack.decode(old, type=BudgetPeriod).told == 0, "of an earlier release"
