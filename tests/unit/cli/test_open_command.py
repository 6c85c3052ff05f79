"""`spill open`: what it prints, and what it opens."""

import json
import webbrowser
from collections.abc import Callable
from typing import Any

import pytest

from spillover.wire.api import SignInLink

LINK = SignInLink("c0de", "http://127.0.0.1:7070/sign-in#c0de", "2026-01-31T10:01:00.000000Z")


@pytest.fixture
def opened(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a browser was told to open."""
    opened: list[str] = []
    client.sign_in_link = lambda: LINK
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    return opened


def test_it_opens_a_browser_and_prints_nothing(opened: list[str], spill: Callable[..., Any]) -> None:
    typed = spill("open")
    assert (typed.code, typed.out, typed.err) == (0, "", "")
    assert opened == [LINK.url]


def test_it_prints_the_link_for_those_who_ask(opened: list[str], spill: Callable[..., Any]) -> None:
    assert spill("open", "--print").out == f"{LINK.url}\n"
    assert json.loads(spill("open", "--json").out)["code"] == "c0de"
    assert opened == []


def test_it_prints_the_link_where_there_is_no_browser(
    opened: list[str], spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    typed = spill("open")
    assert typed.out == f"{LINK.url}\n"
    assert "found no browser to open; this link works in any browser, once, within a minute" in typed.err
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    assert spill("open").out == f"{LINK.url}\n"
    assert opened == [], "a browser in the terminal would be of no use"
