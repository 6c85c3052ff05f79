"""HTTP requests to a Kubernetes API server. Errors tell whether an unanswered request may have had an effect."""

import asyncio
import random
import socket
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp import ClientTimeout

from spillover.clusters.kubernetes.api.credentials import Credential, Credentials, NoCredential
from spillover.clusters.kubernetes.api.kubeconfig import Access
from spillover.clusters.kubernetes.api.objects import UNREADABLE, Status, said
from spillover.wire.keepalive import kept_alive

T = TypeVar("T")

CONNECT: Final = 10.0
"""Seconds to establish a connection."""
ANSWER: Final = 30.0
"""Seconds for a complete answer."""
CLOSE: Final = 2.0
"""Seconds for aborted connections to close; they usually need only a moment."""
TRIES: Final = 4
"""Most tries of a request."""
PAUSE: Final = 0.25
"""Seconds before the second try; each further pause is twice as long."""
LONGEST_PAUSE: Final = 30.0
MOST_LINE: Final = 64 << 20
"""Most bytes of a watched object, many times what a cluster can store."""
TOO_MANY: Final = 429
KEPT_ALIVE: Final = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 30_000),
)
"""Keep-alive settings that detect a dead connection, as a healthy watch may be silent for long."""


class Trouble(Exception):
    """A request failed; the message says why."""

    retry_after: float | None = None
    """Seconds after which to try again; None if the server names none."""


class Unsent(Trouble):
    """The request was certainly not sent."""


class Unanswered(Trouble):
    """No clear answer: the request may have had an effect."""


class UnreadableAnswer(Unanswered):
    """The answer is not one of a Kubernetes API server."""


class ApiRefused(Trouble):
    """The server refused, and nothing was done."""

    def __init__(self, status: Status, retry_after: float | None = None) -> None:
        super().__init__(
            said(status.message) or said(status.reason) or f"the API server answers {status.code}"
        )
        self.status = status
        self.code = status.code
        """HTTP status code."""
        self.retry_after = retry_after


