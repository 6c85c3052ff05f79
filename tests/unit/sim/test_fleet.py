"""Machines and prices as the command line takes them."""

import pytest

from spillover.forms.problems import BadForm
from spillover.forms.quantities import MOST_CPU, MOST_MEMORY
from spillover.model.cluster import Billing, Price
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.sim.fleet import read_owned, read_rented, read_site
from spillover.sim.setting import Fleet, Rent


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
