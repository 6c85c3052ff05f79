"""Every route: what is decoded, which command is called, what is encoded."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from spillover.api.http import build_app
from spillover.model.files import File
from spillover.model.notifications import Mail, Notifications, Webhook
from spillover.wire.api import EventView, PastJob
from tests.support.http import TOKEN
from tests.support.served import Served, served


def doc(name: str = "train", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"run": "true", **spec},
    }


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


@pytest.fixture
async def http(inside: Served) -> AsyncIterator[httpx.AsyncClient]:
    async def figures() -> bytes:
        return b"spill_tests_total 1.0\n"

    transport = httpx.ASGITransport(build_app(inside.commands, TOKEN, figures))
    async with httpx.AsyncClient(
        transport=transport,
        base_url="http://localhost",
        headers={"Authorization": f"Bearer {TOKEN}", "Spill-User": "ada"},
    ) as client:
        yield client


async def test_one_job_is_submitted_by_its_user(http: httpx.AsyncClient, inside: Served) -> None:
    answer = await http.post("/v1/jobs", json=doc())
    assert answer.status_code == 201
    (job,) = answer.json()["jobs"]
    assert inside.jobs[job].user == "ada"
    assert answer.headers["cache-control"] == "no-store"


async def test_a_secret_is_set_listed_and_removed_and_no_answer_has_its_value(
    http: httpx.AsyncClient, inside: Served
) -> None:
    body = {"name": "db", "project": "vision", "value": "hunter2", "users": ["ada"]}
    made = await http.put("/v1/secrets", json=body)
    assert made.status_code == 200
    assert (made.json()["version"], made.json()["set_by"]) == (1, "ada")
    again = await http.put("/v1/secrets", json={"name": "db", "project": "vision", "data": "aHVudGVyMg=="})
    assert (again.json()["version"], again.json()["users"]) == (2, ["ada"])
    listed = await http.get("/v1/secrets", params={"project": "vision"})
    assert [each["name"] for each in listed.json()] == ["db"]
    assert (await http.post("/v1/secrets/rekey")).json() == {"secrets": 0}
    events = await http.get("/v1/events", params={"after": 0})
    assert '"secret_set"' in events.text
    gone = await http.post("/v1/secrets/remove", json={"name": "db", "project": "vision"})
    assert gone.json() == {"name": "db", "project": "vision"}
    unknown = await http.post("/v1/secrets/remove", json={"name": "db", "project": "vision"})
    assert unknown.status_code == 404
    wrong = await http.put("/v1/secrets", json=body | {"value": 7})
    inside.keys.there = []
    keyless = await http.put("/v1/secrets", json=body)
    assert (wrong.status_code, keyless.status_code) == (400, 409)
    assert not any("hunter2" in each.text for each in (made, again, listed, events, gone, wrong, keyless))


async def test_notifications_are_listed_sent_again_and_dropped(
    http: httpx.AsyncClient, inside: Served
) -> None:
    hook = Webhook("chat", "https://chat.example.org/", "secret", projects=("vision",))
    inside.settings.now = Notifications((hook,))
    made = (await http.post("/v1/notifications/test", json={"to": "chat"})).json()["ids"]
    then = (await http.post("/v1/notifications/test", json={"to": "chat"})).json()["ids"]
    listed = (await http.get("/v1/notifications", params={"limit": 1})).json()
    assert listed["channels"] == [{"channel": "webhook/chat", "waiting": 2, "failed": 0}]
    (first,) = listed["notifications"]
    assert (first["state"], first["kind"], first["tries"], first["error"]) == ("waiting", "test", 0, None)
    assert first["text"] == "ada tries whether notifications arrive; they do"
    (second,) = (await http.get("/v1/notifications", params={"cursor": listed["next"]})).json()[
        "notifications"
    ]
    assert {first["id"], second["id"]} == {*made, *then}
    (message,) = await inside.control.store.outbox.some(made)
    await inside.control.store.outbox.change(
        [replace(message, failed=True, error="no answer")], inside.control.loop.epoch
    )
    failed = (await http.get("/v1/notifications", params={"failed": "true"})).json()["notifications"]
    assert [(each["id"], each["state"], each["error"]) for each in failed] == [(*made, "failed", "no answer")]
    again = await http.post("/v1/notifications/actions", json={"act": "retry", "failed": True})
    assert again.json() == {"ids": made}
    assert (await http.get("/v1/notifications?failed=true")).json()["notifications"] == []
    gone = await http.post("/v1/notifications/actions", json={"act": "drop", "ids": then})
    assert gone.json() == {"ids": then}
    unknown = await http.post("/v1/notifications/actions", json={"act": "drop", "ids": then})
    assert unknown.status_code == 404
    assert "there is no notification" in unknown.json()["detail"]
    for wrong in (
        {"act": "drop"},
        {"act": "drop", "ids": made, "failed": True},
        {"act": "send", "ids": made},
    ):
        assert (await http.post("/v1/notifications/actions", json=wrong)).status_code == 400
    for to, told in (
        ("pager", "there is no webhook 'pager'; webhooks: chat"),
        ("a@b.c", "this server sends no mail; set notifications.mail"),
    ):
        answer = await http.post("/v1/notifications/test", json={"to": to})
        assert (answer.status_code, answer.json()["detail"]) == (400, told)


async def test_jobs_name_only_whom_they_may_and_are_told_of_mail_that_is_not_sent(
    http: httpx.AsyncClient, inside: Served
) -> None:
    hook = Webhook("chat", "https://chat.example.org/", "secret", projects=("vision",))
    inside.settings.now = Notifications((hook,))

    def job(project: str, *notify: str) -> dict[str, object]:
        metadata, spec = {"name": "a", "project": project}, {"run": "true", "notify": [*notify]}
        return {"apiVersion": "spillover/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    async def refused(document: dict[str, object]) -> str:
        answer = await http.post("/v1/jobs", json=document)
        assert answer.status_code == 400
        return str(answer.json()["detail"])

    assert (await http.post("/v1/jobs", json=job("vision", "end:chat"))).json().get("warnings", []) == []
    assert (
        await refused(job("film", "end:chat"))
        == "a: notify: jobs of project film may not name webhook 'chat'; they may name: none"
    )
    assert (
        await refused(job("vision", "end:pager"))
        == "a: notify: there is no webhook 'pager' that jobs of project vision may name; they may name: chat"
    )
    (warning,) = (await http.post("/v1/jobs", json=job("vision", "a@b.c"))).json()["warnings"]
    assert warning.startswith("this server sends no mail, so `notify` tells nobody by mail")
    inside.settings.now = Notifications(mail=Mail("s", "spill@b.c", domains=("b.c",)))
    assert (await http.post("/v1/jobs", json=job("vision", "a@b.c"))).json().get("warnings", []) == []
    assert (
        await refused(job("vision", "a@evil.com"))
        == "a: notify: jobs may not send mail to a@evil.com; this server allows addresses of b.c"
    )


async def test_reservations_are_listed_with_their_nodes_and_times(
    http: httpx.AsyncClient, inside: Served
) -> None:
    await http.patch("/v1/policy", json={"policy": "backfill=easy,wait=never"})
    assert (await http.get("/v1/reservations")).json() == []
    await inside.agent(cpus=4)
    estimated = {"resources": {"cpu": 3}, "estimate": "1h"}
    await http.post("/v1/jobs", json={"jobs": [doc("first", **estimated), doc("second", **estimated)]})
    (kept,) = (await http.get("/v1/reservations")).json()
    assert (kept["kind"], kept["name"], kept["cluster"], kept["nodes"]) == (
        "backfill",
        "second",
        "onprem",
        ["n1"],
    )
    assert kept["job"] in inside.jobs
    assert kept["project"] == "default"
    span = datetime.fromisoformat(kept["end"]) - datetime.fromisoformat(kept["start"])
    assert span.total_seconds() == 3600


async def test_nodes_are_reserved_listed_and_given_back(http: httpx.AsyncClient, inside: Served) -> None:
    await inside.agent(cpus=4)
    asked = {"start": "+1h", "length": "2h", "nodes": 1, "project": "physics", "name": "course"}
    tried = (await http.post("/v1/reservations", json={**asked, "dry_run": True})).json()
    assert (tried["kind"], tried["nodes"]) == ("advance", ["n1"])
    assert (await http.get("/v1/reservations")).json() == []
    made = (await http.post("/v1/reservations", json=asked)).json()
    assert (made["name"], made["by"], made["missing"]) == ("course", "ada", [])
    (listed,) = (await http.get("/v1/reservations")).json()
    assert listed == made
    twice = await http.post("/v1/reservations", json={**asked, "start": "+9h"})
    assert twice.status_code == 409
    down = {"start": "+2h", "length": "2h", "all": True, "maintenance": True, "cluster": "onprem"}
    refused = await http.post("/v1/reservations", json=down)
    assert refused.status_code == 409
    assert "reserved as course" in refused.json()["detail"]
    assert "the earliest other time is" in refused.json()["detail"]
    gone = await http.post("/v1/reservations/cancel", json={"name": "course"})
    assert gone.json() == {"name": "course"}
    assert (await http.post("/v1/reservations/cancel", json={"name": "course"})).status_code == 404
    assert (await http.post("/v1/reservations", json=down)).json()["kind"] == "maintenance"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nodes": 9}, "has only 1 ready node; you ask for 9"),
        ({"within": "rack"}, "has no level 'rack'; it has node"),
        ({"cluster": "nowhere"}, "there is no cluster nowhere; known clusters: onprem"),
        ({"needs": ["gpu"]}, "has no ready node with gpu; you ask for 1"),
        ({"start": "2020-01-31T09:00:00Z"}, "is in the past"),
        ({"start": "+9999d"}, "too far ahead"),
        ({"start": "soon"}, "start: "),
        ({"length": "0s"}, "length: "),
        ({"length": "-2h"}, "length: "),
        ({"project": "a b"}, "is not a valid name"),
        ({"name": "../x"}, "is not a valid name"),
        ({"maintenance": True}, "set either `project`"),
        ({"project": None}, "set either `project`"),
        ({"all": True}, "set exactly one of"),
        ({"nodes": None}, "set exactly one of"),
        ({"nodes": None, "names": ["n7"], "cluster": "onprem"}, "has no node n7; it has n1"),
        ({"nodes": 0}, "nodes"),
    ],
)
async def test_a_reservation_that_makes_no_sense_is_refused_with_what_there_is(
    http: httpx.AsyncClient, inside: Served, change: dict[str, Any], told: str
) -> None:
    await inside.agent(cpus=4)
    asked = {"start": "now", "length": "2h", "nodes": 1, "project": "physics", "cluster": "onprem", **change}
    answer = await http.post("/v1/reservations", json=asked)
    assert answer.status_code == 400, answer.text
    assert told in answer.text


async def test_many_jobs_keep_their_order(http: httpx.AsyncClient, inside: Served) -> None:
    names = [f"j{at}" for at in range(1200)]
    answer = await http.post("/v1/jobs", json={"jobs": [doc(name) for name in names]})
    assert [inside.jobs[job].name for job in answer.json()["jobs"]] == names
    assert {job.user for job in inside.jobs.values()} == {"ada"}


async def test_jobs_need_not_be_the_first_field(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/jobs", content=b' { "jobs" : [] }')
    assert answer.status_code == 400
    assert answer.json()["problems"] == [{"path": "jobs", "message": "is empty; give at least one job"}]


async def test_a_kubernetes_job_can_be_submitted(http: httpx.AsyncClient, inside: Served) -> None:
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "perl", "command": ["perl"]}]}}},
    }
    answer = await http.post("/v1/jobs", json={"jobs": [manifest, doc()]})
    assert answer.status_code == 201, answer.text
    assert [inside.jobs[job].name for job in answer.json()["jobs"]] == ["pi", "train"]


async def test_a_forecast_submits_nothing(http: httpx.AsyncClient, inside: Served) -> None:
    answer = await http.post("/v1/forecast", json=doc("a"))
    assert answer.json()["jobs"][0]["name"] == "a"
    assert not inside.jobs


async def test_a_listing_goes_on_where_its_cursor_points(http: httpx.AsyncClient) -> None:
    ids = (await http.post("/v1/jobs", json={"jobs": [doc(f"j{at}") for at in range(5)]})).json()["jobs"]
    first = (await http.get("/v1/jobs", params={"limit": 3})).json()
    second = (await http.get("/v1/jobs", params={"limit": 3, "cursor": first["next"]})).json()
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids[::-1]
    assert second["next"] is None


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, "late array held train"),
        ({"state": "HELD"}, "held"),
        ({"project": "vision"}, "train"),
        ({"user": "eve"}, "held"),
        ({"name": "array"}, "array"),
        ({"since": "2027-01-15T08:00:01Z"}, "late"),
        ({"limit": "2"}, "late array"),
        ({"state": "QUEUED", "project": "vision", "user": "ada", "name": "train", "limit": "7"}, "train"),
        ({"state": "HELD", "user": "ada"}, ""),
        ({"state": "HELD,QUEUED"}, "late array held train"),
        ({"state": "HELD,RUNNING,FAILED"}, "held"),
        ({"queue": "gpu"}, "train"),
    ],
)
async def test_a_listing_takes_every_filter(
    http: httpx.AsyncClient, inside: Served, query: dict[str, str], found: str
) -> None:
    train = doc("train")
    train["metadata"]["project"] = "vision"
    train["spec"]["queue"] = "gpu"
    await http.post("/v1/jobs", json=train)
    await http.post("/v1/jobs", json=doc("held"), headers={"Spill-User": "eve"})
    await http.post("/v1/actions", json={"act": "hold", "jobs": ["held"]})
    await http.post("/v1/jobs", json=doc("array", array="1-3"))
    inside.control.clock.pass_by(60)
    await http.post("/v1/jobs", json=doc("late"))
    listed = (await http.get("/v1/jobs", params=query)).json()["jobs"]
    assert " ".join(job["name"] for job in listed) == found


async def test_a_listing_has_members_of_arrays_for_whoever_asks(
    http: httpx.AsyncClient, inside: Served
) -> None:
    await inside.agent(cpus=2)
    (array,) = (await http.post("/v1/jobs", json=doc("array", array="1-2"))).json()["jobs"]
    for query, found in (({}, {array}), ({"members": "true"}, {array, f"{array}.1", f"{array}.2"})):
        listed = (await http.get("/v1/jobs", params=query)).json()["jobs"]
        assert {job["id"] for job in listed} == found


async def test_a_job_is_shown_explained_changed_and_stopped(http: httpx.AsyncClient, inside: Served) -> None:
    (job,) = (await http.post("/v1/jobs", json=doc())).json()["jobs"]
    shown = (await http.get("/v1/jobs/train")).json()
    assert (shown["id"], shown["spec"]["spec"]["run"]) == (job, "true")
    why = (await http.get(f"/v1/jobs/{job}/why")).json()
    assert why["reason"] == shown["reason"]
    assert why["sentence"].startswith(f"{job} ")
    changed = (await http.patch(f"/v1/jobs/{job}", json={"priority": 7})).json()
    assert changed["jobs"] == [job]
    assert "the priority has no effect" in changed["warnings"][0]  # under `fifo`
    assert inside.jobs[job].priority == 7
    answer = await http.post("/v1/actions", json={"act": "cancel", "jobs": [job[:5]]})
    assert answer.json() == {"jobs": [job]}
    ended = (await http.get(f"/v1/jobs/{job}/wait", params={"timeout": 0})).json()
    assert (ended["state"], ended["reason"]["message"]) == ("CANCELLED", "cancelled by ada")


async def test_a_wait_that_is_over_answers_with_the_job_as_it_is(http: httpx.AsyncClient) -> None:
    await http.post("/v1/jobs", json=doc())
    assert (await http.get("/v1/jobs/train/wait", params={"timeout": "0"})).json()["state"] == "QUEUED"


async def test_output_is_sent_as_it_was_written(http: httpx.AsyncClient, inside: Served) -> None:
    agent = await inside.agent()
    (job,) = (await http.post("/v1/jobs", json=doc())).json()["jobs"]
    await agent.write(job, bytes(range(256)) * 1000)
    await agent.write(job, b"oh", stderr=True)
    answer = await http.get("/v1/jobs/train/logs", params={"offset": 256, "attempt": 1, "task": 0})
    assert answer.content == bytes(range(256)) * 999
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (await http.get("/v1/jobs/train/logs", params={"stream": "stderr"})).content == b"oh"
    for what, number in (("attempt", 2), ("task", 1)):
        answer = await http.get("/v1/jobs/train/logs", params={what: number})
        assert answer.status_code == 404
        assert what in answer.json()["detail"]


async def test_history_is_lines_of_json(http: httpx.AsyncClient, inside: Served) -> None:
    agent = await inside.agent()
    (job,) = (await http.post("/v1/jobs", json=doc())).json()["jobs"]
    before = inside.control.loop.gate.durable
    await inside.happen("something else")
    await agent.end(job)
    answer = await http.get("/v1/events")
    assert answer.headers["content-type"] == "application/x-ndjson"
    events = [msgspec.json.decode(line, type=EventView) for line in answer.content.splitlines()]
    assert [event.revision for event in events] == list(range(1, inside.control.loop.gate.durable + 1))
    later = await http.get("/v1/events", params={"after": before, "job": job})
    assert [msgspec.json.decode(line, type=EventView).type for line in later.content.splitlines()] == [
        "job_ended"
    ]


async def test_jobs_that_ended_are_lines_of_json(http: httpx.AsyncClient, inside: Served) -> None:
    agent = await inside.agent()
    (old,) = (await http.post("/v1/jobs", json=doc("old"))).json()["jobs"]
    await agent.end(old)
    await inside.control.archive()
    inside.control.clock.pass_by(60)
    (new,) = (await http.post("/v1/jobs", json=doc("new"))).json()["jobs"]
    await agent.end(new)
    answer = await http.get("/v1/past", params={"since": "1970-01-01T00:00:01Z"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    past = [msgspec.json.decode(line, type=PastJob) for line in answer.content.splitlines()]
    assert [job.id for job in past] == [new, old]
    for since in ("since", "ended_since"):
        answer = await http.get("/v1/past", params={since: "2027-01-15T08:00:30Z"})
        assert msgspec.json.decode(answer.content, type=PastJob).id == new
    answer = await http.get("/v1/past", params={"until": "2027-01-15T08:00:30Z"})
    assert msgspec.json.decode(answer.content, type=PastJob).id == old
    wrong = await http.get("/v1/past", params={"ended_since": "tomorrow"})
    assert wrong.status_code == 400
    assert wrong.json()["problems"][0]["path"] == "ended_since"


@pytest.mark.parametrize(
    "path", ["/v1/clusters", "/v1/agents", "/v1/server", "/v1/policy", "/v1/policy/history"]
)
async def test_what_there_is_can_be_listed(http: httpx.AsyncClient, inside: Served, path: str) -> None:
    await inside.agent()
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.json()


async def test_nodes_of_external_clusters_are_listed(http: httpx.AsyncClient, inside: Served) -> None:
    assert (await http.get("/v1/nodes")).json() == []
    await inside.see_kubernetes()
    (first, *others) = (await http.get("/v1/nodes", params={"cluster": "kube"})).json()
    assert first == {
        "name": "k1",
        "cluster": "kube",
        "state": "ready",
        "capacity": {"cpu": 4.0, "memory": 2**30, "gpu": 1},
        "used": {"cpu": 0.0, "memory": 0, "gpu": 0},
        "foreign": {"cpu": 0.5, "memory": 0, "gpu": 0},
        "leased": 0,
        "offers": [],
        "labels": {"topology.kubernetes.io/zone": "north"},
    }
    assert [each["name"] for each in others] == ["k2", "k3"]
    assert len((await http.get("/v1/nodes")).json()) == 3
    for cluster, why in (("onprem", "is a cluster of agents"), ("moon", "there is no cluster 'moon'")):
        refused = await http.get("/v1/nodes", params={"cluster": cluster})
        assert refused.status_code == 404
        assert why in refused.json()["detail"]


async def test_policies_are_set_by_who_asks(http: httpx.AsyncClient) -> None:
    answer = await http.patch("/v1/policy", json={"policy": "wait=zero"})
    assert (answer.status_code, answer.json()["done"]) == (200, True)
    last = (await http.get("/v1/policy/history")).json()[0]
    assert (last["who"], last["changes"]) == ("ada", ["wait: never -> zero"])
    assert (await http.patch("/v1/policy", json={"policy": None, "dry_run": True})).json()["done"] is False
    assert (await http.get("/v1/policy/history")).json()[0] == last
    for body in ({}, {"policy": 3}, {"policy": "x" * 10_001}, {"policy": None, "more": 1}):
        assert (await http.patch("/v1/policy", json=body)).status_code == 400


async def test_figures_are_in_the_form_of_prometheus(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics")
    assert "spill_tests_total 1.0" in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")


async def test_health_and_readiness_need_no_token(http: httpx.AsyncClient, inside: Served) -> None:
    token = http.headers.pop("Authorization")
    assert (await http.get("/v1/health")).json() == {"status": "ok", "message": None}
    assert (await http.get("/v1/ready")).status_code == 200
    inside.journal.fault = "before"
    refused = await http.post("/v1/jobs", json=doc(), headers={"Authorization": token})
    assert refused.status_code == 503
    answer = await http.get("/v1/ready")
    assert (answer.status_code, answer.json()["message"]) == (503, "the disk is full")
    assert (await http.get("/v1/health")).status_code == 200


async def test_files_that_a_job_brought_back_are_listed(http: httpx.AsyncClient, inside: Served) -> None:
    agent = await inside.agent()
    (job,) = (await http.post("/v1/jobs", json=doc(outputs=["out"]))).json()["jobs"]
    await agent.end(job, outputs=await inside.kept([File("out/a", "0" * 64, 3, executable=True)]))
    answer = await http.get(f"/v1/jobs/{job}/files", params={"attempt": 1})
    assert answer.json() == {
        "job": job,
        "attempt": 1,
        "attempts": [1],
        "files": [{"path": "out/a", "digest": "0" * 64, "size": 3, "executable": True}],
    }
    assert (await http.get("/v1/jobs/none/files")).status_code == 404
    for attempt, status in ((2, 404), (0, 400)):
        assert (await http.get(f"/v1/jobs/{job}/files", params={"attempt": attempt})).status_code == status


async def test_a_throttled_array_and_a_held_job_say_what_they_wait_for(
    http: httpx.AsyncClient, inside: Served
) -> None:
    await inside.agent(cpus=4)
    await http.post("/v1/jobs", json={"jobs": [doc("sweep", array="1-9%2"), doc("later", hold=True)]})
    sweep = (await http.get("/v1/jobs/sweep")).json()
    assert (sweep["state"], sweep["reason"]["code"]) == ("HELD", "array_throttled")
    assert sweep["array"]["counts"] == {"HELD": 7, "PLACED": 2}
    assert sweep["spec"]["spec"]["array"] == "1-9%2"
    later = (await http.get("/v1/jobs/later")).json()
    assert (later["state"], later["reason"]["code"]) == ("HELD", "held")
    bad = (await http.post("/v1/jobs", json=doc("bad", array="1-9%none", stdout="out_%Q"))).json()
    assert [problem["path"] for problem in bad["problems"]] == ["spec.array", "spec.stdout"]


JOB_FILE = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: train}
spec:
  run: ./train
  resources: {cpu: 2}
"""


