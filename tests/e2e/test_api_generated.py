"""Requests generated from the OpenAPI document, on a real server: no 5xx, and only answers that the document allows."""

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
from spillover.wire.endpoints import ENDPOINTS
from tests.support.processes import ServerProcess

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
schema = schemathesis.openapi.from_dict(msgspec.json.decode(describe(ENDPOINTS)))
schema.config.generation.update(modes=list(schemathesis.GenerationMode))


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a little history."""
    folder = tmp_path_factory.mktemp("standing")
    ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--slots", "1")
    server = ServerProcess(folder, "--data", str(folder / "data"), *ports, data=folder / "data")
    try:
        server.up()
        with Client(data=folder / "data") as client:
            jobs = client.submit(
                [{"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "echo hi"}}] * 3
            )
            client.wait(*jobs, timeout=20)
        yield server
    finally:
        server.clear()


@schema.parametrize()
@settings(max_examples=15, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_request_is_too_strange_for_a_server(case: Any, standing: ServerProcess) -> None:
    for endless in ("follow", "timeout"):
        if endless in case.query:
            case.query[endless] = "0"
    token = (standing.data / "token").read_text().strip()
    response = case.call(base_url=standing.url, headers={"Authorization": f"Bearer {token}"}, timeout=10)
    case.validate_response(response, checks=CHECKS)
