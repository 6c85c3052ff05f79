# Generated from client/asynchronous/calls.py by `make client`: change that one.
"""Handles of maps for code that blocks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from spillover.client.face import Behind
from spillover.client.gathering import Endings, Gathering
from spillover.client.handles import Call, MapHandle

if TYPE_CHECKING:
    from spillover.client.watching import Watching

T = TypeVar("T")


class Map(MapHandle, Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, client: "Behind[Watching]", gathering: Gathering) -> None:
        super().__init__(client, gathering)

    def __getitem__(self, index: int) -> Call[T]:
        return Call(self._client, self._gathering, self._at(index))

    def __iter__(self) -> Iterator[T]:
        """Yield the values in the order of the items; raise what a call raised when it is next."""
        for index in range(len(self)):
            yield cast("T", self._client.run(self._gathering.value(index, None)))

    def results(self, timeout: float | None = None) -> list[T]:
        """Return all values in the order of the items; raise what the first failed call raised."""
        return cast("list[T]", self._client.run(self._gathering.values(timeout)))

    def as_completed(self, timeout: float | None = None) -> Iterator[Call[T]]:
        """Yield the calls as they end."""
        endings = Endings(self._gathering, timeout)
        while indexes := self._client.run(endings.more()):
            for index in indexes:
                yield self[index]

    def done(self) -> bool:
        """Return whether all have ended, successfully or not."""
        return bool(self._client.run(self._gathering.over()))

    def cancel(self) -> None:
        """Cancel all that have not ended."""
        self._client.run(self._gathering.cancel())
