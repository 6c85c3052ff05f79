"""Serves commands by a real HTTP server on a free port, in this event loop or in a thread."""

import asyncio
import hashlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from spillover.api.http import build_app, serving
from spillover.api.http.routing import Figures
from spillover.ports.callers import Callers
from spillover.ports.commands import Commands
from spillover.wire.api import AgentsAddress
from spillover.wire.endpoints import Endpoint

TOKEN = "a-token-for-tests"
T = TypeVar("T")
S = TypeVar("S", bound="Asked")


def path_of(endpoint: Endpoint[Any, Any, Any], **parts: str) -> str:
    """Return a path to an endpoint; missing parts become the digest of no bytes, or 1, which is a number and a name."""
    usual = {"digest": hashlib.sha256().hexdigest()}
    return endpoint.path.format(
        **{name: parts.get(name) or usual.get(name, "1") for name in endpoint.in_path}
    )


def listen(port: int = 0) -> socket.socket:
    """Return a socket that listens on loopback already, so that early connections wait for the server."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen()
    return sock


@asynccontextmanager
async def http_server(
    commands: Commands,
    figures: Figures | None = None,
    port: int = 0,
    address: AgentsAddress | None = None,
    callers: Callers | str = TOKEN,
) -> AsyncIterator[str]:
    """Serve in this event loop, for one token or for those of some callers; yield the URL."""
    sock = listen(port)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with serving(build_app(commands, callers, figures, address=address), sock):
        yield url


class Asked(Protocol):
    """An object with commands to serve."""

    @property
    def commands(self) -> Commands:
        """The commands that the HTTP API calls."""
        ...


class Threaded(Generic[S]):
    """A server in a thread, for tests that block."""

    def __init__(self, url: str, inside: S, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.inside = inside
        self._loop = loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the server, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


@contextmanager
def threaded_server(
    inside: Callable[[], AbstractAsyncContextManager[S]], address: AgentsAddress | None = None
) -> Iterator[Threaded[S]]:
    """Serve in a thread until the block ends."""
    started: list[Threaded[S]] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        async with (
            inside() as served,
            http_server(served.commands, address=address, callers=getattr(served, "tokens", TOKEN)) as url,
        ):
            started.append(Threaded(url, served, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), name="http for tests")
    thread.start()
    try:
        if not ready.wait(10):
            raise TimeoutError("the server did not start")
        yield started[0]
    finally:
        if started:
            started[0]._loop.call_soon_threadsafe(stop.set)
        thread.join(10)
