"""Handles of Python calls for asyncio."""

from collections.abc import AsyncGenerator
from typing import Generic, Protocol, TypeVar, cast

from spillover.client.gathering import CallHandle, Endings, Gathering, MapHandle
from spillover.client.steps import Flow

T = TypeVar("T")


class AsyncFlowRun(Protocol):
    """Carries an operation out."""

    async def __call__(self, flow: Flow[T], /) -> T:
        """What the operation returns; raises what it raises."""
        ...


class AsyncCall(CallHandle, Generic[T]):
    """One call: of a job of its own, or of one member of a map."""

    def __init__(self, run: AsyncFlowRun, gathering: Gathering, index: int = 0) -> None:
        super().__init__(gathering, index)
        self._run = run

    async def done(self) -> bool:
        """Whether it has ended, however."""
        return await self._run(self._gathering.ended(self.index, 0.0)) is not None

    async def result(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - an argument in both clients
        """What it returned. Raises what it raised, CallFailed if it did not come so far, WaitTimeout after some seconds."""
        return cast("T", await self._run(self._gathering.value(self.index, timeout)))

    async def exception(self, timeout: float | None = None) -> BaseException | None:  # noqa: ASYNC109 - as above
        """What it raised, or why it did not return; None if it returned."""
        return await self._run(self._gathering.error(self.index, timeout))

    async def cancel(self) -> None:
        """Stop it, or keep it from starting."""
        await self._run(self._gathering.cancel(self.index))


class AsyncMap(MapHandle, Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, run: AsyncFlowRun, gathering: Gathering) -> None:
        super().__init__(gathering)
        self._run = run

    def __getitem__(self, index: int) -> AsyncCall[T]:
        return AsyncCall(self._run, self._gathering, self._at(index))

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """What each returned, in the order of the items; raises what one raised when its turn comes."""
        for index in range(len(self)):
            yield await self[index].result()

    async def results(self, timeout: float | None = None) -> list[T]:  # noqa: ASYNC109 - as above
        """What all returned, in the order of the items; raises what the first one raised."""
        return await self._run(self._gathering.values(timeout))

    async def as_completed(self, timeout: float | None = None) -> AsyncGenerator[AsyncCall[T], None]:  # noqa: ASYNC109 - as above
        """The calls as they end."""
        endings = Endings(self._gathering, timeout)
        while indexes := await self._run(endings.more()):
            for index in indexes:
                yield self[index]

    async def done(self) -> bool:
        """Whether all have ended, however."""
        return await self._run(self._gathering.over())

    async def cancel(self) -> None:
        """Stop all that have not ended."""
        await self._run(self._gathering.cancel())
