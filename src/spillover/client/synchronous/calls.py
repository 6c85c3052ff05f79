# Generated from client/asynchronous/calls.py by `make client`: change that one.
"""Handles of Python calls for code that blocks."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar, cast

from spillover.client.gathering import CallHandle, Endings, Gathering, MapHandle
from spillover.client.steps import Flow

T = TypeVar("T")


class FlowRun(Protocol):
    """Runs an operation."""

    def __call__(self, flow: Flow[T], /) -> T:
        """Return what the operation returns; raise what it raises."""
        ...


class Call(CallHandle, Generic[T]):
    """One call: a job of its own, or a member of a map."""

    def __init__(self, run: FlowRun, gathering: Gathering, index: int = 0) -> None:
        super().__init__(gathering, index)
        self._run = run

    def done(self) -> bool:
        """Return whether it has ended, successfully or not."""
        return self._run(self._gathering.ended(self.index, 0.0)) is not None

    def result(self, timeout: float | None = None) -> T:
        """Return its value; raise what it raised, CallFailed if it did not finish, or WaitTimeout."""
        return cast("T", self._run(self._gathering.value(self.index, timeout)))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what it raised, or why it did not return; None if it returned."""
        return self._run(self._gathering.error(self.index, timeout))

    def cancel(self) -> None:
        """Cancel it."""
        self._run(self._gathering.cancel(self.index))


class Map(MapHandle, Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, run: FlowRun, gathering: Gathering) -> None:
        super().__init__(gathering)
        self._run = run

    def __getitem__(self, index: int) -> Call[T]:
        return Call(self._run, self._gathering, self._at(index))

    def __iter__(self) -> Iterator[T]:
        """Yield the values in the order of the items; raise what a call raised when it is next."""
        for index in range(len(self)):
            yield self[index].result()

    def results(self, timeout: float | None = None) -> list[T]:
        """Return all values in the order of the items; raise what the first failed call raised."""
        return self._run(self._gathering.values(timeout))

    def as_completed(self, timeout: float | None = None) -> Iterator[Call[T]]:
        """Yield the calls as they end."""
        endings = Endings(self._gathering, timeout)
        while indexes := self._run(endings.more()):
            for index in indexes:
                yield self[index]

    def done(self) -> bool:
        """Return whether all have ended, successfully or not."""
        return self._run(self._gathering.over())

    def cancel(self) -> None:
        """Cancel all that have not ended."""
        self._run(self._gathering.cancel())
