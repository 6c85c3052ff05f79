"""The gate: nothing leaves the process before the revision that it rests on is durable."""

import asyncio
from typing import Any, TypeVar

from spillover.ports.commands import CommandError, ErrorKind

T = TypeVar("T")


class Gate:
    """Lets callers pass once a revision is durable, or tells them that it never will be."""

    def __init__(self, revision: int) -> None:
        self.durable = revision
        self._waiting: list[tuple[int, asyncio.Future[Any], Any]] = []
        """Revision, whom to answer, and what."""

    async def passed(self, revision: int) -> None:
        """Return once a revision is durable; raises if what it rests on was dropped."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer(revision, future, None)
        await future

    def answer(self, revision: int, future: asyncio.Future[T], value: T) -> None:
        """Answer once a revision is durable.

        It is noted here and now: whoever came to wait only after it was dropped would take a later one of that number for it.
        """
        if revision > self.durable:
            self._waiting.append((revision, future, value))
        elif not future.done():
            future.set_result(value)

    def open(self, revision: int) -> None:
        """All up to here is durable."""
        self.durable = revision
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each[0] > revision:
                self._waiting.append(each)
            elif not each[1].done():
                each[1].set_result(each[2])

    def drop(self, error: CommandError) -> None:
        """What is waiting rests on a state that was given up."""
        waiting, self._waiting = self._waiting, []
        for _, future, _ in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever asked may have gone away

    @staticmethod
    def dropped(why: str) -> CommandError:
        """What they are told."""
        return CommandError(
            ErrorKind.UNAVAILABLE, f"{why}; retry, with the same key if it was a submission", (), 1.0
        )
