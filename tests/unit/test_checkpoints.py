"""When a program that runs as a task is told to save."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import spillover
from spillover import checkpoint
from spillover.checkpoints import SIGNALS, signal_file


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of signals of the agent of a task."""
    monkeypatch.setenv("SPILL_AGENT", str(tmp_path))
    monkeypatch.setenv("SPILL_JOB_ID", "a")
    monkeypatch.setenv("SPILL_ATTEMPT", "1")
    monkeypatch.delenv("SPILL_TASK", raising=False)
    (tmp_path / SIGNALS).mkdir()
    return tmp_path / SIGNALS


def test_a_program_is_told_once_of_the_signal_before_its_walltime(folder: Path) -> None:
    assert not checkpoint()
    (folder / signal_file("a", 1, 0)).touch()
    assert checkpoint()
    assert not checkpoint()


def test_a_later_attempt_and_another_task_have_signals_of_their_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / signal_file("a", 1, 0)).touch()
    assert checkpoint()
    monkeypatch.setenv("SPILL_ATTEMPT", "2")
    assert not checkpoint()
    monkeypatch.setenv("SPILL_TASK", "3")
    (folder / signal_file("a", 2, 3)).touch()
    assert checkpoint()


def test_a_stop_is_a_reason_to_save(folder: Path) -> None:
    assert not checkpoint()
    os.kill(os.getpid(), signal.SIGTERM)
    assert checkpoint()
    assert not checkpoint()


def test_a_handler_of_the_program_stays(folder: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    checkpoint()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_other_threads_may_ask(folder: Path) -> None:
    (folder / signal_file("a", 1, 0)).touch()
    told: list[bool] = []
    asking = threading.Thread(target=lambda: told.append(checkpoint()))
    asking.start()
    asking.join()
    assert told == [True]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_it_is_time_after_so_many_seconds_without_a_save(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("spillover.checkpoints.time.monotonic", lambda: now)
    assert not checkpoint(every=60)
    now += 60
    assert [checkpoint(every=60), checkpoint(every=60)] == [True, False]


def test_outside_of_a_task_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPILL_AGENT", "SPILL_JOB_ID", "SPILL_ATTEMPT", "SPILL_TASK"):
        monkeypatch.delenv(name, raising=False)
    assert not checkpoint()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert spillover.checkpoint is checkpoint
