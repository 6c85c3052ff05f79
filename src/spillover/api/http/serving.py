"""An application on a socket, inside the event loop that is running: clean start, clean stop, bounded connections and heads.

Nobody has shown a token before the head of a request is complete. So heads are bounded in size and in time, and connections in number.
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
"""Bytes that the address and the headers of a request may have."""
GRACE: Final = 0.5
"""Seconds that requests get to end by themselves when the server stops."""
_LAST_WORDS: Final = 0.3
"""Seconds for what was cancelled to say so."""
_IDLE: Final = 30
"""Seconds that a quiet connection is kept: longer than clients keep theirs, so that it is they who let go."""


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """What connections may be."""

    head: float = 10.0
    """Seconds until the head of a request is complete, from its first byte or, of the first one, from the connection on; TLS included."""
    connections: int = 2_000
    """At a time."""
    refused: Callable[[], None] = lambda: None
    """Called when a connection is too many."""


BOUNDS: Final = HttpBounds()


class HeadTooLarge(Exception):
    """The address and the headers of a request do not end."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose heads are bounded before anybody looks at them, and whose refusals are problems like all others."""

    _head = 0
    """Bytes of it so far, of what is complete: the address, and each header."""
    _raw = 0
    """Bytes that came and are of no body, since anything was complete: a header that does not end is gathered, and not told of."""
    _late: asyncio.TimerHandle | None = None
    """Set while a head is to come."""
    _heard = False
    """Whether anything has come."""
    _in_body = False
    """Whether the body of a request is still coming, be the request answered or not."""

    def __init__(self, bounds: HttpBounds, **surroundings: Any) -> None:
        super().__init__(**surroundings)
        self._bounds = bounds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Send small answers at once, and notice when the caller's machine is gone."""
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            # asyncio sees to this only on sockets that were made with a protocol number.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in kept_alive():  # there may be nothing to send for long, and then nothing else tells
                sock.setsockopt(*option)
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            self._bounds.refused()
            self._refuse(
                RequestRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"the server has {self._bounds.connections} connections, which is the most (limits.connections); try again",
                    headers={"retry-after": "1"},
                    retry_after=1.0,
                )
            )
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is expected."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came: from then on a head has to be complete in time, unless a request is being answered."""
        self._heard = True
        self._raw += len(data)
        super().data_received(data)
        request: Any = self.cycle  # None before the first
        in_hand = request is not None and not request.response_complete
        if self.transport.is_closing():
            return
        if self._raw > 2 * MOST_HEAD:
            self._end_the_endless(in_hand=in_hand)
        elif in_hand:
            return
        elif self._in_body and not request.scope.get(REFUSED):
            # What was answered before all of it came, as a file that is there already, may come to its end.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self.timeout_keep_alive_task is None and self._late is None:
            self._expect_head()

    def _end_the_endless(self, *, in_hand: bool) -> None:
        """Close a connection on which something does not end; in the middle of an answer nothing can be said about it."""
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
        told = f"the address and headers of a request have to come within {self._bounds.head:g} s"
        self._refuse(RequestRefused(HTTPStatus.REQUEST_TIMEOUT, told))

    def on_headers_complete(self) -> None:
        """A request is whole, but for its body."""
        self._head_came()
        self._in_body, self._raw = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._in_body, self._raw = False, 0
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before; from here on the connection is idle
            self._head_came()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._raw = 0
        super().on_body(body)

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
        self._refuse(
            RequestRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the address and headers of a request may have {MOST_HEAD // 1024} KiB",
            )
            if self._head > MOST_HEAD
            else RequestRefused(HTTPStatus.BAD_REQUEST, msg)
        )

    def _refuse(self, refused: RequestRefused) -> None:
        """Answer what no request was made of, and close."""
        body = refused.body()
        named = "".join(f"{name}: {value}\r\n" for name, value in refused.headers.items())
        head = (
            f"HTTP/1.1 {refused.status.value} {refused.status.phrase}\r\ncontent-type: {MEDIA}\r\n"
            f"{named}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class HttpServer(uvicorn.Server):
    """A server that is told when to stop and takes no signals."""

    def __init__(self, config: uvicorn.Config, bounds: HttpBounds) -> None:
        super().__init__(config)
        self._bounds = bounds
        self.listening = asyncio.Event()
        """Set when requests are answered."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Signals belong to whoever runs the process."""
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
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
    app: Any, sock: socket.socket, tls: tuple[Path, Path] | None = None, bounds: HttpBounds = BOUNDS
) -> AsyncIterator[HttpServer]:
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
