"""Signals: a server stops within five seconds, and its local tasks are stopped or kept as configured."""

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from spillover.client import Client
from spillover.core.events import Back, JobEnded, JobRequeued, JobStarted
from tests.support.processes import ServerProcess, command_lines, processes_of, read_journal, wait_until
from tests.support.tiers import few_of

STOPS_WITHIN = 5.0
CLUSTER = {
    "name": "onprem",
    "kind": "agents",
    "role": "owned",
    "local": [{"name": "n1", "cpu": 4, "memory": "4Gi"}],
}


def runs(client: Client, job: str) -> bool:
    return client.job(job).state == "RUNNING"


@pytest.mark.parametrize("number", few_of(1, [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_stops_the_server_and_its_tasks_within_five_seconds(
    servers: Callable[..., ServerProcess], number: signal.Signals
) -> None:
    server = servers(clusters=[CLUSTER], agents={"on_shutdown": "stop"}).up()
    with server.client() as client:
        [polite] = client.submit(run="sleep 60")
        [stubborn] = client.submit(run="trap '' TERM; echo here; while :; do sleep 1; done")
        wait_until(lambda: {client.job(each).state for each in (polite, stubborn)} == {"RUNNING"}, "running")
        wait_until(lambda: b"".join(client.logs(stubborn)) == b"here\n", "the trap")
        began = time.monotonic()
        assert server.stop(number) == 0
    assert time.monotonic() - began < STOPS_WITHIN
    assert processes_of(server.data) == []
    assert not (server.data / "server.json").exists()
    events = read_journal(server.data)
    assert not [event for event in events if isinstance(event, JobEnded)]
    server.up()
    with server.client() as client:
        for job in (polite, stubborn):
            wait_until(partial(runs, client, job), "running again")
            assert client.job(job).attempt == 2
    server.kill()  # one of its tasks would not be asked; they are ended with what is left of it
    back = [event.why for event in events if isinstance(event, JobRequeued)]
    assert back == [Back.REQUESTED, Back.REQUESTED], "a restart takes nothing from what a job may lose"


def test_ctrl_c_with_clients_that_follow_stops_in_time(servers: Callable[..., ServerProcess]) -> None:
    server = servers(clusters=[CLUSTER]).up()
    with server.client() as client:
        [job] = client.submit(run="while :; do echo line; sleep 0.1; done")
        wait_until(lambda: client.job(job).state == "RUNNING", "running")
    following = [server.start("logs", "-f", job), server.start("events", "-f"), server.start("wait", job)]
    try:
        assert following[0].stdout is not None
        assert following[0].stdout.readline() == "line\n"
        began = time.monotonic()
        assert server.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < STOPS_WITHIN
    finally:
        for each in following:
            each.kill()
            each.communicate()
    assert "Traceback" not in server.last_words()


def test_tasks_that_are_kept_go_on_and_the_next_server_gets_their_results(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers(clusters=[CLUSTER], agents={"on_shutdown": "keep"}).up()
    with server.client() as client:
        ids = client.submit(
            [
                {
                    "apiVersion": "spillover/v1",
                    "kind": "Job",
                    "metadata": {"name": f"until-{name}"},
                    "spec": {"run": f"while [ ! -e {tmp_path / name} ]; do sleep 0.05; done; exit {code}"},
                }
                for name, code in (("during", 3), ("after", 4))
            ]
        )
        wait_until(lambda: {client.job(each).state for each in ids} == {"RUNNING"}, "running")
    [agent] = server.agents()
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < STOPS_WITHIN
    assert server.agents() == [agent]
    (tmp_path / "during").touch()
    wait_until(lambda: not _tasks(server, "during"), "the end of one of them")
    server.up()
    with server.client() as client:
        during, after = ids
        [view] = client.wait(during, timeout=20)
        assert (view.exit_code, view.attempt) == (3, 1)
        assert client.job(after).state == "RUNNING"
        (tmp_path / "after").touch()
        [view] = client.wait(after, timeout=20)
        assert (view.exit_code, view.attempt) == (4, 1)
    assert server.agents() == [agent]
    assert server.stop() == 0
    wait_until(lambda: server.agents() == [agent], "the agent's going on")
    started = [event.job for event in read_journal(server.data) if isinstance(event, JobStarted)]
    assert sorted(started) == sorted(ids)


def _tasks(server: ServerProcess, word: str) -> list[int]:
    """Tasks whose shell was told of a word."""
    return [pid for pid, line in command_lines(server.tasks()).items() if word in line]
