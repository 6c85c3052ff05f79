"""The gate: holds everything back until the revision that it rests on is durable."""

import asyncio
from typing import Any, TypeVar

from spillover.ports.commands import CommandError, ErrorKind

T = TypeVar("T")


class Gate:
    """Answers callers once a revision is durable, or with an error if it was dropped."""

    def __init__(self, revision: int) -> None:
        self.durable = revision
        self._waiting: list[tuple[int, asyncio.Future[Any], Any]] = []
        """Revision, future to answer, and its value."""

    async def passed(self, revision: int) -> None:
        """Return once a revision is durable; raise CommandError if it was dropped."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer(revision, future, None)
        await future

    def answer(self, revision: int, future: asyncio.Future[T], value: T) -> None:
        """Answer once a revision is durable.

        Call it at once. A caller that waits only after a drop would mistake a later revision with the same number for
        its own.
        """
        if revision > self.durable:
            self._waiting.append((revision, future, value))
        elif not future.done():
            future.set_result(value)

    def open(self, revision: int) -> None:
        """Record that all revisions up to this one are durable."""
        self.durable = revision
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each[0] > revision:
                self._waiting.append(each)
            elif not each[1].done():
                each[1].set_result(each[2])

    def drop(self, error: CommandError) -> None:
        """Answer all waiting callers with an error, as their state was dropped."""
        waiting, self._waiting = self._waiting, []
        for _, future, _ in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark it as retrieved: the caller may be gone

    @staticmethod
    def dropped(why: str) -> CommandError:
        """Return the error for callers whose state was dropped."""
        return CommandError(
            ErrorKind.UNAVAILABLE, f"{why}; retry, with the same key if it was a submission", (), 1.0
        )