class Api:
    """One API server."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._credentials = Credentials(access)
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[bytes | None, bytes | None], ssl.SSLContext] = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()
        """Sockets of all connections that may be open."""

    async def close(self) -> None:
        """Close all connections."""
        if self._session is None:
            return
        await self._session.close()
        self._session = None
        # aiohttp closes aborted TLS connections with a handshake, which waits for the server: shut their sockets down.
        for each in self._sockets:
            with suppress(OSError):  # closed already, or never connected
                each.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE):
                while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110 - nothing signals it
                    await asyncio.sleep(0.001)

    async def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        once: bool = False,
        may: Callable[[], bool] = lambda: True,
    ) -> bytes:
        """Return an answer; try again unless `once`, and only while `may` returns True. Raise Trouble."""
        patience = ClientTimeout(total=ANSWER, sock_connect=CONNECT)
        for tried in range(TRIES):
            try:
                async with self.open(method, path, params, body, patience, may) as answer:
                    return await answer.read()
            except Trouble as trouble:
                if (
                    once
                    or tried == TRIES - 1
                    or (isinstance(trouble, ApiRefused) and trouble.code != TOO_MANY)
                ):
                    raise
                await asyncio.sleep(pause(tried, trouble.retry_after))
        raise AssertionError("unreachable")  # pragma: no cover

    async def read(
        self,
        decoder: "msgspec.json.Decoder[T]",
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        once: bool = False,
        may: Callable[[], bool] = lambda: True,
    ) -> T:
        """Return a decoded answer; raise Trouble. An unreadable one, as from a proxy, counts as no answer."""
        answer = await self.ask(method, path, params, body, once=once, may=may)
        try:
            return decoder.decode(answer)
        except UNREADABLE as error:
            why = f"{self.access.server} did not answer like a Kubernetes API server: {error}"
            raise UnreadableAnswer(said(why)) from None

    async def lines(
        self, path: str, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield lines of a watch in batches until it ends or is silent for so many seconds; raise Trouble."""
        patience = ClientTimeout(total=None, sock_connect=CONNECT, sock_read=silence)
        async with self.open("GET", path, params, None, patience) as answer:
            yield []
            rest = b""
            try:
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if lines:
                        yield lines
                    if len(rest) > MOST_LINE:
                        raise UnreadableAnswer(f"{path} sends an object of more than {MOST_LINE >> 20} MiB")
            except aiohttp.SocketTimeoutError:
                return

    async def chunks(
        self, path: str, params: Mapping[str, str], silence: float | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield a long answer in chunks; raise Trouble, also after so many seconds of silence."""
        patience = ClientTimeout(total=None, sock_connect=CONNECT, sock_read=silence)
        async with self.open("GET", path, params, None, patience) as answer:
            async for chunk in answer.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Any,
        patience: ClientTimeout,
        may: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open an answer with a success status; raise Trouble, also for errors while the caller reads it."""
        for again in (True, False):
            try:
                shown = await self._credentials.current()
                context = self._context(shown)
            except NoCredential as error:
                raise Unsent(str(error)) from None
            except (ssl.SSLError, OSError) as error:
                raise Unsent(f"a certificate of {self.access.origin} cannot be used: {error}") from None
            if not may():  # checked last, because getting a credential may take long
                raise Unsent("this server may no longer be the leader")
            with translated(self.access.server):
                async with self._client().request(
                    method,
                    self.access.server + path,
                    params=params,
                    data=None if body is None else msgspec.json.encode(body),
                    headers=_headers(shown, body is not None),
                    ssl=context,
                    server_hostname=self.access.server_name,
                    proxy=self.access.proxy,
                    timeout=patience,
                    allow_redirects=False,
                ) as answer:
                    if answer.status == 401:
                        self._credentials.refused(shown)
                        if again:
                            continue
                    if answer.status >= 300:
                        raise _refusal(answer, await answer.read(), self.access.origin)
                    try:
                        yield answer
                    except BaseException:
                        _abort(answer)
                        raise
                    return

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No limit here, as watches hold connections for minutes; callers limit their own requests.
            connector = aiohttp.TCPConnector(limit=0, socket_factory=self._socket, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=2**20)
        return self._session

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Create a socket with keep-alive, and track it for `close`."""
        made = socket.socket(address[0], address[1], address[2])
        for option in kept_alive(KEPT_ALIVE):
            made.setsockopt(*option)
        self._sockets.add(made)
        return made

    def _context(self, shown: Credential) -> ssl.SSLContext | bool:
        """Return the TLS context for a credential."""
        if not self.access.server.startswith("https:"):
            return True
        key = (shown.certificate, shown.key)
        if key not in self._contexts:
            self._contexts = {key: _tls(self.access, shown)}
        return self._contexts[key]


def pause(tried: int, told: float | None = None) -> float:
    """Return seconds to wait before the next try: as the server asks, or growing; with jitter."""
    if told is not None:
        return min(LONGEST_PAUSE, told) * random.uniform(1.0, 1.25)  # noqa: S311 - no secret
    return min(LONGEST_PAUSE, PAUSE * (1 << min(tried, 16))) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


@contextmanager
def translated(server: str) -> Iterator[None]:
    """Translate transport errors to Unsent or Unanswered."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        raise Unsent(f"{server} has a certificate that is not trusted: {why}") from None
    except aiohttp.ClientConnectorError as error:
        why = getattr(error.os_error, "strerror", None) or error.os_error
        raise Unsent(f"cannot connect to {server}: {why}") from None
    except aiohttp.ConnectionTimeoutError:
        raise Unsent(f"{server} does not answer within {CONNECT:.0f}s") from None
    except (aiohttp.InvalidURL, aiohttp.ClientHttpProxyError) as error:
        raise Unsent(f"cannot connect to {server}: {error}") from None
    except TimeoutError:
        raise Unanswered(f"{server} does not answer in time") from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unanswered(f"the connection to {server} broke: {error}") from None


def _abort(answer: aiohttp.ClientResponse) -> None:
    """Abort a connection whose answer was not read to its end; a regular close would wait for the server."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


def _headers(shown: Credential, has_body: bool) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": "spillover"}
    if has_body:
        headers["Content-Type"] = "application/json"
    if shown.token is not None:
        headers["Authorization"] = f"Bearer {shown.token}"
    return headers


def _refusal(answer: aiohttp.ClientResponse, body: bytes, origin: str) -> Trouble:
    """Translate an error status to an exception."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNREADABLE:
        status = Status(message=body[:200].decode(errors="replace").strip())
    code, told = answer.status, said(status.message) or said(status.reason)
    seconds = answer.headers.get("Retry-After", "")
    after = float(seconds) if seconds.isascii() and seconds.isdigit() else None
    if code >= 500:
        unanswered = Unanswered(f"the API server answers {code}: {told}")
        unanswered.retry_after = after
        return unanswered
    if code == 401:
        told = f"the API server rejected the credentials (401 Unauthorized): the token or certificate of {origin} is invalid or has expired"
    return ApiRefused(Status(code, status.reason, told, status.details), after)


def _tls(access: Access, shown: Credential) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.authority)
    # Cluster authorities often lack extensions that the strict check of newer Python versions requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if access.unchecked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if shown.certificate is not None and shown.key is not None:
        with tempfile.TemporaryDirectory() as folder:  # only we can read it
            certificate, key = Path(folder, "certificate"), Path(folder, "key")
            certificate.write_bytes(shown.certificate)
            key.write_bytes(shown.key)
            # Without a password, OpenSSL would ask on the terminal.
            context.load_cert_chain(certificate, key, password="")
    return context
