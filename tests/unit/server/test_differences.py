"""What `spill config diff` says of clusters and budgets: which value becomes which."""

from typing import Any

import pytest
from msgspec import structs

from spillover.model.budget import Budget, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price, Role
from spillover.model.ids import ClusterName
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, MONEY, SECOND
from spillover.server.differences import budget_differences, cluster_differences, queue_differences
from spillover.wire.api import ConfigChange

CLOUD = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=40_000))
LARGE = NodeClass("large", Resources(8000), 1_500_000)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"role": Role.OWNED}, ["role: rented -> owned"]),
        ({"price": Price(cpu_hour=50_000)}, ["price.cpu_hour: 0.04 -> 0.05"]),
        (
            {"price": Price(node=LARGE)},
            ["price.cpu_hour: 0.04 -> 0", "price.node: none -> large at 1.5 an hour"],
        ),
        (
            {"billing": Billing(MINUTE, 90 * SECOND)},
            ["billing.step: 1s -> 1m", "billing.minimum: 0s -> 1m30s"],
        ),
        ({"gangs": True, "startup": MINUTE}, ["gangs: false -> true", "startup: 0s -> 1m"]),
        (
            {"region": "north", "labels": {"room": "1", "net": "ib"}},
            ["region: none -> north", "labels: none -> room=1, net=ib"],
        ),
        ({"runs": ("container", "python")}, ["runs: all -> container, python"]),
        ({"labels": {"note": "x" * 100}}, ["labels"]),
        ({"most": Resources(2000), "most_jobs": 5}, ["limits: none -> 2 CPU", "limits.jobs: none -> 5"]),
    ],
)
def test_a_cluster_says_each_setting_with_its_old_and_new_value(
    changed: dict[str, Any], told: list[str]
) -> None:
    assert cluster_differences(CLOUD, structs.replace(CLOUD, **changed)) == told


def test_budgets_say_which_limit_changes() -> None:
    month = Budget(Of.PROJECT, "vision", Per.MONTH, 500 * MONEY)
    day = Budget(Of.PROJECT, "vision", Per.DAY, 50 * MONEY)
    ada = Budget(Of.USER, "ada", Per.EVER, 1_500_000)
    assert budget_differences([month, day], [structs.replace(month, limit=600 * MONEY), ada]) == [
        ConfigChange("budgets", "changed", "project vision per month: 500 -> 600"),
        ConfigChange("budgets", "added", "user ada per ever: 1.5"),
        ConfigChange("budgets", "removed", "project vision per day: 50"),
    ]
    assert budget_differences([month, day], [day, month]) == []


def test_queues_that_differ_are_named_with_the_settings_that_do() -> None:
    short, gpu = QueueSpec("short", "quick"), QueueSpec("gpu")
    faster = QueueSpec("short", "quick", priority=5, each=QueueLimits(running=2))
    assert list(queue_differences((short, gpu), (faster, QueueSpec("long", "slow")))) == [
        ConfigChange("queue short", "changed", "user_limits, priority"),
        ConfigChange("queue long", "added", "slow"),
        ConfigChange("queue gpu", "removed", "its jobs stay in it without limits"),
    ]
    assert queue_differences((short, gpu), (gpu, short)) == [ConfigChange("queues", "changed", "their order")]
    assert queue_differences((short,), (short,)) == []
