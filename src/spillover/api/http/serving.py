"""An application on a socket, inside the event loop that is running: clean start, clean stop, bounded heads of requests."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spillover.api.http.problems import MEDIA, Refused
from spillover.wire.keepalive import kept_alive

MOST_HEAD: Final = 64 * 1024
"""Bytes that the address and the headers of a request may have."""
GRACE: Final = 0.5
"""Seconds that requests get to end by themselves when the server stops."""
_LAST_WORDS: Final = 0.3
"""Seconds for what was cancelled to say so."""
_IDLE: Final = 30
"""Seconds that a quiet connection is kept: longer than clients keep theirs, so that it is they who let go."""


class HeadTooLarge(Exception):
    """The address and the headers of a request do not end."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose heads are bounded before anybody looks at them, and whose refusals are problems like all others."""

    _head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Send small answers at once, and notice when the caller's machine is gone."""
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            # asyncio sees to this only on sockets that were made with a protocol number.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in kept_alive():  # there may be nothing to send for long, and then nothing else tells
                sock.setsockopt(*option)
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        """Count anew for each request."""
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value) + 4)  # with what stands between and behind them
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEAD:
            raise HeadTooLarge

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request, and close."""
        refused = (
            Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the address and headers of a request may have {MOST_HEAD // 1024} KiB",
            )
            if self._head > MOST_HEAD
            else Refused(HTTPStatus.BAD_REQUEST, msg)
        )
        body = refused.body()
        head = (
            f"HTTP/1.1 {refused.status.value} {refused.status.phrase}\r\ncontent-type: {MEDIA}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class Server(uvicorn.Server):
    """A server that is told when to stop and takes no signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        """Set when requests are answered."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Signals belong to whoever runs the process."""
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more, let what is short end, cut off what is not."""
        for server in self.servers:
            server.close()
        for sock in sockets or ():
            sock.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        for patience, cut in ((GRACE, True), (_LAST_WORDS, False)):
            if state.tasks:
                await asyncio.wait(list(state.tasks), timeout=patience)
            for task in list(state.tasks) if cut else ():
                task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(
    app: Any, sock: socket.socket, tls: tuple[Path, Path] | None = None
) -> AsyncIterator[Server]:
    """Answer requests on a bound socket, which is closed in the end, until the block is left.

    With TLS if files of a certificate and its key are given.
    """
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        log_level=logging.CRITICAL,  # the application logs what fails, with what it knows of it
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_IDLE,
        ssl_certfile=tls[0] if tls is not None else None,
        ssl_keyfile=tls[1] if tls is not None else None,
    )
    server = Server(config)
    running = asyncio.create_task(server.serve([sock]), name="http")
    listening = asyncio.create_task(server.listening.wait())
    try:
        await asyncio.wait({running, listening}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield server
    finally:
        listening.cancel()
        server.should_exit = True
        await running
