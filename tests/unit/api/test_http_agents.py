"""Draining, resuming and forgetting agents over HTTP, and through the client."""

from collections.abc import AsyncIterator

import httpx
import pytest

from spillover.api.http import build_app
from spillover.client import AsyncClient, Refused
from tests.support.http import TOKEN, http_server
from tests.support.served import Served, served


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        await inside.agent()
        yield inside


@pytest.fixture
async def http(inside: Served) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_app(inside.commands, TOKEN, None))
    headers = {"Authorization": f"Bearer {TOKEN}", "Spill-User": "ada"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        yield client


async def test_an_agent_is_drained_in_the_name_of_who_asks(http: httpx.AsyncClient, inside: Served) -> None:
    answer = await http.post("/v1/agents/actions", json={"act": "drain", "agents": ["n1"]})
    assert (answer.status_code, answer.json()) == (200, {"agents": ["onprem/n1"]})
    *_, last = (await http.get("/v1/events")).text.splitlines()
    assert "agent onprem/n1 is draining, drained by ada" in last


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"act": "drain", "agents": ["nobody"]}, 404),
        ({"act": "forget", "agents": ["n1"]}, 409),
        ({"act": "stop", "agents": ["n1"]}, 400),
        ({"act": "drain", "agents": []}, 400),
        ({"act": "drain"}, 400),
        ({"act": "drain", "agents": ["n1"], "now": True}, 400),
        ([], 400),
    ],
)
async def test_what_cannot_be_done_is_a_problem(http: httpx.AsyncClient, body: object, status: int) -> None:
    answer = await http.post("/v1/agents/actions", json=body)
    assert answer.status_code == status
    assert answer.json()["detail"]


async def test_the_client_does_all_three(inside: Served) -> None:
    async with http_server(inside.commands) as url, AsyncClient(server=url, token=TOKEN) as client:
        assert await client.drain("n1") == ["onprem/n1"]
        assert await client.resume("onprem/n1") == ["onprem/n1"]
        with pytest.raises(Refused, match="stop it and wait until it is lost, then forget it"):
            await client.forget("n1")
