"""Ctrl-C reaches whoever waits, and never the work that is waited for."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spillover.cli.aside import Aside


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_comes_of_work_is_brought_and_so_is_what_went_wrong() -> None:
    def fails() -> None:
        raise ValueError("no")

    with Aside() as aside:
        assert aside.result(lambda: 5) == 5
        with pytest.raises(ValueError, match="no"):
            aside.result(fails)
        assert aside.result(threading.current_thread) is not threading.main_thread()


def test_work_goes_on_when_its_waiting_is_interrupted() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        interrupt()
        assert go.wait(10)
        done.set()

    with Aside() as aside:
        with pytest.raises(KeyboardInterrupt):
            aside.result(work)
        go.set()
        assert done.wait(10)
        assert aside.result(lambda: "next") == "next"  # and its end is not taken for that of other work


def test_an_interrupt_between_two_waits_meets_the_second() -> None:
    with Aside() as aside:
        assert aside.result(lambda: 1) == 1
        interrupt()  # in the middle of anything: nothing is raised here
        with pytest.raises(KeyboardInterrupt):
            aside.result(threading.Event().wait)


@contextmanager
def handled_by(handler: signal.Handlers) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_signals_are_as_they_were_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Aside():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
    with handled_by(signal.SIG_IGN), Aside() as aside:
        interrupt()  # a command in the background is not meant by it
        assert aside.result(lambda: 1) == 1
