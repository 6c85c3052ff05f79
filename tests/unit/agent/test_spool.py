"""What an agent remembers over its own death."""

import os
from pathlib import Path

import pytest

from spillover.agent.files import spool as module
from spillover.agent.files.spool import Spool
from spillover.agent.leases.values import TaskResult
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome
from spillover.model.ids import JobId
from spillover.model.units import SECOND

NOW, WALL = 1_000 * SECOND, 2_000_000 * SECOND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def a_lease(number: int = 1) -> Lease:
    return Lease(JobId(f"job{number}"), 1, 3)


def a_result(number: int = 1) -> TaskResult:
    return TaskResult(
        a_lease(number), Outcome.EXITED, NOW - 5 * SECOND, exit_code=3, usage=Usage(1, 2, 3), message="m"
    )


def test_a_process_without_an_end_is_left(path: Path) -> None:
    spool = Spool(path)
    spool.started(a_lease(), 42, 7, WALL)
    spool.flush()
    (left,) = Spool(path).left()
    assert (left.lease, left.pid, left.birth, left.wall) == (a_lease(), 42, 7, WALL)


def test_an_unanswered_result_comes_back_with_its_age_on_another_clock(path: Path) -> None:
    spool = Spool(path)
    spool.started(a_lease(), 42, 7, WALL)
    spool.flush()
    spool.keep(a_result(), NOW, WALL)
    spool.flush()
    again = Spool(path)
    assert not again.left()
    (result,) = again.unanswered(10 * SECOND, WALL + SECOND)
    assert result.ended == 4 * SECOND
    assert (result.exit_code, result.usage, result.message) == (3, Usage(1, 2, 3), "m")


def test_an_answered_result_is_forgotten(path: Path) -> None:
    spool = Spool(path)
    spool.keep(a_result(), NOW, WALL)
    spool.flush()
    spool.forget(a_lease())
    spool.flush()
    assert not Spool(path).unanswered(NOW, WALL)


def test_what_is_over_within_one_turn_is_never_written(path: Path) -> None:
    spool = Spool(path)
    spool.started(a_lease(), 42, 7, WALL)
    spool.keep(a_result(), NOW, WALL)
    spool.forget(a_lease())
    spool.flush()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_torn_end_costs_only_what_was_torn(path: Path, cut: int) -> None:
    spool = Spool(path)
    for number in (1, 2):
        spool.keep(a_result(number), NOW, WALL)
    spool.flush()
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    again = Spool(path)
    kept = {result.lease for result in again.unanswered(NOW, WALL)}
    assert a_lease(1) in kept
    again.keep(a_result(3), NOW, WALL)
    again.keep(a_result(4), NOW, WALL)
    again.flush()
    assert a_lease(4) in {result.lease for result in Spool(path).unanswered(NOW, WALL)}


def test_it_stays_small_however_much_goes_through(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 1_000)
    monkeypatch.setattr(module, "LARGE", 10_000)
    spool = Spool(path)
    spool.keep(a_result(0), NOW, WALL)
    for number in range(1, 1_000):
        spool.keep(a_result(number), NOW, WALL)
        spool.flush()
        spool.forget(a_lease(number))
        spool.flush()
        assert path.stat().st_size < 11_000
    assert [result.lease for result in Spool(path).unanswered(NOW, WALL)] == [a_lease(0)]
    spool.forget(a_lease(0))
    spool.flush()
    assert path.stat().st_size < 11_000
    assert not Spool(path).unanswered(NOW, WALL)


def test_a_full_disk_is_an_error_and_mended_later(path: Path) -> None:
    spool = Spool(path)
    good = spool._file
    spool._file = os.open("/dev/full", os.O_WRONLY)
    spool.keep(a_result(1), NOW, WALL)
    with pytest.raises(OSError, match="No space"):
        spool.flush()
    spool.keep(a_result(2), NOW, WALL)
    spool.flush()
    os.close(good)
    assert {result.lease for result in Spool(path).unanswered(NOW, WALL)} == {a_lease(1), a_lease(2)}
