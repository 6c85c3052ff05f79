"""`spill clock`: what is shown of the server's clock, and how it is accepted."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.wire.api import ClockView

HELD = ClockView(
    now="2027-01-31T10:00:00.000000Z",
    wall="2037-01-31T10:00:00.000000Z",
    state="held",
    differs_s=315_619_200.0,
    agree=0,
    disagree=2,
    message="the machine's clock jumped ahead by 3653d",
)


@pytest.fixture
def clock(client: Any) -> Any:
    client.clock = lambda: HELD
    client.accept_clock = lambda: client.asked.append("accept") or replace(HELD, state="followed")
    return client


def test_a_clock_that_is_held_back_is_shown_with_what_to_do(clock: Any, spill: Callable[..., Any]) -> None:
    typed = spill("clock")
    rows = [line.split(maxsplit=2) for line in typed.out.splitlines()]
    assert [row[0] for row in rows] == ["server's", "machine's", "state", "other"]
    assert "2027-01-31" in typed.out
    assert "2037-01-31" in typed.out
    assert "0 agree with it, 2 do not" in typed.out
    assert typed.err == "spill: the machine's clock jumped ahead by 3653d\n"
    assert clock.asked == []


def test_a_clock_that_is_followed_needs_no_words(clock: Any, spill: Callable[..., Any]) -> None:
    clock.clock = lambda: replace(HELD, state="followed")
    typed = spill("clock", "show")
    assert typed.err == ""
    assert "state            trusted\n" in typed.out
    assert json.loads(spill("clock", "--json").out)["state"] == "followed"


def test_accept_is_quiet(clock: Any, spill: Callable[..., Any]) -> None:
    assert spill("clock", "accept") == (0, "", "")
    assert clock.asked == ["accept"]
