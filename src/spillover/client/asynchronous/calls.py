"""Handles of Python calls for asyncio."""

from collections.abc import AsyncGenerator
from typing import Generic, Protocol, TypeVar, cast

from spillover.client.gathering import CallHandle, Endings, Gathering, MapHandle
from spillover.client.steps import Flow

T = TypeVar("T")


class AsyncFlowRun(Protocol):
    """Runs an operation."""

    async def __call__(self, flow: Flow[T], /) -> T:
        """Return what the operation returns; raise what it raises."""
        ...


class AsyncCall(CallHandle, Generic[T]):
    """One call: a job of its own, or a member of a map."""

    def __init__(self, run: AsyncFlowRun, gathering: Gathering, index: int = 0) -> None:
        super().__init__(gathering, index)
        self._run = run

    async def done(self) -> bool:
        """Return whether it has ended, successfully or not."""
        return await self._run(self._gathering.ended(self.index, 0.0)) is not None

    async def result(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - an argument in both clients
        """Return its value; raise what it raised, CallFailed if it did not finish, or WaitTimeout."""
        return cast("T", await self._run(self._gathering.value(self.index, timeout)))

    async def exception(self, timeout: float | None = None) -> BaseException | None:  # noqa: ASYNC109 - as above
        """Return what it raised, or why it did not return; None if it returned."""
        return await self._run(self._gathering.error(self.index, timeout))

    async def cancel(self) -> None:
        """Cancel it."""
        await self._run(self._gathering.cancel(self.index))


class AsyncMap(MapHandle, Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, run: AsyncFlowRun, gathering: Gathering) -> None:
        super().__init__(gathering)
        self._run = run

    def __getitem__(self, index: int) -> AsyncCall[T]:
        return AsyncCall(self._run, self._gathering, self._at(index))

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """Yield the values in the order of the items; raise what a call raised when it is next."""
        for index in range(len(self)):
            yield await self[index].result()

    async def results(self, timeout: float | None = None) -> list[T]:  # noqa: ASYNC109 - as above
        """Return all values in the order of the items; raise what the first failed call raised."""
        return await self._run(self._gathering.values(timeout))

    async def as_completed(self, timeout: float | None = None) -> AsyncGenerator[AsyncCall[T], None]:  # noqa: ASYNC109 - as above
        """Yield the calls as they end."""
        endings = Endings(self._gathering, timeout)
        while indexes := await self._run(endings.more()):
            for index in indexes:
                yield self[index]

    async def done(self) -> bool:
        """Return whether all have ended, successfully or not."""
        return await self._run(self._gathering.over())

    async def cancel(self) -> None:
        """Cancel all that have not ended."""
        await self._run(self._gathering.cancel())
