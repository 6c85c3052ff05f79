"""`kill -9` of the server, again and again, while jobs are submitted and run: nothing acknowledged is lost or done twice."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from spillover.client import Client, Unavailable, Unreachable
from spillover.core.events import EpochStarted, JobEnded, JobState, JobSubmitted
from tests.support.processes import ServerProcess, await_ends, read_journal, wait_until

pytestmark = pytest.mark.slow

JOBS = 5000
CLIENTS = 8
KILLS = 50
EARLY = 6
"""Kills of a server that is still starting."""
NEEDED = 40
"""Kills that must hit with submissions in flight and tasks running."""
BURST = 60
"""Submissions of each life of the server that are made while it is about to be killed."""
CPUS = 32
SEED = 20270131

CLUSTER = {
    "name": "onprem",
    "kind": "agents",
    "role": "owned",
    "local": [{"name": "n1", "cpu": CPUS, "memory": "4Gi"}],
}


class Submitter(threading.Thread):
    """A client that submits its share one by one, each under a key, until each was acknowledged."""

    def __init__(self, number: int, client: Client, run: str, allowed: Callable[[], bool]) -> None:
        super().__init__(name=f"client {number}")
        self._number = number
        self._client = client
        self._run = run
        self._allowed = allowed
        self.acknowledged: dict[str, str] = {}
        """Ids by keys."""
        self.broken: list[float] = []
        """When a submission that had been sent was cut off."""
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with self._client:
                for at in range(JOBS // CLIENTS):
                    self._submit(f"{self._number}-{at}")
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits for this one
            self.failure = error

    def _submit(self, key: str) -> None:
        until = time.monotonic() + 120
        wait_until(self._allowed, "leave to submit", 120, every=0.005)
        while time.monotonic() < until:
            try:
                [job] = self._client.submit(run=self._run, cpu="1", name="stamp", key=key)
            except (Unreachable, Unavailable) as error:
                if isinstance(error, Unreachable) and error.sent:
                    self.broken.append(time.monotonic())
                time.sleep(0.02)
            else:
                self.acknowledged[key] = job
                return
        raise TimeoutError(f"{key} was never acknowledged")


class Pace:
    """Spreads the submissions over the lives of the server: each may take its share of them and a little more."""

    def __init__(self) -> None:
        self.limit = 0
        self.submitters: list[Submitter] = []

    def taken(self) -> int:
        return sum(len(each.acknowledged) for each in self.submitters)

    def reached(self, aim: int) -> bool:
        return self.taken() >= aim

    def allowed(self) -> bool:
        return self.taken() < self.limit


def test_a_server_that_is_killed_50_times_loses_nothing_and_repeats_nothing(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    dice = random.Random(SEED)
    stamps = tmp_path / "stamps"
    server = servers(clusters=[CLUSTER]).up()
    [agent] = wait_until(server.agents, "the agent's start")
    run = f"echo $SPILL_JOB_ID >> {stamps}; sleep 0.2"
    pace = Pace()
    token = (server.data / "token").read_text().strip()
    submitters = [
        Submitter(number, Client(server=server.url, token=token), run, pace.allowed)
        for number in range(CLIENTS)
    ]
    pace.submitters = submitters
    early = set(dice.sample(range(1, KILLS), EARLY))
    hits = 0
    for submitter in submitters:
        submitter.start()
    for kill in range(KILLS):
        share = JOBS * (kill + 1) // KILLS
        if kill in early:
            time.sleep(dice.uniform(0, 0.4))  # some moment of its start
        else:
            if kill:
                server.await_ready()
            pace.limit = share - BURST
            wait_until(server.tasks, "the start of tasks")
            pace.limit = share
            aim = (
                share - BURST + dice.randrange(BURST - 2 * CLIENTS)
            )  # all clients have more to submit by then
            wait_until(partial(pace.reached, aim), "submissions", every=0.001)
        killed = time.monotonic()
        server.kill()
        running = bool(
            server.tasks()
        )  # they outlive the server; to look takes as long as many submissions do
        server.launch()
        time.sleep(0.05)
        cut = any(each.broken and each.broken[-1] >= killed for each in submitters)
        hits += running and cut
    pace.limit = JOBS
    server.await_ready()
    for submitter in submitters:
        submitter.join(120)
        assert submitter.failure is None, submitter.failure
        assert not submitter.is_alive()
    with server.client() as client:
        shown = await_ends(client)
    assert server.agents() == [agent], "the agent was not adopted by every server"
    assert server.stop() == 0
    assert hits >= NEEDED, f"only {hits} kills hit with submissions in flight and tasks running"

    acknowledged = {job for each in submitters for job in each.acknowledged.values()}
    assert len(acknowledged) == JOBS
    events = read_journal(server.data)
    submitted = Counter(event.job for event in events if isinstance(event, JobSubmitted))
    ended = Counter(event.job for event in events if isinstance(event, JobEnded))
    assert submitted == dict.fromkeys(acknowledged, 1)
    assert ended == dict.fromkeys(acknowledged, 1)
    assert {event.state for event in events if isinstance(event, JobEnded)} == {JobState.SUCCEEDED}
    assert shown == dict.fromkeys(acknowledged, "SUCCEEDED")
    assert Counter(stamps.read_text().split()) == dict.fromkeys(acknowledged, 1)
    epochs = [event.epoch for event in events if isinstance(event, EpochStarted)]
    assert epochs == sorted(set(epochs))
