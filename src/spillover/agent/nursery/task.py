"""One task as the nursery knows it."""

import threading

from spillover.agent.nursery.cgroups import Slot
from spillover.agent.nursery.holes import BoundedFile


class NurseryTask:
    """Shared by the thread that runs it, the one that listens and the one that watches."""

    __slots__ = (
        "argv",
        "begun",
        "cpu",
        "env",
        "files",
        "folder",
        "key",
        "lease",
        "lock",
        "memory",
        "named",
        "peak",
        "pid",
        "slot",
        "spools",
        "starved",
        "stem",
        "stopped",
        "streams",
    )

    def __init__(
        self,
        key: int,
        argv: list[str],
        env: dict[str, str],
        folder: str,
        stem: str,
        lease: str,
        memory: int,
        cpu: int,
    ) -> None:
        self.key = key
        self.argv = argv
        self.env = env
        self.folder = folder
        self.stem = stem
        """Where its output goes in the end, without the ending for the stream."""
        self.lease = lease
        self.memory = memory
        """Bytes that it may use; 0 is no limit."""
        self.cpu = cpu
        """Thousandths of a CPU that it asked for."""
        self.lock = threading.Lock()
        self.pid = 0
        """Of its leader; 0 before it is made and after it was reaped, when the number may be another's."""
        self.begun = 0
        """Monotonic nanoseconds at which its process was made."""
        self.stopped = False
        """Whether it is to be stopped before it is made."""
        self.starved = False
        """Whether it was killed for using more memory than it may."""
        self.peak = 0
        """Bytes that it was seen to use at most, where they are watched."""
        self.slot: Slot | None = None
        """The groups that it runs in; None where there are none."""
        self.files: tuple[int, ...] = ()
        """Its output."""
        self.streams: tuple[BoundedFile, ...] = ()
        """The same, once it has run for a moment."""
        self.spools: tuple[str, ...] = ()
        """The spool files it writes to; empty before and after."""
        self.named: set[int] = set()
        """Streams whose output has the task's own name already."""
