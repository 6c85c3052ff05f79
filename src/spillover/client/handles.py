"""Handles of Python calls: futures, for code that blocks and for asyncio."""

import contextlib
from collections.abc import Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from spillover.client import asks
from spillover.client.errors import CallCancelled, CallFailed, Refused, SpillError
from spillover.client.face import Behind
from spillover.client.gathering import Gathering, Outcome, error_of, outcome_of
from spillover.client.showing import Shown

if TYPE_CHECKING:
    from spillover.client.watching import AsyncWatching, Watching

T = TypeVar("T")
_OVER: Final = frozenset({"CANCELLED", "CANCELLED_AND_NOTIFIED", "FINISHED"})
"""States of a future that has ended, as `concurrent.futures` names them."""


class CallHandle(Shown):
    """One call: a job of its own, or a member of a map."""

    def __init__(self, client: Behind[Any], gathering: Gathering, index: int = 0) -> None:
        self._client: Any = client
        self._gathering = gathering
        self.index = index
        """Index of its item in a map; 0 for a single call."""

    @property
    def job(self) -> str:
        """Id of its job."""
        return self._gathering.id_of(self.index)

    def __reduce__(self) -> Any:
        raise TypeError("a call cannot be pickled; as an argument of another call it becomes its value")


class MapHandle(Shown):
    """Calls of one function for many items: one array of jobs."""

    def __init__(self, client: Behind[Any], gathering: Gathering) -> None:
        self._client: Any = client
        self._gathering = gathering

    @property
    def job(self) -> str:
        """Id of the array; empty if there were no items."""
        return self._gathering.job

    def __len__(self) -> int:
        return self._gathering.size or 0

    def _at(self, index: int) -> int:
        """Resolve an index as a list does."""
        size = len(self)
        if not -size <= index < size:
            raise IndexError(index)
        return index % size


class _Waiters(list[Any]):
    """What `concurrent.futures.wait` and `as_completed` add to a future. From the first on, the call is watched."""

    def __init__(self, call: "Call[Any]") -> None:
        super().__init__()
        self._call = call

    def append(self, waiter: Any, /) -> None:
        """Add a waiter."""
        super().append(waiter)
        self._call.watch()


