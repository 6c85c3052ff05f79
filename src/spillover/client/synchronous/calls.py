# Generated from client/asynchronous/calls.py by `make client`: change that one.
"""Handles of Python calls for code that blocks."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar, cast

from spillover.client.gathering import CallHandle, Endings, Gathering, MapHandle
from spillover.client.steps import Flow

T = TypeVar("T")


class FlowRun(Protocol):
    """Carries an operation out."""

    def __call__(self, flow: Flow[T], /) -> T:
        """What the operation returns; raises what it raises."""
        ...


class Call(CallHandle, Generic[T]):
    """One call: of a job of its own, or of one member of a map."""

    def __init__(self, run: FlowRun, gathering: Gathering, index: int = 0) -> None:
        super().__init__(gathering, index)
        self._run = run

    def done(self) -> bool:
        """Whether it has ended, however."""
        return self._run(self._gathering.ended(self.index, 0.0)) is not None

    def result(self, timeout: float | None = None) -> T:
        """What it returned. Raises what it raised, CallFailed if it did not come so far, WaitTimeout after some seconds."""
        return cast("T", self._run(self._gathering.value(self.index, timeout)))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What it raised, or why it did not return; None if it returned."""
        return self._run(self._gathering.error(self.index, timeout))

    def cancel(self) -> None:
        """Stop it, or keep it from starting."""
        self._run(self._gathering.cancel(self.index))


class Map(MapHandle, Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, run: FlowRun, gathering: Gathering) -> None:
        super().__init__(gathering)
        self._run = run

    def __getitem__(self, index: int) -> Call[T]:
        return Call(self._run, self._gathering, self._at(index))

    def __iter__(self) -> Iterator[T]:
        """What each returned, in the order of the items; raises what one raised when its turn comes."""
        for index in range(len(self)):
            yield self[index].result()

    def results(self, timeout: float | None = None) -> list[T]:
        """What all returned, in the order of the items; raises what the first one raised."""
        return self._run(self._gathering.values(timeout))

    def as_completed(self, timeout: float | None = None) -> Iterator[Call[T]]:
        """The calls as they end."""
        endings = Endings(self._gathering, timeout)
        while indexes := self._run(endings.more()):
            for index in indexes:
                yield self[index]

    def done(self) -> bool:
        """Whether all have ended, however."""
        return self._run(self._gathering.over())

    def cancel(self) -> None:
        """Stop all that have not ended."""
        self._run(self._gathering.cancel())
