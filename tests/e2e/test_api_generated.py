"""Requests generated from the OpenAPI document, on a real server: no 5xx, and only answers that the document allows."""

from collections.abc import Iterator

import pytest

from spillover.client import Client
from tests.support.generated_requests import OPERATIONS, send_strange_requests
from tests.support.processes import ServerProcess


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


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_is_too_strange(operation: str, standing: ServerProcess) -> None:
    send_strange_requests(operation, standing, 10)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nor_is_one_with_a_bound_of_a_parameter(operation: str, standing: ServerProcess) -> None:
    send_strange_requests(operation, standing, 20, bounds=True)
