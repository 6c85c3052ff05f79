"""Describes one task inside the nursery."""

import threading
from collections.abc import Sequence

from spillover.agent.nursery.cgroups import Slot
from spillover.agent.nursery.holes import BoundedFile


class NurseryTask:
    """One task, shared by the thread that runs it, the one that receives messages and the one that watches."""

    __slots__ = (
        "append",
        "argv",
        "begun",
        "cpu",
        "cpus",
        "env",
        "files",
        "folder",
        "given",
        "key",
        "lease",
        "linked",
        "lock",
        "memory",
        "memory_of",
        "named",
        "paths",
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
        cpus: str = "",
        paths: Sequence[str] = (),
        append: bool = False,
        given: str = "",
        memory_of: str = "",
    ) -> None:
        self.key = key
        self.argv = argv
        self.env = env
        self.folder = folder
        self.stem = stem
        """Path of its output files, without the suffix of the stream."""
        self.lease = lease
        self.memory = memory
        """Most bytes that it may use; 0 is no limit."""
        self.cpu = cpu
        """Thousandths of a CPU that it requested."""
        self.cpus = cpus
        """CPUs that it has for itself, such as `0-7,16`; empty if it shares those that are left."""
        self.paths = paths
        """Files for its output and its errors, relative to `folder`, each empty if there is none; empty if there are
        none at all.
        """
        self.append = append
        """Whether to append to these files; otherwise they are truncated."""
        self.memory_of = memory_of
        """NUMA nodes that its memory must be of, such as `0`; empty if it may be of any."""
        self.given = given
        """Path of its standard input; empty is nothing."""
        self.linked: set[int] = set()
        """Streams that go to such a file; the task's own name is a link to it."""
        self.lock = threading.Lock()
        self.pid = 0
        """The pid of its leader; 0 before its start and after its end, when the pid may be reused."""
        self.begun = 0
        """Monotonic nanoseconds at which its process started."""
        self.stopped = False
        """Whether it was stopped, so that no process may be started."""
        self.starved = False
        """Whether it was killed for using too much memory."""
        self.peak = 0
        """Peak memory in bytes, where memory is polled."""
        self.slot: Slot | None = None
        """The control groups in which it runs; None without control groups."""
        self.files: tuple[int, ...] = ()
        """Descriptors of its output."""
        self.streams: tuple[BoundedFile, ...] = ()
        """The same as bounded files, once it has run for a moment."""
        self.spools: tuple[str, ...] = ()
        """Paths of its spool files; empty before and after the run."""
        self.named: set[int] = set()
        """Streams whose output already has the task's own name."""
