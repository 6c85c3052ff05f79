"""The journal of a real server, replayed: `spill replay` makes the plans that were stored, and sees what was changed."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

from spillover.core.events import AnyEvent, Decided, EpochStarted, JobPlaced, MemberPlaced, PolicyChanged
from spillover.model.ids import NodeName
from spillover.ports.journal import Batch
from spillover.stores.open import open_store
from spillover.wire.journal import encode_event
from tests.support.processes import ServerProcess, await_ends, read_journal, wait_until

CLUSTERS: list[dict[str, Any]] = [
    {"name": "onprem", "role": "owned", "local": [{"name": "n1", "cpu": 2, "memory": "1Gi"}]},
    {
        "name": "cloud",
        "role": "rented",
        "local": [{"name": "v1", "cpu": 2, "memory": "1Gi"}],
        "price": {"cpu_hour": 1},
    },
]
POLICY = {"wait": {"constant": {"wait": "300ms"}}, "order": "fair_share"}


def a_job(name: str, run: str = "sleep 0.2", **spec: object) -> str:
    doc = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": name, "project": name[0]},
        "spec": {"run": run, **spec},
    }
    return json.dumps(doc)


def typed(server: ServerProcess, *words: str, into: str | None = None) -> str:
    done = server.spill(*words, typed=into)
    assert done.returncode == 0, done.stderr
    return done.stdout


def both_clusters(server: ServerProcess) -> None:
    wait_until(
        lambda: all(one["agents"] for one in json.loads(typed(server, "clusters", "--json"))), "both clusters"
    )


def write_down(events: list[AnyEvent], data: Path) -> None:
    """A journal of these events."""

    async def write() -> None:
        store = await open_store("sqlite", data)
        try:
            epoch = await store.election.campaign("test", "http://test")
            assert isinstance(epoch, int)
            await store.journal.append(0, Batch(0, tuple(map(encode_event, events))), epoch)
        finally:
            await store.close()

    asyncio.run(write())


def test_a_journal_of_a_real_server_is_replayed_and_one_changed_event_is_seen(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers(clusters=CLUSTERS, policy=POLICY).up()
    both_clusters(server)
    reserve = ("reserve", "--cluster", "onprem", "--all", "--ignore-jobs")
    typed(server, *reserve, "--start", "+3h", "--for", "1h", "--maintenance", "--name", "down")
    typed(server, *reserve, "--start", "now", "--for", "2s", "--project", "a", "--name", "course")
    typed(server, "submit", "-", into="\n---\n".join(a_job(f"{project}1") for project in "abab"))
    typed(server, "submit", "-", into=a_job("many", "true", array="1-12"))
    typed(server, "submit", "-", into=a_job("held"))
    typed(server, "submit", "-", into=a_job("huge", needs=["nobody"]))
    typed(server, "hold", "huge")
    typed(server, "policy", "set", "wait=zero,backfill=easy,order=priority")
    typed(server, "submit", "-", into=a_job("late", "sleep 0.1", priority=3))
    meanwhile = json.loads(typed(server, "replay", "--json"))
    assert meanwhile["same"]
    assert meanwhile["plans"] > 0

    server.kill()
    server.up()
    both_clusters(server)
    kept = [each["name"] for each in json.loads(typed(server, "reservations", "--json"))]
    assert "down" in kept, "a reservation outlives a killed server"
    typed(server, "policy", "set", "backfill=strict,place=spread,wait=constant(100ms)")
    typed(
        server, "submit", "-", into="\n---\n".join(a_job(f"c{number}", "sleep 0.05") for number in range(6))
    )
    typed(server, "cancel", "huge")
    with server.client() as client:
        await_ends(client, 60)
    assert server.stop() == 0

    events = read_journal(server.data)
    assert {EpochStarted, Decided, JobPlaced, MemberPlaced, PolicyChanged} <= {type(each) for each in events}
    view = json.loads(typed(server, "replay", "--json"))
    plans = sum(type(each) is Decided for each in events)
    assert view == {"first": 1, "last": len(events), "plans": plans, "same": True, "difference": None}
    said = typed(server, "replay")
    assert said == f"events 1 to {len(events)}: {plans} plans, all equal to the stored ones\n"

    at, placed = next(
        (at, each)
        for at, each in enumerate(events)
        if isinstance(each, JobPlaced) and each.cluster == "onprem"
    )
    changed = tmp_path / "changed"
    write_down([*events[:at], structs.replace(placed, node=NodeName("n9")), *events[at + 1 :]], changed)
    done = server.spill("replay", "--data", str(changed))
    assert done.returncode == 1
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"event {at + 1}, at ")
    assert first.endswith(": job_placed is not part of the plan before it")
    assert f"  {placed.job} on {placed.cluster}/n9 (room_owned)" in rest
    assert f"  {placed.job} on {placed.cluster}/{placed.node} (room_owned)" in rest


def test_a_journal_that_is_not_there_is_one_line(server: ServerProcess, tmp_path: Path) -> None:
    done = server.spill("replay", "--data", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert done.stderr == f"spill: there is no data in {tmp_path / 'nowhere'}\n"
    assert not (tmp_path / "nowhere").exists()
