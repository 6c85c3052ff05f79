"""The OpenAPI document is valid, complete, and says what the code does."""

import re
from typing import Any

import jsonschema
import msgspec
import pytest

from spillover.api.http.openapi import describe
from spillover.core.events import JobState
from spillover.model.ids import is_name
from spillover.wire.endpoints import ENDPOINTS
from spillover.wire.parameters import STATES


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(describe(ENDPOINTS))
    return value


def test_every_endpoint_is_in_it_and_nothing_else(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', msgspec.json.encode(document).decode()))
    assert names == document["components"]["schemas"].keys() & names
    assert {"JobDoc", "JobDetail", "Problem", "EventView", "ListQuery"} - names == {"ListQuery"}


def test_every_schema_is_one(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for operation in _operations(document):
        for parameter in operation["parameters"]:
            jsonschema.Draft202012Validator.check_schema(parameter["schema"])
            assert "null" not in str(parameter["schema"])


def test_operations_are_named_apart_and_have_what_openapi_asks_for(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"].keys() >= {"title", "version"}
    operations = _operations(document)
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"]
        assert all(response["description"] for response in operation["responses"].values())
        assert "application/problem+json" in operation["responses"]["default"]["content"]
        places = [(parameter["in"], parameter["name"]) for parameter in operation["parameters"]]
        assert len(set(places)) == len(places)


def test_the_data_of_server_sent_events_is_described_beside_the_stream_that_they_are_in(
    document: dict[str, Any],
) -> None:
    answer = document["paths"]["/v1/live"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    assert answer["schema"] == {"type": "string"}
    names = [each["$ref"].rpartition("/")[2] for each in answer["x-data"]["anyOf"]]
    assert names == ["LiveOverview", "LiveMachines", "LiveJobs", "LivePools", "LiveProblem"]


def test_variable_parts_of_paths_are_described(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            asked = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
            assert asked == set(re.findall(r"{(\w+)}", path))


def test_only_health_readiness_and_signing_in_are_open(document: dict[str, Any]) -> None:
    assert document["security"] == [{"token": []}, {"sign_in": []}]
    open_paths = {
        path for path, item in document["paths"].items() for one in item.values() if one.get("security") == []
    }
    assert open_paths == {"/v1/health", "/v1/ready", "/v1/sign-in", "/v1/sign-in/methods"}


def test_query_parameters_keep_their_bounds(document: dict[str, Any]) -> None:
    asked = {one["name"]: one["schema"] for one in document["paths"]["/v1/jobs"]["get"]["parameters"]}
    assert asked["limit"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert asked["since"] == {"type": "string", "maxLength": 40, "format": "date-time"}
    valid = jsonschema.Draft202012Validator(asked["state"]).is_valid
    assert valid("HELD,TIMED_OUT")
    assert not any(map(valid, ("HELD,", "held", "", "X", "HELD, QUEUED")))
    assert set(STATES) == set(JobState)


@pytest.mark.parametrize("text", ["a", "a-b", "-a", "a.", "x" * 63, "x" * 64, "", "é", "a\n"])
def test_its_pattern_for_names_is_the_rule_for_names(document: dict[str, Any], text: str) -> None:
    schema = document["paths"]["/v1/jobs/{job}"]["get"]["parameters"][0]["schema"]
    valid = jsonschema.Draft202012Validator(schema).is_valid(text)
    assert valid == is_name(text) or text == "a\n"  # Python's `$` also stands before a last line break


def test_it_validates_as_openapi(document: dict[str, Any]) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_dict(document)
    schema.validate()
    assert len(list(schema.get_all_operations())) == len(ENDPOINTS)


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for item in document["paths"].values() for operation in item.values()]
