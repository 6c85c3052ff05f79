"""What befalls machines of a real pool: a quota amid a gang, boots that never join, machines that vanish, and another server."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.core.events import (
    Back,
    JobRequeued,
    MachineGone,
    MachineJoined,
    MachineRefused,
    MachinesWanted,
)
from tests.support.clouds.programs import FaultyPrograms, machine_of
from tests.support.pools.real import PATIENCE, a_pool, check, live, states
from tests.support.processes import ServerProcess, await_ends, nothing_left, read_journal, wait_until

pytestmark = pytest.mark.slow

JOBS = 12
"""Of each server, if there are two."""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[FaultyPrograms]:
    made = FaultyPrograms(tmp_path / "cloud")
    yield made
    made.clear()


def every_state(server: ServerProcess) -> set[str]:
    """Return the states of all machines that the server knows, also of those that are no more."""
    with server.client(patience=PATIENCE) as client:
        return {each.state for each in client.pools()[0].machines}


def test_a_quota_amid_a_gang_leaves_no_part_of_it(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    """Two of three machines are made. They are given back, and the gang runs when the quota allows all three."""
    server = servers(**a_pool(cloud, idle="1h")).up()
    cloud.fail(0.2, quota=2)
    with server.client(patience=PATIENCE) as client:
        [gang] = client.submit(run="sleep 0.2", cpu="1", tasks=3)
        wait_until(lambda: "refused" in every_state(server), "the refusal", PATIENCE)
        cloud.fail(quota=2)
        wait_until(lambda: not cloud.there() and not live(server), "the end of the other machines", PATIENCE)
        assert client.job(gang).state == "QUEUED"
        cloud.mend()
        client.resume_pool("cloud")  # rather than wait until its offers open again
        assert client.wait(gang, timeout=PATIENCE)[0].state == "SUCCEEDED"
        client.pause_pool("cloud", end=True)
    wait_until(lambda: not cloud.there() and not live(server), "all being given back", PATIENCE)
    assert server.stop() == 0
    check(server, cloud)
    events = read_journal(server.data)
    orders = [[wish.offer.key for wish in each.wishes] for each in events if isinstance(each, MachinesWanted)]
    assert {(len(keys), len({*keys})) for keys in orders} == {(3, 1)}, "in one zone, all at once"
    refused = [each for each in events if isinstance(each, MachineRefused) and each.cause == "quota"]
    assert refused
    nothing_left(tmp_path)


def test_boots_that_never_join_pause_the_pool_and_who_comes_after_its_end_gets_no_work(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    """The agents start when their machines should be gone, which the cloud is slow to do."""
    server = servers(**a_pool(cloud, max=3, join_within="3s")).up()
    cloud.fail(hold="destroy", sleepy=True)
    with server.client(patience=PATIENCE) as client:
        jobs = [client.submit(run="true", cpu="1")[0] for _ in range(3)]
        wait_until(lambda: client.pools()[0].state == "paused", "the pool being paused", PATIENCE)
        told = "3 machines in a row did not join within 3s"
        assert all(told in server.spill("why", job).stdout for job in jobs)
        assert {*states(server).values()} == {"ending"}
        cloud.wake()
        logs = [cloud.machines / each / "agent.log" for each in cloud.there()]
        wait_until(
            lambda: all("cannot join any more" in log.read_text() for log in logs), "their refusal", PATIENCE
        )
        assert [each.name for each in client.agents()] == []
        assert [client.job(job).state for job in jobs] == ["QUEUED"] * 3
        cloud.mend()
        cloud.go()
        wait_until(lambda: not cloud.there() and not live(server), "the end of all machines", PATIENCE)
        client.resume_pool("cloud")
        for job in jobs:
            assert client.wait(job, timeout=PATIENCE)[0].state == "SUCCEEDED"
        wait_until(lambda: not cloud.there() and not live(server), "all being given back", PATIENCE)
    assert server.stop() == 0
    check(server, cloud)
    joined = {each.machine for each in read_journal(server.data) if isinstance(each, MachineJoined)}
    assert len(joined) == len(jobs)
    assert not joined & {machine_of(log.parent.name) for log in logs}
    nothing_left(tmp_path)


def test_machines_that_vanish_idle_or_busy_are_paid_no_longer_and_their_jobs_run_again(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    server = servers(**a_pool(cloud, idle="1h"), agents={"heartbeat": "500ms"}).up()
    with server.client(patience=PATIENCE) as client:
        script = f"echo begin >>{ran}; until [ -e {gate} ]; do sleep 0.05; done"
        [busy] = client.submit(run=script, cpu="1", retry={"lost": 1})
        [done] = client.submit(run="true", cpu="1")
        client.wait(done, timeout=PATIENCE)
        wait_until(lambda: client.job(busy).state == "RUNNING", "its start", PATIENCE)
        wait_until(lambda: [*states(server).values()] == ["ready"] * 2, "two machines", PATIENCE)
        before = cloud.there()
        for each in before:
            cloud.vanish(each)
        vanished = {machine_of(each) for each in before}
        wait_until(lambda: not vanished & {*live(server)}, "both being missed", PATIENCE)
        wait_until(lambda: ran.read_text() == "begin\n" * 2, "another start", PATIENCE)
        gate.touch()
        assert client.wait(busy, timeout=PATIENCE)[0].state == "SUCCEEDED"
        client.pause_pool("cloud", end=True)
        wait_until(lambda: not cloud.there() and not live(server), "all being given back", PATIENCE)
    assert server.stop() == 0
    check(server, cloud)
    events = read_journal(server.data)
    backs = [each.why for each in events if isinstance(each, JobRequeued)]
    assert backs == [Back.LOST]
    gone = {str(each.machine): each for each in events if isinstance(each, MachineGone)}
    assert sorted(gone[machine].interrupted > 0 for machine in vanished) == [False, True]
    nothing_left(tmp_path)


def test_two_servers_on_one_account_end_only_machines_of_their_own(
    servers: Callable[..., ServerProcess], cloud: FaultyPrograms, tmp_path: Path
) -> None:
    """Their machines have the same names, tags are lost, and one of the servers sweeps."""
    dice = random.Random(20261119)
    both = {}
    for who in ("one", "two"):
        pool = a_pool(cloud, provider={"command": cloud.options(who=who)}, max=3)
        both[who] = servers(folder=tmp_path / who, **pool).up()
    cloud.fail(0.3)
    ran = tmp_path / "ran"
    for who, server in both.items():
        with server.client(patience=PATIENCE) as client:
            for number in range(JOBS):
                line = f"echo {who} {number} >>{ran}; sleep {dice.choice((0.1, 0.5, 2))}"
                client.submit(run=line, cpu="1", key=str(number))
    for _ in range(3):
        time.sleep(1)
        assert both["one"].spill("pools", "sweep").returncode in {0, 1}
    for server in both.values():
        with server.client(patience=PATIENCE) as client:
            assert {*await_ends(client, 2 * PATIENCE).values()} == {"SUCCEEDED"}
    cloud.mend()
    wait_until(lambda: not any(map(live, both.values())), "all being given back", PATIENCE)
    wait_until(lambda: not cloud.there(), "nothing being left", PATIENCE)
    assert {*Counter(ran.read_text().splitlines()).values()} == {1}
    created, destroyed = cloud.asked("create"), cloud.asked("destroy")
    assert created.keys() == {*both}
    assert set.intersection(*[{*map(machine_of, ids)} for ids in created.values()]) >= {"cloud-1", "cloud-2"}
    for who, server in both.items():
        assert destroyed[who] <= created[who], "a machine of the other server"
        assert server.stop() == 0
    nothing_left(tmp_path)
