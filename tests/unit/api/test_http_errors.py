"""Everything that can be refused is, as a problem document that says what to do."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog

from spillover.api.http import bodies, build_app
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Unreadable
from spillover.wire.api import FieldProblem
from tests.support.http import TOKEN
from tests.support.served import Served, failing, served

AUTH = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


@pytest.fixture
async def http(inside: Served) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(
        inside.commands, TOKEN, None, hosts=["spill.example", "other.example:81", "*.lab.example"]
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:7070", headers=AUTH
    ) as client:
        yield client


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["type"] == f"urn:spillover:problem:{kind}"
    assert body["title"]
    assert "\n" not in body["detail"]
    return body


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "is required"),
        ("", "is required"),
        ("Bearer wrong", "is invalid"),
        (f"Basic {TOKEN}", "is invalid"),
        (TOKEN, "is invalid"),
        (f"Bearer {TOKEN}x", "is invalid"),
    ],
)
async def test_who_does_not_show_the_token_is_refused(
    http: httpx.AsyncClient, given: str | None, says: str
) -> None:
    http.headers.pop("Authorization")
    headers = {} if given is None else {"Authorization": given}
    for path in ("/v1/jobs", "/nothing", "/metrics", "/v1/openapi.json"):
        answer = await http.get(path, headers=headers)
        assert says in problem(answer, 401, "unauthorized")["detail"]
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_the_scheme_of_a_token_may_be_written_in_any_case(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/server", headers={"Authorization": f"bearer  {TOKEN} "})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:7070",
        "spill.example:9",
        "other.example:81",
        "build.lab.example",
        "Build.Lab.example:7070",
    ],
)
async def test_names_of_this_server_are_answered(http: httpx.AsyncClient, host: str) -> None:
    for _ in range(2):
        assert (await http.get("/v1/health", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7070",
        "127.0.0.1.evil.example",
        "localhost:x",
        "other.example",
        "lab.example",
        "a.b.lab.example",
        "lab.example.evil.example",
        "",
        "::1",
        "é",
    ],
)
async def test_other_names_are_refused(http: httpx.AsyncClient, host: str) -> None:
    answer = await http.get("/v1/health", headers={b"Host": host.encode()})
    problem(answer, 421, "wrong_host")


async def test_a_request_without_a_host_is_refused(inside: Served) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "path": "/v1/health", "query_string": b"", "headers": []}
    await build_app(inside.commands, TOKEN, None)(scope, receive, send)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:8000", ""])
async def test_pages_of_other_sites_are_refused(http: httpx.AsyncClient, origin: str) -> None:
    problem(await http.get("/v1/health", headers={"Origin": origin}), 403, "forbidden")


async def test_a_page_of_the_same_host_is_not(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/server", headers={"Origin": "http://127.0.0.1:7070"})).status_code == 200


async def test_headers_that_matter_may_not_be_repeated(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/health", headers=[("Host", "localhost"), ("Host", "evil.example")])
    problem(answer, 400, "bad_request")


async def test_headers_and_queries_are_bounded(http: httpx.AsyncClient) -> None:
    many = [(f"X-{at}", "x") for at in range(101)]
    problem(await http.get("/v1/health", headers=many), 431, "headers_too_large")
    problem(await http.get("/v1/jobs?name=" + "x" * 9000), 414, "query_too_long")
    problem(await http.get("/v1/jobs?" + "&".join(["name=x"] * 40)), 400, "invalid")


@pytest.mark.parametrize("user", ["-x", "a b", "x" * 64, "a\tb", ""])
async def test_a_user_is_a_name(http: httpx.AsyncClient, user: str) -> None:
    problem(await http.get("/v1/server", headers={"Spill-User": user}), 400, "invalid")


async def test_whoever_says_nothing_is_anonymous(http: httpx.AsyncClient, inside: Served) -> None:
    await http.post("/v1/jobs", json=_doc())
    assert [job.user for job in inside.jobs.values()] == ["anonymous"]


@pytest.mark.parametrize(
    "path", ["/v1", "/v2/jobs", "/v1/jobs/", "/v1/jobs/a/b", "/v1/jobs/a/b/c", "/v1/jobs/{job}/x"]
)
async def test_there_is_nothing_at_other_paths(http: httpx.AsyncClient, path: str) -> None:
    problem(await http.get(path), 404, "not_found")


async def test_other_methods_are_told_what_a_path_takes(http: httpx.AsyncClient) -> None:
    answer = await http.delete("/v1/jobs/abc")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, PATCH"
    assert (await http.request("BREW", "/v1/jobs")).headers["allow"] == "GET, POST"


@pytest.mark.parametrize("ref", ["nobody", "a%20b", "%00", "-a", "x" * 64, "%2e%2e", "{job}", "%F0%9F%92%A9"])
async def test_jobs_that_cannot_be_are_not_found(http: httpx.AsyncClient, ref: str) -> None:
    problem(await http.get(f"/v1/jobs/{ref}"), 404, "unknown")


@pytest.mark.parametrize(
    ("query", "path", "says"),
    [
        ("limit=0", "limit", ">= 1"),
        ("limit=1001", "limit", "<= 1000"),
        ("limit=x", "limit", "int"),
        ("limit=", "limit", "int"),
        ("state=queued", "state", "is not a state; write one or several of HELD, QUEUED"),
        ("since=yesterday", "since", "2027-01-31T18:00:00Z"),
        ("members=2", "members", "'2' must be true or false"),
        ("members=maybe", "members", "'maybe' must be true or false"),
        ("stat=QUEUED", "stat", "did you mean state?"),
        ("zzz=1", "zzz", "known parameters: state, project"),
        ("name=a&name=b", "name", "is repeated"),
        ("name=%ff", "query", "UTF-8"),
        ("cursor=", "cursor", "length >= 1"),
        ("state=null", "state", "'null' is not a state"),
        ("limit=null", "limit", "int"),
    ],
)
async def test_a_query_is_checked(http: httpx.AsyncClient, query: str, path: str, says: str) -> None:
    body = problem(await http.get(f"/v1/jobs?{query}"), 400, "invalid")
    (one,) = body["problems"]
    assert one["path"] == path
    assert says in one["message"]


async def test_a_name_may_be_null(http: httpx.AsyncClient) -> None:
    for name in ("null", "other"):
        await http.post("/v1/jobs", json=_doc() | {"metadata": {"name": name}})
    listed = (await http.get("/v1/jobs?name=null")).json()["jobs"]
    assert [job["name"] for job in listed] == ["null"]


async def test_keys_of_usage_are_checked(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/usage?by=user,day&since=2027-01-01T00:00:00Z")).status_code == 200
    for keys, says in (
        ("user,team", "'team' is not a key"),
        ("user,user", "names a key twice"),
        ("", "is not a key"),
    ):
        body = problem(await http.get(f"/v1/usage?by={keys}"), 400, "invalid")
        assert says in body["problems"][0]["message"]


async def test_parameters_of_the_audit_and_the_history_are_checked(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/audit?user=ada&limit=5&until=2027-01-01T00:00:00Z")).status_code == 200
    for query, path in (
        ("audit?until=tuesday", "until"),
        ("audit?cursor=x", "cursor"),
        ("audit?limit=0", "limit"),
        ("events?since=2027", "since"),
        ("events?follow=true&until=2027-01-01T00:00:00Z", "until"),
    ):
        body = problem(await http.get(f"/v1/{query}"), 400, "invalid")
        assert [one["path"] for one in body["problems"]] == [path]


async def test_all_problems_of_a_query_are_told(http: httpx.AsyncClient) -> None:
    body = problem(await http.get("/v1/jobs?limit=0&state=x&y=1"), 400, "invalid")
    assert [one["path"] for one in body["problems"]] == ["limit", "state", "y"]
    assert body["detail"].startswith("3 problems in the query; the first is limit: ")


async def test_what_is_not_asked_anything_says_so(http: httpx.AsyncClient) -> None:
    body = problem(await http.get("/v1/server?x=1"), 400, "invalid")
    assert "there are none" in body["detail"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b'{"a": 1,\n  }', "(line 2, column 3)"),
        (b'{"a', "ends in the middle of a value (line 1, column 4)"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"spec": NaN}', "invalid character (line 1, column 10)"),
        (b"{} {}", "trailing characters"),
        (b'{"a": 1e999}', "out of range"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/actions"])
async def test_what_is_not_json_is_refused_with_its_place(
    http: httpx.AsyncClient, path: str, body: bytes, says: str
) -> None:
    answer = await http.post(path, content=body)
    assert answer.status_code == 400
    if path == "/v1/jobs":
        assert says in problem(answer, 400, "not_json")["detail"]


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null"])
async def test_what_is_not_a_document_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    assert (
        "neither a job document"
        in problem(await http.post("/v1/jobs", content=body), 400, "invalid")["detail"]
    )


async def test_every_problem_of_every_job_is_told(http: httpx.AsyncClient, inside: Served) -> None:
    jobs = [_doc(), _doc(walltime="soon", cpus=1), _doc(), {"spec": {"run": 1}}]
    body = problem(await http.post("/v1/jobs", json={"jobs": jobs}), 400, "invalid")
    paths = {one["path"] for one in body["problems"]}
    assert {"jobs[1].spec.walltime", "jobs[1].spec.cpus", "jobs[3].spec.run", "jobs[3].apiVersion"} <= paths
    assert not any(path.startswith(("jobs[0]", "jobs[2]")) for path in paths)
    assert not inside.jobs


async def test_problems_of_one_document_have_its_own_paths(http: httpx.AsyncClient) -> None:
    body = problem(await http.post("/v1/jobs", json=_doc(walltime="soon")), 400, "invalid")
    assert [one["path"] for one in body["problems"]] == ["spec.walltime"]


async def test_an_answer_lists_a_bounded_number_of_problems(http: httpx.AsyncClient) -> None:
    jobs = [_doc(walltime="soon")] * 2000
    body = problem(await http.post("/v1/jobs", json={"jobs": jobs}), 400, "invalid")
    assert len(body["problems"]) == bodies.MOST_PROBLEMS + 1
    assert body["problems"][-1] == {"path": "jobs", "message": "1900 more were not checked"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"jobs": {}}, "jobs"),
        ({"jobs": None}, "jobs"),
        ({"jobs": [], "more": 1}, "jobs"),
        ({"jobs": [3]}, "jobs[0]"),
    ],
)
async def test_jobs_must_be_a_list_of_documents(http: httpx.AsyncClient, body: object, path: str) -> None:
    told = problem(await http.post("/v1/jobs", json=body), 400, "invalid")
    assert path in {one["path"] for one in told["problems"]}


async def test_fields_beside_jobs_are_refused(http: httpx.AsyncClient) -> None:
    told = problem(await http.post("/v1/jobs", json={"jobs": [_doc()], "more": 1}), 400, "invalid")
    assert [one["path"] for one in told["problems"]] == ["more"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"act": "explode", "jobs": ["a"]}, "act"),
        ({"act": "hold", "jobs": []}, "jobs"),
        ({"act": "hold", "jobs": [1]}, "jobs[0]"),
        ({"act": "hold", "jobs": ["a"], "x": 1}, ""),
        ({"act": "hold"}, ""),
        ([], ""),
    ],
)
async def test_an_action_is_checked(http: httpx.AsyncClient, body: object, path: str) -> None:
    told = problem(await http.post("/v1/actions", json=body), 400, "invalid")
    assert [one["path"] for one in told["problems"]] == [path]


@pytest.mark.parametrize("priority", ["7", 1.5, None, 10**7, 10**30])
async def test_a_priority_is_a_bounded_integer(http: httpx.AsyncClient, priority: object) -> None:
    problem(await http.patch("/v1/jobs/a", json={"priority": priority}), 400, "invalid")


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "application/x-yaml", ""]
)
async def test_bodies_of_other_types_are_refused(http: httpx.AsyncClient, media: str) -> None:
    answer = await http.post("/v1/jobs", content=b"{}", headers={"Content-Type": media})
    problem(answer, 415, "unsupported_media_type")


async def test_a_type_may_have_parameters_or_be_left_out(http: httpx.AsyncClient) -> None:
    for headers in ({"Content-Type": "Application/JSON; charset=utf-8"}, {}):
        answer = await http.post(
            "/v1/jobs", content=httpx.Request("POST", "/", json=_doc()).read(), headers=headers
        )
        assert answer.status_code == 201


async def test_too_many_jobs_are_refused(http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_JOBS", 3)
    assert (await http.post("/v1/jobs", json={"jobs": [_doc()] * 3})).status_code == 201
    for job in (_doc(), {}):
        problem(await http.post("/v1/jobs", json={"jobs": [job] * 4}), 413, "too_large")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (ErrorKind.INVALID, 400),
        (ErrorKind.UNKNOWN, 404),
        (ErrorKind.AMBIGUOUS, 409),
        (ErrorKind.CONFLICT, 409),
        (ErrorKind.TOO_LARGE, 413),
        (ErrorKind.INTERNAL, 500),
        (ErrorKind.UNAVAILABLE, 503),
        (ErrorKind.NOT_LEADER, 503),
    ],
)
async def test_each_refusal_of_a_command_has_its_status(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch, kind: ErrorKind, status: int
) -> None:
    # No single command refuses in every way that there is.
    monkeypatch.setattr(
        inside.commands, "submit", failing(CommandError(kind, "no", [FieldProblem("a", "b")]))
    )
    answer = await http.post("/v1/jobs", json=_doc())
    body = problem(answer, status, kind.value)
    assert (body["detail"], body["problems"]) == ("no", [{"path": "a", "message": "b"}])
    assert ("retry-after" in answer.headers) == (status == 503) == ("retry_after_s" in body)


async def test_a_command_can_say_when_to_retry(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of ours all say one second, which is also what is said where a command says nothing.
    no = CommandError(ErrorKind.UNAVAILABLE, "no", retry_after=7.2)
    monkeypatch.setattr(inside.commands, "server", failing(no))
    answer = await http.get("/v1/server")
    assert (answer.headers["retry-after"], answer.json()["retry_after_s"]) == ("7", 7.2)


async def test_an_error_at_the_start_of_a_stream_has_its_status(
    http: httpx.AsyncClient, inside: Served
) -> None:
    problem(await http.get("/v1/events?job=nobody"), 404, "unknown")
    problem(await http.get("/v1/events?job=nobody&follow=true"), 404, "unknown")
    problem(await http.get("/v1/jobs/nobody/logs"), 404, "unknown")
    (job,) = (await http.post("/v1/jobs", json=_doc())).json()["jobs"]
    agent = await inside.agent()
    await agent.leave()
    problem(await http.get(f"/v1/jobs/{job}/logs"), 503, "unavailable")


async def test_a_store_that_cannot_be_read_is_to_be_asked_again(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is in memory can always be read.
    gone = Unreadable("cannot read spill.db: the disk is gone")
    monkeypatch.setattr(inside.control.store.archive, "list", failing(gone))
    answer = await http.get("/v1/jobs")
    problem(answer, 503, "unavailable")
    assert answer.json()["detail"] == "cannot read spill.db: the disk is gone"
    assert answer.headers["retry-after"] == "1"


async def test_a_fault_of_ours_is_logged_and_not_shown(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No request is known to make a command fail so; were there one, it would be mended.
    monkeypatch.setattr(inside.commands, "clusters", failing(ZeroDivisionError("secret")))
    with structlog.testing.capture_logs() as logs:
        answer = await http.get("/v1/clusters")
    assert "secret" not in answer.text
    problem(answer, 500, "internal")
    assert (logs[0]["event"], logs[0]["path"]) == ("request failed", "/v1/clusters")
    assert isinstance(logs[0]["exc_info"], ZeroDivisionError)
    assert answer.json()["detail"].endswith(f"the server logged it as {logs[0]['fault']}")


async def test_a_server_without_a_token_is_not_built(inside: Served) -> None:
    with pytest.raises(ValueError, match="needs a token"):
        build_app(inside.commands, "", None)


def _doc(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", **spec}}


async def test_cursors_and_ids_of_notifications_are_checked(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/notifications?cursor=9999999999999999999-z")).status_code == 200
    assert (await http.get("/v1/notifications?cursor=x")).status_code == 400
    for identity in ("", "a\0b", "A b"):
        answer = await http.post("/v1/notifications/actions", json={"act": "drop", "ids": [identity]})
        assert answer.status_code == 400
