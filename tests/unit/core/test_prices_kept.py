"""What a job pays is settled when it is placed, whatever becomes of its cluster in the configuration."""

import pytest
from msgspec.structs import replace

from spillover.core.proposals import Outcome, StartEpoch
from spillover.core.records.jobs import NO_EXTRA
from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World

POLICIES = PolicySet(wait=Choice("zero"))
CAP = Budget(Of.PROJECT, "default", Per.EVER, 100_000_000)
DEARER = replace(RENTED, price=Price(cpu_hour=36_000_000))


def restart(world: World, *clusters: ClusterSpec) -> None:
    """The server starts anew with other clusters; the agent of the rented one comes back if it is still there."""
    world.propose(StartEpoch(world.state.facts.epoch + 1, clusters, POLICIES, budgets=(CAP,)))
    if any(each.name == RENTED.name for each in clusters):
        held = tuple(world.job(each).lease for each in world.placed())
        world.agent("v1", cpus=10, cluster="cloud", held=held)


def a_world_with_a_rented_job() -> World:
    world = World(load, POLICIES, budgets=(CAP,))
    world.agent("v1", cpus=10, cluster="cloud")
    world.submit(a_job("a").terms(walltime=60 * SECOND))
    world.start("a")
    return world


@pytest.mark.parametrize(
    "clusters",
    [(OWNED,), (OWNED, DEARER), (OWNED, replace(RENTED, role=Role.OWNED))],
    ids=["the cluster is gone", "it is dearer", "it is owned"],
)
def test_a_job_pays_what_it_was_placed_for(clusters: tuple[ClusterSpec, ...]) -> None:
    world = a_world_with_a_rented_job()
    restart(world, *clusters)
    restart(world, *clusters, replace(OWNED, name="other"))
    world.wait(seconds=50)
    world.finish("a", ran=50)
    (period,) = world.state.budget_periods.values()
    assert (world.job("a").cost, period.spent, period.held, period.over) == (50_000, 50_000, 0, 0)
    assert world.state.facts.overruns == 0
    assert world.job("a").extra == NO_EXTRA


def test_the_next_attempt_pays_what_holds_then() -> None:
    world = a_world_with_a_rented_job()
    restart(world, OWNED, DEARER)
    world.wait(seconds=10)
    world.finish("a", outcome=Outcome.LOST, ran=10)
    world.start("a")
    world.wait(seconds=10)
    world.finish("a", ran=10)
    assert world.job("a").cost == 10_000 + 100_000


def test_a_job_keeps_the_price_of_its_place_while_prices_change_again_and_back() -> None:
    world = a_world_with_a_rented_job()
    restart(world, OWNED, DEARER)
    restart(world, OWNED, replace(RENTED, price=Price(cpu_hour=1)))
    restart(world, OWNED, RENTED)
    world.wait(seconds=10)
    world.finish("a", ran=10)
    assert world.job("a").cost == 10_000
