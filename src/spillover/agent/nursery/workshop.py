"""What one thread of the nursery has to itself and uses for one task after the other: spool files, a scratch folder, groups.

Two new files and a folder for each task would cost more than its process (20 to 500 µs each on ext4, with the state of its
journal). A spool file gets the task's name when the task ended and it is not empty, or when somebody wants to read it
meanwhile; otherwise the next task uses it. So it is with the scratch folder: if it is empty the next task has the same.
"""

import contextlib
import os
from typing import Final

from spillover.agent.nursery.cgroups import Slot, Tree
from spillover.agent.nursery.frames import STREAMS

_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC


class Workshop:
    """Of one thread."""

    def __init__(self, spool: str, scratch: str, tree: Tree | None, number: int) -> None:
        self._spool = spool
        self._scratch = scratch
        self._number = number
        self._serial = 0
        self.spools = ["", ""]
        self.files = [-1, -1]
        self.scratch = ""
        """A folder that is empty when a task begins."""
        self.slot: Slot | None = None
        self._tree = tree

    def prepare(self) -> None:
        """Have all that the next task needs; raises OSError."""
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
            os.utime(self.scratch, (0, 0))  # whatever is put into it or removed changes that

    def clear(self, named: set[int], *, clean: bool) -> None:
        """A task is over: keep nothing that is its own, and nothing that what is left of it may still use."""
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


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, however deep, and whatever rights were taken from it."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if not os.path.lexists(folder):
            return
        with contextlib.suppress(OSError):
            quiet = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
            path = {"PATH": os.environ.get("PATH", os.defpath)}
            os.waitpid(os.posix_spawnp(words[0], [*words, "--", folder], path, file_actions=quiet), 0)
