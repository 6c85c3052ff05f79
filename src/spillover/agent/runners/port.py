"""What the agent wants of whoever runs a kind of work, and what it gives for it.

A runner is made once, by calling what its entry point names with a `RunnerContext`. It tells what it saw through `RunnerContext.seen`, in the same
words as processes do: `Spawned` when a task began (needless for one that is over within milliseconds) and `ProcessEnded` when it and all its
children are gone. `Returned` hands back a task that never began and may begin elsewhere.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from spillover.agent.files import Files
from spillover.agent.process import OUTPUT_LIMIT, ProcessEnded, Returned, Seen, Sight, Spawned
from spillover.agent.values import Task
from spillover.core.events import Lease
from spillover.model.resources import Resources

__all__ = ["ProcessEnded", "Returned", "Runner", "RunnerContext", "RunnerOffer", "Seen", "Sight", "Spawned"]


class RunnerOffer(Struct, frozen=True):
    """What jobs may need that is here because of a runner."""

    words: tuple[str, ...] = ()
    """Added to what the agent offers."""
    missing: Mapping[str, str] = {}
    """Words that it would offer, each with why it cannot; said to whoever asks why a job waits."""


class RunnerContext(Struct, frozen=True):
    """What a runner gets to work with."""

    folder: Path
    """The agent's own; the output of a task goes where `stem_of` in `process` says."""
    cluster: str
    capacity: Resources
    seen: Callable[[list[Sight]], None]
    """Tells what was seen."""
    launch: Callable[[Lease, Task, Callable[[Seen], None] | None], None]
    """Makes a process of a task whose work is a shell line or a command, isolated and limited like any other.

    What is seen of it is told to the last argument, or as of a task of the server's if that is None.
    """
    signal: Callable[[Lease, bool], None]
    """Sends TERM, or KILL, to all processes that were launched under a lease."""
    name_output: Callable[[Lease], Awaitable[None]]
    """Returns once the output of a launched process can be found under its name."""
    files: Files
    """Brings what jobs refer to by its digest here, and what they made to the server."""
    output_limit: int = OUTPUT_LIMIT
    """Bytes that are kept of each stream of a task; what is launched is kept within it."""
    settings: Mapping[str, str] = {}
    """What the agent was told on its command line, by name: `python`, `engine` ..."""


class Runner(Protocol):
    """Runs kinds of work."""

    kinds: tuple[type, ...]
    """Which, as types of `spillover.model.job`: an installed runner goes before a built-in one."""

    def offer(self) -> RunnerOffer:
        """What it adds to what the agent offers; asked once, after `open`."""
        ...

    async def open(self) -> None:
        """Get ready, and clear up what an earlier run left."""
        ...

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Run a task. Those of one slot share the room of one, and run one after the other; what has room of its own may have -1."""
        ...

    def recall(self, lease: Lease) -> None:
        """Hand a task back that has not begun, if it is not too late."""
        ...

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Terminate a task, or kill it; one that has not begun ends as one that was never made."""
        ...

    async def name_output(self, lease: Lease) -> None:
        """Return once the output of a task can be found under its name."""
        ...

    async def close(self) -> None:
        """End what is left."""
        ...


House, Offer = RunnerContext, RunnerOffer
"""Names of both up to release 0.4: runners of installed packages may import them."""
