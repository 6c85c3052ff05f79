from spillover.deciding.explain.explain import explain
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import START, World


def a_world() -> World:
    """One owned and one rented CPU; a job waits ten seconds."""
    world = World(load, PolicySet(wait=Choice("constant", {"wait": 10 * SECOND})))
    world.agent("n1")
    world.agent("v1", cluster="cloud")
    return world


def test_a_job_that_waits_is_told_when_it_may_spill_over() -> None:
    world = a_world()
    world.submit(a_job("first"), a_job("second"))
    said = explain(world.engine, world.job("second"))
    assert said.spills_at == START + 10 * SECOND


def test_a_job_that_can_never_run_is_not_told_that_it_may_spill_over() -> None:
    world = a_world()
    world.submit(a_job("huge").cpus(64))
    said = explain(world.engine, world.job("huge"))
    assert said.reason is not None
    assert said.reason.never
    assert said.spills_at is None
