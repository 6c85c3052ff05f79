"""`spill notifications`: what was not sent, and what people do about it."""

import json
from collections.abc import Callable
from typing import Any

import pytest


def test_what_was_not_sent_is_aligned(client: Any, spill: Callable[..., Any]) -> None:
    typed = spill("notifications")
    title, failed, waiting = typed.out.splitlines()
    assert title.split() == ["ID", "TO", "STATE", "TRIES", "NEXT", "TEXT", "ERROR"]
    assert failed.split()[:5] == ["n1", "chat", "failed", "9", "-"]
    assert failed.endswith("answered with status 500")
    assert waiting.split()[:4] == ["n2", "chat", "waiting", "0"]
    assert client.asked == [("notifications", {"failed": None, "limit": 101})]


def test_only_failed_ones_and_json(client: Any, spill: Callable[..., Any]) -> None:
    (failed,) = json.loads(spill("notifications", "--failed", "--json").out)
    assert (failed["id"], failed["state"], failed["to"]) == ("n1", "failed", "chat")
    assert client.asked[0][1]["failed"] is True


def test_more_than_the_limit_is_told(spill: Callable[..., Any]) -> None:
    typed = spill("notifications", "--limit", "1")
    assert len(typed.out.splitlines()) == 2
    assert typed.err == "spill: there are more; write --limit 10\n"


def test_they_are_sent_again_dropped_and_tried(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("notifications", "retry", "--failed").err.startswith("spill: 1 notification sent again")
    assert spill("notifications", "drop", "n1", "n2").err == "spill: 2 notifications dropped\n"
    assert "is on its way" in spill("notifications", "test", "ada@example.org").err
    assert client.asked == [("retry", True), ("drop", "n1", "n2", False), ("test", "ada@example.org")]
    assert json.loads(spill("notifications", "drop", "n1", "--json").out) == {"ids": ["n1"]}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["retry"], "name notifications, or write: spill notifications retry --failed"),
        (["drop", "n1", "--failed"], "name notifications, or write: spill notifications drop --failed"),
        (["test"], "name one receiver, as in: spill notifications test ada@example.org"),
        (["list", "x"], "'x' is not one of list, retry, drop, test"),
    ],
)
def test_what_is_not_clear_is_refused(spill: Callable[..., Any], words: list[str], told: str) -> None:
    typed = spill("notifications", *words)
    assert typed.code == 2
    assert told in typed.err
