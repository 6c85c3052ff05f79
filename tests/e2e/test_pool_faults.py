"""Pools of real servers whose cloud fails and who die themselves: each wish is one machine, none is left, and jobs run once."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.core.events import MachinesWanted
from spillover.stores.store import TERM
from tests.support.clouds.programs import FaultyPrograms
from tests.support.processes import (
    ServerProcess,
    await_ends,
    nothing_left,
    processes_of,
    read_journal,
    wait_until,
)

pytestmark = pytest.mark.slow

JOBS = 40
KILLS = 5
PATIENCE = 90.0


@pytest.fixture
def cloud(tmp_path: Path) -> FaultyPrograms:
    return FaultyPrograms(tmp_path / "cloud")


def a_pool(cloud: FaultyPrograms, **changes: Any) -> dict[str, Any]:
    offer = {"type": "small", "cpu": 1, "memory": "256Mi", "hour": 0.1, "zones": [*"abcdefgh"]}
    pool = {
        "provider": {"command": cloud.options()},
        "offers": [offer],
        "max": 4,
        "boot": "1s",
        "idle": "2s",
        "alone_for": "0s",  # these machines are this machine
    }
    return {
        "clusters": [{"name": "cloud", "role": "rented", "pool": pool | changes}],
        "policy": {"wait": "zero"},
    }


def wishes(data: Path) -> list[str]:
    """Return the machines that were wanted."""
    events = [each for each in read_journal(data) if isinstance(each, MachinesWanted)]
    return [wish.machine for event in events for wish in event.wishes]


def live(server: ServerProcess) -> list[str]:
    with server.client(patience=PATIENCE) as client:
        (pool,) = client.pools()
        return [each.id for each in pool.machines if each.state not in {"gone", "refused"}]


def test_jobs_run_once_and_no_machine_is_left_while_the_cloud_fails_and_servers_die(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    dice = random.Random(20261118)
    server = servers(**a_pool(cloud)).up()
    cloud.fail(0.3)
    ran = tmp_path / "ran"
    with server.client(patience=PATIENCE) as client:
        for number in range(JOBS):
            script = (
                f"echo begin {number} >>{ran}; sleep {dice.choice((0.1, 0.5, 2))}; echo end {number} >>{ran}"
            )
            client.submit(run=script, cpu="1", key=str(number))
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.5, 3))
        server.kill()
        server.up()
    with server.client(patience=PATIENCE) as client:
        assert {*await_ends(client, 2 * PATIENCE).values()} == {"SUCCEEDED"}
    lines = Counter(ran.read_text().splitlines())
    assert {line: count for line, count in lines.items() if count != 1} == {}
    assert len(lines) == 2 * JOBS
    cloud.mend()
    wait_until(
        lambda: not live(server) and not cloud.there(), "all machines having been given back", PATIENCE
    )
    assert server.stop() == 0
    assert cloud.calls("create") <= 12 * len(wishes(server.data))
    nothing_left(tmp_path)


def test_a_cloud_that_answers_nothing_gets_few_calls_and_then_does_its_work(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms
) -> None:
    server = servers(**a_pool(cloud)).up()
    cloud.fail(down=True)
    before = cloud.calls()
    with server.client() as client:
        jobs = [client.submit(run="true", cpu="1")[0] for _ in range(8)]
        wait_until(lambda: cloud.calls("create") >= 3, "calls that fail", PATIENCE)
        time.sleep(10)
        assert cloud.calls() - before <= 4 + 3 * 6, "several calls of a kind at a time, or without pauses"
        (pool,) = client.pools()
        assert [each.state for each in pool.machines if each.state != "wanted"] == []
        cloud.mend()
        for job in jobs:
            assert client.wait(job, timeout=PATIENCE)[0].state == "SUCCEEDED"
    wait_until(lambda: not cloud.there(), "all machines having been given back", PATIENCE)
    assert server.stop() == 0
    assert len(wishes(server.data)) <= len(jobs)


def test_the_late_order_of_an_old_leader_makes_no_machine_that_stays(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    """It is stopped while its order is under way. The next leader orders the same machine, and ends it."""
    data, pool = tmp_path / "data", a_pool(cloud)
    first = servers(folder=tmp_path / "one", data=data, **pool).up()
    second = servers("--standby", folder=tmp_path / "two", data=data, **pool)
    second.launch()
    wait_until(lambda: "standing by" in second.last_words(), "standing by")
    cloud.fail(hold="create")
    with first.client() as client:
        [job] = client.submit(run="true", cpu="1")
    wait_until(lambda: cloud.calls("create") == 1, "the order being under way")
    first.pause()
    cloud.mend()
    second.await_ready(TERM + 15)
    (machine,) = wait_until(cloud.there, "the next leader ordering the machine", PATIENCE)
    with second.client(patience=PATIENCE) as client:
        client.cancel(job)
        assert second.spill("pools", "pause", "cloud", "--end").returncode == 0
        wait_until(lambda: not live(second) and not cloud.there(), "the machine having been ended", PATIENCE)
        cloud.go()
        assert wait_until(cloud.there, "the late order making its machine") == [machine]
        swept = second.spill("pools", "sweep")  # rather than wait for the next listing
        assert machine in swept.stdout, swept
        wait_until(lambda: not cloud.there(), "that machine having been found and ended", PATIENCE)
    first.resume()
    assert first.await_end() == 2
    assert second.stop() == 0
    assert wishes(data) == ["cloud-1"]
    assert not processes_of(cloud.folder)
