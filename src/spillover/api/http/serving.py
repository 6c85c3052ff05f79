"""Serves an application on a socket in the running event loop, with limits on connections and request heads.

Before the head of a request is complete, no caller has shown a token. So the server limits the size and time of heads,
and the number of connections.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spillover.api.http.problems import MEDIA, REFUSED, RequestRefused
from spillover.wire.keepalive import kept_alive

MOST_HEAD: Final = 64 * 1024
"""Most bytes of the request line and headers."""
GRACE: Final = 0.5
"""Seconds that requests have to finish when the server stops."""
_LAST_WORDS: Final = 0.3
"""Seconds that cancelled requests have to send their answer."""
_IDLE: Final = 30
"""Seconds to keep an idle connection. Longer than clients keep theirs, so that the client closes first."""


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """Limits of connections."""

    head: float = 10.0
    """Seconds until the head of a request is complete, from its first byte. For the first request they count from the
    connection, including TLS.
    """
    connections: int = 2_000
    """Most connections at a time."""
    refused: Callable[[], None] = lambda: None
    """Called when a connection exceeds the limit."""


BOUNDS: Final = HttpBounds()


class HeadTooLarge(Exception):
    """The request line and headers are too large."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with limits on heads before any other code sees them, and with refusals as problem documents."""

    _head = 0
    """Bytes of the complete parts of the head so far: the request line, and each header."""
    _raw = 0
    """Bytes outside bodies since the last complete request part. A header without an end is buffered without a
    callback.
    """
    _late: asyncio.TimerHandle | None = None
    """Timer for the head of the next request; None if none is expected."""
    _heard = False
    """Whether any data has arrived."""
    _in_body = False
    """Whether the body of a request is still arriving, even if the request is answered already."""

    def __init__(self, bounds: HttpBounds, **surroundings: Any) -> None:
        super().__init__(**surroundings)
        self._bounds = bounds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Disable delays of small answers, enable keepalive, and enforce the limit of connections."""
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            # asyncio does this only for sockets that were created with a protocol number.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in kept_alive():  # a quiet connection has no other way to notice that its peer is gone
                sock.setsockopt(*option)
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            self._bounds.refused()
            self._refuse(
                RequestRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"the server has {self._bounds.connections} connections, the maximum (limits.connections); try again",
                    headers={"retry-after": "1"},
                    retry_after=1.0,
                )
            )
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a head."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data. A head must then be complete in time, unless a request is being answered."""
        self._heard = True
        self._raw += len(data)
        super().data_received(data)
        request: Any = self.cycle  # None before the first request
        in_hand = request is not None and not request.response_complete
        if self.transport.is_closing():
            return
        if self._raw > 2 * MOST_HEAD:
            self._end_the_endless(in_hand=in_hand)
        elif in_hand:
            return
        elif self._in_body and not request.scope.get(REFUSED):
            # A request may be answered before its body is complete, for example an upload of an existing file. Let the
            # body end.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self.timeout_keep_alive_task is None and self._late is None:
            self._expect_head()

    def _end_the_endless(self, *, in_hand: bool) -> None:
        """Close a connection whose head or body does not end; refuse it first, unless an answer is in progress."""
        if in_hand or self._in_body:
            self.transport.close()
        else:
            self._head = MOST_HEAD + 1
            self.send_400_response("")

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(self._bounds.head, self._head_is_late)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_is_late(self) -> None:
        self._late = None
        if self.transport.is_closing():
            return
        if not self._heard or self._in_body:
            self.transport.close()
            return
        told = f"the request line and headers did not arrive within {self._bounds.head:g} s"
        self._refuse(RequestRefused(HTTPStatus.REQUEST_TIMEOUT, told))

    def on_headers_complete(self) -> None:
        """Stop the timer of the head, because it is complete."""
        self._head_came()
        self._in_body, self._raw = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Record the end of a request; start the idle timer if it was answered early."""
        self._in_body, self._raw = False, 0
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered early, so the connection is idle now
            self._head_came()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_body(self, body: bytes) -> None:
        """Reset the count of bytes, because a body has its own limit."""
        self._raw = 0
        super().on_body(body)

    def on_message_begin(self) -> None:
        """Reset the size of the head for the next request."""
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count one header."""
        self._count(len(name) + len(value) + 4)  # with the separators
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEAD:
            raise HeadTooLarge

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request, and close the connection."""
        self._refuse(
            RequestRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the request line and headers are larger than {MOST_HEAD // 1024} KiB",
            )
            if self._head > MOST_HEAD
            else RequestRefused(HTTPStatus.BAD_REQUEST, msg)
        )

    def _refuse(self, refused: RequestRefused) -> None:
        """Send a refusal where no request exists, and close the connection."""
        body = refused.body()
        named = "".join(f"{name}: {value}\r\n" for name, value in refused.headers.items())
        head = (
            f"HTTP/1.1 {refused.status.value} {refused.status.phrase}\r\ncontent-type: {MEDIA}\r\n"
            f"{named}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class HttpServer(uvicorn.Server):
    """A server that handles no signals, and stops when it is asked to."""

    def __init__(self, config: uvicorn.Config, bounds: HttpBounds) -> None:
        super().__init__(config)
        self._bounds = bounds
        self.listening = asyncio.Event()
        """Set when the server answers requests."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Install no handlers, because signals belong to the owner of the process."""
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and set `listening`."""
        loop, config = asyncio.get_running_loop(), self.config
        secure: dict[str, Any] = {}
        if config.ssl is not None:
            secure = {
                "ssl": config.ssl,
                "ssl_handshake_timeout": self._bounds.head,
                "ssl_shutdown_timeout": self._bounds.head,
            }

        def protocol() -> asyncio.Protocol:
            return BoundedProtocol(
                self._bounds, config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        self.servers = [
            await loop.create_server(protocol, sock=sock, backlog=config.backlog, **secure)
            for sock in sockets or ()
        ]
        self.started = True
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, let short requests end, and cancel the others."""
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
    app: Any, sock: socket.socket, tls: tuple[Path, Path] | None = None, bounds: HttpBounds = BOUNDS
) -> AsyncIterator[HttpServer]:
    """Serve requests on a bound socket for the duration of the block, then close it.

    Uses TLS if the files of a certificate and its key are given.
    """
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        log_level=logging.CRITICAL,  # the application logs failures itself, with more context
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_IDLE,
        ssl_certfile=tls[0] if tls is not None else None,
        ssl_keyfile=tls[1] if tls is not None else None,
    )
    server = HttpServer(config, bounds)
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
