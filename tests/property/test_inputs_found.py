"""Stories that `make fuzz-inputs` found, in their shortest form: each once cost the server, or its next start."""

from typing import Any

import pytest

from tests.support.inputs.agents import LEASE, MINE
from tests.support.inputs.source import tell
from tests.support.inputs.sources import SOURCES

NODE_META = {"name": "node-1", "uid": "u1", "resourceVersion": "50"}


def a_node(**allocatable: str) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": NODE_META, "status": {"allocatable": allocatable, "conditions": ready}}


def a_result(**fields: object) -> tuple[str, str, dict[str, Any]]:
    result = {"lease": {LEASE: 0}, "exit_code": 0, **fields}
    return ("agent", "Report", {"incarnation": MINE, "results": [result]})


@pytest.mark.parametrize(
    "digest",
    [
        pytest.param("\0", id="with NUL"),
        pytest.param("../../../etc/passwd", id="a path"),
        pytest.param("y" * 5000, id="too long for a name"),
    ],
)
def test_a_value_under_a_digest_that_is_none(digest: str) -> None:
    tell(SOURCES["agents"], [a_result(value_digest=digest)])


def test_a_result_with_numbers_at_their_edges() -> None:
    most = 2**64 - 1
    tell(SOURCES["agents"], [a_result(ran=most, cpu=most, peak_memory=most, age=most, exit_code=-(2**31))])


@pytest.mark.parametrize("amount", ["1e30", "999Ei", "x"])
def test_a_node_with_an_amount_that_cannot_be_kept(amount: str) -> None:
    tell(SOURCES["clusters"], [("line", "node", "MODIFIED", a_node(cpu=amount, memory="1Gi"))])


def test_an_object_of_a_version_that_no_number_holds() -> None:
    meta = {"name": "p", "namespace": "batch", "uid": "u2", "resourceVersion": "9" * 5000}
    tell(SOURCES["clusters"], [("line", "pod", "ADDED", {"metadata": meta})])


@pytest.mark.parametrize("content", [b"\0", b"\xff" * 40, b"two words"])
def test_a_token_file_that_holds_what_nobody_can_show(content: bytes) -> None:
    tell(SOURCES["files"], [("write", "token", content)])


@pytest.mark.parametrize("name", ["server.json", "token", "leader.lock", "blobs"])
def test_a_folder_in_place_of_a_file(name: str) -> None:
    tell(SOURCES["files"], [("folder", name)])
