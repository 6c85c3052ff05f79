"""Machines and prices as the command line takes them."""

import re
from pathlib import Path

import msgspec
import pytest

from spillover.forms.graph import Graph, GraphNode, write_graph
from spillover.forms.problems import BadForm
from spillover.forms.quantities import MOST_CPU, MOST_MEMORY
from spillover.model.cluster import Billing, Price
from spillover.model.inside import Domain, Inside, Link
from spillover.model.resources import Resources
from spillover.model.topology import Level
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.sim.fleet import read_fleet, read_owned, read_rented, read_reserve, read_site
from spillover.sim.setting import Fleet, FleetCapacity, Rent, ReservedNodes


def test_what_is_not_stated_of_a_machine_limits_no_job() -> None:
    fleet = read_owned("64x8gpu")
    assert fleet == Fleet(64, Resources(MOST_CPU, MOST_MEMORY, 8), limits_cpu=False, limits_memory=False)


@pytest.mark.parametrize("text", ["64x8gpu,48cpu,256GB", "64 x 8gpus, 48 cpus, 256G", "64x256GB,48cpu,8gpu"])
def test_all_of_a_machine_can_be_stated(text: str) -> None:
    assert read_owned(text) == Fleet(64, Resources(48_000, 256 * 10**9, 8))


def test_machines_without_gpus() -> None:
    fleet = read_owned("240x1cpu,2Gi")
    assert fleet == Fleet(240, Resources(1000, 2 * 2**30, 0))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("64", "'64' is not a number of machines; write 64x8gpu"),
        ("0x8gpu", "is not a number of machines"),
        ("-1x8gpu", "is not a number of machines"),
        ("64x8tpu", "'8tpu' is not a resource of a machine; write 8gpu, 48cpu or 256GB"),
        ("64xgpu", "'gpu' is not a resource of a machine"),
        ("64x8.5gpu", "'8.5gpu' is out of range for a machine"),
        ("64x8gpu,0cpu", "'0cpu' is out of range for a machine"),
        ("64x8gpu,8gpu", "gpu is given twice"),
        ("64x256GB", "has neither GPUs nor CPUs"),
    ],
)
def test_machines_that_are_none_are_told(text: str, problem: str) -> None:
    with pytest.raises(BadForm, match=r"^--owned: ") as error:
        read_owned(text)
    assert problem in str(error.value)


def test_prices_are_read() -> None:
    assert read_rented("gpu=2.5") == Rent(Price(gpu_hour=2_500_000), Billing(step=1))
    full = read_rented("gpu=2.5, cpu=0.04, memory_gib=0.005, step=60s, minimum=2m, startup=90s")
    assert full == Rent(Price(40_000, 5000, 2_500_000), Billing(MINUTE, 2 * MINUTE), 90 * SECOND)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2.5", "'2.5' is not a price; write gpu=2.5"),
        ("tpu=1", "'tpu=1' is not a price"),
        ("gpu=much", "gpu: 'much' is not an amount of money"),
        ("gpu=-1", "gpu: '-1' is out of range"),
        ("gpu=1,gpu=2", "gpu: is given twice"),
        ("gpu=1,step=0s", "step: '0s' is out of range"),
        ("gpu=1,startup=5", "startup: '5' is not a duration"),
    ],
)
def test_prices_that_are_none_are_told(text: str, problem: str) -> None:
    with pytest.raises(BadForm, match=r"^--rented: ") as error:
        read_rented(text)
    assert problem in str(error.value)


def test_what_is_wrong_with_machines_and_with_prices_is_told_together() -> None:
    with pytest.raises(BadForm) as found:
        read_site("many", "gpu=x")
    assert [line.split(":")[0] for line in str(found.value).splitlines()] == ["--owned", "--rented"]
    for owned, rented, told in (("many", "gpu=1", "--owned"), ("1x1gpu", "gpu=x", "--rented")):
        with pytest.raises(BadForm, match=told):
            read_site(owned, rented)
    assert read_site("1x1gpu", "gpu=1") == (read_owned("1x1gpu"), read_rented("gpu=1"))


# --- unlike machines


