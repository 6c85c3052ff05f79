"""Runs requests in threads, so that Ctrl-C interrupts the wait for a request and never the request itself."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")
_MOMENT: Final = 0.5
"""Seconds between two checks for a signal that did not wake the wait."""


class Aside:
    """Makes Ctrl-C raise KeyboardInterrupt in `result` and nowhere else while it is entered.

    Threads share connections. A KeyboardInterrupt in the middle of a request can leave a lock of a connection held for
    ever, and then every thread blocks.
    """

    def __init__(self) -> None:
        self._news: SimpleQueue[Future[Any] | None] = SimpleQueue()
        """Finished work, and None for each Ctrl-C. SimpleQueue is the only queue that a signal handler may put into."""
        self._before: Any = None

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not set in the background
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def result(self, work: Callable[[], T]) -> T:
        """Run some work in a thread and return its result; on Ctrl-C, raise and let the work end by itself."""
        future: Future[T] = Future()
        threading.Thread(target=self._do, args=(work, future), daemon=True).start()
        while (news := self._heard()) is not future:
            if news is None:
                raise KeyboardInterrupt
        return future.result()

    def _heard(self) -> Future[Any] | None:
        """Return the next finished work, or None for a Ctrl-C; poll, as a signal just before `get` does not wake it."""
        while True:
            try:
                return self._news.get(timeout=_MOMENT)
            except Empty:
                pass

    def _do(self, work: Callable[[], T], future: Future[T]) -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            future.set_exception(error)
        self._news.put(future)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._news.put(None)
