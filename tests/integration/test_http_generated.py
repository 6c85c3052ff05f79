"""Requests generated from the OpenAPI document: whatever is sent, the answer is one that the document allows."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from spillover.api.http.openapi import describe
from spillover.client import Client
from spillover.wire.api import AgentsAddress
from spillover.wire.endpoints import ENDPOINTS
from tests.support.http import TOKEN, threaded_server
from tests.support.served import served

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
schema = schemathesis.openapi.from_dict(msgspec.json.decode(describe(ENDPOINTS)))
schema.config.generation.update(modes=list(schemathesis.GenerationMode))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with threaded_server(served, address=AgentsAddress(None, 7071)) as server:
        with Client(server.url, TOKEN) as client:
            client.submit([{"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"}}] * 3)
        yield server.url


@schema.parametrize()
@settings(max_examples=20, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_request_is_too_strange(case: Any, url: str) -> None:
    for endless in ("follow", "timeout"):
        if endless in case.query:
            case.query[endless] = "0"
    if case.operation.path.endswith("/wait"):
        case.query["timeout"] = "0"  # the job that is drawn may be there, and never ends
    response = case.call(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10)
    case.validate_response(response, checks=CHECKS)
