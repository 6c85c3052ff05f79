"""Defines the port between the agent and the runner of a kind of work.

The agent creates a runner once, by calling the object that the entry point names with a `RunnerContext`. The runner
reports through `RunnerContext.seen`, like processes do: `Spawned` when a task began (not needed if it ends within
milliseconds), and `ProcessEnded` when it and all its children are gone. `Returned` gives back a task that never began
and may begin elsewhere.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from spillover.agent.files.cache import Files
from spillover.agent.leases.values import Task
from spillover.agent.tasks.process import OUTPUT_LIMIT, ProcessEnded, Returned, Seen, Sight, Spawned
from spillover.core.events import Lease
from spillover.model.resources import Resources

__all__ = [
    "NotifyingRunner",
    "PreparingRunner",
    "ProcessEnded",
    "Returned",
    "Runner",
    "RunnerContext",
    "RunnerOffer",
    "Seen",
    "SharingRunner",
    "Sight",
    "Spawned",
]


class RunnerOffer(Struct, frozen=True):
    """What a runner lets an agent offer to jobs."""

    words: tuple[str, ...] = ()
    """Words to add to the offers of the agent."""
    missing: Mapping[str, str] = {}
    """Words that the runner cannot offer, each with the reason. It is shown to people who ask why a job waits."""


class RunnerContext(Struct, frozen=True):
    """What the agent provides to a runner."""

    folder: Path
    """The agent's own folder. `stem_of` in `process` gives the path for the output of a task."""
    cluster: str
    capacity: Resources
    seen: Callable[[list[Sight]], None]
    """Reports what happened to tasks."""
    launch: Callable[[Lease, Task, Callable[[Seen], None] | None], None]
    """Starts a process for a task whose work is a shell line or a command, with the usual isolation and limits.

    If its variables have secrets, so must its `secrets`: they keep the variables off the disk.

    The last argument receives its start and end. If it is None, they count as those of a task of the server.
    """
    signal: Callable[[Lease, bool], None]
    """Sends TERM or KILL to all processes that were launched under a lease."""
    name_output: Callable[[Lease], Awaitable[None]]
    """Returns once the output of a launched process has its own name."""
    files: Files
    """Fetches files by digest, and uploads files to the server."""
    output_limit: int = OUTPUT_LIMIT
    """Most bytes to keep of each output stream of a task. Launched processes are limited to it."""
    settings: Mapping[str, str] = {}
    """Settings from the agent's command line, by name, such as `python` or `engine`."""
    node: str = "localhost"
    """The name of the agent."""
    notify: Callable[[Lease, int], None] = lambda _, __: None
    """Sends a signal to those processes launched under a lease that handle it."""


class Runner(Protocol):
    """Runs some kinds of work."""

    kinds: tuple[type, ...]
    """The kinds, as types of `spillover.model.job`. An installed runner takes precedence over a built-in one."""

    def offer(self) -> RunnerOffer:
        """Return what the runner adds to the offers of the agent. Called once, after `open`."""
        ...

    async def open(self) -> None:
        """Get ready, and clean up what an earlier run left."""
        ...

    def start(self, lease: Lease, task: Task, slot: int) -> None:
        """Run a task. Tasks of one slot share capacity and run one after the other; -1 is a slot of its own."""
        ...

    def recall(self, lease: Lease) -> None:
        """Give back a task that has not begun, if it is not too late."""
        ...

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Terminate or kill a task. One that has not begun ends as not spawned."""
        ...

    async def name_output(self, lease: Lease) -> None:
        """Return once the output of a task has its own name."""
        ...

    async def close(self) -> None:
        """End everything that is left."""
        ...


@runtime_checkable
class PreparingRunner(Runner, Protocol):
    """A runner that must get something ready before a task of its kind can start."""

    async def prepare(self, task: Task) -> str:
        """Get ready for a task of a gang; return why that fails, or an empty string.

        No task of a gang starts before all are prepared. The task may be given back meanwhile, and never start.
        """
        ...


@runtime_checkable
class NotifyingRunner(Runner, Protocol):
    """A runner that passes on the signal before a walltime itself. For others, the agent signals what they launched."""

    def notify(self, lease: Lease, number: int) -> None:
        """Send a signal to the processes of a task, as far as they handle it."""
        ...


@runtime_checkable
class SharingRunner(Runner, Protocol):
    """A runner whose tasks are not below the agent's processes, so that it must keep them off CPUs of other tasks."""

    def share(self, cpus: str) -> None:
        """Keep tasks that have no CPUs for themselves on these CPUs, such as `0-7,16`; empty is all."""
        ...


House, Offer = RunnerContext, RunnerOffer
"""The names of both up to release 0.4. Installed runners may import them."""
