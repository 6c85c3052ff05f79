"""Questions to an API server of Kubernetes over HTTP, and what holds when one is not answered."""

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

from spillover.clusters.kubernetes.credentials import Credential, Credentials, NoCredential
from spillover.clusters.kubernetes.kubeconfig import Access
from spillover.clusters.kubernetes.objects import UNREADABLE, Status, said
from spillover.wire.keepalive import kept_alive

T = TypeVar("T")

CONNECT: Final = 10.0
"""Seconds for a connection to come about."""
ANSWER: Final = 30.0
"""Seconds for an answer, all of it."""
CLOSE: Final = 2.0
"""Seconds for connections that are broken off to be closed: a moment, unless the machine stands still."""
TRIES: Final = 4
"""How often something is asked that may be asked again."""
PAUSE: Final = 0.25
"""Seconds before it is asked again, twice as long every time."""
LONGEST_PAUSE: Final = 30.0
MOST_LINE: Final = 64 << 20
"""Bytes of one object that is watched: many times what a cluster can store."""
TOO_MANY: Final = 429
KEPT_ALIVE: Final = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 30_000),
)
"""When a connection over which nothing comes counts as broken: a watch may be silent for long, but not on a dead line."""


class Trouble(Exception):
    """What was asked for was not had; the message says why."""

    retry_after: float | None = None
    """Seconds after which to ask again, if the server names them."""


class Unsent(Trouble):
    """The server was surely not asked."""


class Unanswered(Trouble):
    """There was no answer, or one that leaves it open: what was asked for may have been done."""


class UnreadableAnswer(Unanswered):
    """There was an answer, which is not one of Kubernetes."""


class ApiRefused(Trouble):
    """The server says no, and nothing was done."""

    def __init__(self, status: Status, retry_after: float | None = None) -> None:
        super().__init__(
            said(status.message) or said(status.reason) or f"the API server answers {status.code}"
        )
        self.status = status
        self.code = status.code
        """As in HTTP."""
        self.retry_after = retry_after


class Api:
    """One API server."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._credentials = Credentials(access)
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[bytes | None, bytes | None], ssl.SSLContext] = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()
        """Those of all connections that may be open."""

    async def close(self) -> None:
        """Close all connections."""
        if self._session is None:
            return
        await self._session.close()
        self._session = None
        # One over which something was asked and given up is closed in good order, in which its server would have to take part.
        for each in self._sockets:
            with suppress(OSError):  # it is closed, or was never connected
                each.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE):
                while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110 - nothing tells of it
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
        """An answer; what may be asked again is, unless `once`, and only while it `may` be. Raises Trouble."""
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
        """What an answer says. Raises Trouble; one that cannot be read, as of something that stands in between, counts as none."""
        answer = await self.ask(method, path, params, body, once=once, may=may)
        try:
            return decoder.decode(answer)
        except UNREADABLE as error:
            why = f"{self.access.server} does not answer as Kubernetes does: {error}"
            raise UnreadableAnswer(said(why)) from None

    async def lines(
        self, path: str, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """What comes over a watch, some lines at a time, until it ends or nothing comes for so many seconds; raises Trouble."""
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
        """A long answer as it comes; raises Trouble, also when nothing comes for so many seconds."""
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
        """An answer that begins well, to be read; raises Trouble, also for what goes wrong while it is read."""
        for again in (True, False):
            try:
                shown = await self._credentials.current()
                context = self._context(shown)
            except NoCredential as error:
                raise Unsent(str(error)) from None
            except (ssl.SSLError, OSError) as error:
                raise Unsent(f"a certificate of {self.access.origin} cannot be used: {error}") from None
            if not may():  # asked last of all: to get a credential may have taken long
                raise Unsent("this server does not surely lead any more")
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
            # Watches hold theirs for minutes: how many questions there are at a time is for whoever asks to bound.
            connector = aiohttp.TCPConnector(limit=0, socket_factory=self._socket, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=2**20)
        return self._session

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket that notices when the other side is gone."""
        made = socket.socket(address[0], address[1], address[2])
        for option in kept_alive(KEPT_ALIVE):
            made.setsockopt(*option)
        self._sockets.add(made)
        return made

    def _context(self, shown: Credential) -> ssl.SSLContext | bool:
        """How the server is known, and we to it."""
        if not self.access.server.startswith("https:"):
            return True
        key = (shown.certificate, shown.key)
        if key not in self._contexts:
            self._contexts = {key: _tls(self.access, shown)}
        return self._contexts[key]


def pause(tried: int, told: float | None = None) -> float:
    """Seconds to wait before asking again: as told, or ever longer; not the same for all, so that they do not come at once."""
    if told is not None:
        return min(LONGEST_PAUSE, told) * random.uniform(1.0, 1.25)  # noqa: S311 - no secret
    return min(LONGEST_PAUSE, PAUSE * (1 << min(tried, 16))) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


@contextmanager
def translated(server: str) -> Iterator[None]:
    """What goes wrong on the way, by what holds afterwards."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        raise Unsent(f"{server} shows a certificate that is not trusted: {why}") from None
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
    """Break off an answer that is not read to its end: to close it in good order, its server would have to take part."""
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
    """How a server refused."""
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
        told = f"the API server does not know us (401 Unauthorized): the token or certificate of {origin} is wrong or has expired"
    return ApiRefused(Status(code, status.reason, told, status.details), after)


def _tls(access: Access, shown: Credential) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.authority)
    # Authorities of clusters are often made without what the strict check of newer Pythons asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if access.unchecked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if shown.certificate is not None and shown.key is not None:
        with tempfile.TemporaryDirectory() as folder:  # readable to us alone
            certificate, key = Path(folder, "certificate"), Path(folder, "key")
            certificate.write_bytes(shown.certificate)
            key.write_bytes(shown.key)
            context.load_cert_chain(certificate, key, password="")  # or it would be asked for at a terminal
    return context
