"""Whatever fits is placed: cycles skip what cannot fit, and must not skip anything else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.records.jobs import Queued
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from tests.support.tiers import examples

shapes = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2))
"""CPUs, bytes of memory and GPUs; a job may ask for nothing at all."""
steps = st.lists(st.one_of(shapes, st.integers(0, 100)), min_size=1, max_size=60)
"""A job of such a shape is submitted, or one of those that are placed ends."""
nodes = st.lists(shapes, min_size=1, max_size=4)


def _fits_nowhere(world: World) -> bool:
    """Whether no queued job could start on any node now."""
    return not any(
        job.kind.shape.resources.fits(node.capacity - node.used)
        for job in world.state.jobs.values()
        if isinstance(job.phase, Queued)
        for node in world.state.nodes.values()
    )


@settings(max_examples=examples(200))
@given(nodes=nodes, steps=steps)
def test_nothing_that_fits_is_left_waiting(
    nodes: list[tuple[int, int, int]], steps: list[tuple[int, int, int] | int]
) -> None:
    world = World(load, clusters=(OWNED,))
    for number, (cpus, memory, gpus) in enumerate(nodes):
        world.agent(f"n{number}", cpus=cpus, memory=memory, gpus=gpus)
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            cpus, memory, gpus = step
            world.submit(a_job(f"job-{number}").cpus(cpus).memory(memory).gpus(gpus))
        elif placed := world.placed():
            world.finish(placed[step % len(placed)])
        assert _fits_nowhere(world)
