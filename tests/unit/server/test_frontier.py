"""Which waits the frontier has, and what it takes from a back-test."""

from pathlib import Path

import pytest

from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import write_choice
from spillover.model.units import HOUR
from spillover.policies.loading import load
from spillover.server.frontier import Frontier, points_of, project_of
from spillover.wire.api import FrontierProject, FrontierRequest
from tests.support.inside import leading
from tests.support.waiting import until


def waits(now: Choice) -> list[str]:
    """The waits of the frontier; each can be loaded."""
    found = list(points_of(PolicySet(wait=now)))
    for each in found:
        load(PolicySet(wait=each))
    return [write_choice("wait", each) for each in found]


def test_the_frontier_is_around_the_present_coefficient() -> None:
    found = waits(Choice("compute", {"coefficient": 0.25, "max_queue": 30}))
    assert (found[0], found[-1], len(found)) == ("zero", "never", 11)
    assert found[5] == "compute(0.25,max_queue=30)"
    assert found[1] == "compute(0.01562,max_queue=30)"
    assert found[9] == "compute(4,max_queue=30)"


def test_a_duration_is_varied_too() -> None:
    found = waits(Choice("constant", {"wait": HOUR}))
    assert (found[1], found[5], found[9]) == ("constant(225s)", "constant(1h)", "constant(16h)")


def test_a_wait_without_a_coefficient_is_compared_with_break_even() -> None:
    for now in (Choice("zero"), Choice("never"), Choice("budget", {"b": 0.25})):
        assert waits(now)[5] == "break_even(0.076)"


def test_a_project_is_compared_with_the_simulation_of_the_policies_of_the_time() -> None:
    change = {
        "project": "vision",
        "jobs": 4,
        "wait_s": 60.0,
        "wait_as_ran_s": 50.0,
        "wait_then_s": 20.0,
        "cost": 3.0,
        "cost_as_ran": 2.5,
        "cost_then": 4.0,
        "verdict": "wins",
    }
    assert project_of(change) == FrontierProject("vision", 4, 50.0, 20.0, 2.5, 4.0, "wins")


async def test_a_back_test_that_cannot_be_started_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "gone"))
    async with leading() as control:
        frontier = Frontier(control.loop, tmp_path)
        assert frontier.start(FrontierRequest()).state == "computing"
        await until(lambda: frontier.view().state != "computing", "the end")
        told = frontier.view()
    assert (told.state, told.message) == (
        "failed",
        "the back-test cannot be started: No such file or directory",
    )
