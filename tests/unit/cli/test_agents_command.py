"""`spill agents drain`, `resume` and `forget`."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.wire.api import AgentView, RentedView


@pytest.fixture
def done(client: Any) -> list[tuple[str, ...]]:
    """What was asked of the server."""
    asked: list[tuple[str, ...]] = []

    def noting(what: str) -> Callable[..., list[str]]:
        def note(*names: str) -> list[str]:
            asked.append((what, *names))
            return [f"onprem/{name}" for name in names]

        return note

    client.drain, client.resume, client.forget = noting("drain"), noting("resume"), noting("forget")
    return asked


@pytest.mark.parametrize(
    ("word", "what"),
    [("drain", "drain"), ("resume", "resume"), ("undrain", "resume"), ("forget", "forget")],
)
def test_agents_are_named_behind_what_is_done_to_them(
    done: list[tuple[str, ...]], spill: Callable[..., Any], word: str, what: str
) -> None:
    typed = spill("agents", word, "n1", "n2")
    assert (typed.code, typed.out, typed.err) == (0, "", "")
    assert done == [(what, "n1", "n2")]
    assert json.loads(spill("agents", word, "n1", "--json").out) == ["onprem/n1"]


def test_no_agent_is_a_mistake(done: list[tuple[str, ...]], spill: Callable[..., Any]) -> None:
    typed = spill("agents", "drain")
    assert typed.code == 2
    assert "no agent to drain" in typed.err
    assert done == []


def test_list_is_the_bare_command_and_takes_no_names(client: Any, spill: Callable[..., Any]) -> None:
    client.agents = list
    assert spill("agents", "list") == spill("agents") == (0, "", "spill: no agents\n")
    typed = spill("agents", "list", "n1")
    assert (typed.code, typed.err) == (2, "spill: `spill agents list` lists all agents; remove the names\n")


def test_a_word_that_is_no_action_is_a_mistake(spill: Callable[..., Any]) -> None:
    assert spill("agents", "stop", "n1").code == 2


def test_what_an_agent_holds_took_over_and_bears_is_shown(client: Any, spill: Callable[..., Any]) -> None:
    view = AgentView(
        "n1",
        "onprem",
        "lost",
        {"cpu": 2.0},
        {"cpu": 1.0},
        1,
        4,
        [],
        {},
        None,
        ahead=3,
        load=1.25,
        stolen_in=7,
        stolen_out=2,
        drained_by="ada",
    )
    client.agents = lambda: [view]
    head, line = spill("agents").out.splitlines()
    assert [word for word in head.split() if word in {"LEASED", "AHEAD", "LOAD", "HEARD", "STOLEN"}] == [
        "LEASED",
        "AHEAD",
        "LOAD",
        "HEARD",
        "STOLEN",
    ]
    assert "lost, drained" in line
    assert "7 in, 2 out" in line
    assert line.split()[4:7] == ["1", "4", "3"]
    assert json.loads(spill("agents", "--json").out)[0]["stolen_in"] == 7


def test_agents_on_rented_machines_show_their_machine(client: Any, spill: Callable[..., Any]) -> None:
    own = AgentView("n1", "onprem", "ready", {}, {}, 0, 0, [], {}, None)
    machine = RentedView("m7i.large", "a", spot=True, state="draining", hour=0.1)
    client.agents = lambda: [own]
    assert "MACHINE" not in spill("agents").out
    client.agents = lambda: [own, replace(own, name="cloud-1", cluster="cloud", machine=machine)]
    title, first, second = spill("agents").out.splitlines()
    at = title.index("MACHINE")
    assert first[at:].split()[0] == "-"
    assert second[at:].startswith("m7i.large, spot, draining")
