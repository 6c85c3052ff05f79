"""`spill policy`: what is printed of policies, and how changes are asked for."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from spillover.cli.commands.policy import history
from spillover.cli.printing.output import Output
from spillover.client import Refused
from spillover.wire.api import FieldProblem, PolicyAxis, PolicyOutcome, PolicyRecord, PolicyView

AT = "2026-01-31T10:00:00.000000Z"
LINE = "wait=never,backfill=out_of_order,order=own(x=1),place=best_fit"


def a_view(*, differs: bool) -> PolicyView:
    order = PolicyAxis("order", "own(x=1)", "own", {"x": 1}, True, 17, "ValueError: no")
    wait = PolicyAxis("wait", "never", "never", {}, False, 3, "it took 3s in one step", "slow(y=2)")
    place = PolicyAxis("place", "best_fit", "best_fit", {}, False, 0, None)
    return PolicyView(LINE, [wait, order, place], 1000, 3600.0, AT, "ada", "set", "order=fifo", differs)


@pytest.fixture
def policies(client: Any) -> Any:
    """A client that knows policies."""

    def set_policy(policy: str | None, *, dry_run: bool) -> PolicyOutcome:
        client.asked.append((policy, dry_run))
        return PolicyOutcome("order=lifo", "order=fifo", ["order: lifo -> fifo"], not dry_run)

    client.policy = lambda: a_view(differs=True)
    client.set_policy = set_policy
    client.policy_history = lambda: [
        PolicyRecord(AT, "spillover", "disabled", "", "", ["wait: slow -> never"], "it took 3s in one step"),
        PolicyRecord(AT, "ada", "set", "", "", ["wait: zero -> slow", "depth: 1 -> 2"], None),
    ]
    return client


def test_show_says_what_decides_since_when_and_what_is_wrong(
    policies: Any, spill: Callable[..., Any]
) -> None:
    typed = spill("policy", "show")
    lines = typed.out.splitlines()
    assert lines[0].split() == ["AXIS", "POLICY", "FAILED", "PROBLEM"]
    assert lines[1].split(None, 3) == ["wait", "never", "3", "slow(y=2) is disabled: it took 3s in one step"]
    assert lines[2].split(None, 3) == ["order", "own(x=1)", "17", "ValueError: no"]
    assert lines[3].split() == ["place", "best_fit", "-"]
    assert "since            2026-01-31 10:00:00 UTC, set by ada" in lines
    assert "configured       order=fifo" in lines
    told = "the server is configured with other policies; run `spill policy reset` to return to them"
    assert typed.err == f"spill: {told}\n"
    assert "spill.yaml" not in typed.out + typed.err, "the server may have no such file"
    assert spill("policy") == typed
    assert spill("policy", "--json") == spill("policy", "show", "--json")
    assert spill("policy", "--help").out.startswith("usage: spill policy [-h] ACTION")
    policies.policy = lambda: a_view(differs=False)
    typed = spill("policy", "show")
    assert ("configured       the same policies" in typed.out, typed.err) == (True, "")


def test_set_is_quiet_and_a_dry_run_says_what_would_change(policies: Any, spill: Callable[..., Any]) -> None:
    assert spill("policy", "set", "order=fifo") == (0, "", "")
    assert spill("policy", "set", "order=fifo", "--dry-run") == (0, "order: lifo -> fifo\n", "")
    assert spill("policy", "reset") == (0, "", "")
    done = spill("policy", "reset", "--json")
    assert json.loads(done.out)["done"]
    assert policies.asked == [("order=fifo", False), ("order=fifo", True), (None, False), (None, False)]


def test_a_dry_run_that_changes_nothing_says_so(policies: Any, spill: Callable[..., Any]) -> None:
    policies.set_policy = lambda _, **__: PolicyOutcome("", "", [], done=False)
    assert spill("policy", "set", "order=fifo", "--dry-run") == (0, "", "spill: nothing would change\n")


def test_setting_what_is_set_already_says_so(policies: Any, spill: Callable[..., Any]) -> None:
    policies.set_policy = lambda _, **__: PolicyOutcome("", "", [], done=True)
    assert spill("policy", "set", "order=fifo") == (0, "", "spill: nothing changes\n")


def test_history_has_a_line_for_each_change(policies: Any, spill: Callable[..., Any]) -> None:
    _, disabled, chosen = spill("policy", "history").out.splitlines()
    assert disabled.endswith("spillover  disabled  wait: slow -> never (it took 3s in one step)")
    assert chosen.endswith("ada        set       wait: zero -> slow, depth: 1 -> 2")
    assert len(json.loads(spill("policy", "history", "--json").out)) == 2
    policies.policy_history = list
    assert spill("policy", "history").err == "spill: the policies have never been changed\n"


def test_every_problem_is_a_line_and_the_code_is_2(policies: Any, spill: Callable[..., Any]) -> None:
    def refuse(policy: str | None, *, dry_run: bool) -> PolicyOutcome:
        problems = [FieldProblem("wait", "is odd"), FieldProblem("", "unknown axis")]
        raise Refused("the policy has 2 problems", status=400, kind="invalid", problems=problems)

    policies.set_policy = refuse
    typed = spill("policy", "set", "wait=odd,x=1")
    assert (typed.code, typed.out) == (2, "")
    assert typed.err.splitlines()[1:] == ["spill:   wait: is odd", "spill:   unknown axis"]
    assert spill("policy", "sett").code == 2
    assert spill("policy", "sett").code == 2
    assert spill("policy", "set").code == 2


def drawn_on(terminal: Output) -> str:
    """What a person sees, without colours."""
    terminal.out.seek(0)
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.out.read())


def test_a_narrow_terminal_cuts_nothing_of_what_changed(terminal: Output) -> None:
    changes = [
        "wait: compute(0.076,max_queue=30) -> stepped(short=15m,long_wait=2h)",
        "order: fifo -> fair_share",
    ]
    records = [PolicyRecord(AT, "ada", "reset", "", "", changes, None)]
    history(terminal, records)
    lines = drawn_on(terminal).splitlines()
    at = lines[0].index("CHANGED")
    assert " ".join(line[at:].strip() for line in lines[1:]) == ", ".join(changes)
    assert all(len(line) <= 80 for line in lines)
