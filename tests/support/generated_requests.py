"""Requests generated from the OpenAPI document: whatever is sent, the answer is one that the document allows.

The tests that `schema.parametrize()` of schemathesis makes generate their requests whenever tests are collected, in each
process that collects them, which takes as long as sending them. And they have one name, so that a run in several processes
takes them for one test. These tests have the names of their operations, and generate requests when they run.
"""

import functools
from typing import Any, Final

import msgspec
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from spillover.api.http.openapi import describe
from spillover.wire.endpoints import ENDPOINTS, LIVE
from tests.support.processes import ServerProcess

CHECKS: Final = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
OPERATIONS: Final = [f"{each.method} {each.path}" for each in ENDPOINTS if each is not LIVE]
"""What tests are parametrized by. The answer of LIVE never ends, whatever is asked."""


@functools.cache
def _described() -> BaseSchema:
    schema = schemathesis.openapi.from_dict(msgspec.json.decode(describe(ENDPOINTS)))
    schema.config.generation.update(modes=list(schemathesis.GenerationMode))
    return schema


def send_strange_requests(
    operation: str, server: ServerProcess, examples: int, *, bounds: bool = False
) -> None:
    """Send so many requests at random to one operation, and with `bounds` those with a bound of each of its parameters.

    Raise at an answer that the document does not allow.
    """

    token = (server.data / "token").read_text().strip()

    def send(case: Any) -> None:
        for endless in ("follow", "timeout"):
            if endless in case.query:
                case.query[endless] = "0"
        if case.operation.path.endswith("/wait"):
            case.query["timeout"] = "0"  # the job that is drawn may be there, and never ends
        response = case.call(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=10)
        case.validate_response(response, checks=CHECKS)

    schema = _described()
    wanted = schema.find_operation_by_label(operation)
    assert wanted is not None
    modes = list(HypothesisTestMode) if bounds else [HypothesisTestMode.FUZZING]
    config = HypothesisTestConfig(schema.config, modes)
    tried = settings(max_examples=examples, derandomize=True, suppress_health_check=list(HealthCheck))
    create_test(operation=wanted, test_func=tried(send), config=config)()
