"""Requests generated from the OpenAPI document, to a server's commands behind real HTTP."""

from collections.abc import Iterator

import pytest

from spillover.client import Client
from spillover.wire.api import AgentsAddress
from tests.support.generated_requests import OPERATIONS, send_strange_requests
from tests.support.http import TOKEN, threaded_server
from tests.support.served import served


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with threaded_server(served, address=AgentsAddress(None, 7071)) as server:
        with Client(server.url, TOKEN) as client:
            client.submit([{"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"}}] * 3)
        yield server.url


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_is_too_strange(operation: str, url: str) -> None:
    send_strange_requests(operation, url, TOKEN, 10)
