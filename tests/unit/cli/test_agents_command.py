"""`spill agents drain`, `resume` and `forget`."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.wire.api import AgentDetail, AgentTask, AgentView, RentedView


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


def test_one_agent_is_shown_with_its_tasks_and_why_it_was_drained(
    client: Any, spill: Callable[..., Any]
) -> None:
    task = AgentTask(
        "abcdefghijkl",
        0,
        "train",
        "ada",
        "vision",
        "RUNNING",
        ahead=False,
        resources={"cpu": 2.0},
        started_at=None,
    )
    ahead = replace(task, job="m" * 12, ahead=True)
    shown = AgentDetail(
        "n1",
        "onprem",
        "draining",
        {"cpu": 8.0, "memory": 2.0**34},
        {"cpu": 2.0},
        1,
        2,
        ["gpu:a100"],
        {"rack": "r1"},
        None,
        drained_by="ann",
        drain_reason="new disk",
        since="2026-01-31T10:00:00Z",
        version="0.5.0",
        tasks=[task, ahead],
        tasks_in_all=5,
    )
    client.agent = lambda name: shown if name == "n1" else None
    typed = spill("agents", "show", "n1")
    facts = dict(line.split(maxsplit=1) for line in typed.out.split("\n\n")[0].splitlines() if "  " in line)
    assert facts["agent"] == "onprem/n1"
    assert facts["state"].startswith("draining since 2026-01-31")
    assert (facts["drained"], facts["version"], facts["labels"], facts["offers"]) == (
        *("by ann: new disk", "0.5.0", "rack=r1", "gpu:a100"),
    )
    rows = typed.out.split("\n\n")[1].splitlines()
    assert [row.split()[:5] for row in rows[1:]] == [
        ["abcdefghijkl", "0", "train", "ada", "RUNNING"],
        ["m" * 12, "0", "train", "ada", "prefetched"],
    ]
    assert "3 more tasks are not shown" in typed.err
    client.agents = lambda: [shown]
    assert "draining: new disk" in spill("agents").out
    assert spill("agents", "show").code == 2


def test_an_agent_is_drained_with_a_reason(client: Any, spill: Callable[..., Any]) -> None:
    asked: list[tuple[object, ...]] = []
    client.resume = client.forget = None

    def noted(*names: str, **how: str) -> list[str]:
        asked.append((*names, how))
        return list(names)

    client.drain = noted
    assert spill("agents", "drain", "n1", "--reason", "new disk").code == 0
    assert spill("agents", "drain", "n1").code == 0
    assert asked == [("n1", {"reason": "new disk"}), ("n1", {})]
    assert "--reason is for" in spill("agents", "resume", "n1", "--reason", "x").err
