"""Budgets are looked at after costs, and what they reach becomes an event."""

from collections.abc import AsyncIterator, Sequence

import pytest

from spillover.control.controllers.budgets import BudgetWatch
from spillover.core.events import AnyEvent, BudgetReached
from spillover.core.proposals import Configure, Register, StartEpoch
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import MONEY
from tests.support.inside import Inside, leading

CLOUD = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=3600 * MONEY))
"""1 a second."""


@pytest.fixture
async def control() -> AsyncIterator[Inside]:
    """A server that rents at once, with a budget of 100 a day."""
    policies = PolicySet(wait=Choice("zero"))
    async with leading() as inside:
        budgets = (Budget(Of.PROJECT, "default", Per.DAY, 100 * MONEY),)
        await inside.propose(StartEpoch(inside.loop.epoch, (CLOUD,), policies, budgets=budgets))
        await inside.propose(Register(CLOUD.name, NodeName("v1"), 1, Resources(8000, 2**40), (), {}, 0, ()))
        yield inside


def reached(inside: Inside) -> list[int]:
    """Note from now on what budgets reach."""
    found: list[int] = []

    def see(_: int, events: Sequence[AnyEvent]) -> None:
        found.extend(event.percent for event in events if isinstance(event, BudgetReached))

    inside.loop.listen(see)
    return found


async def test_what_a_budget_reaches_is_journaled_once(control: Inside) -> None:
    found, watch = reached(control), BudgetWatch(control.loop)
    await control.submit("small", walltime="5s")
    await watch.look()
    assert found == [], "45 with what is held until it is killed"
    await control.submit("large", walltime="1s")
    await watch.look()
    assert found == [80]
    await watch.look()
    assert found == [80]


async def test_a_new_server_looks_at_what_an_earlier_one_left(control: Inside) -> None:
    await control.submit("large", walltime="55s")
    found = reached(control)
    await BudgetWatch(control.loop).look()
    assert found == [80]


async def test_a_lower_limit_is_reached_at_once(control: Inside) -> None:
    found, watch = reached(control), BudgetWatch(control.loop)
    await control.submit("small", walltime="5s")
    facts = control.loop.state.facts
    lower = (Budget(Of.PROJECT, "default", Per.DAY, 45 * MONEY),)
    await control.propose(Configure("kim", facts.policies, lower, facts.ahead, facts.queues))
    await watch.look()
    assert found == [100]
