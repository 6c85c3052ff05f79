"""Containers without an engine: an image is a folder below FOLDER_IMAGES, and its programs are what the command finds."""

import os
import time
from pathlib import Path

from msgspec.structs import replace

from spillover.agent.process import ProcessEnded
from spillover.agent.runners.port import RunnerContext, RunnerOffer
from spillover.agent.values import Exit, Task
from spillover.core.events import Lease
from spillover.model.job import Argv, Container


class FolderImages:
    """Runs containers as plain processes. Nothing is kept apart, so it is for images that one trusts."""

    kinds = (Container,)

    def __init__(self, house: RunnerContext) -> None:
        self._house = house
        self._images = Path(os.environ.get("FOLDER_IMAGES", ""))

    def offer(self) -> RunnerOffer:
        """The word that container jobs need, or why they cannot have it."""
        if self._images.is_absolute() and self._images.is_dir():
            return RunnerOffer(("container",))
        return RunnerOffer(missing={"container": "FOLDER_IMAGES does not name a folder with images"})

    async def open(self) -> None:
        """Nothing has to be made ready."""

    async def close(self) -> None:
        """Nothing is left."""

    def start(self, lease: Lease, task: Task, slot: int) -> None:  # noqa: ARG002 - no two share their room
        """Run the command with the programs of its image; what happens to it is told as of any process."""
        work = task.work
        if not isinstance(work, Container):
            raise TypeError(work)
        programs = self._images / work.image.replace("/", "_")
        if not programs.is_dir() or not work.command:
            why = f"there is no image {work.image}" if work.command else "a command is needed"
            self._house.seen([ProcessEnded(lease, Exit(time.monotonic_ns(), spawned=False, message=why))])
            return
        env = task.env | {"PATH": f"{programs}:{os.defpath}"}
        self._house.launch(lease, replace(task, work=Argv(work.command), env=env), None)

    def signal(self, lease: Lease, *, kill: bool) -> None:
        """Processes hear signals themselves."""
        self._house.signal(lease, kill)

    def recall(self, lease: Lease) -> None:
        """Never asked of what has room of its own."""

    async def name_output(self, lease: Lease) -> None:
        """As of any process."""
        await self._house.name_output(lease)
