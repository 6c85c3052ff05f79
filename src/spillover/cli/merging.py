"""Merges the output of several tasks of a job: whole lines, each behind the number of its task or its group."""

import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Queue
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from spillover.wire.api import JobDetail

MOST_FOLLOWED: Final = 32
"""Tasks whose output is followed at a time, each with connections of its own: a client has about a hundred."""
MOST_LINE: Final = 1 << 16
"""Bytes after which a line is printed before it ends."""

Read: TypeAlias = Callable[[int], Iterable[bytes]]
"""Returns the output of a task, in pieces."""


class Labelled:
    """Turns pieces of one task's output into whole lines with a label."""

    def __init__(self, label: str) -> None:
        self._label = f"[{label}] ".encode()
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the lines that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MOST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return b"".join([self._label + line + b"\n" for line in lines])

    def end(self) -> bytes:
        """Return the last line, if the task did not end it."""
        rest, self._rest = self._rest, b""
        return self._label + rest + b"\n" if rest else b""


def one_by_one(read: Read, labels: Sequence[str]) -> Iterable[bytes]:
    """Yield the labelled output of each task, one after the other; raise the first error after the rest was read."""
    failed: list[Exception] = []
    for task, label in enumerate(labels):
        try:
            yield from _labelled(read, task, label)
        except Exception as error:  # noqa: BLE001 - one lost machine must not hide the output of the others
            failed.append(error)
    if failed:
        raise failed[0]


def together(read: Read, labels: Sequence[str]) -> Iterable[bytes]:
    """Yield labelled lines of the first tasks as they come; raise the first error after all others have ended."""
    followed = range(min(len(labels), MOST_FOLLOWED))
    found: Queue[bytes | Exception | None] = Queue(1000)

    def pass_on(task: int) -> None:
        try:
            for lines in _labelled(read, task, labels[task]):
                found.put(lines)
        except Exception as error:  # noqa: BLE001 - raised where the lines are read
            found.put(error)
        found.put(None)

    for task in followed:
        threading.Thread(target=pass_on, args=(task,), daemon=True).start()
    left, failed = len(followed), list[Exception]()
    while left:
        match found.get():
            case None:
                left -= 1
            case bytes(lines):
                yield lines
            case Exception() as error:
                failed.append(error)
    if failed:
        raise failed[0]


def _labelled(read: Read, task: int, text: str) -> Iterable[bytes]:
    """Yield whole lines of one task."""
    label = Labelled(text)
    for piece in read(task):
        if lines := label.feed(piece):
            yield lines
    if rest := label.end():
        yield rest


def labels_of(job: "JobDetail") -> list[str]:
    """Return what stands before the lines of each task, by rank: its number, or its group and its number there.

    A job of elastic size that was never placed has as many as it could get.
    """
    body = job.spec.get("spec", {})
    groups = [(str(each["name"]), int(each["tasks"])) for each in body.get("groups", ())]
    if groups:
        labels = [f"{name} {number}" for name, tasks in groups for number in range(tasks)]
        return [label.ljust(max(map(len, labels))) for label in labels]
    tasks = sum(job.task_counts.values()) or int(str(body.get("tasks", 1)).rpartition("..")[2])
    return [f"{task:>{len(str(tasks - 1))}}" for task in range(tasks)]
