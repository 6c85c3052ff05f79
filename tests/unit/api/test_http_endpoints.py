"""What is declared is served, described and taken: one declaration for each endpoint."""

import inspect
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Annotated, Any, get_args, get_type_hints

import httpx
import pytest
from msgspec import Meta, Struct

from spillover.api.http import build_app
from spillover.api.http.parameters import ParameterReader
from spillover.api.http.problems import RequestRefused
from spillover.api.http.replies import Reply
from spillover.api.http.routes import ROUTES
from spillover.api.http.routing import HttpRoute, Request, Router, serves
from spillover.api.http.streams import Stream
from spillover.wire.endpoints import (
    ENDPOINTS,
    JSON,
    NO_BODY,
    SHOW,
    UPLOAD,
    Endpoint,
    json_of,
)
from spillover.wire.parameters import NoParameters, OfJob
from tests.support.http import TOKEN
from tests.support.served import served


def test_every_endpoint_is_served_and_nothing_else() -> None:
    assert {route.endpoint.name for route in ROUTES} == {endpoint.name for endpoint in ENDPOINTS}
    assert len(ROUTES) == len(ENDPOINTS)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.endpoint.name)
def test_a_handler_takes_the_parameters_and_the_body_of_its_endpoint_and_gives_its_answer(
    route: HttpRoute[Any, Any],
) -> None:
    endpoint, hints = route.endpoint, get_type_hints(route.handler, include_extras=True)
    (request,) = inspect.signature(route.handler).parameters
    parameters, body = get_args(hints[request])
    assert parameters is endpoint.parameters
    assert body == taken(route)
    assert hints["return"] in {*endpoint.answer.types, Reply, Stream}
    assert (hints["return"] is Stream) <= (endpoint.answer.media != JSON)


def taken(route: HttpRoute[Any, Any]) -> Any:
    """The type of a decoded body."""
    if route.read is None:
        return AsyncIterator[bytes] if route.endpoint.body is UPLOAD else type(None)
    if len(route.endpoint.body.types) == 1:
        return route.endpoint.body.types[0]
    return get_type_hints(route.read)["return"]


@pytest.fixture
async def document() -> Mapping[str, Any]:
    """As a server gives it."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with served() as there:
        transport = httpx.ASGITransport(app=build_app(there.commands, TOKEN, None))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as http:
            described: Mapping[str, Any] = (await http.get("/v1/openapi.json")).json()
    return described


async def test_every_endpoint_is_described_with_its_parameters_and_its_body(
    document: Mapping[str, Any],
) -> None:
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["operationId"] == endpoint.name
        places: dict[str, list[str]] = {"path": [], "query": [], "header": []}
        for parameter in operation["parameters"]:
            places[parameter["in"]].append(parameter["name"])
        assert places["path"] == list(endpoint.in_path)
        assert places["query"] == list(endpoint.in_query)
        assert ("requestBody" in operation) == (endpoint.body is not NO_BODY)
        assert set(map(str, map(int, endpoint.refusals))) <= operation["responses"].keys()
        assert str(int(endpoint.status)) in operation["responses"]


class OfNode(Struct, frozen=True):
    node: Annotated[int, Meta(ge=1)]
    deep: bool = False


def declared(path: str, parameters: type[Any] = NoParameters, method: str = "GET") -> Endpoint[Any, Any, str]:
    return Endpoint("toy", method, path, "A toy", parameters, NO_BODY, json_of(str))


def route_for(endpoint: Endpoint[Any, Any, str]) -> HttpRoute[Any, Any]:
    @serves(endpoint)
    async def answer(request: Request[Any, Any]) -> str:
        return request.user

    return answer


@pytest.mark.parametrize(
    ("path", "parameters"), [("/v1/toys/{toy}", NoParameters), ("/v1/toys", OfJob), ("/v1/{toy}", OfJob)]
)
def test_a_path_that_does_not_name_what_its_parameters_require_cannot_be_declared(
    path: str, parameters: type[Any]
) -> None:
    with pytest.raises(TypeError, match="toy: /v1/"):
        declared(path, parameters)


def test_one_method_of_a_path_is_served_once() -> None:
    with pytest.raises(ValueError, match=r"GET /v1/toys is served twice"):
        Router([route_for(declared("/v1/toys")), route_for(declared("/v1/toys"))])


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/v1/toys/a", ["a"]),
        ("/v1/toys/a/b", None),
        ("/v1/toys/", None),
        ("/v1/toys", None),
        ("/v1", None),
        ("x/v1/toys/a", None),
        ("v1/toys/a", None),
        ("/v1/toys/a/", None),
        ("//v1/toys/a", None),
        ("", None),
        ("/v1/toys/all", []),
        ("/v1/toys/{job}", ["{job}"]),
    ],
)
def test_a_route_is_found_by_its_whole_path(path: str, parts: list[str] | None) -> None:
    router = Router([route_for(declared("/v1/toys/{job}", OfJob)), route_for(declared("/v1/toys/all"))])
    found = router.find(path)
    assert (None if found is None else found.parts) == parts


def test_parts_of_a_path_have_types_of_their_own() -> None:
    reader = ParameterReader(declared("/v1/nodes/{node}", OfNode))
    assert reader.read(["7"], b"deep=true") == OfNode(7, deep=True)
    for text in ("0", "seven", "null", ""):
        with pytest.raises(RequestRefused) as refused:
            reader.read([text], b"")
        assert refused.value.status == HTTPStatus.BAD_REQUEST
        assert [problem.path for problem in refused.value.problems] == ["node"]


def test_a_part_of_the_path_is_not_asked_for_in_the_query() -> None:
    with pytest.raises(RequestRefused) as refused:
        ParameterReader(SHOW).read(["a"], b"job=b")
    assert "job" in refused.value.body().decode()
