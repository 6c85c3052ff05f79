"""A real HTTP server around some commands, on a free port of this machine: in this event loop, or in a thread of its own."""

import asyncio
import hashlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from spillover.api.http import build_app, serving
from spillover.api.http.routing import Figures
from spillover.ports.commands import Commands
from spillover.wire.api import AgentsAddress
from spillover.wire.endpoints import Endpoint

TOKEN = "a-token-for-tests"
T = TypeVar("T")
S = TypeVar("S", bound="Asked")


def path_of(endpoint: Endpoint[Any, Any, Any], **parts: str) -> str:
    """A path to an endpoint; what is not given of it is the digest of nothing, or a 1, which is a number and a name."""
    usual = {"digest": hashlib.sha256().hexdigest()}
    return endpoint.path.format(
        **{name: parts.get(name) or usual.get(name, "1") for name in endpoint.in_path}
    )


def listen(port: int = 0) -> socket.socket:
    """A socket that listens on loopback, so that whoever connects before the server answers is kept waiting."""
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
) -> AsyncIterator[str]:
    """Serve in this event loop; gives the URL."""
    sock = listen(port)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with serving(build_app(commands, TOKEN, figures, address=address), sock):
        yield url


class Asked(Protocol):
    """Something with commands to serve."""

    @property
    def commands(self) -> Commands:
        """What the HTTP API calls."""
        ...


class Threaded(Generic[S]):
    """A server in a thread, for tests that block."""

    def __init__(self, url: str, inside: S, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.inside = inside
        self._loop = loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something in the server's event loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


@contextmanager
def threaded_server(
    inside: Callable[[], AbstractAsyncContextManager[S]], address: AgentsAddress | None = None
) -> Iterator[Threaded[S]]:
    """Serve in a thread until the block is left."""
    started: list[Threaded[S]] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        async with inside() as served, http_server(served.commands, address=address) as url:
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
