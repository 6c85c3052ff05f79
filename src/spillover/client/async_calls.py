"""Handles of Python calls for asyncio: method by method those of `calls`, awaited."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar, cast

from spillover.client.calling import Gathering, error_of, left, outcome
from spillover.wire.api import ResultView

T = TypeVar("T")


class AsyncReach(NamedTuple):
    """What handles need of the client that made them."""

    gather: Callable[[Gathering, float, int], Awaitable[list[int]]]
    """Fetches results of calls that have ended, from an index on; waits for some seconds at the most if there is none."""
    value_of: Callable[[ResultView], Awaitable[bytes | None]]
    """What a call returned or raised, as it was pickled."""
    cancel: Callable[[str], Awaitable[Any]]


class AsyncCall(Generic[T]):
    """One call: of a job of its own, or of one member of a map."""

    def __init__(self, reach: AsyncReach, gathering: Gathering, index: int = 0) -> None:
        self._reach = reach
        self._gathering = gathering
        self.index = index
        """Which item of a map; 0 for a single call."""

    @property
    def job(self) -> str:
        """The id of its job."""
        gathering = self._gathering
        return gathering.job if gathering.size is None else f"{gathering.job}.{self.index}"

    async def done(self) -> bool:
        """Whether it has ended, however."""
        return await self._result(0.0) is not None

    async def result(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - as `Call` has it
        """What it returned. Raises what it raised, CallFailed if it did not come so far, WaitTimeout after some seconds."""
        result = await self._awaited(timeout)
        return cast("T", outcome(result, await self._reach.value_of(result)))

    async def exception(self, timeout: float | None = None) -> BaseException | None:  # noqa: ASYNC109 - as above
        """What it raised, or why it did not return; None if it returned."""
        result = await self._awaited(timeout)
        return error_of(result, await self._reach.value_of(result))

    async def cancel(self) -> None:
        """Stop it, or keep it from starting."""
        await self._reach.cancel(self.job)

    async def _awaited(self, seconds: float | None) -> ResultView:
        result = await self._result(seconds)
        if result is None:
            raise self._gathering.late()
        return result

    async def _result(self, seconds: float | None) -> ResultView | None:
        """How it ended; None if it has not in time."""
        gathering = self._gathering
        until = None if seconds is None else time.monotonic() + seconds
        while self.index not in gathering.results:
            rest = left(until, time.monotonic())
            await self._reach.gather(gathering, rest, self.index)
            if rest <= 0:
                break
        return gathering.results.get(self.index)


class AsyncMap(Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, reach: AsyncReach, gathering: Gathering) -> None:
        self._reach = reach
        self._gathering = gathering

    @property
    def job(self) -> str:
        """The id of the array; empty if there was no item."""
        return self._gathering.job

    def __len__(self) -> int:
        return self._gathering.size or 0

    def __getitem__(self, index: int) -> AsyncCall[T]:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(index)
        return AsyncCall(self._reach, self._gathering, index % size)

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """What each returned, in the order of the items; raises what one raised when its turn comes."""
        for index in range(len(self)):
            yield await self[index].result()

    async def results(self, timeout: float | None = None) -> list[T]:  # noqa: ASYNC109 - as `Map` has it
        """What all returned, in the order of the items; raises what the first one raised."""
        until = None if timeout is None else time.monotonic() + timeout
        return [
            await self[index].result(None if until is None else max(0.0, until - time.monotonic()))
            for index in range(len(self))
        ]

    async def as_completed(self, timeout: float | None = None) -> AsyncGenerator[AsyncCall[T], None]:  # noqa: ASYNC109 - as above
        """The calls as they end."""
        until = None if timeout is None else time.monotonic() + timeout
        gathering = self._gathering
        seen = sorted(gathering.results)
        told = set(seen)
        while True:
            for index in seen:
                yield self[index]
            if len(told) == len(self):
                return
            seconds = left(until, time.monotonic())
            await self._reach.gather(gathering, seconds, 0)
            seen = [index for index in gathering.results if index not in told]
            told.update(seen)
            if not seen and seconds <= 0:
                raise gathering.late()

    async def done(self) -> bool:
        """Whether all have ended, however."""
        gathering = self._gathering
        while not gathering.complete:
            if not await self._reach.gather(gathering, 0.0, 0):
                break
        return gathering.complete or not len(self)

    async def cancel(self) -> None:
        """Stop all that have not ended."""
        if self.job:
            await self._reach.cancel(self.job)
