import pytest

from spillover.control.clock import SystemClock
from spillover.control.loop import Loop
from spillover.model.job import Burst
from spillover.policies.loading import load
from spillover.server.metrics import Metrics
from spillover.stores.memory import open_memory
from spillover.testing.builders import a_job
from spillover.testing.world import World


@pytest.fixture
def world() -> World:
    """A world with room to rent, at one a CPU-second."""
    world = World(load)
    world.agent("v1", cpus=4, cluster="cloud")
    return world


def counted(world: World, name: str, **labels: str) -> float | None:
    """A metric after all that happened became durable."""
    loop = Loop(open_memory().journal, load, SystemClock())
    loop.engine = world.engine
    metrics = Metrics(loop)
    metrics._see(len(world.events), world.events)
    return metrics.registry.get_sample_value(name, labels)


def test_what_an_array_cost_is_counted_once(world: World) -> None:
    world.submit(a_job("sweep").array(1, 3).burst(Burst.ALWAYS))
    for member in ("sweep.1", "sweep.2", "sweep.3"):
        world.start(member)
    world.wait(seconds=2)
    for member in ("sweep.1", "sweep.2", "sweep.3"):
        world.finish(member)
    spent = world.job("sweep").cost
    assert spent > 0
    assert counted(world, "spill_cost_total") == pytest.approx(spent / 1_000_000)
    assert counted(world, "spill_jobs_ended_total", state="SUCCEEDED") == 4


def test_jobs_are_counted_where_they_are_placed(world: World) -> None:
    world.submit(a_job("one").burst(Burst.ALWAYS), a_job("two"))
    assert counted(world, "spill_jobs_submitted_total") == 2
    assert counted(world, "spill_jobs_placed_total", cluster="cloud") == 1
    assert counted(world, "spill_jobs_queued") == 1
