"""Handles of Python calls for code that blocks."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar, cast

from spillover.client.calling import Gathering, error_of, left, outcome
from spillover.wire.api import ResultView

T = TypeVar("T")


class Reach(NamedTuple):
    """What handles need of the client that made them."""

    gather: Callable[[Gathering, float, int], list[int]]
    """Fetches results of calls that have ended, from an index on; waits for some seconds at the most if there is none."""
    value_of: Callable[[ResultView], bytes | None]
    """What a call returned or raised, as it was pickled."""
    cancel: Callable[[str], Any]


class Call(Generic[T]):
    """One call: of a job of its own, or of one member of a map."""

    def __init__(self, reach: Reach, gathering: Gathering, index: int = 0) -> None:
        self._reach = reach
        self._gathering = gathering
        self.index = index
        """Which item of a map; 0 for a single call."""

    @property
    def job(self) -> str:
        """The id of its job."""
        gathering = self._gathering
        return gathering.job if gathering.size is None else f"{gathering.job}.{self.index}"

    def done(self) -> bool:
        """Whether it has ended, however."""
        return self._result(0.0) is not None

    def result(self, timeout: float | None = None) -> T:
        """What it returned. Raises what it raised, CallFailed if it did not come so far, WaitTimeout after some seconds."""
        result = self._awaited(timeout)
        return cast("T", outcome(result, self._reach.value_of(result)))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What it raised, or why it did not return; None if it returned."""
        result = self._awaited(timeout)
        return error_of(result, self._reach.value_of(result))

    def cancel(self) -> None:
        """Stop it, or keep it from starting."""
        self._reach.cancel(self.job)

    def _awaited(self, timeout: float | None) -> ResultView:
        result = self._result(timeout)
        if result is None:
            raise self._gathering.late()
        return result

    def _result(self, timeout: float | None) -> ResultView | None:
        """How it ended; None if it has not in time."""
        gathering = self._gathering
        until = None if timeout is None else time.monotonic() + timeout
        while self.index not in gathering.results:
            seconds = left(until, time.monotonic())
            self._reach.gather(gathering, seconds, self.index)
            if seconds <= 0:
                break
        return gathering.results.get(self.index)


class Map(Generic[T]):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, reach: Reach, gathering: Gathering) -> None:
        self._reach = reach
        self._gathering = gathering

    @property
    def job(self) -> str:
        """The id of the array; empty if there was no item."""
        return self._gathering.job

    def __len__(self) -> int:
        return self._gathering.size or 0

    def __getitem__(self, index: int) -> Call[T]:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(index)
        return Call(self._reach, self._gathering, index % size)

    def __iter__(self) -> Iterator[T]:
        """What each returned, in the order of the items; raises what one raised when its turn comes."""
        return (self[index].result() for index in range(len(self)))

    def results(self, timeout: float | None = None) -> list[T]:
        """What all returned, in the order of the items; raises what the first one raised."""
        until = None if timeout is None else time.monotonic() + timeout
        return [self[index].result(_rest(until)) for index in range(len(self))]

    def as_completed(self, timeout: float | None = None) -> Iterator[Call[T]]:
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
            self._reach.gather(gathering, seconds, 0)
            seen = [index for index in gathering.results if index not in told]
            told.update(seen)
            if not seen and seconds <= 0:
                raise gathering.late()

    def done(self) -> bool:
        """Whether all have ended, however."""
        gathering = self._gathering
        while not gathering.complete:
            if not self._reach.gather(gathering, 0.0, 0):
                break
        return gathering.complete or not len(self)

    def cancel(self) -> None:
        """Stop all that have not ended."""
        if self.job:
            self._reach.cancel(self.job)


def _rest(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())
