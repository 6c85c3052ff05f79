"""Agents on wires of their own that are killed, stopped, cut off and slowed, and a server that is killed, while short jobs run."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from spillover.client import Client
from spillover.client.errors import Unavailable, Unreachable
from spillover.core.events import JobEnded, JobState
from tests.support.far_agents import CPUS, ROUND, Chaos, Far, leases, set_up, stop_all
from tests.support.processes import ServerProcess, read_journal, wait_until
from tests.support.wires import Wires

JOBS = int(os.environ.get("CHAOS_JOBS", "20000"))
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
AGENTS = 4
LASTS = ROUND
"""Seconds over which jobs come and faults happen."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def submit(client: Client, first: int, last: int) -> list[str]:
    """Submit some jobs; said again under the same keys, they are the same."""
    spec = {"run": "true", "retry": {"lost": 50}}
    documents = [
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "metadata": {"name": "short"},
            "spec": spec | {"key": f"short-{number}"},
        }
        for number in range(first, last)
    ]
    try:
        return list(client.submit(documents)) if documents else []
    except (Unreachable, Unavailable):
        return []  # whoever waited here could not start the server again


@pytest.mark.parametrize("wires", [AGENTS], indirect=True)
def test_no_job_is_lost_or_doubled_while_agents_wires_and_servers_fail(
    servers: Callable[..., ServerProcess], wires: Wires, far_agents: list[Far], tmp_path: Path
) -> None:
    agents = far_agents
    server = set_up(servers, wires, agents, tmp_path)
    with ExitStack() as stack:
        client = stack.enter_context(server.client(patience=60))
        chaos = Chaos(server, agents, wires, random.Random(SEED))
        begun, jobs = time.monotonic(), list[str]()
        hasty = stack.enter_context(server.client())
        while len(jobs) < JOBS or not chaos.over:
            second = time.monotonic() - begun
            chaos.due(second)
            upto = min(JOBS, int(JOBS * second / LASTS))
            jobs += submit(hasty, len(jobs), min(upto, len(jobs) + 500))
            time.sleep(0.05)
        assert len(chaos.happened) == 5, chaos.happened
        wait_until(lambda: not (at := client.server()).queued + at.running, "the end of all jobs", 300, 0.5)

        # Quiet, and not idle: the book and what really runs are the same.
        long = client.submit(
            [
                {
                    "apiVersion": "spillover/v1",
                    "kind": "Job",
                    "metadata": {"name": "long"},
                    "spec": {"run": "exec sleep 600", "grace": "0s"},
                }
            ]
            * (AGENTS * CPUS)
        )
        wait_until(lambda: client.server().running == len(long), "all long jobs", 60)
        wait_until(
            lambda: leases(client) == {agent.name: agent.tasks() for agent in agents}, "agreement", 30, 0.5
        )
        assert sum(leases(client).values()) == AGENTS * CPUS
        for job in long:
            client.cancel(job)
        wait_until(lambda: not any(leases(client).values()), "the end of all leases", 60, 0.5)
        wait_until(lambda: not any(agent.tasks() for agent in agents), "the end of all tasks", 30)

    stop_all(server, agents)
    ended = [event for event in read_journal(server.data) if isinstance(event, JobEnded)]
    results = Counter(event.job for event in ended)
    assert set(jobs) <= results.keys()
    assert len(set(jobs)) == JOBS
    assert not [job for job, count in results.items() if count != 1]
    assert {event.state for event in ended if event.job in set(jobs)} == {JobState.SUCCEEDED}
