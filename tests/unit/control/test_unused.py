"""What jobs ask for and will not get is told, and nothing else."""

import pytest

from spillover.control.requests.unused import ignored_priority
from spillover.core.proposals import Configure
from spillover.model.policy import Choice, PolicySet
from spillover.model.queues import QueueSpec
from tests.support.inside import form
from tests.support.served import served

NO_FILE = "`open_mode` has no effect without `stdout` or `stderr`; there is only the log"
LABEL = (
    "queue 'gpu' is only a label, because this server has no named queues; "
    "an admin can set them under `queues` in spill.yaml"
)


def in_vain(field: str) -> str:
    return f"`{field}` has no effect on jobs that are never rented; remove it, or `burst: never`"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, []),
        ({"priority": 5}, [ignored_priority("fifo")]),
        ({"queue": "default"}, []),
        ({"queue": "gpu", "priority": -1}, [LABEL, ignored_priority("fifo")]),
        ({"max_cost": 5, "data": "1G"}, []),
        ({"max_cost": 5, "data": "1G", "burst": "never"}, [in_vain("max_cost"), in_vain("data")]),
        ({"max_cost": 5, "where": {"role": "owned"}}, [in_vain("max_cost")]),
        ({"open_mode": "append"}, [NO_FILE]),
        ({"open_mode": "append", "stderr": "err"}, []),
    ],
)
async def test_each_thing_that_has_no_effect_is_told_once(fields: dict[str, object], told: list[str]) -> None:
    async with served() as inside:
        loop = inside.control.loop
        await loop.propose(Configure("root", PolicySet(order=Choice("fifo"))))
        assert inside.commands.without_effect([form("a", **fields), form("b", **fields)]) == told
        forecasts = await inside.commands.forecast([form("a", **fields)], "ada")
        assert forecasts.warnings == told


async def test_priorities_and_queues_that_count_are_not_told() -> None:
    async with served() as inside:
        loop = inside.control.loop
        order = PolicySet(order=Choice("priority"))
        await loop.propose(Configure("root", order, queues=(QueueSpec("gpu", default=True),)))
        assert inside.commands.without_effect([form("a", queue="gpu", priority=5)]) == []
