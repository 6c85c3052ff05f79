"""The page about the HTTP API names every endpoint, every question, every kind of error and every limit."""

import re
from http import HTTPStatus
from pathlib import Path

import pytest

from spillover.api.http import bodies, streams
from spillover.api.http.problems import WORDS
from spillover.client import errors
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.endpoints import ENDPOINTS

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"


@pytest.fixture(scope="module")
def rows() -> dict[str, str]:
    """Lines of the tables by their first cell."""
    found = re.findall(r"^\| `([^`]+)` \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    return dict(found)


def test_every_endpoint_and_no_other_is_on_the_page(rows: dict[str, str]) -> None:
    written = {cell for cell in rows if re.match(r"[A-Z]+ /", cell)}
    assert written == {f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS}


def test_every_question_is_on_the_page(rows: dict[str, str]) -> None:
    for endpoint in ENDPOINTS:
        cell = rows[f"{endpoint.method} {endpoint.path}"].rpartition("|")[2]
        assert set(endpoint.in_query) == set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", cell)))


def test_every_kind_of_refusal_is_on_the_page(rows: dict[str, str]) -> None:
    assert {kind.value for kind in ErrorKind} <= rows.keys()
    assert set(WORDS.values()) <= rows.keys()
    source = "".join(path.read_text() for path in Path(bodies.__file__).parent.glob("*.py"))
    assert {
        HTTPStatus[name] for name in re.findall(r"Refused\(\s*HTTPStatus\.([A-Z_]+)", source)
    } <= WORDS.keys()
    assert set(re.findall(r'kind="(\w+)"', source)) <= rows.keys()


def test_every_error_of_the_client_is_on_the_page(rows: dict[str, str]) -> None:
    tree = {kind.__name__ for kind in errors.SpillError.__subclasses__()}
    assert tree <= rows.keys()
    assert not issubclass(CommandError, errors.SpillError)


def test_limits_are_as_they_are_written() -> None:
    page = PAGE.read_text()
    assert f"{bodies.MOST_JOBS:,} jobs and {bodies.MOST_BYTES // 2**20} MiB" in page
    assert f"every {streams.KEEP_ALIVE:.0f} seconds" in page
