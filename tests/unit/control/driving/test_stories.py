"""Seeded stories of external clusters: servers die, links break, answers are lost, and others interfere."""

import pytest
from msgspec import structs

from spillover.control.driving import ledger
from spillover.control.driving.attempts import Attempt, Known
from spillover.control.driving.cases import DriverOrders
from spillover.control.driving.ledger import Ledger
from spillover.core.events import Lease
from spillover.core.records.jobs import Placed, Running
from spillover.core.state import State
from spillover.policies.loading import load
from spillover.ports.driver import Answer, Made
from tests.support.external.story import Story, Tale, Wrong

SEEDS = 150
FEW = 20
"""Seeds that every change is tried with."""
MOST = 400
"""Seeds within which a planted bug is found."""


def test_everything_ends_once_and_nothing_is_left_behind() -> None:
    for seed in range(1, FEW + 1):
        Story(seed, load).play()


@pytest.mark.slow
def test_it_does_so_whatever_happens() -> None:
    met = Tale()
    for seed in range(1, SEEDS + 1):
        tale = Story(seed, load).play()
        met = Tale(
            *[mine + its for mine, its in zip(structs.astuple(met), structs.astuple(tale), strict=True)]
        )
    assert all(structs.astuple(met)), f"some things never happened: {met}"


def found(first: int = 1) -> int:
    """The seed, from the first on, whose story goes wrong."""
    for seed in range(first, first + MOST):
        try:
            Story(seed, load).play()
        except Wrong:
            return seed
    raise AssertionError(f"{MOST} stories did not show the bug")


@pytest.mark.slow
def test_what_an_earlier_server_may_have_asked_for_counts_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def adopt(self: Ledger, state: State) -> None:
        for job in state.jobs.values():
            if isinstance(job.phase, Placed | Running) and job.phase.cluster == self.cluster:
                self._expect(job.lease, Known.UNASKED)

    monkeypatch.setattr(Ledger, "adopt", adopt)
    assert found()


@pytest.mark.slow
def test_an_answer_that_did_not_come_may_have_been_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Ledger.answered

    def forgetful(self: Ledger, lease: Lease, answer: Answer, now: int, monotonic: int) -> None:
        answered(self, lease, Answer(Made.UNSENT) if answer.made is Made.UNKNOWN else answer, now, monotonic)

    monkeypatch.setattr(Ledger, "answered", forgetful)
    assert found(first=80)  # of the first hundred, 84 shows it


@pytest.mark.slow
def test_what_was_just_made_need_not_be_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LATE", 0)
    assert found()


@pytest.mark.slow
def test_what_is_left_over_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def clear(self: Ledger, attempt: Attempt, orders: DriverOrders, now: int, monotonic: int) -> None:
        if attempt.known is not Known.SEEN and not attempt.asking:
            self._drop(attempt)

    monkeypatch.setattr(Ledger, "_clear", clear)
    assert found()


@pytest.mark.slow
def test_a_gang_that_runs_in_part_is_not_left_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "_wait_or_end", lambda *_: None)
    assert found()
