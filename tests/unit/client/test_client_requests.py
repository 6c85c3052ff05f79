"""Requests follow from the declarations of their endpoints."""

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spillover.api.http.parameters import ParameterReader
from spillover.client import NoEffect, asks
from spillover.client.asks import ask
from spillover.client.blobs import Upload
from spillover.wire import endpoints
from spillover.wire.api import Health, Patch
from spillover.wire.endpoints import ENDPOINTS, JSON, NO_BODY, Endpoint, json_of
from spillover.wire.parameters import (
    BlobQuery,
    CostQuery,
    EventsQuery,
    LogsQuery,
    NoParameters,
    OfBlob,
    OfJob,
    OverviewQuery,
    WaitQuery,
)
from tests.support.http import path_of

DIGEST = "0" * 64
NOT_FOR_PEOPLE = {"health", "live", "metrics", "openapi"}
"""What other programs ask for, by its address."""


def test_every_endpoint_is_asked_by_the_client() -> None:
    source = "".join(path.read_text() for path in Path(asks.__file__).parent.rglob("*.py"))
    asked = {name.lower() for name in re.findall(r"\bendpoints\.([A-Z_]+)\b", source)}
    assert asked == {endpoint.name for endpoint in ENDPOINTS} - NOT_FOR_PEOPLE


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_every_endpoint_can_be_asked(endpoint: Endpoint[Any, Any, Any]) -> None:
    parts = dict.fromkeys(endpoint.in_path, "seven")
    request = ask(endpoint, endpoint.parameters(**parts))
    assert (request.method, request.path) == (endpoint.method, path_of(endpoint, **parts))
    assert request.body is None
    assert int(endpoint.status) in request.good
    if endpoint.answer.media != JSON:
        assert request.read(b"as it is") == b"as it is"


@pytest.mark.parametrize(
    ("endpoint", "asked", "path", "query"),
    [
        (endpoints.SERVER, NoParameters(), "/v1/server", {}),
        (endpoints.SHOW, OfJob("a b"), "/v1/jobs/a%20b", {}),
        (endpoints.SHOW, OfJob(""), "/v1/jobs/-", {}),
        (endpoints.GET_BLOB, BlobQuery("../x", 7), "/v1/blobs/..%2Fx", {"offset": "7"}),
        (endpoints.WAIT, WaitQuery("j", 1.25), "/v1/jobs/j/wait", {"timeout": "1.250"}),
        (endpoints.WAIT, WaitQuery("j"), "/v1/jobs/j/wait", {"timeout": "30.000"}),
        (endpoints.LOGS, LogsQuery("j"), "/v1/jobs/j/logs", {}),
        (endpoints.COSTS, CostQuery("week"), "/v1/costs", {"by": "week"}),
        (endpoints.EVENTS, EventsQuery(0, follow=True, job="j"), "/v1/events", {"after": "0", "follow": "true", "job": "j"}),
        (endpoints.LOGS, LogsQuery("j", "stderr", 2, task=1), "/v1/jobs/j/logs", {"stream": "stderr", "attempt": "2", "task": "1"}),
        (endpoints.OVERVIEW, OverviewQuery(0, 50, 3), "/v1/overview", {"running": "0", "queued": "50", "agents": "3"}),
    ],
)  # fmt: skip
def test_an_address_says_what_has_to_be_said(
    endpoint: Endpoint[Any, Any, Any], asked: Any, path: str, query: dict[str, str]
) -> None:
    request = ask(endpoint, asked)
    assert (request.path, request.query) == (path, query)


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [
        (endpoints.WAIT, WaitQuery("j", 0.5)),
        (endpoints.LOGS, LogsQuery("j", "stderr", 3, 1, 99, follow=True)),
        (endpoints.LIST_JOBS, endpoints.LIST_JOBS.parameters("RUNNING", "p", "u", "n", None, 7, "c", True)),
        (endpoints.PUT_BLOB, OfBlob(DIGEST)),
    ],
)
def test_a_server_reads_what_a_client_asked(endpoint: Endpoint[Any, Any, Any], asked: Any) -> None:
    request = ask(endpoint, asked)
    query = "&".join(f"{name}={value}" for name, value in request.query.items())
    parts = [str(getattr(asked, name)) for name in endpoint.in_path]
    assert ParameterReader(endpoint).read(parts, query.encode()) == asked


def test_a_body_is_of_the_declared_type_or_plain_values() -> None:
    assert ask(endpoints.PATCH, OfJob("j"), Patch(5)).body == b'{"priority":5}'
    assert asks.submit([{"spec": {}}]).body == b'{"jobs":[{"spec":{}}]}'
    upload = Upload(b"x")
    assert asks.put_blob(DIGEST, upload).upload is upload


def test_an_answer_is_read_as_it_is_declared() -> None:
    assert asks.submit([{}]).read(b'{"jobs":["a"]}') == ["a"]
    assert asks.ready().read(msgspec.json.encode(Health("ready"))) is None
    assert asks.ready().read(msgspec.json.encode(Health("not ready", "loading"))) == "loading"
    assert asks.ready().good == {200, 503}


def test_a_time_is_sent_with_its_zone() -> None:
    at = datetime(2027, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    sent = asks.moment(at)
    assert sent is not None
    assert datetime.fromisoformat(sent) == at
    assert asks.moment("2027-01-02T03:00:00Z") == "2027-01-02T03:00:00Z"


def test_what_a_path_requires_has_to_be_given() -> None:
    with pytest.raises(TypeError, match="job"):
        ask(endpoints.SHOW)
    one = Endpoint("toy", "GET", "/v1/toys", "A toy", NoParameters, NO_BODY, json_of(int))
    assert ask(one).read(b"7") == 7


def test_what_has_no_effect_is_a_warning_at_the_line_that_submits() -> None:
    read = asks.submit([{"spec": {"run": "true"}}]).read
    with pytest.warns(NoEffect, match="^the priority has no effect$") as told:
        assert read(b'{"jobs": ["a"], "warnings": ["the priority has no effect"]}') == ["a"]
    assert [one.filename for one in told] == [__file__]
    assert read(b'{"jobs": ["a"]}') == ["a"]