async def checked(http: httpx.AsyncClient, text: str, **more: Any) -> Any:
    answer = await http.post("/v1/check", json={"text": text, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_text_of_a_job_file_is_checked_with_the_lines_of_its_problems(
    http: httpx.AsyncClient, inside: Served
) -> None:
    text = JOB_FILE.replace("cpu: 2", "cpu: -2").replace("  run:", "  priorty: 3\n  run:")
    problems = (await checked(http, text))["problems"]
    assert [(each["line"], each["path"]) for each in problems] == [
        (5, "spec.priorty"),
        (7, "spec.resources.cpu"),
    ]
    assert "priority" in problems[0]["message"]
    assert (await checked(http, "a: [1"))["problems"][0]["line"] is not None
    assert "is empty" in (await checked(http, "# nothing\n"))["problems"][0]["message"]
    assert not inside.jobs


async def test_a_checked_text_can_be_submitted_as_it_came_back(http: httpx.AsyncClient) -> None:
    good = await checked(http, JOB_FILE + "---\n" + JOB_FILE.replace("train", "eval"), forecast=True)
    assert (good["problems"], len(good["forecasts"])) == ([], 2)
    made = await http.post("/v1/jobs", json={"jobs": good["jobs"]})
    assert made.status_code == 201
    names = [each["name"] for each in (await http.get("/v1/jobs")).json()["jobs"]]
    assert sorted(names) == ["eval", "train"]


async def test_a_script_is_checked_too(http: httpx.AsyncClient) -> None:
    script = "#!/bin/sh\n#SBATCH --time=10\n#SBATCH --mail-type=SOMETIMES\necho hi\n"
    wrong = await checked(http, script, name="job.sbatch")
    assert [each["line"] for each in wrong["problems"]] == [3]
    good = await checked(http, "#!/bin/sh\n#SPILL --cpu 2\necho hi\n", name="job.sh")
    assert good["jobs"][0]["spec"]["resources"]["cpu"] == 2


async def test_what_only_the_server_can_refuse_has_its_line(http: httpx.AsyncClient) -> None:
    text = JOB_FILE + "  after: [{job: nobody}]\n"
    assert (await checked(http, text))["problems"] == []
    (problem,) = (await checked(http, text, forecast=True))["problems"]
    assert (problem["line"], problem["path"]) == (7, "spec.after[0].job")
    assert "nobody" in problem["message"]


async def test_files_of_the_submitter_are_no_input_of_a_checked_text(http: httpx.AsyncClient) -> None:
    (problem,) = (await checked(http, JOB_FILE + "  inputs: [data.csv]\n"))["problems"]
    assert (problem["line"], problem["path"]) == (7, "spec.inputs")
    assert "spill submit" in problem["message"]


async def test_the_last_hours_are_shown_as_lines(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/series")).status_code == 503  # nothing samples here
