"""Every route: what is decoded, which command is called, what is encoded."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest

from spillover.api.http import build_app
from spillover.control.past import past_job
from spillover.ports.commands import JobQuery
from spillover.testing.stores import a_finished
from spillover.wire.api import FileView, PastJob
from tests.support.commands import FakeCommands
from tests.support.http import TOKEN


def doc(name: str = "train", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"run": "true", **spec},
    }


@pytest.fixture
def commands() -> FakeCommands:
    return FakeCommands()


@pytest.fixture
async def http(commands: FakeCommands) -> AsyncIterator[httpx.AsyncClient]:
    async def figures() -> bytes:
        return b"spill_tests_total 1.0\n"

    transport = httpx.ASGITransport(build_app(commands, TOKEN, figures))
    async with httpx.AsyncClient(
        transport=transport,
        base_url="http://localhost",
        headers={"Authorization": f"Bearer {TOKEN}", "Spill-User": "ada"},
    ) as client:
        yield client


async def test_one_job_is_submitted_by_its_user(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    answer = await http.post("/v1/jobs", json=doc())
    assert answer.status_code == 201
    (job,) = answer.json()["jobs"]
    assert commands.all[job].user == "ada"
    assert answer.headers["cache-control"] == "no-store"


async def test_many_jobs_keep_their_order(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    names = [f"j{at}" for at in range(1200)]
    answer = await http.post("/v1/jobs", json={"jobs": [doc(name) for name in names]})
    assert [commands.all[job].name for job in answer.json()["jobs"]] == names
    assert commands.calls == ["submit 1200 by ada"]


async def test_jobs_need_not_be_the_first_field(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/jobs", content=b' { "jobs" : [] }')
    assert answer.status_code == 400
    assert answer.json()["problems"] == [{"path": "jobs", "message": "is empty; give at least one job"}]


async def test_a_kubernetes_job_can_be_submitted(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "perl", "command": ["perl"]}]}}},
    }
    answer = await http.post("/v1/jobs", json={"jobs": [manifest, doc()]})
    assert answer.status_code == 201, answer.text
    assert [commands.all[job].name for job in answer.json()["jobs"]] == ["pi", "train"]


async def test_a_forecast_submits_nothing(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    answer = await http.post("/v1/forecast", json=doc("a"))
    assert answer.json()["jobs"][0]["name"] == "a"
    assert not commands.all


async def test_a_listing_goes_on_where_its_cursor_points(http: httpx.AsyncClient) -> None:
    ids = (await http.post("/v1/jobs", json={"jobs": [doc(f"j{at}") for at in range(5)]})).json()["jobs"]
    first = (await http.get("/v1/jobs", params={"limit": 3})).json()
    second = (await http.get("/v1/jobs", params={"limit": 3, "cursor": first["next"]})).json()
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids[::-1]
    assert second["next"] is None


async def test_a_listing_takes_every_filter(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    since = datetime(2027, 1, 31, 18, tzinfo=UTC)
    query = {
        "state": "QUEUED",
        "project": "p",
        "user": "ada",
        "name": "n",
        "since": since.isoformat(),
        "limit": "7",
        "members": "true",
    }
    assert (await http.get("/v1/jobs", params=query)).json() == {"jobs": [], "next": None}
    since_ns = int(since.timestamp()) * 10**9
    expected = JobQuery("QUEUED", "p", "ada", "n", since_ns, 7, None, True)
    assert commands.calls == [f"jobs {expected}"]


async def test_a_job_is_shown_explained_changed_and_stopped(
    http: httpx.AsyncClient, commands: FakeCommands
) -> None:
    (job,) = (await http.post("/v1/jobs", json=doc())).json()["jobs"]
    shown = (await http.get("/v1/jobs/train")).json()
    assert (shown["id"], shown["spec"]["spec"]["run"]) == (job, "true")
    assert (await http.get(f"/v1/jobs/{job}/why")).json()["reason"]["code"] == "fresh"
    assert (await http.patch(f"/v1/jobs/{job}", json={"priority": 7})).json() == {"jobs": [job]}
    assert commands.all[job].priority == 7
    answer = await http.post("/v1/actions", json={"act": "cancel", "jobs": [job[:5]]})
    assert answer.json() == {"jobs": [job]}
    assert (await http.get(f"/v1/jobs/{job}/wait", params={"timeout": 0})).json()["state"] == "CANCELLED"
    assert commands.calls[-2:] == ["cancel by ada", f"wait {job}"]


async def test_a_wait_that_is_over_answers_with_the_job_as_it_is(http: httpx.AsyncClient) -> None:
    await http.post("/v1/jobs", json=doc())
    assert (await http.get("/v1/jobs/train/wait", params={"timeout": "0"})).json()["state"] == "QUEUED"


async def test_output_is_sent_as_it_was_written(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    await http.post("/v1/jobs", json=doc())
    await commands.write("train", bytes(range(256)) * 1000)
    await commands.write("train", b"oh", stderr=True)
    answer = await http.get("/v1/jobs/train/logs", params={"offset": 256, "attempt": 2, "task": 1})
    assert answer.content == bytes(range(256)) * 999
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (await http.get("/v1/jobs/train/logs", params={"stream": "stderr"})).content == b"oh"
    assert "output train attempt=2 task=1 offset=256" in commands.calls


async def test_history_is_lines_of_json(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    (job,) = (await http.post("/v1/jobs", json=doc())).json()["jobs"]
    await commands.happen("agent_lost")
    await commands.end(job)
    answer = await http.get("/v1/events")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert len(answer.text.splitlines()) == 3
    assert len((await http.get("/v1/events", params={"after": 1, "job": job})).text.splitlines()) == 1


async def test_jobs_that_ended_are_lines_of_json(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    commands.ended = [past_job(a_finished("aaaaaaaaaaaa")), past_job(a_finished("bbbbbbbbbbbb", 2))]
    answer = await http.get("/v1/past", params={"since": "1970-01-01T00:00:01Z"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [msgspec.json.decode(line, type=PastJob) for line in answer.content.splitlines()] == commands.ended
    assert commands.calls[-1] == "past 1000000000 None None"
    wrong = await http.get("/v1/past", params={"ended_since": "tomorrow"})
    assert wrong.status_code == 400
    assert wrong.json()["problems"][0]["path"] == "ended_since"


@pytest.mark.parametrize(
    "path", ["/v1/clusters", "/v1/agents", "/v1/server", "/v1/policy", "/v1/policy/history"]
)
async def test_what_there_is_can_be_listed(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.json()


async def test_policies_are_set_by_who_asks(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    answer = await http.patch("/v1/policy", json={"policy": "wait=zero"})
    assert (answer.status_code, answer.json()["done"]) == (200, True)
    assert (await http.patch("/v1/policy", json={"policy": None, "dry_run": True})).json()["done"] is False
    assert commands.calls == ["set policy wait=zero by ada", "set policy None by ada"]
    for body in ({}, {"policy": 3}, {"policy": "x" * 10_001}, {"policy": None, "more": 1}):
        assert (await http.patch("/v1/policy", json=body)).status_code == 400


async def test_figures_are_in_the_form_of_prometheus(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics")
    assert "spill_tests_total 1.0" in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")


async def test_health_and_readiness_need_no_token(http: httpx.AsyncClient, commands: FakeCommands) -> None:
    del http.headers["Authorization"]
    assert (await http.get("/v1/health")).json() == {"status": "ok", "message": None}
    assert (await http.get("/v1/ready")).status_code == 200
    commands.missing = "the disk is full"
    answer = await http.get("/v1/ready")
    assert (answer.status_code, answer.json()["message"]) == (503, "the disk is full")
    assert (await http.get("/v1/health")).status_code == 200


async def test_files_that_a_job_brought_back_are_listed(
    http: httpx.AsyncClient, commands: FakeCommands
) -> None:
    (job,) = (await http.post("/v1/jobs", json=doc())).json()["jobs"]
    commands.brought[job] = [FileView("out/a", "0" * 64, 3, executable=True)]
    answer = await http.get(f"/v1/jobs/{job}/files", params={"attempt": 2})
    assert answer.json() == {
        "job": job,
        "attempt": 2,
        "attempts": [1],
        "files": [{"path": "out/a", "digest": "0" * 64, "size": 3, "executable": True}],
    }
    assert commands.calls[-1] == f"files {job} attempt=2"
    assert (await http.get("/v1/jobs/none/files")).status_code == 404
    assert (await http.get(f"/v1/jobs/{job}/files", params={"attempt": 0})).status_code == 400
