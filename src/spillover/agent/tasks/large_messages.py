"""Files for messages to nurseries that are too large: in memory if they have secrets, so that no value gets to a disk."""

import os
from collections.abc import Callable
from pathlib import Path

from spillover.agent.nursery import frames


class LargeMessages:
    """The files with large messages, by the keys of their tasks. A nursery deletes its file when it has read it."""

    def __init__(self, folder: Path, memory: Callable[[], Path] | None = None) -> None:
        self._folder = folder
        self._memory = memory or (lambda: folder)
        """Returns a folder that is not on a disk. Raises OSError."""
        self._secret: dict[int, Path | None] = {}
        """Tasks with secrets, each with the file that has them; None if there is none."""

    def clear(self) -> None:
        """Delete what an earlier run left on the disk."""
        for left in self._folder.glob("large-*"):
            left.unlink(missing_ok=True)

    def keep_off_disk(self, key: int) -> None:
        """Put the message about a task, which has secrets, into memory."""
        self._secret[key] = None

    def put(self, key: int, data: bytes) -> bytes:
        """Write a message into a file; return what to send instead."""
        path = self._folder / f"large-{key}"
        if key in self._secret:
            path = self._secret[key] = self._memory() / path.name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        return frames.pack(str(path))

    def over(self, key: int) -> None:
        """Delete the secrets of a task that is over, because a nursery that died has not read them."""
        if (path := self._secret.pop(key, None)) is not None:
            path.unlink(missing_ok=True)
