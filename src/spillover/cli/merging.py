"""Merges the output of several tasks of a job: whole lines, each behind the number of its task."""

import threading
from collections.abc import Callable, Iterable
from queue import Queue
from typing import Final, TypeAlias

MOST_FOLLOWED: Final = 64
"""Tasks whose output is followed at a time, each with a connection of its own."""

Read: TypeAlias = Callable[[int], Iterable[bytes]]
"""Returns the output of a task, in pieces."""


class Labelled:
    """Turns pieces of one task's output into whole lines with a label."""

    def __init__(self, task: int, tasks: int) -> None:
        self._label = f"[{task:>{len(str(tasks - 1))}}] ".encode()
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the lines that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return b"".join([self._label + line + b"\n" for line in lines])

    def end(self) -> bytes:
        """Return the last line, if the task did not end it."""
        rest, self._rest = self._rest, b""
        return self._label + rest + b"\n" if rest else b""


def one_by_one(read: Read, tasks: int) -> Iterable[bytes]:
    """Yield the labelled output of each task, one after the other."""
    for task in range(tasks):
        label = Labelled(task, tasks)
        for piece in read(task):
            if lines := label.feed(piece):
                yield lines
        if rest := label.end():
            yield rest


def together(read: Read, tasks: int) -> Iterable[bytes]:
    """Yield labelled lines of the first tasks as they come, until all have ended; raise what a reader raises."""
    followed = range(min(tasks, MOST_FOLLOWED))
    found: Queue[bytes | BaseException | None] = Queue(1000)
    readers = [
        threading.Thread(target=_pass_on, args=(read, task, tasks, found), daemon=True) for task in followed
    ]
    for each in readers:
        each.start()
    left = len(readers)
    while left:
        match found.get():
            case None:
                left -= 1
            case bytes(lines):
                yield lines
            case BaseException() as error:
                raise error


def _pass_on(read: Read, task: int, tasks: int, to: "Queue[bytes | BaseException | None]") -> None:
    """Read the output of one task into a queue."""
    label = Labelled(task, tasks)
    try:
        for piece in read(task):
            if lines := label.feed(piece):
                to.put(lines)
        if rest := label.end():
            to.put(rest)
        to.put(None)
    except BaseException as error:  # noqa: BLE001 - raised where the lines are read
        to.put(error)


def tasks_of(spec: dict[str, object]) -> int:
    """Return how many tasks a job has, from its job file."""
    body = spec.get("spec")
    tasks = body.get("tasks") if isinstance(body, dict) else None
    return tasks if isinstance(tasks, int) else 1