def test_unlike_machines_are_joined_by_a_plus() -> None:
    fleet = read_fleet("2x8gpu + 3x32cpu,64GB")
    gpus, cpus = Resources(0, MOST_MEMORY, 8), Resources(32_000, 64 * 10**9)
    assert [(one.name, one.capacity) for one in fleet.machines] == [
        ("n1", gpus),
        ("n2", gpus),
        ("n3", cpus),
        ("n4", cpus),
        ("n5", cpus),
    ]
    assert (fleet.count, fleet.node, fleet.without_gpus) == (5, gpus, cpus)
    assert (fleet.limits_cpu, fleet.limits_memory, fleet.capacity) == (
        True,
        True,
        FleetCapacity(16, by_gpu=True),
    )
    alike = read_fleet("1x8gpu+2x4gpu")
    assert (alike.limits_cpu, alike.total) == (False, Resources(3 * MOST_CPU, 3 * MOST_MEMORY, 16))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("4x8gpu+", "--owned: '' is not a number of machines"),
        ("4x8gpu+many", "--owned: 'many' is not a number of machines"),
        ("4x+many", "'many' is not a number of machines"),
        (
            "few+many",
            "--owned: 'few' is not a number of machines; write 64x8gpu or 64x8gpu,48cpu,256GB\n--owned: 'many'",
        ),
        ("900000x8gpu+900000x1cpu", "--owned: there are at most 1,000,000 machines"),
    ],
)
def test_unlike_machines_that_are_none_are_told(text: str, problem: str) -> None:
    with pytest.raises(BadForm, match=re.escape(problem)):
        read_fleet(text)


# --- graphs


def graph(folder: Path, *nodes: GraphNode, levels: tuple[str, ...] = ("rack",)) -> str:
    """Write the file of a graph; return its name."""
    path = folder / "lab.json"
    path.write_bytes(msgspec.json.encode(write_graph(Graph("lab", levels, nodes))))
    return str(path)


def test_a_graph_says_which_machines_there_are_and_where(tmp_path: Path) -> None:
    domains = (Domain(0, ("0-3",), ("0",)), Domain(1, ("4-7",), ("1",)))
    inside = Inside(domains, ("0", "1"), (Link("nvlink", ("0", "1")),))
    large = GraphNode("large", Resources(8000, 2**34, 2), (("rack", "r1"),), inside)
    small = GraphNode("small", Resources(4000, 2**33), (("rack", "r2"),))
    fleet = read_fleet(graph(tmp_path, large, small))
    assert (fleet.count, fleet.node, fleet.levels) == (2, large.capacity, (Level("rack", "rack"),))
    assert (fleet.total, fleet.limits_cpu, fleet.limits_memory) == (
        Resources(12_000, 2**34 + 2**33, 2),
        True,
        True,
    )
    assert [(one.name, one.capacity, one.labels) for one in fleet.machines] == [
        ("large", large.capacity, large.path),
        ("small", small.capacity, small.path),
    ]
    assert (fleet.machines[0].inside, fleet.machines[1].inside) == (inside, None)


def test_what_no_node_of_a_graph_has_limits_no_job(tmp_path: Path) -> None:
    fleet = read_fleet(graph(tmp_path, GraphNode("n1", Resources(0, 0, 8)), levels=()))
    assert fleet.node == Resources(MOST_CPU, MOST_MEMORY, 8)
    assert (fleet.limits_cpu, fleet.limits_memory) == (False, False)


def test_a_graph_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadForm, match="no node has cores or GPUs"):
        read_fleet(graph(tmp_path, GraphNode("n1", Resources(0, 2**30))))
    with pytest.raises(BadForm, match=r"none\.json: No such file"):
        read_fleet(str(tmp_path / "none.json"))
    (tmp_path / "odd.json").write_text("[]")
    with pytest.raises(BadForm, match="is not a graph in JSON Graph Format"):
        read_fleet(str(tmp_path / "odd.json"))


# --- reservations


def test_machines_to_reserve_are_read() -> None:
    assert read_reserve("nodes=4,start=24h,for=2h") == ReservedNodes(24 * HOUR, 2 * HOUR, 4)
    full = read_reserve("nodes=4, start=0s, for=90m, within=rack, project=vision")
    assert full == ReservedNodes(0, 90 * MINUTE, 4, "rack", "vision")
    assert read_reserve("for=1h,nodes=all,start=1d") == ReservedNodes(24 * HOUR, HOUR)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("4", "'4' is not a part of a reservation; write nodes=4,start=24h,for=2h"),
        ("nodes=4,start=1h", "for is missing"),
        ("nodes=0,start=1h,for=1h", "nodes: '0' is not a number of machines; write a number, or all"),
        ("nodes=4,start=soon,for=1h", "start: 'soon' is not a duration"),
        ("nodes=4,start=1h,for=0s", "for: '0s' is out of range"),
        ("nodes=4,nodes=4,start=1h,for=1h", "nodes: is given twice"),
        ("nodes=all,start=1h,for=1h,within=rack", "within: is only allowed with a number of nodes"),
        ("nodes=4,start=1h,for=1h,project=!", "project: '!' is not a valid name"),
    ],
)
def test_reservations_that_are_none_are_told(text: str, problem: str) -> None:
    with pytest.raises(BadForm, match=r"^--reserve: ") as error:
        read_reserve(text)
    assert problem in str(error.value)
