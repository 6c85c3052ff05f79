"""What each role may ask over HTTP, who asks, and that no answer tells a secret."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog

from spillover.api.http import build_app
from spillover.control.requests.commands import LiveCommands
from spillover.model.tokens import TokenRole
from spillover.ports.callers import ADMIN, Caller, Stranger
from spillover.wire.api import AgentsAddress
from spillover.wire.endpoints import ENDPOINTS, Endpoint
from tests.support.http import path_of
from tests.support.served import Served, failing, served

SECRETS = {role: f"spt_{role}_the-secret-of-{role}" for role in TokenRole}


class Known:
    """One token of each role, one that says who its holder is, one for each project, and one that has ended."""

    def caller(self, shown: str) -> Caller:
        for role, text in SECRETS.items():
            if shown == text:
                return Caller(role, role.value)
        if shown == "spt_named_x":
            return Caller(TokenRole.SUBMIT, "named", user="grace")
        if shown == "spt_cloud_x":
            return Caller(TokenRole.AGENT, "cloud", cluster="cloud")
        if shown.startswith("spt_of_"):
            return Caller(TokenRole.SUBMIT, shown, project=shown.removeprefix("spt_of_"))
        if shown == "spt_old_x":
            raise Stranger("the token old has expired")
        raise Stranger("the token is invalid")

    def is_valid(self, token: str) -> bool:
        return bool(token)


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


@pytest.fixture
def callers(inside: Served, monkeypatch: pytest.MonkeyPatch) -> list[Caller]:
    """For whom commands were asked, in order."""
    callers: list[Caller] = []
    of = inside.commands.of

    def noted(caller: Caller) -> LiveCommands:
        callers.append(caller)
        return of(caller)

    monkeypatch.setattr(inside.commands, "of", noted)
    return callers


@pytest.fixture
async def http(inside: Served) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(inside.commands, Known(), None, address=AgentsAddress(None, 7071))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:7070"
    ) as client:
        yield client


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
async def test_every_route_is_closed_to_whoever_has_no_token_of_a_right_role(
    http: httpx.AsyncClient, callers: list[Caller], endpoint: Endpoint[Any, Any, Any]
) -> None:
    bare = await http.request(endpoint.method, path_of(endpoint))
    assert (bare.status_code == 401) is not endpoint.open
    for role, text in SECRETS.items():
        if role in endpoint.roles or endpoint.open:
            continue
        before = list(callers)
        answer = await http.request(endpoint.method, path_of(endpoint), headers=bearer(text))
        assert answer.status_code == 403, answer.text
        assert answer.json()["type"] == "urn:spillover:problem:forbidden"
        assert answer.json()["detail"].startswith(f"a token of role {role} may not do this; use one of role")
        assert callers == before
        assert text not in answer.text


def test_agents_may_ask_for_their_address_alone_and_only_admins_change_what_is_everybodys() -> None:
    of: dict[TokenRole, set[str]] = {
        role: {
            f"{endpoint.method} {endpoint.path}"
            for endpoint in ENDPOINTS
            if role in endpoint.roles and not endpoint.open
        }
        for role in TokenRole
    }
    assert of[TokenRole.AGENT] == {"GET /v1/agents/address"}
    assert of[TokenRole.ADMIN] == {
        f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS if not endpoint.open
    }
    closed = {"PATCH /v1/policy", "GET /v1/tokens", "POST /v1/tokens", "POST /v1/tokens/revoke"}
    closed.add("POST /v1/agents/actions")
    assert closed <= of[TokenRole.ADMIN] - of[TokenRole.SUBMIT]
    assert of[TokenRole.MAINTAIN] == of[TokenRole.SUBMIT]
    assert of[TokenRole.SUBMIT] - of[TokenRole.READ] == {
        "POST /v1/jobs",
        "PATCH /v1/jobs/{job}",
        "POST /v1/actions",
        "POST /v1/rerun",
        "POST /v1/jobs/{job}/sessions",
        "GET /v1/sessions/{session}/output",
        "POST /v1/sessions/{session}/input",
        "PUT /v1/blobs/{digest}",
        "POST /v1/blobs/missing",
        "PUT /v1/secrets",
        "POST /v1/secrets/remove",
    }
    changes = {each for each in of[TokenRole.SUBMIT] if not each.startswith("GET")}
    assert changes <= {
        "POST /v1/jobs",
        "POST /v1/check",
        "POST /v1/forecast",
        "PATCH /v1/jobs/{job}",
        "POST /v1/actions",
        "POST /v1/rerun",
        "POST /v1/jobs/{job}/sessions",
        "POST /v1/sessions/{session}/input",
        "PUT /v1/blobs/{digest}",
        "POST /v1/blobs/missing",
        "PUT /v1/secrets",
        "POST /v1/secrets/remove",
        "POST /v1/jobs/{job}/results",
        "POST /v1/results",
        "POST /v1/jobs/{job}/what-if",
        "POST /v1/sign-in/links",
        "POST /v1/sign-out",
        "POST /v1/sign-ins/revoke",
    }


async def test_commands_are_told_who_asks(http: httpx.AsyncClient, callers: list[Caller]) -> None:
    await http.get("/v1/jobs", headers=bearer(SECRETS[TokenRole.SUBMIT]))
    assert callers[-1] == Caller(TokenRole.SUBMIT, "submit")
    await http.get("/v1/ready")
    assert callers[-1] == ADMIN


async def test_the_user_that_a_token_states_counts_whatever_the_header_says(
    http: httpx.AsyncClient, inside: Served
) -> None:
    body = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"}}
    answer = await http.post("/v1/jobs", json=body, headers=bearer("spt_named_x") | {"Spill-User": "eve"})
    assert answer.status_code == 201
    (job,) = inside.jobs.values()
    assert job.user == "grace"


async def test_a_token_that_ended_is_refused_with_the_reason(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/jobs", headers=bearer("spt_old_x"))
    assert answer.status_code == 401
    assert answer.json()["detail"].startswith("the token old has expired; ")


async def test_agents_are_told_the_port_and_the_cluster_to_join(http: httpx.AsyncClient) -> None:
    told = (await http.get("/v1/agents/address", headers=bearer(SECRETS[TokenRole.AGENT]))).json()
    assert told == {"host": None, "port": 7071, "cluster": None, "clusters": ["onprem", "cloud"]}
    told = (await http.get("/v1/agents/address", headers=bearer("spt_cloud_x"))).json()
    assert told == {"host": None, "port": 7071, "cluster": "cloud", "clusters": ["cloud"]}


async def test_where_there_is_no_service_for_agents_they_are_told_to_wait(inside: Served) -> None:
    transport = httpx.ASGITransport(build_app(inside.commands, Known(), None))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7070") as http:
        answer = await http.get("/v1/agents/address", headers=bearer(SECRETS[TokenRole.AGENT]))
    assert answer.status_code == 503


async def test_a_token_is_told_once_and_never_listed(http: httpx.AsyncClient) -> None:
    admin = bearer(SECRETS[TokenRole.ADMIN]) | {"Spill-User": "ada"}
    made = await http.post("/v1/tokens", json={"role": "submit", "project": "vision"}, headers=admin)
    assert made.status_code == 201
    assert made.json()["token"].startswith("spt_")
    listed = await http.get("/v1/tokens", headers=admin)
    assert [token["project"] for token in listed.json()] == ["vision"]
    assert made.json()["token"].rpartition("_")[2] not in listed.text
    gone = await http.post("/v1/tokens/revoke", json={"id": made.json()["id"]}, headers=admin)
    assert gone.json() == {"id": made.json()["id"]}
    unknown = await http.post("/v1/tokens/revoke", json={"id": "nothing"}, headers=admin)
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    "body", [{}, {"role": "king"}, {"role": "submit", "x": 1}, {"role": "submit", "expires_s": 0}, []]
)
async def test_a_token_that_makes_no_sense_is_refused(http: httpx.AsyncClient, body: object) -> None:
    answer = await http.post("/v1/tokens", json=body, headers=bearer(SECRETS[TokenRole.ADMIN]))
    assert answer.status_code == 400


async def test_what_fails_is_logged_without_the_token(
    http: httpx.AsyncClient, inside: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No request is known to make a command fail so; were there one, it would be mended.
    monkeypatch.setattr(inside.commands, "clusters", failing(ZeroDivisionError()))
    text = SECRETS[TokenRole.ADMIN]
    with structlog.testing.capture_logs() as logs:
        answer = await http.get("/v1/clusters", headers=bearer(text))
    assert answer.status_code == 500
    assert logs
    assert text not in str(logs)


async def test_figures_of_all_projects_are_not_for_a_token_of_one(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics", headers=bearer("spt_of_vision"))
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:spillover:problem:forbidden")
    assert "metrics cover the whole server, and this token is for project 'vision'" in answer.json()["detail"]
    assert (await http.get("/metrics", headers=bearer(SECRETS[TokenRole.SUBMIT]))).status_code == 200


async def test_a_token_of_a_project_sees_the_blobs_of_the_project_alone(http: httpx.AsyncClient) -> None:
    vision, nlp, everybody = bearer("spt_of_vision"), bearer("spt_of_nlp"), bearer(SECRETS[TokenRole.SUBMIT])
    name = hashlib.sha256(b"data").hexdigest()
    path, asked = f"/v1/blobs/{name}", {"digests": [name]}
    assert (await http.put(path, content=b"data", headers=vision)).status_code == 201
    assert (await http.get(path, headers=vision)).content == b"data"
    assert (await http.get(path, headers=everybody)).content == b"data"
    assert (await http.get(path, headers=nlp)).json()["detail"] == f"there is no blob {name}"
    assert (await http.post("/v1/blobs/missing", json=asked, headers=nlp)).json() == asked
    assert (await http.put(path, content=b"guess", headers=nlp)).status_code == 400
    assert (await http.put(path, content=b"data", headers=nlp)).status_code == 201
    assert (await http.get(path, headers=nlp)).content == b"data"
    assert (await http.post("/v1/blobs/missing", json=asked, headers=nlp)).json() == {"digests": []}
