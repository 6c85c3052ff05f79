"""Holds what one nursery thread uses for one task after the other: spool files, a scratch folder, control groups.

Two new files and a folder for each task would cost more than its process (20 to 500 µs each on ext4, depending on its
journal). A spool file gets the task's name when the task ended with output, or when a reader asks for it earlier.
Otherwise the next task uses the same file. The next task also uses the same scratch folder if it is empty.
"""

import contextlib
import os
from typing import Final

from spillover.agent.nursery.cgroups import Slot, Tree
from spillover.agent.nursery.frames import STREAMS
from spillover.agent.nursery.task import NurseryTask

RESTART: Final = "SPILL_RESTART"
"""The variable of a task that runs again in its place, with the number of times."""
_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC


class ThreadFiles:
    """The files and groups of one thread."""

    def __init__(self, spool: str, scratch: str, tree: Tree | None, number: int) -> None:
        self._spool = spool
        self._scratch = scratch
        self._number = number
        self._serial = 0
        self.spools = ["", ""]
        self.files = [-1, -1]
        self.scratch = ""
        """Path of a folder that is empty when a task starts."""
        self.slot: Slot | None = None
        self.cpus = ""
        """The CPUs that the thread has moved to, as a list; empty is all."""
        self._tree = tree

    def prepare(self) -> None:
        """Create what the next task needs and is missing; raise OSError if that fails."""
        if self.slot is None and self._tree is not None:
            slot = Slot(self._tree, self._number)
            slot.enter()
            self.slot = slot
        for stream, name in enumerate(STREAMS):
            if self.files[stream] < 0:
                self._serial += 1
                self.spools[stream] = f"{self._spool}/{self._number}-{self._serial}.{name}"
                self.files[stream] = os.open(self.spools[stream], _FLAGS, 0o600)
        if not self.scratch:
            self._serial += 1
            self.scratch = f"{self._scratch}/{self._number}-{self._serial}"
            os.mkdir(self.scratch, 0o700)
            os.utime(self.scratch, (0, 0))  # adding or removing an entry changes this time

    def go_on(self, stem: str) -> None:
        """Let the next task write behind what an earlier run of it has written, if that has a name."""
        for stream, name in enumerate(STREAMS):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{stem}.{name}", self.spools[stream])
                os.close(self.files[stream])
                self.files[stream] = -1
                self.files[stream] = os.open(self.spools[stream], os.O_RDWR | os.O_APPEND)

    def clear(self, named: set[int], *, clean: bool) -> None:
        """Drop everything that belongs to an ended task, or that its remaining processes may still use."""
        for stream, file in enumerate(self.files):
            if file >= 0 and (stream in named or not clean):
                os.close(file)
                if stream not in named:
                    with contextlib.suppress(OSError):
                        os.unlink(self.spools[stream])
                self.files[stream] = -1
        if self.scratch:
            try:
                used = os.stat(self.scratch).st_mtime_ns != 0  # costs a fifth of listing it
            except OSError:
                used = True  # the task removed it
            if used or not clean:
                remove(self.scratch)
                self.scratch = ""


def open_streams(task: NurseryTask, *, again: bool) -> dict[int, int]:
    """Open the files that a task's output goes to, and link them under its own name; raise OSError if that fails.

    The log of the task is then the file itself, so both always show the same. Its middle is never cut out.
    """
    files: dict[str, int] = {}
    found: dict[int, int] = {}
    mode = os.O_CREAT | os.O_WRONLY | os.O_APPEND | (0 if task.append or again else os.O_TRUNC)
    os.makedirs(os.path.dirname(task.stem), mode=0o700, exist_ok=True)
    try:
        for stream, name in enumerate(STREAMS):
            if not task.paths[stream]:
                continue
            path = os.path.normpath(os.path.join(task.folder, task.paths[stream]))
            if path not in files:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                files[path] = os.open(path, mode, 0o666)
                link = f"{task.stem}.{name}"
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(link)
                os.symlink(path, link)
            found[stream] = files[path]
            task.linked.add(stream)
    except OSError:
        for file in files.values():
            os.close(file)
        raise
    return found


def remove(folder: str) -> None:
    """Remove a folder with its content, at any depth and whatever its permissions."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if not os.path.lexists(folder):
            return
        with contextlib.suppress(OSError):
            quiet = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
            path = {"PATH": os.environ.get("PATH", os.defpath)}
            os.waitpid(os.posix_spawnp(words[0], [*words, "--", folder], path, file_actions=quiet), 0)
