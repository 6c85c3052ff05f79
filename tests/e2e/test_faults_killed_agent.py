"""`kill -9` of the agent while its tasks run: a task may be started again, but every job ends with one result."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from spillover.core.events import Back, JobEnded, JobRequeued, JobState
from spillover.model.ids import JobId
from tests.support.processes import ServerProcess, await_ends, processes_of, read_journal, wait_until

pytestmark = pytest.mark.slow

JOBS = 1500
KILLS = 20
SEED = 20270201

CLUSTER = {
    "name": "onprem",
    "kind": "agents",
    "role": "owned",
    "local": [{"name": "n1", "cpu": 16, "memory": "4Gi"}],
}


def another(server: ServerProcess, agent: int) -> bool:
    """Whether another agent than this one lives."""
    return bool(server.agents()) and agent not in server.agents()


def test_an_agent_that_is_killed_20_times_is_started_again_and_every_job_ends_once(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    dice = random.Random(SEED)
    stamps = tmp_path / "stamps"
    server = servers(clusters=[CLUSTER]).up()
    document = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": "stamp"},
        "spec": {
            "run": f"echo $SPILL_JOB_ID >> {stamps}; sleep 0.2",
            "resources": {"cpu": 1},
            "retry": {"lost": 50},
        },
    }
    hits = 0
    with server.client() as client:
        jobs = client.submit([document] * JOBS)
        for _ in range(KILLS):
            wait_until(server.tasks, "the start of tasks")
            time.sleep(dice.uniform(0, 0.6))
            hits += bool(server.tasks())
            [agent] = wait_until(server.agents, "the next agent")
            os.kill(agent, signal.SIGKILL)
            wait_until(partial(another, server, agent), "a new agent")
        assert client.server().queued, "all jobs ended before the last kill: there are too few of them"
        assert await_ends(client) == dict.fromkeys(jobs, "SUCCEEDED")
    assert server.stop() == 0
    assert hits >= KILLS * 4 // 5
    events = read_journal(server.data)
    assert Counter(event.job for event in events if isinstance(event, JobEnded)) == dict.fromkeys(jobs, 1)
    assert {event.state for event in events if isinstance(event, JobEnded)} == {JobState.SUCCEEDED}
    started = Counter(stamps.read_text().split())
    assert started.keys() == set(jobs)
    again = Counter(event.job for event in events if isinstance(event, JobRequeued))
    assert any(event.why is Back.LOST for event in events if isinstance(event, JobRequeued))
    extra = {job: count - 1 for job, count in started.items() if count > 1}
    assert all(count <= again[JobId(job)] for job, count in extra.items()), "started again without being lost"


def test_the_tasks_of_a_killed_agent_are_gone_before_the_next_one_begins(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(clusters=[CLUSTER]).up()
    with server.client() as client:
        [job] = client.submit(run="trap '' TERM; sleep 60 & wait; sleep 60", grace="0s")
        # Its start is known: an agent that dies before it told, or noted, a start gives the lease back as one that never began.
        wait_until(lambda: client.job(job).state == "RUNNING" and len(server.tasks()) > 1, "task and child")
        first = server.tasks()
        [agent] = wait_until(server.agents, "the next agent")
        os.kill(agent, signal.SIGKILL)
        wait_until(lambda: client.job(job).attempt == 2 and client.job(job).state == "RUNNING", "attempt 2")
        assert not set(first) & set(processes_of(server.data))
        client.cancel(job)
        client.wait(job, timeout=30)
