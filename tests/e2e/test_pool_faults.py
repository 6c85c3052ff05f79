"""Pools of real servers whose cloud fails and who die themselves.

Each wish is one machine, none is left, and jobs run once. Machines cost no more than was held for them, a paused pool
orders nothing, and a fixed load comes to rest.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.stores.store import TERM
from tests.support.clouds.programs import FaultyPrograms
from tests.support.pools.real import PATIENCE, a_pool, check, live, running, states
from tests.support.processes import (
    ServerProcess,
    await_ends,
    command_lines,
    nothing_left,
    processes_of,
    wait_until,
)

pytestmark = pytest.mark.slow

JOBS = 40
KILLS = 5
QUIET = 15.0
"""Seconds in which nothing may happen: many times as long as an empty machine stays, and as a machine boots."""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[FaultyPrograms]:
    made = FaultyPrograms(tmp_path / "cloud")
    yield made
    made.clear()


def creating(cloud: FaultyPrograms) -> bool:
    """Return whether a machine is being created."""
    told = command_lines(processes_of(cloud.folder)).values()
    return any("programs.py create" in each for each in told)


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
    assert cloud.calls("create") <= 12 * len(check(server, cloud))
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
    assert len(check(server, cloud)) <= len(jobs)


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
    assert check(second, cloud) == ["cloud-1"]
    assert not processes_of(cloud.folder)


def test_a_paused_pool_asks_for_no_machine_whatever_it_had_ordered(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    """Not again either, for machines whose orders got no answer, and not by the server that comes after."""
    server = servers(**a_pool(cloud)).up()
    cloud.fail(0.7)
    with server.client(patience=PATIENCE) as client:
        jobs = [client.submit(run="sleep 1", cpu="1", key=f"{each}")[0] for each in range(8)]
        wait_until(lambda: cloud.calls("create") >= 4, "orders under way", PATIENCE)
        client.pause_pool("cloud")
        wait_until(lambda: not creating(cloud), "the end of the orders under way", PATIENCE)
        asked = cloud.calls("create")
        jobs += [client.submit(run="sleep 1", cpu="1", key=f"late {each}")[0] for each in range(4)]
        server.kill()
        server.up()
        time.sleep(QUIET)
        assert cloud.calls("create") == asked
        (pool,) = client.pools()
        assert pool.state == "paused"
        cloud.mend()
        client.resume_pool("cloud")
        for job in jobs:
            assert client.wait(job, timeout=2 * PATIENCE)[0].state == "SUCCEEDED"
    wait_until(
        lambda: not live(server) and not cloud.there(), "all machines having been given back", PATIENCE
    )
    assert server.stop() == 0
    check(server, cloud)
    nothing_left(tmp_path)


def test_a_fixed_load_comes_to_rest_after_faults(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    """The pool has as many machines as it may have, and more jobs wait. Nothing is created or ended any more."""
    gate = tmp_path / "gate"
    server = servers(**a_pool(cloud, max=3)).up()
    cloud.fail(0.4)
    with server.client(patience=PATIENCE) as client:
        for each in range(5):
            client.submit(run=f"until [ -e {gate} ]; do sleep 0.2; done", cpu="1", key=str(each))
        wait_until(lambda: running(server) == 3, "work on all machines", 2 * PATIENCE, 0.2)
        cloud.mend()

        def settled() -> bool:
            return [*states(server).values()] == ["ready"] * 3 and len(cloud.there()) == 3

        wait_until(settled, "the end of what faults have left", 2 * PATIENCE, 0.2)
        before = states(server), cloud.there(), cloud.calls("create"), cloud.calls("destroy")
        time.sleep(QUIET)
        assert (states(server), cloud.there(), cloud.calls("create"), cloud.calls("destroy")) == before
        assert running(server) == 3
        gate.touch()
        assert {*await_ends(client, PATIENCE).values()} == {"SUCCEEDED"}
    wait_until(
        lambda: not live(server) and not cloud.there(), "all machines having been given back", PATIENCE
    )
    assert server.stop() == 0
    check(server, cloud)
    nothing_left(tmp_path)


def test_a_budget_pays_for_all_machines_while_the_cloud_fails_and_servers_die(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    """It pays for three machines for an hour each, and each costs an hour."""
    gate = tmp_path / "gate"
    server = servers(
        **a_pool(cloud, max=8, budget={"per": "ever", "limit": 0.35}, billing={"step": "1h"})
    ).up()
    cloud.fail(0.3)
    with server.client(patience=PATIENCE) as client:
        for each in range(6):
            client.submit(run=f"until [ -e {gate} ]; do sleep 0.2; done", cpu="1", key=str(each))
        for _ in range(2):
            wait_until(lambda: cloud.calls("create") >= 2, "orders under way", PATIENCE)
            server.kill()
            server.up()
        wait_until(lambda: running(server) == 3, "work on three machines", 2 * PATIENCE, 0.2)
        cloud.mend()
        queued = [job.id for job in client.jobs() if job.state == "QUEUED"]
        reasons = [client.why(job).reason for job in queued]
        assert [each and each.code for each in reasons] == ["pool_out_of_money"] * 3
        gate.touch()
        assert {*await_ends(client, PATIENCE).values()} == {"SUCCEEDED"}
        wait_until(
            lambda: not live(server) and not cloud.there(), "all machines having been given back", PATIENCE
        )
        (pool,) = client.pools()
        assert pool.budget_left == pytest.approx(0.05)
        [late] = client.submit(run="true", cpu="1")
        wait_until(lambda: client.why(late).reason, "why it waits")
        told = client.why(late).reason
        assert told is not None
        assert told.code == "pool_out_of_money"
    assert server.stop() == 0
    check(server, cloud, 0.35)
    assert len(cloud.made()) == 3
    nothing_left(tmp_path)
