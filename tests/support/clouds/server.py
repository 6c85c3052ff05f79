"""A fake API behind a real HTTP server in a thread, whose connections break and whose answers come late on request.

A test that uses `asyncio.run` for each story can still ask it: it has a loop of its own. The fake's own code runs under
a lock, so a test may change its state at any time.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.http import listen

Headers = dict[str, str]


class Request:
    """A request as it arrived."""

    def __init__(self, method: str, target: str, headers: Headers, body: bytes) -> None:
        parts = urlsplit(target)
        self.method = method
        self.path = unquote(parts.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.headers = headers
        """By name in lower case."""
        self.content = body

    @property
    def body(self) -> Any:
        """The decoded body."""
        return json.loads(self.content)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Reply:
    """An answer."""

    def __init__(self, status: int, body: Any = None, headers: Headers | None = None) -> None:
        self.status = status
        self.content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.headers = headers or {}


class FakeApi:
    """Base of the fakes: `answer` does the work."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.asked: list[Request] = []
        """All requests that arrived."""
        self.before: deque[Callable[[Request], Reply | None]] = deque()
        """Faults, asked in order before the work: the first reply that one returns is sent instead of doing it."""
        self.lost: deque[tuple[str, str]] = deque()
        """How requests begin, with `work` or `drop`: the connection of the next such request breaks after the work, or before."""
        self.late: dict[str, float] = {}
        """Seconds by which answers to a method come after the work."""
        self.unreachable = False
        """Whether nobody listens."""
        self.url = ""
        self._serving: _Serving | None = None

    def answer(self, request: Request) -> Reply:
        """Do what a request asks for."""
        raise NotImplementedError

    def handle(self, request: Request) -> Reply | None:
        """Answer a request, or return None to break its connection."""
        with self.lock:
            self.asked.append(request)
            for fault in self.before:
                if (reply := fault(request)) is not None:
                    return reply
            if self.lost and str(request).startswith(self.lost[0][0]):
                _, how = self.lost.popleft()
                if how == "work":
                    self.answer(request)
                return None
            return self.answer(request)

    def mend(self) -> None:
        """End all faults."""
        with self.lock:
            self.before.clear()
            self.lost.clear()
            self.late.clear()
            self.open()

    def shut(self) -> None:
        """Stop listening, and break all connections; `mend` listens again on the same port."""
        if self._serving is not None:
            self._serving.stop()
            self._serving = None

    def open(self) -> None:
        """Listen, if nobody does."""
        if self._serving is None:
            port = int(self.url.rpartition(":")[2]) if self.url else 0
            self._serving = _Serving(self, port)
            self.url = self._serving.url

    @contextmanager
    def served(self) -> Iterator[Self]:
        """Serve until the block ends."""
        self.open()
        try:
            yield self
        finally:
            self.shut()


class _Serving:
    """A listening server in its thread."""

    def __init__(self, api: FakeApi, port: int) -> None:
        self._api = api
        self._sock = listen(port)
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="fake cloud")
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._talk, sock=self._sock)
        await self._stopped.wait()
        server.close()
        for each in self._open:
            each.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            # A cancelled connection ends like one that broke: asyncio would report it otherwise.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while (request := await _read(reader)) is not None:
                    reply = self._api.handle(request)
                    await asyncio.sleep(self._api.late.get(request.method, 0))
                    if reply is None:
                        return
                    _write(writer, reply)
                    await writer.drain()
        finally:
            self._open.discard(task)
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request of a connection; None at its end."""
    first = (await reader.readline()).decode()
    if not first:
        return None
    method, target, _ = first.split(" ", 2)
    headers: Headers = {}
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    head = {"Content-Type": "application/json", "Content-Length": str(len(reply.content)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} X", *[f"{name}: {value}" for name, value in head.items()], "", ""]
    writer.write("\r\n".join(lines).encode() + reply.content)
