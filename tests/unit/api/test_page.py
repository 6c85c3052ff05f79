"""The files of the web page: small, without code in HTML, from no other host, and only with endpoints that exist."""

import re
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from spillover.api.http import build_app
from spillover.api.http.pages import ADDRESSES
from spillover.wire import endpoints
from tests.support.served import served

PAGE = Path(str(files("spillover.api.http") / "page"))
SCRIPTS = {each.name: each.read_text() for each in sorted(PAGE.glob("*.js"))}
OTHERS = [each.name for each in sorted(PAGE.iterdir()) if each.suffix in {".css", ".svg", ".html"}]
MOST = 150_000
"""Bytes of all scripts together, as they are sent, before compression."""


def asked_in(text: str) -> set[str]:
    """Paths of the API in a script, with `{}` for what it fills in."""
    return {
        re.sub(r"\$\{[^}]*\}", "{}", found).partition("?")[0]
        for found in re.findall(r"[\"`](/v1/[^\"`]*)[\"`]", text)
    }


DECLARED = {re.sub(r"{\w+}", "{}", endpoint.path) for endpoint in endpoints.ENDPOINTS}
ASKED = {path for text in SCRIPTS.values() for path in asked_in(text)} - {"/v1/"}


async def test_every_file_is_served_and_all_scripts_together_are_small() -> None:
    async with served() as inside:
        transport = httpx.ASGITransport(build_app(inside.commands, inside.tokens, None))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7070") as http:
            sent = {}
            for name in [*SCRIPTS, *OTHERS]:
                if name != "index.html":
                    answer = await http.get(f"/assets/{name}")
                    assert answer.status_code == 200, name
                    sent[name] = answer.content
    assert sum(len(sent[name]) for name in SCRIPTS) <= MOST
    # What is left out on the way is indentation and comments, and no code.
    for name, text in SCRIPTS.items():
        told = [line.strip() for line in text.splitlines()]
        code = [line for line in told if not re.match(r"//|/\*\*|\* |\*/", line)]
        assert sent[name].decode().split("\n") == [*code, ""], name


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_code_of_texts_or_reaches_another_host(name: str) -> None:
    text = SCRIPTS[name]
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "srcdoc",
    ):
        assert word not in text, word
    addresses = set(re.findall(r"\bhttps?://[^\s\"'`)]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    # Scripts are sent without indentation, which no text may need.
    for line in text.splitlines():
        code = re.sub(r"//.*", "", line)
        assert code.count("`") % 2 == 0, line


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_only_from_each_other(name: str) -> None:
    for source in re.findall(r"^import .* from \"(.*)\";$", SCRIPTS[name], re.MULTILINE):
        assert source.removeprefix("./") in SCRIPTS, source


@pytest.mark.parametrize("name", OTHERS)
def test_no_code_or_style_is_inside_of_other_files(name: str) -> None:
    text = (PAGE / name).read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|@import|url\(", text)
    assert not re.search(r"<script(?![^>]*\ssrc=\"/assets/)", text)
    for address in re.findall(r"(?:src|href)=\"([^\"]*)\"", text):
        assert address.startswith("/assets/"), address
        assert (PAGE / address.removeprefix("/assets/")).is_file(), address


@pytest.mark.parametrize("path", sorted(ASKED))
def test_what_the_page_asks_for_is_declared(path: str) -> None:
    assert path in DECLARED


def test_the_page_asks_for_most_of_what_people_can_see() -> None:
    assert len(ASKED) > 30


def test_the_addresses_of_the_page_are_those_that_the_server_answers() -> None:
    shown = re.findall(r"^  \[/\^\\/(.*)\$/, ", SCRIPTS["app.js"], re.MULTILINE)
    assert len(shown) == 9
    for pattern in shown:
        path = "/" + pattern.replace("\\/", "/").replace("([^/]+)", "mfzwizltoq2a")
        assert ADDRESSES.fullmatch(path), path


def test_every_icon_that_a_script_names_is_drawn() -> None:
    drawn = set(re.findall(r'<symbol id="(\w+)"', (PAGE / "icons.svg").read_text()))
    named = {name for text in SCRIPTS.values() for name in re.findall(r"\bicon\(\"(\w+)\"\)", text)}
    named |= set(
        re.findall(r"^  \[\"/\w*\", \"\w+\", \"(\w+)\", \"\w+\"\],$", SCRIPTS["app.js"], re.MULTILINE)
    )
    assert named
    assert named <= drawn
