"""What a job costs on a cluster, and which budgets concern it in which period."""

from datetime import UTC, datetime

import pytest

from spillover.model.budget import Budget, Caps, Of, Per, period_of
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price, Role, cost_of_job
from spillover.model.ids import ClusterName
from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, HOUR, MINUTE, MONEY, time_of

G5 = NodeClass("g5", Resources(4000, 16 * 2**30, 1), MONEY)
CLOUD = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=MONEY))
WHOLE = ClusterSpec(ClusterName("whole"), "agents", Role.RENTED, Price(node=G5), Billing(MINUTE, HOUR))


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return time_of(datetime(year, month, day, hour, minute, second, tzinfo=UTC))


def test_a_gang_costs_what_its_tasks_cost_together() -> None:
    one = Resources(2000)
    assert cost_of_job(CLOUD, Shape(one, tasks=3), HOUR) == 6 * MONEY
    assert cost_of_job(CLOUD, Shape(one, tasks=3, rest=Resources(1000)), HOUR) == 5 * MONEY


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        (Resources(100), 1),
        (Resources(4000, 16 * 2**30, 1), 1),
        (Resources(4001), 2),
        (Resources(100, 33 * 2**30), 3),
        (Resources(100, 0, 4), 4),
    ],
)
def test_a_task_pays_for_as_many_whole_nodes_as_it_needs(asked: Resources, nodes: int) -> None:
    assert cost_of_job(WHOLE, Shape(asked), HOUR) == nodes * MONEY
    assert cost_of_job(WHOLE, Shape(asked, tasks=2), HOUR) == 2 * nodes * MONEY


def test_what_a_node_class_does_not_say_is_not_counted() -> None:
    node = NodeClass("any", Resources(), MONEY)
    assert node.count(Resources(9000, 2**40, 9)) == 1


def test_a_step_is_paid_when_it_is_begun_and_a_minimum_always() -> None:
    shape = Shape(Resources(1000))
    assert cost_of_job(WHOLE, shape, 1) == MONEY
    assert cost_of_job(WHOLE, shape, HOUR + 1) == -(-MONEY * 61 // 60)


def test_data_that_leave_are_paid_for_by_the_gb_of_a_billion_bytes() -> None:
    spec = ClusterSpec(ClusterName("c"), "agents", Role.RENTED, Price(cpu_hour=MONEY, egress_gb=90_000))
    shape = Shape(Resources(1000))
    assert cost_of_job(spec, shape, HOUR, 20 * 10**9) == MONEY + 20 * 90_000
    assert cost_of_job(spec, shape, HOUR, 1) == MONEY + 1
    assert cost_of_job(spec, shape, HOUR) == MONEY


@pytest.mark.parametrize(
    ("per", "label", "until", "since"),
    [
        (Per.DAY, "2027-01-31", (2027, 2, 1), (2027, 1, 31)),
        (Per.WEEK, "2027-W04", (2027, 2, 1), (2027, 1, 25)),
        (Per.MONTH, "2027-01", (2027, 2, 1), (2027, 1, 1)),
        (Per.YEAR, "2027", (2028, 1, 1), (2027, 1, 1)),
    ],
)
def test_periods_are_those_of_the_calendar_in_utc(
    per: Per, label: str, until: tuple[int, int, int], since: tuple[int, int, int]
) -> None:
    assert period_of(per, at(2027, 1, 31, 23, 59, 59)) == (label, at(*until), at(*since))
    assert period_of(per, at(*until)).label != label


def test_a_week_belongs_to_the_year_of_its_thursday_and_december_ends() -> None:
    assert period_of(Per.WEEK, at(2027, 1, 1)) == ("2026-W53", at(2027, 1, 4), at(2026, 12, 28))
    assert period_of(Per.MONTH, at(2027, 12, 31)) == ("2027-12", at(2028, 1, 1), at(2027, 12, 1))
    assert period_of(Per.EVER, at(2027, 1, 1)) == ("ever", FOREVER, 0)


def test_a_budget_that_names_a_project_stands_in_place_of_the_one_for_all_of_the_same_period() -> None:
    own = Budget(Of.PROJECT, "vision", Per.MONTH, 500)
    every = Budget(Of.PROJECT, "*", Per.MONTH, 100)
    daily = Budget(Of.PROJECT, "*", Per.DAY, 10)
    ada = Budget(Of.USER, "ada", Per.EVER, 7)
    caps = Caps([every, own, daily, ada])
    now = at(2027, 1, 31)
    assert [(cap.key, cap.budget) for cap in caps.on("vision", "ada", now)] == [
        ("project/vision/month/2027-01", own),
        ("project/vision/day/2027-01-31", daily),
        ("user/ada/ever/ever", ada),
    ]
    assert [cap.budget for cap in caps.on("speech", "bob", now)] == [every, daily]
    assert not Caps()
