"""Handles of maps for asyncio."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from spillover.client.face import Behind
from spillover.client.gathering import Endings, Gathering
from spillover.client.handles import AsyncCall, MapHandle

if TYPE_CHECKING:
    from spillover.client.watching import AsyncWatching

T = TypeVar("T")


class AsyncMap(MapHandle, Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, client: "Behind[AsyncWatching]", gathering: Gathering) -> None:
        super().__init__(client, gathering)

    def __getitem__(self, index: int) -> AsyncCall[T]:
        return AsyncCall(self._client, self._gathering, self._at(index))

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """Yield the values in the order of the items; raise what a call raised when it is next."""
        for index in range(len(self)):
            yield cast("T", await self._client.run(self._gathering.value(index, None)))

    async def results(self, timeout: float | None = None) -> list[T]:  # noqa: ASYNC109 - an argument in both clients
        """Return all values in the order of the items; raise what the first failed call raised."""
        return cast("list[T]", await self._client.run(self._gathering.values(timeout)))

    async def as_completed(self, timeout: float | None = None) -> AsyncGenerator[AsyncCall[T], None]:  # noqa: ASYNC109 - as above
        """Yield the calls as they end."""
        endings = Endings(self._gathering, timeout)
        while indexes := await self._client.run(endings.more()):
            for index in indexes:
                yield self[index]

    async def done(self) -> bool:
        """Return whether all have ended, successfully or not."""
        return bool(await self._client.run(self._gathering.over()))

    async def cancel(self) -> None:
        """Cancel all that have not ended."""
        await self._client.run(self._gathering.cancel())
