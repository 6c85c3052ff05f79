"""The web page: its files are open to everybody, hold no data, and let browsers run nothing else."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from spillover.api.http import build_app
from spillover.api.http.door import Door
from spillover.api.http.pages import Pages, read_pages
from tests.support.http import TOKEN
from tests.support.served import served

SCRIPT = b"export const state = 'QUEUED';\n" * 20
PAGES = Pages({"index.html": b"<!doctype html>", "main.js": SCRIPT, "notes.txt": b"not a part of the page"})


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with served() as inside:
        transport = httpx.ASGITransport(build_app(inside.commands, inside.tokens, None))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7070") as client:
            yield client


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs",
        "/jobs/mfzwizltoq2a",
        "/policy",
        "/clusters",
        "/reservations",
        "/costs",
        "/submit",
        "/sign-in",
        "/account",
    ],
)
async def test_every_address_of_the_page_answers_its_shell(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path, params={"state": "QUEUED"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith("<!doctype html>")
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers.get_list("cache-control") == ["no-cache"]
    head = await http.head(path)
    assert (head.status_code, head.headers["etag"]) == (200, answer.headers["etag"])


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/",
        "/jobs/a/b",
        "/job",
        "/assets",
        "/assets/",
        "/assets/none.js",
        "/assets/index.html",
        "/assets/../pages.py",
        "/x",
    ],
)
async def test_other_paths_are_as_unknown_as_before(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.status_code == 401
    known = await http.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert known.status_code == 404
    assert known.headers["content-type"] == "application/problem+json"


async def test_the_page_is_only_read(http: httpx.AsyncClient) -> None:
    assert (await http.post("/")).status_code == 401
    assert (await http.post("/", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 404


async def test_a_page_under_a_foreign_name_is_refused(http: httpx.AsyncClient) -> None:
    assert (await http.get("/", headers={"Host": "rebound.example"})).status_code == 421


def answered(pages: Pages, path: str, **headers: str) -> Any:
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return pages.answer("GET", path, given)


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    first = answered(PAGES, "/assets/main.js")
    headers = dict(first.headers)
    assert (first.status, first.body, first.media) == (200, SCRIPT, b"text/javascript; charset=utf-8")
    again = answered(PAGES, "/assets/main.js", if_none_match=f'"other", W/{headers[b"etag"].decode()}')
    assert (again.status, again.body) == (304, b"")
    other = Pages({"index.html": b"", "main.js": SCRIPT + b"// changed"})
    assert answered(other, "/assets/main.js", if_none_match=headers[b"etag"].decode()).status == 200


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("gzip;q=0, br", False),
        ("identity", False),
        ("", False),
    ],
)
def test_a_file_is_compressed_for_those_who_accept_that(accepted: str, zipped: bool) -> None:
    answer = answered(PAGES, "/assets/main.js", accept_encoding=accepted)
    headers = dict(answer.headers)
    assert (headers.get(b"content-encoding") == b"gzip") is zipped
    assert (len(answer.body) < len(SCRIPT)) is zipped
    assert headers[b"vary"] == b"accept-encoding"
    plain = dict(answered(PAGES, "/assets/main.js").headers)
    assert (headers[b"etag"] != plain[b"etag"]) is zipped


def test_a_file_of_an_unknown_kind_is_not_served() -> None:
    assert answered(PAGES, "/assets/notes.txt") is None


def test_the_shell_names_only_files_that_there_are() -> None:
    pages = read_pages()
    shell = answered(pages, "/").body.decode()
    named = re.findall(r'(?:src|href)="(/[^"#?]*)"', shell)
    assert named
    assert [each for each in named if answered(pages, each) is None] == []
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', shell)


async def test_a_browser_is_told_what_a_starting_server_waits_for_and_comes_back() -> None:
    door = Door(lambda: "12,000 of <40,000> jobs")
    transport = httpx.ASGITransport(door)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7070") as client:
        page = await client.get("/jobs")
        style = await client.get("/assets/message.css")
        data = await client.get("/v1/jobs")
        posted = await client.post("/")
    assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "12,000 of &lt;40,000&gt; jobs" in page.text
    assert page.headers["refresh"] == "1"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert style.status_code == 200
    for other in (data, posted):
        assert (other.status_code, other.headers["content-type"]) == (503, "application/problem+json")
