"""`spill set` on a real server with a real agent: what waits, and the walltime of what runs."""

import time
from collections.abc import Iterator

import pytest

from tests.support.processes import ServerProcess, wait_until, write_config


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with one machine of two CPUs."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": "n1", "cpu": 2, "memory": "1Gi"}]
    clusters = [{"name": "onprem", "kind": "agents", "local": local}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, agents={"heartbeat": "500ms"}))
    try:
        server.up()
        with server.client() as client:
            wait_until(client.agents, "the registration of the agent")
        yield server
    finally:
        server.clear()


def submitted(lab: ServerProcess, *words: str) -> str:
    done = lab.spill("run", "--detach", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def runs(lab: ServerProcess, *jobs: str) -> None:
    with lab.client() as client:
        wait_until(lambda: all(client.job(job).state == "RUNNING" for job in jobs), "the start")


def test_the_walltime_of_running_tasks_becomes_shorter_and_longer(lab: ServerProcess) -> None:
    shorter = submitted(lab, "--walltime", "1h", "--grace", "1s", "--", "sleep", "600")
    longer = submitted(lab, "--walltime", "4s", "--", "sleep", "6")
    runs(lab, shorter, longer)
    assert lab.spill("set", longer, "--walltime", "1m").returncode == 0
    began = time.monotonic()
    assert lab.spill("set", shorter, "--walltime", "1s").returncode == 0
    with lab.client() as client:
        (ended, lived) = client.wait(shorter, longer, timeout=60)
        assert (ended.state, lived.state) == ("TIMED_OUT", "SUCCEEDED")
        told = [event.text for event in client.events(0, follow=False, job=longer)]
    assert time.monotonic() - began < 50
    assert any(text.endswith(": walltime 1m") for text in told)


def test_what_waits_is_changed_and_what_cannot_be_is_told_in_one_line(lab: ServerProcess) -> None:
    busy = submitted(lab, "--cpu", "2", "--", "sleep", "600")
    runs(lab, busy)
    job = submitted(lab, "--name", "first", "--cpu", "2", "--", "true")
    done = lab.spill(
        "set", job, "--name", "second", "--cpu", "1", "--walltime", "2m", "--after", busy + ":any"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with lab.client() as client:
        found = client.job("second")
    assert (found.id, found.state, found.resources["cpu"], found.walltime_s) == (job, "HELD", 1.0, 120.0)
    refused = lab.spill("set", busy, "--cpu", "1")
    assert refused.returncode == 2
    assert refused.stderr == f"spill: {busy} is RUNNING, so only its walltime can be changed, not resources\n"
    assert lab.spill("set", job, "--walltime", "soon").stderr.startswith(
        "spill: --walltime: 'soon' is not a duration"
    )
    assert lab.spill("set", "second", "--no-after").returncode == 0
    assert lab.spill("cancel", busy).returncode == 0
    assert lab.spill("wait", job).returncode == 0
