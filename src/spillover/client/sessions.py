"""Sessions with tasks for programs: the terminal of a job, and ports of the machine that runs it.

Both sides of a session talk at the same time, so the blocking ones run those of asyncio in a thread of their own.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent import futures
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from spillover.client.errors import SpillError, Unavailable, Unreachable
from spillover.client.face import Face, beside
from spillover.client.live import Forwarding, LiveSession
from spillover.wire.api import SessionRequest
from spillover.wire.relay import Frame, FrameKind, resize

if TYPE_CHECKING:
    from spillover.client.asynchronous.sender import AsyncSender

T = TypeVar("T")
S = TypeVar("S", "AsyncTerminal", "AsyncForward")
_AHEAD: Final = 16
"""Pieces of output that may wait to be read; then the program waits."""
_CLOSED: Final = "the session is not open; use it with `with`"
_LOST: Final = "the connection to the terminal was lost; the job goes on: attach to it again"


class AsyncTerminal:
    """The terminal of a job, for asyncio. Leaving its block detaches; the job goes on."""

    def __init__(self, client: "AsyncSender", job: str, task: int, size: tuple[int, int]) -> None:
        self._session = LiveSession(client, job, SessionRequest("attach", task))
        self._size = size
        self._printed: asyncio.Queue[bytes | int | SpillError] = asyncio.Queue(_AHEAD)
        """What was printed and not read, and then the exit code, or why nothing more comes."""
        self._lost: SpillError | None = None
        self._hearing: asyncio.Task[None] | None = None
        self.code: int | None = None
        """Exit code of the job's program, negative for the number of a signal; None until `read` has come to its end."""

    @property
    def job(self) -> str:
        """Id of the job."""
        return self._session.view.job

    async def send(self, data: str | bytes) -> None:
        """Type something; wait while the program does not read it."""
        self._check_open()
        typed = data.encode() if isinstance(data, str) else data
        await self._session.send(Frame(FrameKind.DATA, typed))

    async def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        self._check_open()
        await self._session.send(resize(rows, columns))

    async def read(self, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - an argument in both clients
        """Return what is printed next, nothing if the program has ended; raise TimeoutError after so many seconds."""
        self._check_open()
        if self.code is not None:
            return b""
        if self._lost is not None:
            raise self._lost
        try:
            async with asyncio.timeout(timeout):
                printed = await self._printed.get()
        except TimeoutError:
            raise TimeoutError(
                f"the terminal of {self.job} printed nothing for {timeout:g} seconds"
            ) from None
        if isinstance(printed, bytes):
            return printed
        if isinstance(printed, int):
            self.code = printed
            return b""
        self._lost = printed
        raise printed

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yield what is printed, until the program has ended."""
        while printed := await self.read():
            yield printed

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        self._hearing = asyncio.create_task(self._hear())
        await self.resize(*self._size)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
            self._hearing = None
        await self._session.__aexit__(kind, error, trace)

    def _check_open(self) -> None:
        if self._hearing is None:
            raise RuntimeError(_CLOSED)

    async def _hear(self) -> None:
        """Keep what is printed for `read`, to the end."""
        end: int | SpillError = Unreachable(_LOST)
        try:
            async with aclosing(self._session.frames()) as frames:
                async for frame in frames:
                    match frame.kind:
                        case FrameKind.DATA if frame.data:
                            await self._printed.put(frame.data)
                        case FrameKind.EXIT:
                            end = frame.number
                        case FrameKind.ERROR:
                            end = Unavailable(frame.text)
                        case _:
                            pass
        except SpillError as error:
            end = error
        await self._printed.put(end)


class AsyncForward:
    """A port of the machine that runs a task, as one of this machine, for asyncio. It closes at the end of its block."""

    def __init__(self, client: "AsyncSender", job: str, port: int, task: int, local: int) -> None:
        self._forwarding = Forwarding(client, job, port, task, self._tell)
        self._local = local
        self.failure = ""
        """Why the last connection failed that did, such as that nothing listens on that port yet; empty if none did."""

    @property
    def host(self) -> str:
        """Address that it listens on: that of the loopback interface."""
        return self._forwarding.host

    @property
    def port(self) -> int:
        """Port that it listens on."""
        if not self._forwarding.port:
            raise RuntimeError(_CLOSED)
        return self._forwarding.port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        self.failure = await self._forwarding.probe()
        await self._forwarding.open(self._local)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._forwarding.close()

    def _tell(self, why: str) -> None:
        self.failure = why


class _InThread(Generic[S]):
    """A session in a thread that runs an event loop for it."""

    def __init__(self, client: Face, make: "Callable[[AsyncSender], S]") -> None:
        self._client = client
        self._make: Callable[[AsyncSender], S] = make
        self._opened: futures.Future[S] = futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    @property
    def session(self) -> S:
        """The session, once it is open."""
        if not self._opened.done():
            raise RuntimeError(_CLOSED)
        return self._opened.result()

    def open(self) -> None:
        """Open the session."""
        self._thread = threading.Thread(target=self._run, name="spillover-session", daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:  # also Ctrl-C
            self.close()
            raise

    def do(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something in the session, and return when it is done."""
        loop = self._loop
        if loop is None or loop.is_closed():
            doing.close()
            raise RuntimeError(_CLOSED)
        future = asyncio.run_coroutine_threadsafe(doing, loop)
        try:
            return future.result()
        except futures.CancelledError:
            raise Unavailable("the session was closed") from None
        finally:
            future.cancel()  # after Ctrl-C

    def close(self) -> None:
        """End the session and the thread."""
        if self._loop is not None and self._work is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._work.cancel)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        from spillover.client.asynchronous.sender import AsyncSender  # noqa: PLC0415 - only this thread needs it

        async def work() -> None:
            self._work, self._loop = asyncio.current_task(), asyncio.get_running_loop()
            async with beside(AsyncSender, self._client) as sender, self._make(sender) as session:
                self._opened.set_result(session)
                await asyncio.Event().wait()  # until it is cancelled

        try:
            asyncio.run(work())
        except asyncio.CancelledError:
            self._opened.cancel()
        except BaseException as error:  # noqa: BLE001 - whoever opens it is told
            if not self._opened.done():
                self._opened.set_exception(error)


