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
SPREAD = 60
"""By how many submissions the time of a kill varies."""
SHORT, LONG = 0.2, 3.0
"""Seconds that a task takes. One in ten is long, so that some run whenever the server dies."""
CPUS = 64
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
                    self._submit(f"{self._number}-{at}", LONG if at % 10 == 0 else SHORT)
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits for this one
            self.failure = error

    def _submit(self, key: str, seconds: float) -> None:
        until = time.monotonic() + 120
        wait_until(self._allowed, "leave to submit", 120, every=0.005)
        while time.monotonic() < until:
            try:
                [job] = self._client.submit(run=f"{self._run} {seconds}", cpu="1", name="stamp", key=key)
            except (Unreachable, Unavailable) as error:
                if isinstance(error, Unreachable) and error.sent:
                    self.broken.append(time.monotonic())
                time.sleep(0.02)
            else:
                self.acknowledged[key] = job
                return
        raise TimeoutError(f"{key} was never acknowledged")


class Pace:
    """Spreads the submissions over the lives of the server: each takes its share, and what is in flight when it dies."""

    def __init__(self) -> None:
        self.limit = 0
        self.submitters: list[Submitter] = []

    def taken(self) -> int:
        return sum(len(each.acknowledged) for each in self.submitters)

    def reached(self, aim: int) -> bool:
        return self.taken() >= aim

    def allowed(self) -> bool:
        return self.taken() < self.limit


def cut_after(killed: float, submitters: list[Submitter]) -> bool:
    """Whether a submission was in flight at that time; its client may notice a moment later."""
    until = killed + 1
    while time.monotonic() < until:
        if any(each.broken and each.broken[-1] >= killed for each in submitters):
            return True
        time.sleep(0.005)
    return False


def test_a_server_that_is_killed_50_times_loses_nothing_and_repeats_nothing(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    dice = random.Random(SEED)
    stamps = tmp_path / "stamps"
    server = servers(clusters=[CLUSTER]).up()
    [agent] = wait_until(server.agents, "the agent's start")
    run = f"echo $SPILL_JOB_ID >> {stamps}; sleep"
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
        share = JOBS * (kill + 1) // (KILLS + 1)  # the clients have jobs left at the last kill
        if kill in early:
            time.sleep(dice.uniform(0, 0.4))  # some moment of its start
        else:
            if kill:
                server.await_ready()
            pace.limit = share - SPREAD
            wait_until(server.tasks, "the start of tasks")
            # No client pauses between submissions once it noticed this, so some are in flight whenever the kill comes.
            pace.limit = JOBS
            aim = share - dice.randrange(SPREAD - CLIENTS)
            wait_until(partial(pace.reached, aim), "submissions", every=0.001)
        killed = time.monotonic()
        server.kill()
        running = bool(server.tasks())  # they outlive the server
        pace.limit = share
        server.launch()
        hits += running and cut_after(killed, submitters)
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