class Call(CallHandle, Future[T], Generic[T]):
    """A call as a future of `concurrent.futures`.

    Nothing runs in the background for it, and each question is a request to the server, until something must be told of
    its end: a callback, or whoever waits for several futures. Then the client watches it, together with all others.
    """

    def __init__(self, client: "Behind[Watching]", gathering: Gathering, index: int = 0) -> None:
        Future.__init__(self)
        CallHandle.__init__(self, client, gathering, index)
        self._waiters = _Waiters(self)
        self._watched = False
        self._cancelled: CallFailed | None = None

    def done(self) -> bool:
        """Return whether it has ended, successfully or not."""
        if self._state in _OVER:
            return True
        return not self._watched and self._client.run(self._gathering.ended(self.index, 0.0)) is not None

    def running(self) -> bool:
        """Return whether it runs on some machine now."""
        return (
            self._state not in _OVER and self._client.run(iter(asks.wait(self.job, 0.0))).state == "RUNNING"
        )

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        if self._state in _OVER:
            return self._state != "FINISHED"
        return self.done() and self._ended_as() == "CANCELLED"

    def result(self, timeout: float | None = None) -> T:
        """Return its value; raise what it raised, CallFailed if it did not finish, or WaitTimeout."""
        self._bring(timeout)
        if self._cancelled is not None:
            raise self._cancelled
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what it raised, or why it did not return; None if it returned."""
        self._bring(timeout)
        return super().exception(0) if self._cancelled is None else self._cancelled

    def cancel(self) -> bool:
        """Cancel it, also if it runs already; return whether that came in time."""
        if self._state in _OVER:
            return self._state != "FINISHED"
        refused: Refused | None = None
        try:
            self._client.run(self._gathering.cancel(self.index))
        except Refused as error:
            refused = error
        if self._client.run(self._gathering.ended(self.index, 0.0)) is not None:
            return self._ended_as() == "CANCELLED"
        if refused is not None:
            raise refused
        self._end_cancelled(CallCancelled(f"{self.job} CANCELLED: cancelled here", self.job, "CANCELLED"))
        return True

    def add_done_callback(self, fn: Any) -> None:
        """Call a function with this call when it has ended; at once if it has."""
        super().add_done_callback(fn)
        self.watch()

    def watch(self) -> None:
        """Learn of its end in the background."""
        with self._condition:
            if self._watched or self._state in _OVER:
                return
            self._watched = True
        self._client.watching.watch(self._gathering, self.index, self._told)

    def _ended_as(self) -> str:
        return self._gathering.results[self.index].state

    def _bring(self, timeout: float | None) -> None:
        """Wait until this future has ended; raise WaitTimeout."""
        if self._state in _OVER:
            return
        if not self._watched:
            self._settle(self._client.run(self._gathering.outcome(self.index, timeout)))
            return
        try:
            with contextlib.suppress(CancelledError):
                super().exception(timeout)
        except TimeoutError:
            raise self._client.run(self._gathering.late(self.index)) from None

    def _told(self, outcome: Outcome | SpillError) -> None:
        """End, or tell why nobody knows how it ended."""
        if isinstance(outcome, SpillError):
            with contextlib.suppress(InvalidStateError):
                self.set_exception(outcome)
        else:
            self._settle(outcome)

    def _settle(self, outcome: Outcome) -> None:
        """End as the job did. Only the first of several threads does it."""
        result, value = outcome
        if result.state == "CANCELLED":
            error = error_of(result, value)
            if not isinstance(error, CallFailed):
                error = CallCancelled(f"{result.id} CANCELLED", result.id, result.state)
            self._end_cancelled(error)
            return
        with contextlib.suppress(InvalidStateError):
            try:
                returned = outcome_of(result, value)
            except BaseException as error:  # noqa: BLE001 - it may have raised anything
                self.set_exception(error)
            else:
                self.set_result(cast("T", returned))

    def _end_cancelled(self, error: CallFailed) -> None:
        """End as cancelled."""
        with self._condition:
            if self._state in _OVER:
                return
            self._cancelled = error
            self._state = "CANCELLED"
            self.set_running_or_notify_cancel()
            self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined] # as `Future.cancel` does


class AsyncCall(CallHandle, Generic[T]):
    """A call that asyncio can await."""

    def __init__(self, client: "Behind[AsyncWatching]", gathering: Gathering, index: int = 0) -> None:
        super().__init__(client, gathering, index)

    def __await__(self) -> Generator[Any, None, T]:
        return self.result().__await__()

    async def done(self) -> bool:
        """Return whether it has ended, successfully or not."""
        return await self._client.run(self._gathering.ended(self.index, 0.0)) is not None

    async def running(self) -> bool:
        """Return whether it runs on some machine now."""
        view = await self._client.run(iter(asks.wait(self.job, 0.0)))
        return bool(view.state == "RUNNING")

    async def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return await self.done() and self._gathering.results[self.index].state == "CANCELLED"

    async def result(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - an argument in both clients
        """Return its value; raise what it raised, CallFailed if it did not finish, or WaitTimeout."""
        return cast("T", await self._client.run(self._gathering.value(self.index, await self._wait(timeout))))

    async def exception(self, timeout: float | None = None) -> BaseException | None:  # noqa: ASYNC109 - as above
        """Return what it raised, or why it did not return; None if it returned."""
        error = await self._client.run(self._gathering.error(self.index, await self._wait(timeout)))
        return cast("BaseException | None", error)

    async def cancel(self) -> bool:
        """Cancel it, also if it runs already; return whether that came in time."""
        refused: Refused | None = None
        try:
            await self._client.run(self._gathering.cancel(self.index))
        except Refused as error:
            refused = error
        if await self.done():
            return self._gathering.results[self.index].state == "CANCELLED"
        if refused is not None:
            raise refused
        return True

    async def ended(self) -> None:
        """Return when it has ended, whatever its value is."""
        await self._client.watching.ended(self._gathering, self.index)

    async def _wait(self, timeout: float | None) -> float:  # noqa: ASYNC109 - as above
        """Wait until it has ended, together with other calls; return the seconds that are left to wait then: none."""
        if timeout is None or timeout > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio_timeout(timeout):
                    await self.ended()
        return 0.0


def asyncio_timeout(timeout: float | None) -> Any:
    """Return asyncio's own timeout. The blocking client needs no asyncio."""
    import asyncio  # noqa: PLC0415 - see above

    return asyncio.timeout(timeout)