class Terminal:
    """The terminal of a job. Leaving its block detaches; the job goes on."""

    def __init__(self, client: Face, job: str, task: int, size: tuple[int, int]) -> None:
        self._thread = _InThread(client, lambda sender: AsyncTerminal(sender, job, task, size))

    @property
    def _terminal(self) -> AsyncTerminal:
        return self._thread.session

    @property
    def job(self) -> str:
        """Id of the job."""
        return self._terminal.job

    @property
    def code(self) -> int | None:
        """Exit code of the job's program, negative for the number of a signal; None until `read` has come to its end."""
        return self._terminal.code

    def send(self, data: str | bytes) -> None:
        """Type something; wait while the program does not read it."""
        self._thread.do(self._terminal.send(data))

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        self._thread.do(self._terminal.resize(rows, columns))

    def read(self, timeout: float | None = None) -> bytes:
        """Return what is printed next, nothing if the program has ended; raise TimeoutError after so many seconds."""
        return self._thread.do(self._terminal.read(timeout))

    def __iter__(self) -> Iterator[bytes]:
        """Yield what is printed, until the program has ended."""
        while printed := self.read():
            yield printed

    def __enter__(self) -> Self:
        self._thread.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()


class Forward:
    """A port of the machine that runs a task, as one of this machine. It closes at the end of its block."""

    def __init__(self, client: Face, job: str, port: int, task: int, local: int) -> None:
        self._thread = _InThread(client, lambda sender: AsyncForward(sender, job, port, task, local))

    @property
    def _forward(self) -> AsyncForward:
        return self._thread.session

    @property
    def failure(self) -> str:
        """Why the last connection failed that did, such as that nothing listens on that port yet; empty if none did."""
        return self._forward.failure

    @property
    def host(self) -> str:
        """Address that it listens on: that of the loopback interface."""
        return self._forward.host

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return self._forward.port

    def __str__(self) -> str:
        return str(self._forward)

    def __enter__(self) -> Self:
        self._thread.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()
