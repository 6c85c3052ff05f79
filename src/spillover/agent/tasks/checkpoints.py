"""Keeps a file for each running task that got the signal before its walltime, for `spillover.checkpoint`.

A program may ask before it handles the signal, or in a thread, where it cannot handle any. A file tells it all the same.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from spillover.agent.files.task_folders import remove_folder
from spillover.checkpoints import SIGNALS, signal_file
from spillover.core.events import Lease

__all__ = ["SIGNALS", "SignalFiles"]


class SignalFiles:
    """The files of all tasks of an agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: set[Lease] = set()

    def open(self) -> None:
        """Delete what an earlier run left."""
        if self._folder.exists():
            remove_folder(self._folder)

    def tell(self, lease: Lease) -> None:
        """Create the file of a task. Without it, the task still gets the signal."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._path(lease).touch()
            self._told.add(lease)

    def forget(self, ended: Iterable[Lease]) -> None:
        """Delete the files of tasks that ended."""
        if self._told:
            for lease in ended:
                if lease in self._told:
                    self._told.discard(lease)
                    with contextlib.suppress(OSError):
                        self._path(lease).unlink(missing_ok=True)

    def _path(self, lease: Lease) -> Path:
        return self._folder / signal_file(lease.job, lease.attempt, lease.task)
