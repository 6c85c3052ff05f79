"""`spill pools`: what it shows of rented machines, and what it asks for."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from spillover.wire.api import MachineView, PlannedView, PoolView, SweepView, SweptMachine

AT = "2027-01-31T10:00:00.000000Z"


@pytest.fixture
def pools(client: Any) -> Any:
    """A client that knows a pool with a machine that runs and one that is gone."""
    machines = [
        MachineView("cloud-1", "small", "a", False, "ready", "cloud-1", AT, 0.4, "", 0.5, "i-1", 2),
        MachineView("cloud-2", "small", "a", True, "gone", None, AT, 0.1, "taken back", 0.2, "i-2"),
    ]
    client.pools = lambda: [PoolView("cloud", "aws", "open", None, machines, [], 0, 4, 3.0)]
    client.swept = [SweepView("cloud", [])]
    client.asked = []

    def sweep_pools(*clusters: str, dry_run: bool) -> list[SweepView]:
        client.asked.append((clusters, dry_run))
        return list(client.swept)

    client.sweep_pools = sweep_pools
    return client


def test_machines_are_a_table_under_each_pool(pools: Any, spill: Callable[..., Any]) -> None:
    line, title, row = spill("pools").out.splitlines()
    assert line == "cloud (aws): open; 1 of 4 machines, 0.50 an hour, 3.00 of the budget left"
    assert title.split()[:5] == ["MACHINE", "TYPE", "ZONE", "MARKET", "STATE"]
    assert row.split()[:5] == ["cloud-1", "small", "a", "on-demand", "ready"]
    assert spill("pools", "--all").out.splitlines()[-1].split()[-2:] == ["taken", "back"]
    unknown = spill("pools", "list", "colud")
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)


def test_a_plan_names_what_is_ordered_and_why(pools: Any, spill: Callable[..., Any]) -> None:
    pools.pool_plan = lambda: [PlannedView("cloud", "order", ["cloud-3"], "small/a/spot", 0.2, "jobs wait")]
    assert spill("pools", "plan").out.splitlines()[1].split() == (
        ["cloud", "order", "cloud-3", "small/a/spot", "0.2000", "jobs", "wait"]
    )


def test_a_sweep_shows_what_is_ended_and_a_dry_run_what_would_be(
    pools: Any, spill: Callable[..., Any]
) -> None:
    pools.swept = [
        SweepView(
            "cloud",
            [
                SweptMachine("i-7", "unwanted", "cloud-7", "spill-7", AT),
                SweptMachine("i-8", "ending", "cloud-8", reason="paused"),
                SweptMachine("", "unlisted", "cloud-9"),
            ],
        )
    ]
    title, first, second, third = spill("pools", "sweep", "--dry-run").out.splitlines()
    assert title.split() == ["POOL", "ID", "MACHINE", "STATE", "CREATED", "WHAT"]
    assert first.startswith("cloud  i-7")
    assert first.endswith("would be ended")
    assert second.endswith("is being ended: paused")
    assert "the provider does not list it" in third
    assert "once a second listing shows it" in spill("pools", "sweep", "cloud").out
    assert pools.asked == [((), True), (("cloud",), False)]
    assert json.loads(spill("pools", "sweep", "--json").out)[0]["machines"][0]["id"] == "i-7"


def test_a_sweep_that_finds_nothing_says_so(pools: Any, spill: Callable[..., Any]) -> None:
    assert spill("pools", "sweep") == (0, "", "spill: providers have no machine of ours that is not wanted\n")
    pools.swept = []
    assert "no cluster has a pool" in spill("pools", "sweep").err


def test_a_provider_that_cannot_be_asked_is_named_and_the_sweep_fails(
    pools: Any, spill: Callable[..., Any]
) -> None:
    pools.swept = [SweepView("cloud", [], "its provider cannot list machines: no credentials")]
    assert spill("pools", "sweep") == (
        1,
        "",
        "spill: cloud: its provider cannot list machines: no credentials\n",
    )


@pytest.mark.parametrize("words", [("plan", "--dry-run"), ("resume",), ("list", "--end"), ("plan", "cloud")])
def test_options_of_another_action_are_one_clear_line(
    pools: Any, spill: Callable[..., Any], words: tuple[str, ...]
) -> None:
    typed = spill("pools", *words)
    assert (typed.code, typed.out, typed.err.count("\n")) == (2, "", 1)
