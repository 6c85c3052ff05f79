"""Policies are shown and changed while the server runs; what cannot be made is refused before it is proposed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from spillover.control.requests.policies import PolicyRequests
from spillover.core.events import PolicyChanged, PolicyDisabled
from spillover.core.proposals import DisablePolicy, SetPolicies, StartEpoch, Submit
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies import loading
from spillover.ports.commands import CommandError, ErrorKind
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED
from spillover.wire.api import PolicyPatch
from tests.support.inside import Inside

DEFAULTS = "backfill=out_of_order,order=fifo,place=best_fit"


class Point:
    """An entry point."""

    def __init__(self, name: str, made: Callable[..., Any]) -> None:
        self.name = name
        self._made = made

    def load(self) -> Callable[..., Any]:
        return self._made


class Half:
    """Waits a share of the expected runtime."""

    def __init__(self, share: float = 0.5) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"share {share} is not from 0 to 1")
        self._share = share

    def wait(self, case: Any) -> float:
        if case.expected == 7 * SECOND:
            raise ZeroDivisionError("seven")
        return float(case.expected * self._share)


@pytest.fixture
def requests(control: Inside, monkeypatch: pytest.MonkeyPatch) -> PolicyRequests:
    """The requests of a server on which one package is installed."""
    monkeypatch.setattr(loading, "_points", lambda: (Point("wait.half", Half),))
    monkeypatch.setattr("spillover.forms.policies.installed", lambda: (*loading.BUILT_IN, "wait.half"))
    return PolicyRequests(control.loop)


async def refused(requests: PolicyRequests, line: str) -> CommandError:
    with pytest.raises(CommandError) as error:
        await requests.change(PolicyPatch(line), "ada")
    assert error.value.kind is ErrorKind.INVALID
    return error.value


async def test_what_decides_is_shown_with_since_when_and_what_is_configured(requests: PolicyRequests) -> None:
    view = await requests.show()
    assert view.policy == f"wait=never,{DEFAULTS}"
    assert (view.who, view.how, view.differs) == ("spillover", "configured", False)
    outcome = await requests.change(PolicyPatch("wait=constant(90s),depth=5"), "ada")
    assert outcome.done
    assert outcome.changes == ["wait: never -> constant(90s)", "depth: 1000 -> 5"]
    view = await requests.show()
    assert view.policy == f"wait=constant(90s),{DEFAULTS},depth=5"
    assert (view.who, view.how, view.differs) == ("ada", "set", True)
    assert view.configured == f"wait=never,{DEFAULTS}"
    assert {axis.axis: axis.options for axis in view.axes}["wait"] == {"wait": 90.0}


async def test_axes_that_are_not_named_stay_and_null_goes_back(requests: PolicyRequests) -> None:
    await requests.change(PolicyPatch("order=priority"), "ada")
    await requests.change(PolicyPatch("wait=zero"), "bob")
    assert (await requests.show()).policy == "wait=zero,backfill=out_of_order,order=priority,place=best_fit"
    await requests.change(PolicyPatch(None), "ada")
    assert not (await requests.show()).differs
    assert [(one.who, one.changes) for one in await requests.history()] == [
        ("ada", ["wait: zero -> never", "order: priority -> fifo"]),
        ("bob", ["wait: never -> zero"]),
        ("ada", ["order: fifo -> priority"]),
        ("spillover", ["wait: compute(0.076,max_queue=30) -> never"]),
    ]


async def test_a_dry_run_changes_nothing(requests: PolicyRequests, control: Inside) -> None:
    outcome = await requests.change(PolicyPatch("wait=zero", dry_run=True), "ada")
    assert (outcome.changes, outcome.done) == (["wait: never -> zero"], False)
    assert control.loop.state.facts.policies.wait == Choice("never")
    assert len(await requests.history()) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("wait=nap", "wait: 'nap' is not a policy of the axis wait; expected one of "),
        ("wait=constant(soon)", "wait.constant.wait: "),
        ("wait=constant", "wait.constant.wait: is missing"),
        ("odrer=fifo", "unknown axis 'odrer'; did you mean `order`?"),
        (" , ", "the line names no policy; write wait="),
        ("", "the line names no policy; write wait="),
        ("fifo", "has no axis"),
        ("wait=half(share=7)", "policy wait: half: share 7 is not from 0 to 1"),
        (
            "wait=half(shrae=1)",
            "policy wait: half does not take these options: shrae; it takes share; did you mean `share`?",
        ),
        ("wait=half(part=1)", "policy wait: half does not take these options: part; it takes share"),
    ],
)
async def test_what_cannot_be_decided_by_is_refused_in_one_line(
    requests: PolicyRequests, line: str, told: str
) -> None:
    error = await refused(requests, line)
    assert told in error.message
    assert "\n" not in error.message
    assert [(await requests.show()).policy] == [f"wait=never,{DEFAULTS}"]


async def test_every_problem_of_a_line_is_named(requests: PolicyRequests) -> None:
    error = await refused(requests, "wait=nap,order=latest,place=best_fit(3)")
    assert error.message == "the policy has 3 problems"
    assert [problem.path for problem in error.problems] == ["wait", "order", "place.best_fit"]


async def test_what_somebody_else_set_meanwhile_is_not_undone(control: Inside) -> None:
    stale = PolicySet(order=Choice("priority"))
    reply = await control.propose(SetPolicies(PolicySet(), "bob", over=stale))
    assert "the policies changed in the meantime" in str(reply)


async def test_failures_of_a_policy_of_ones_own_are_shown(requests: PolicyRequests, control: Inside) -> None:
    await requests.change(PolicyPatch("wait=half(share=0.25)"), "ada")
    await control.submit("a", estimate="7s")
    wait = (await requests.show()).axes[0]
    assert (wait.policy, wait.installed) == ("half(share=0.25)", True)
    assert (wait.failures, wait.error) == (1, "ZeroDivisionError: seven")
    assert control.loop.watch.failures() == {("wait", "half"): 1}


async def test_what_was_disabled_is_shown_and_brought_back_by_setting_it(
    requests: PolicyRequests, control: Inside
) -> None:
    await requests.change(PolicyPatch("wait=half"), "ada")
    await control.propose(DisablePolicy("wait", "half", 3 * SECOND))
    wait = (await requests.show()).axes[0]
    assert (wait.policy, wait.disabled, wait.error) == ("never", "half", "it took 3s in one step")
    last = (await requests.history())[0]
    assert (last.who, last.how, last.error) == ("spillover", "disabled", "it took 3s in one step")
    await requests.change(PolicyPatch("wait=half"), "ada")
    wait = (await requests.show()).axes[0]
    assert (wait.policy, wait.disabled, wait.error) == ("half", None, None)


@pytest.mark.parametrize("line", ["wait=never", None], ids=["set", "reset"])
async def test_to_choose_the_fallback_settles_what_was_disabled(
    requests: PolicyRequests, control: Inside, line: str | None
) -> None:
    await requests.change(PolicyPatch("wait=half"), "ada")
    await control.propose(DisablePolicy("wait", "half", 3 * SECOND))
    assert (await requests.change(PolicyPatch("order=fifo"), "ada")).changes == []
    assert (await requests.show()).axes[0].disabled == "half", "another axis was named"
    told = ["wait: never, no longer as a fallback"]
    assert (await requests.change(PolicyPatch(line, dry_run=True), "ada")).changes == told
    assert (await requests.show()).axes[0].disabled == "half"
    assert (await requests.change(PolicyPatch(line), "ada")).changes == told
    wait = (await requests.show()).axes[0]
    assert (wait.policy, wait.disabled, wait.error) == ("never", None, None)
    last = (await requests.history())[0]
    assert (last.how, last.changes) == ("reset" if line is None else "set", told)
    assert (await requests.change(PolicyPatch(line), "ada")).changes == []
    await control.propose(StartEpoch(2, (OWNED, RENTED), PolicySet(wait=Choice("never"))))
    assert (await requests.show()).axes[0].disabled is None


async def test_failures_are_counted_anew_for_a_policy_that_is_made_anew(
    requests: PolicyRequests, control: Inside
) -> None:
    await requests.change(PolicyPatch("wait=half(share=0.25)"), "ada")
    await control.submit("a", estimate="7s")
    await requests.change(PolicyPatch("wait=never"), "ada")
    await requests.change(PolicyPatch("wait=half(share=0.5),order=lifo"), "ada")
    wait = (await requests.show()).axes[0]
    assert (wait.failures > 0) == (wait.error is not None)
    assert wait.failures <= 1, "the job that waits was asked about again, no more"
    assert control.loop.watch.failures()["wait", "half"] > wait.failures, "metrics only grow"


async def test_a_restart_keeps_what_was_set_and_takes_a_configuration_that_changed(
    requests: PolicyRequests, control: Inside
) -> None:
    await requests.change(PolicyPatch("wait=zero"), "ada")
    await control.propose(StartEpoch(2, (OWNED, RENTED), PolicySet(wait=Choice("never"))))
    assert (await requests.show()).axes[0].policy == "zero"
    await control.propose(StartEpoch(3, (OWNED, RENTED), PolicySet(order=Choice("priority"))))
    view = await requests.show()
    assert (view.axes[0].policy, view.differs) == ("compute(0.076,max_queue=30)", False)


def test_changes_read_as_sentences_in_the_history() -> None:
    assert str(PolicyChanged(1, "ada", PolicySet(wait=Choice("zero")))) == (
        f"policies changed by ada: wait=zero,{DEFAULTS}"
    )
    slow, gone = PolicyDisabled(1, "wait", "half", SECOND), PolicyDisabled(1, "wait", "half", 0, "it is gone")
    assert str(slow) == "policy wait.half was disabled: it took 1s in one step"
    assert str(gone) == "policy wait.half was disabled: it is gone"


async def test_others_have_their_turn_while_jobs_are_looked_at_anew_by_other_policies(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.deciding.engine.SLICE", 2)
    jobs = Submit(tuple(a_job(f"job-{number}").cpus(999).build() for number in range(40)), "ada")
    await control.loop.propose(jobs)
    await control.loop.propose(SetPolicies(PolicySet(wait=Choice("zero")), "ada"))
    turns = 0
    while not control.loop.engine.is_ready:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert (await control.loop.ready()).policies.chosen.wait.name == "zero"
