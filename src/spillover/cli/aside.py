"""Ctrl-C that meets only who waits: what is waited for goes on in threads, where no interrupt comes between a lock and its release."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")
_MOMENT: Final = 0.5
"""Seconds after which a signal is seen to that did not end the waiting."""


class Aside:
    """While it is entered, Ctrl-C raises KeyboardInterrupt in `result`, and nowhere else.

    Connections are shared by threads. A KeyboardInterrupt that is raised in the middle of a request can leave a lock of theirs held for
    ever, and then everybody waits.
    """

    def __init__(self) -> None:
        self._news: SimpleQueue[Future[Any] | None] = SimpleQueue()
        """What is done, and None for each Ctrl-C; the one queue that a signal handler may put something into."""
        self._before: Any = None

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it is ignored
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def result(self, work: Callable[[], T]) -> T:
        """What comes of some work; at Ctrl-C it is left to end by itself."""
        future: Future[T] = Future()
        threading.Thread(target=self._do, args=(work, future), daemon=True).start()
        while (news := self._heard()) is not future:
            if news is None:
                raise KeyboardInterrupt
        return future.result()

    def _heard(self) -> Future[Any] | None:
        """The next of the news; a signal that comes as the waiting begins does not end it."""
        while True:
            try:
                return self._news.get(timeout=_MOMENT)
            except Empty:
                pass

    def _do(self, work: Callable[[], T], future: Future[T]) -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)
        self._news.put(future)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._news.put(None)
