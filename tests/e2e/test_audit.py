"""The audit of a real server: kept when the server is killed, when jobs and events are gone, and for as long as configured."""

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spillover.client import Client, NoEffect
from tests.support.processes import ServerProcess, wait_until

CLUSTERS = [{"name": "onprem", "local": [{"name": "n1", "cpu": 2}]}]


def told(server: ServerProcess, *options: str) -> list[dict[str, Any]]:
    """What `spill audit` prints as JSON."""
    typed = server.spill("audit", *options, "--json")
    assert (typed.returncode, typed.stderr) == (0, ""), typed
    found: list[dict[str, Any]] = json.loads(typed.stdout)
    return found


def words(entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["user"], each["type"]) for each in entries]


def test_the_audit_tells_who_did_what_and_when_also_after_a_crash(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers(clusters=CLUSTERS).up()
    ada, bob = (Client(data=tmp_path / "data", user=name) for name in ("ada", "bob"))
    with ada, bob:
        (job,) = ada.submit(run="sleep 600", name="train")
        (later,) = ada.submit(run="true", name="later", hold=True)
        (short,) = ada.submit(run="true", name="short")
        assert [each.state for each in ada.wait(short)] == ["SUCCEEDED"]
        between = datetime.now(UTC).isoformat()
        with pytest.warns(NoEffect):  # the order of this server is `fifo`
            bob.set_priority(later, 3)
        bob.cancel(job)
        bob.wait(job)
    server.kill()
    server.up()
    (own,) = [each for each in told(server, "--user", "bob") if each["type"] == "job_stopping"]
    assert (own["job"], own["project"], own["text"]) == (job, "default", "stop requested by bob (cancel)")
    whole = told(server)
    assert [each["revision"] for each in whole] == sorted((each["revision"] for each in whole), reverse=True)
    assert {each["type"] for each in whole}.isdisjoint({"decided", "epoch_started", "job_started"})
    early, late = told(server, "--until", between), told(server, "--since", between)
    assert [*late, *early] == whole
    assert words(early) == [("ada", "job_submitted")] * 3
    assert {user for user, _ in words(late)} == {"bob"}
    assert ("bob", "job_reprioritised") in words(
        told(server, "--since", between, "--user", "bob", "--job", "later")
    )
    typed = server.spill("audit", "--type", "job_submitted", "--csv")
    assert [row["text"] for row in csv.DictReader(typed.stdout.splitlines())] == [
        "ada submitted short",
        "ada submitted later, held",
        "ada submitted train",
    ]
    assert told(server, "--user", "eve") == []


def test_the_audit_outlives_jobs_and_events_and_ends_with_its_own_retention(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers(clusters=CLUSTERS).up()
    with server.client() as client:
        (job,) = client.submit(run="true", name="short")
        client.wait(job)
    before = told(server)
    assert words(before)[-1][1] == "job_submitted"
    assert server.stop() == 0

    server = servers(clusters=CLUSTERS, retention={"jobs": "1ms", "events": "1ms"}).up()
    with server.client() as client:
        wait_until(lambda: next(client.events(0, follow=False)).revision > 1, "deletion of old events")
        wait_until(lambda: not list(client.jobs()), "deletion of the job")
    assert told(server) == before
    assert told(server, "--job", job) == before
    assert server.stop() == 0

    server = servers(clusters=CLUSTERS, retention={"audit": "1ms"}).up()
    wait_until(lambda: told(server) == [], "the end of the audit")
