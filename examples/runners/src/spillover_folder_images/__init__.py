"""Runs containers without an engine. An image is a folder of programs below FOLDER_IMAGES."""

import os
import time
from pathlib import Path

from msgspec.structs import replace

from spillover.agent.leases.values import Exit, Task
from spillover.agent.runners.port import RunnerContext, RunnerOffer
from spillover.agent.tasks.process import ProcessEnded
from spillover.core.events import Lease
from spillover.model.job import Argv, Container


class FolderImages:
    """Runs containers as plain processes. It isolates nothing, so use it only for images that you trust."""

    kinds = (Container,)

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._images = Path(os.environ.get("FOLDER_IMAGES", ""))

    def offer(self) -> RunnerOffer:
        """Return the word that container jobs need, or why it is not offered."""
        if self._images.is_absolute() and self._images.is_dir():
            return RunnerOffer(("container",))
        return RunnerOffer(missing={"container": "FOLDER_IMAGES does not name a folder with images"})

    async def open(self) -> None:
        """Do nothing: there is nothing to prepare."""

    async def close(self) -> None:
        """Do nothing: there is nothing to clean up."""

    def start(self, lease: Lease, task: Task, slot: int) -> None:  # noqa: ARG002 - tasks of this runner share no slot
        """Run the command with the programs of its image, reported like any process."""
        work = task.work
        if not isinstance(work, Container):
            raise TypeError(work)
        programs = self._images / work.image.replace("/", "_")
        if not programs.is_dir() or not work.command:
            why = f"there is no image {work.image}" if work.command else "a command is needed"
            self._context.seen([ProcessEnded(lease, Exit(time.monotonic_ns(), spawned=False, message=why))])
            return
        env = task.env | {"PATH": f"{programs}:{os.defpath}"}
        self._context.launch(lease, replace(task, work=Argv(work.command), env=env), None)

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Signal the process, like any other."""
        self._context.signal(lease, kill)

    def recall(self, lease: Lease) -> None:
        """Do nothing: tasks with capacity of their own are never recalled."""

    async def name_output(self, lease: Lease) -> None:
        """Name the output, as for any process."""
        await self._context.name_output(lease)
