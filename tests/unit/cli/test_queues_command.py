"""`spill queues`: the named queues as a table."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from spillover.control.views.queues import queue_views
from spillover.core.apply import apply
from spillover.core.events import QueuesConfigured
from spillover.core.state import State
from spillover.model.queues import QueueLimits, QueueSize, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from spillover.wire.api import QueueView

QUEUES = (
    QueueSpec(
        "short", "quick", default=True, each=QueueLimits(running=10, queued=99), walltime=HOUR, priority=5
    ),
    QueueSpec(
        "gpu",
        total=QueueLimits(resources=Resources(64_500, 2**40, 8)),
        size=QueueSize(gpu=4, tasks=1),
        projects=("vision",),
        users=("ann",),
        clusters=("onprem", "lab"),
    ),
)


@pytest.fixture
def queues() -> list[QueueView]:
    state = State()
    apply(state, QueuesConfigured(QUEUES))
    return queue_views(state)


def test_queues_are_a_table(client: Any, spill: Callable[..., Any], queues: list[QueueView]) -> None:
    client.queues = lambda: queues
    title, short, gpu = (line.split("  ") for line in spill("queues").out.splitlines())
    assert [word.strip() for word in title if word] == [
        *(
            "QUEUE",
            "RUNNING",
            "QUEUED",
            "LIMITS",
            "EACH USER",
            "EACH JOB",
            "PRIORITY",
            "ALLOWED",
            "DESCRIPTION",
        )
    ]
    assert [word.strip() for word in short if word] == [
        *("short (default)", "0", "0", "-", "10 running, 99 queued", "1h", "+5", "all", "quick")
    ]
    assert [word.strip() for word in gpu if word] == [
        *("gpu", "0", "0", "64.5 CPU, 1Ti, 8 GPU", "-", "4 GPU, 1 task", "-"),
        *("project vision, user ann, on onprem or lab", "-"),
    ]
    assert json.loads(spill("queues", "--json").out) == msgspec.to_builtins(queues)


def test_jobs_of_a_queue_that_is_not_there_are_no_question(
    client: Any, spill: Callable[..., Any], queues: list[QueueView]
) -> None:
    client.queues = lambda: queues
    client.known = []
    for words in (("ls", "--queue", "gqu"), ("ls", "--queue", "gqu", "--json")):
        code, out, err = spill(*words)
        assert (code, out) == (2, "")
        assert "there is no queue 'gqu'; the queues are short, gpu" in err
    assert spill("ls", "--queue", "gpu") == (0, "", "spill: no jobs\n")
    client.queues = list
    assert spill("ls", "--queue", "gqu") == (0, "", "spill: no jobs\n"), "queues are labels there"


def test_a_server_without_queues_says_where_to_set_them(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("queues") == (0, "", "spill: no queues; set them under `queues` in spill.yaml\n")
    assert spill("queues", "--json").out == "[]\n"
