import pytest

from spillover.model.cluster import Billing, ClusterSpec, Price, Role, cost_of_job
from spillover.model.ids import ClusterName, JobId, is_name, job_id, member_id, split_member
from spillover.model.job import Shape
from spillover.model.reasons import CouldNotStart
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND


def test_an_id_is_twelve_characters_for_sixty_bits() -> None:
    assert job_id(0) == "a" * 12
    assert job_id(2**60 - 1) == "7" * 12
    assert job_id(1) == "aaaaaaaaaaab"


def test_a_member_is_split_into_its_array_and_its_index() -> None:
    array = job_id(12345)
    assert split_member(member_id(array, 7)) == (array, 7)
    assert split_member(array) is None


@pytest.mark.parametrize(
    "text", ["abc.x", "abc.", "abc.٣", "abc.07", "abc.-1", "abc.1.2", ".1", "abc." + "9" * 5000]
)
def test_what_only_looks_like_a_member_is_none(text: str) -> None:
    assert split_member(JobId(text)) is None


@pytest.mark.parametrize("text", ["a", "train", "a.b_c-d", "7", "x" * 63])
def test_names(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize("text", ["", "-a", "a-", ".", "a b", "a\n", "x" * 64, "é", "a/b"])
def test_what_is_no_name(text: str) -> None:
    assert not is_name(text)


def test_resources_add_up_and_fit() -> None:
    one, two = Resources(1000, 2**30, 1), Resources(500, 0, 0)
    assert one + two == Resources(1500, 2**30, 1)
    assert one - two == Resources(500, 2**30, 1)
    assert two.fits(one)
    assert not one.fits(two)
    assert str(one) == "1 CPU, 1Gi, 1 GPU"
    assert str(two) == "0.5 CPU"


PRICE = Price(cpu_hour=40_000, memory_gib_hour=1_000, gpu_hour=2_500_000)


def cost_of(price: Price, billing: Billing, resources: Resources, ran: int) -> int:
    """What a job of one task costs."""
    spec = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, price, billing)
    return cost_of_job(spec, Shape(resources), ran)


def test_an_hour_costs_what_the_price_says() -> None:
    assert cost_of(PRICE, Billing(), Resources(2000, 2**30, 1), HOUR) == 80_000 + 1_000 + 2_500_000


def test_every_started_step_is_paid() -> None:
    billing = Billing(step=MINUTE, minimum=0)
    assert cost_of(PRICE, billing, Resources(60_000), MINUTE + 1) == cost_of(
        PRICE, billing, Resources(60_000), 2 * MINUTE
    )


def test_the_minimum_is_paid_even_by_what_did_not_run() -> None:
    billing = Billing(step=SECOND, minimum=HOUR)
    assert cost_of(PRICE, billing, Resources(1000), 0) == 40_000
    assert cost_of(PRICE, billing, Resources(1000), MINUTE) == 40_000
    assert cost_of(PRICE, Billing(), Resources(1000), 0) == 0


def test_a_part_of_a_millionth_is_rounded_up() -> None:
    assert cost_of(Price(cpu_hour=1), Billing(), Resources(1), SECOND) == 1


@pytest.mark.parametrize("message", ["no more threads", "could not be started: no more threads"])
def test_that_a_job_could_not_be_started_is_said_once(message: str) -> None:
    assert str(CouldNotStart(message, "lab/n1")) == "could not be started on lab/n1: no more threads"
