"""A pool with spot machines that are taken back: jobs lose no retries, and go on demand after two interruptions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.core.events import JobRequeued, MachineGone, MachineNoticed, MachinesWanted
from tests.support.clouds.programs import FaultyPrograms
from tests.support.metadata import metadata_service
from tests.support.processes import ServerProcess, nothing_left, read_journal, wait_until

pytestmark = pytest.mark.slow

NOTICE = b'{"action": "terminate", "time": "2100-01-01T00:00:00Z"}'
OFFER = {"type": "small", "cpu": 1, "memory": "256Mi"}
OFFERS = [{**OFFER, "hour": 0.03, "spot": True}, {**OFFER, "hour": 0.1}]
ON_SPOT, ON_DEMAND = "small/spot", "small/on-demand"
NO_RETRIES = {"exit": 0, "lost": 0}


def a_pool(provider: dict[str, Any], **changes: Any) -> dict[str, Any]:
    pool = {"provider": provider, "offers": OFFERS, "max": 2, "boot": "1s", "idle": "1s", "alone_for": "0s"}
    return {
        "clusters": [{"name": "cloud", "role": "rented", "pool": pool | changes}],
        "policy": {"wait": "zero", "unknown_runtime": "1m"},
        "agents": {"heartbeat": "500ms"},
    }


def ordered(server: ServerProcess) -> list[str]:
    """Return the offers of all machines that were ordered."""
    wanted = [each for each in read_journal(server.data) if isinstance(each, MachinesWanted)]
    return [
        f"{wish.offer.type}/{wish.offer.key.rpartition('/')[2]}" for each in wanted for wish in each.wishes
    ]


def test_a_notice_stops_the_job_in_order_and_the_third_machine_is_on_demand(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    cloud, gate, said = FaultyPrograms(tmp_path / "cloud"), tmp_path / "gate", tmp_path / "said"
    with metadata_service() as metadata:
        agent = ["--notices", "ec2", "--metadata", metadata.url]
        server = servers(**a_pool({"command": cloud.options(agent=agent)})).up()
        run = f"trap 'echo term >>{said}; exit 9' TERM; echo begin >>{said}; until [ -e {gate} ]; do sleep 0.05; done"
        with server.client() as client:
            [job] = client.submit(run=run, cpu="1", retry=NO_RETRIES)
            for times in (1, 2):

                def interrupted(times: int = times) -> bool:
                    return client.job(job).interruptions == times

                wait_until(lambda: client.job(job).state == "RUNNING", f"attempt {times}", 40)
                metadata.notice = NOTICE
                wait_until(interrupted, "its interruption", 40)
                metadata.notice = b""
            wait_until(lambda: client.job(job).state == "RUNNING", "the last attempt", 40)
            gate.touch()
            (ended,) = client.wait(job, timeout=40)
            assert (ended.state, ended.attempt, client.job(job).interruptions) == ("SUCCEEDED", 3, 2)
        wait_until(lambda: not cloud.there(), "all machines having been given back", 40)
    assert server.stop() == 0
    assert said.read_text().split() == ["begin", "term", "begin", "term", "begin"]
    assert ordered(server) == [ON_SPOT, ON_SPOT, ON_DEMAND]
    events = read_journal(server.data)
    noticed = [each.machine for each in events if isinstance(each, MachineNoticed)]
    assert noticed == ["cloud-1", "cloud-2"]
    assert sum(isinstance(each, JobRequeued) for each in events) == 2
    nothing_left(tmp_path)


def test_machines_that_are_taken_back_without_notice_cost_no_retries_either(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    """The provider takes spot machines back when it is asked for a list, so that the test asks."""
    gate = tmp_path / "gate"
    server = servers(**a_pool({"process": {"spot_for": "3s"}})).up()
    with server.client() as client:
        [job] = client.submit(run=f"until [ -e {gate} ]; do sleep 0.05; done", cpu="1", retry=NO_RETRIES)
        for times in (1, 2):
            wait_until(lambda: client.job(job).state == "RUNNING", f"attempt {times}", 40)

            def interrupted(times: int = times) -> bool:
                assert server.spill("pools", "sweep").returncode == 0
                return client.job(job).interruptions == times

            wait_until(interrupted, "its interruption", 40, 0.3)
        wait_until(lambda: client.job(job).state == "RUNNING", "the last attempt", 40)
        gate.touch()
        (ended,) = client.wait(job, timeout=40)
        assert (ended.state, ended.attempt, client.job(job).interruptions) == ("SUCCEEDED", 3, 2)
    wait_until(lambda: not [each for each in machines(server) if each != "gone"], "all being given back", 40)
    assert server.stop() == 0
    assert ordered(server) == [ON_SPOT, ON_SPOT, ON_DEMAND]
    gone = [each for each in read_journal(server.data) if isinstance(each, MachineGone)]
    assert [each.interrupted > 0 for each in gone] == [True, True, False]
    nothing_left(server.data)


def machines(server: ServerProcess) -> list[str]:
    with server.client() as client:
        (pool,) = client.pools()
        return [each.state for each in pool.machines]
