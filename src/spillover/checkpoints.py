"""Tells a program that runs as a task when to save its work.

This needs the standard library only, so that any interpreter can use it.
"""

import contextlib
import os
import signal
import time
from types import FrameType
from typing import Final

SIGNALS: Final = "signals"
"""The folder below that of the agent with a file for each task that got the signal before its walltime."""


class _Notices:
    """What one task was told."""

    def __init__(self, task: tuple[str, ...]) -> None:
        self.task = task
        folder, job, attempt, rank = task
        self._file = os.path.join(folder, SIGNALS, signal_file(job, attempt, rank)) if folder else ""  # noqa: PTH118 - a few microseconds count
        self._told = False
        """Whether the signal before the walltime was passed on."""
        self.stopped = False
        """Whether a TERM came that was not passed on."""
        self.saved = time.monotonic()
        """When its work was last saved, or when it first asked."""

    def news(self) -> bool:
        """Return whether something came since the last time."""
        came, self.stopped = self.stopped, False
        if not self._told and self._file and os.path.exists(self._file):  # noqa: PTH110 - as above
            self._told = came = True
        return came


_notices = _Notices(("", "", "", ""))


def signal_file(job: str, attempt: object, task: object) -> str:
    """Return the name of the file of a task."""
    return f"{job}.{attempt}.{task}"


def checkpoint(every: float | None = None) -> bool:
    """Return whether it is time to save, and then not again until the next reason comes.

    It is time when the task got the signal before its walltime (`signal_before`), when it is being stopped and has its
    grace left, and after `every` seconds without a save. The first call lets TERM no longer end the process at once,
    unless the program handles TERM itself. Outside of a task only `every` counts. A call takes some microseconds.
    """
    global _notices  # noqa: PLW0603 - a signal handler has no other place
    known = os.environ.get
    job = known("SPILL_JOB_ID", "")
    task = (known("SPILL_AGENT", ""), job, known("SPILL_ATTEMPT", ""), known("SPILL_TASK", "0"))
    if task != _notices.task:  # a warm worker makes calls of one job after the other
        _notices = _Notices(task)
    if job and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # only the main thread may; others still learn of the file
            signal.signal(signal.SIGTERM, _stopped)
    now = time.monotonic()
    due = _notices.news() or (every is not None and now - _notices.saved >= every)
    if due:
        _notices.saved = now
    return due


def _stopped(_number: int, _frame: FrameType | None) -> None:
    """Note that the task is being stopped."""
    _notices.stopped = True
