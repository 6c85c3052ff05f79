"""`spill logs` while servers are killed and jobs move: every line arrives, once and in order."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.client import Client
from tests.support.processes import ServerProcess, wait_until

LINES = 40
NODES: dict[str, Any] = {
    "name": "onprem",
    "kind": "agents",
    "role": "owned",
    "local": [
        {"name": "n1", "cpu": 2, "memory": "1Gi", "queue": 0},
        {"name": "n2", "cpu": 2, "memory": "1Gi", "queue": 0},
    ],
}


def counting(gate: Path) -> str:
    """A script that counts to half of its lines, and on once a file is there."""
    return (
        f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo $SPILL_ATTEMPT:$i; "
        f"if [ $i = {LINES // 2} ]; then while [ ! -e {gate} ]; do sleep 0.05; done; fi; done"
    )


def lines(attempt: int, count: int = LINES) -> list[str]:
    """What it prints."""
    return [f"{attempt}:{i}" for i in range(1, count + 1)]


def read_until(following: "subprocess.Popen[str]", line: str) -> list[str]:
    """Lines that are printed up to one."""
    assert following.stdout is not None
    got: list[str] = []
    while not got or got[-1] != line:
        text = following.stdout.readline()
        assert text, f"it ended after {got}"
        got.append(text.strip())
    return got


def rest(following: "subprocess.Popen[str]") -> list[str]:
    """Lines up to the end, which is a good one."""
    out, err = following.communicate(timeout=60)
    assert (following.returncode, err) == (0, "")
    return out.split()


def running(client: Client, job: str, attempt: int = 1) -> None:
    """Return once an attempt runs."""
    wait_until(
        lambda: (now := client.job(job)).attempt == attempt and now.state == "RUNNING", f"attempt {attempt}"
    )


@pytest.mark.parametrize("together", [True, False])
def test_a_killed_server_costs_followers_no_line(
    servers: Callable[..., ServerProcess], tmp_path: Path, together: bool
) -> None:
    server = servers("--slots", "2").up()
    with server.client() as client:
        [job] = client.submit(run=counting(tmp_path / "go"))
    follower = server.start("logs", "-f", job)
    try:
        before = read_until(follower, f"1:{LINES // 2}")
        server.kill()
        if not together:
            (tmp_path / "go").touch()  # the rest is written while no server is there
        server.up()
        late = server.start("logs", "-f", job)
        try:
            (tmp_path / "go").touch()
            assert before + rest(follower) == lines(1)
            assert rest(late) == lines(1)
        finally:
            late.kill()
            late.communicate()
    finally:
        follower.kill()
        follower.communicate()


def test_following_goes_on_with_the_next_attempt_also_after_a_restart(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers("--slots", "2").up()
    with server.client() as client:
        [job] = client.submit(run=counting(tmp_path / "go"))
        follower = server.start("logs", "-f", job)
        try:
            first = read_until(follower, f"1:{LINES // 2}")
            client.requeue(job)
            first += read_until(follower, f"2:{LINES // 2}")
            server.kill()
            server.up()
            (tmp_path / "go").touch()
            assert first + rest(follower) == lines(1, LINES // 2) + lines(2)
        finally:
            follower.kill()
            follower.communicate()


def test_output_of_an_earlier_attempt_is_found_wherever_it_ran(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers(clusters=[NODES], policy={"order": "priority"}).up()
    with server.client() as client:
        wait_until(lambda: len(client.agents()) == 2, "both agents")
        [job] = client.submit(run=counting(tmp_path / "go"), cpu=2)
        running(client, job)
        first = client.job(job).node
        [other] = client.submit(run="sleep 60", cpu=2)
        running(client, other)
        [urgent] = client.submit(run="sleep 60", cpu=2, priority=10)
        wait_until(lambda: b"".join(client.logs(job)).count(b"\n") == LINES // 2, "half of the output")
        client.requeue(job)
        running(client, urgent)
        assert client.job(job).state == "QUEUED"
        for options in ([], ["--attempt", "1"]):
            assert server.spill("logs", job, *options).stdout.split() == lines(1, LINES // 2)
        refused = server.spill("logs", job, "--attempt", "3")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"{job} has no attempt 3 yet" in refused.stderr
        (tmp_path / "go").touch()
        client.cancel(other)
        assert client.wait(job, timeout=30)[0].state == "SUCCEEDED"
        assert client.job(job).node != first
        assert server.spill("logs", job, "--attempt", "1").stdout.split() == lines(1, LINES // 2)
        assert server.spill("logs", job).stdout.split() == lines(2)
        client.cancel(urgent)
        client.wait(other, urgent, timeout=30)


def test_a_reader_who_stops_reading_keeps_no_other_of_the_agent_waiting(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers("--slots", "2").up()
    count = 5_000_000  # more than all buffers on the way take
    with server.client() as client:
        [job] = client.submit(run=f"seq {count}")
        stalled = client.logs(job, follow=True)
        first = next(stalled)
        other = server.start("logs", "-f", job)
        try:
            numbers = rest(other)
        finally:
            other.kill()
            other.communicate()
        whole = [str(i) for i in range(1, count + 1)]
        is_whole = numbers == whole  # never to be shown
        assert is_whole
        is_whole = (first + b"".join(stalled)).decode().split() == whole
        assert is_whole
