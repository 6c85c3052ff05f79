"""Jobs of a trace on machines of a given size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.sim.fleet import read_fleet, read_owned
from spillover.sim.shapes import Shapes
from spillover.sim.trace import TraceJob


def job(gpus: int = 0, cpus: int = 0, nodes: int = 0, memory: int = 0) -> TraceJob:
    return TraceJob("x", 0, 1, gpus, cpus * 1000, nodes, memory)


def gpu(count: int) -> Resources:
    return Resources(0, 0, count)


@pytest.mark.parametrize(
    ("owned", "asks", "shape"),
    [
        ("64x8gpu", job(1), Shape(gpu(1))),
        ("64x8gpu", job(8), Shape(gpu(8))),
        ("64x8gpu", job(16), Shape(gpu(8), tasks=2)),
        ("64x8gpu", job(20), Shape(gpu(8), tasks=3, rest=gpu(4))),
        ("64x8gpu", job(16, nodes=4), Shape(gpu(4), tasks=4)),
        ("64x8gpu", job(18, nodes=4), Shape(gpu(5), tasks=4, rest=gpu(3))),
        ("64x8gpu", job(5, nodes=4), Shape(gpu(2), tasks=3, rest=gpu(1))),
        ("64x8gpu", job(20, nodes=2), Shape(gpu(8), tasks=3, rest=gpu(4))),
        ("64x8gpu", job(4, nodes=1), Shape(gpu(4))),
        ("64x8gpu,48cpu", job(20, 60), Shape(Resources(24_000, 0, 8), tasks=3, rest=Resources(12_000, 0, 4))),
        (
            "64x8gpu,48cpu",
            job(20, 140),
            Shape(Resources(48_000, 0, 8), tasks=3, rest=Resources(44_000, 0, 4)),
        ),
        ("64x8gpu,48cpu", job(0, 100), Shape(Resources(48_000), tasks=3, rest=Resources(4000))),
        ("100x1cpu", job(0, 25), Shape(Resources(1000), tasks=25)),
        ("100x4cpu", job(0, 10, 4), Shape(Resources(2500), tasks=4)),
        ("64x8gpu,48cpu", job(nodes=3), Shape(Resources(48_000, 0, 8), tasks=3)),
        ("64x8gpu", job(nodes=3), Shape(gpu(8), tasks=3)),
        ("64x8cpu", job(2, 4), Shape(Resources(4000, 0, 2))),
        ("64x8cpu,10G", job(0, 4, 0, 10**10 * 2), Shape(Resources(2000, 10**10), tasks=2)),
    ],
)
def test_a_job_is_split_over_machines(owned: str, asks: TraceJob, shape: Shape) -> None:
    assert Shapes(read_owned(owned)).of(asks) == shape


def test_a_job_without_gpus_is_split_over_the_machines_with_cpus() -> None:
    shapes = Shapes(read_fleet("4x8gpu+16x32cpu"))
    assert shapes.of(job(0, 64)) == Shape(Resources(32_000), tasks=2)
    assert shapes.of(job(16)) == Shape(gpu(8), tasks=2)


@given(
    st.integers(0, 100),
    st.integers(0, 300),
    st.integers(0, 20),
    st.integers(0, 10**12),
    st.integers(1, 8),
    st.integers(1, 64),
)
def test_no_part_is_larger_than_a_machine_and_nothing_is_lost(
    gpus: int, cpus: int, nodes: int, memory: int, node_gpus: int, node_cpus: int
) -> None:
    if not gpus and not cpus:
        return
    fleet = read_owned(f"4x{node_gpus}gpu,{node_cpus}cpu,64G")
    shape = Shapes(fleet).of(job(gpus, cpus, nodes, memory))
    rest = shape.rest or shape.resources
    assert shape.resources.fits(fleet.node)
    assert rest.fits(shape.resources)
    total = shape.total
    assert 0 <= total.gpu - gpus < shape.tasks
    assert total.cpu >= cpus * 1000
    assert total.memory >= memory
    assert total.cpu - cpus * 1000 < 1000 * shape.tasks


@pytest.mark.parametrize(
    ("asks", "topology", "shape"),
    [
        (
            job(20),
            Topology(within="rack"),
            Shape(gpu(8), tasks=3, topology=Topology(within="rack")),
        ),
        (job(4), Topology(within="rack"), Shape(gpu(4))),
        (
            job(4),
            Topology(within="rack", exclusive=True),
            Shape(gpu(4), runs=("exclusive",), topology=Topology(exclusive=True)),
        ),
        (
            job(16),
            Topology(spread="node", link="nvlink"),
            Shape(gpu(8), tasks=2, runs=("pin", "spread"), topology=Topology(spread="node", link="nvlink")),
        ),
        (job(1), Topology(link="nvlink"), Shape(gpu(1))),
        (
            job(1),
            Topology(pin="core"),
            Shape(Resources(1000, 0, 1), runs=("pin",), topology=Topology(pin="core")),
        ),
    ],
)
def test_a_job_that_says_where_its_tasks_must_be_has_tasks_that_are_alike(
    asks: TraceJob, topology: Topology, shape: Shape
) -> None:
    assert Shapes(read_owned("64x8gpu")).of(replace(asks, topology=topology)) == shape
