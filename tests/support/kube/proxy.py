"""A faulty proxy in front of an API server: refused, late or lost answers, and watches that break.

    with Proxy(onprem, seed=7) as proxy:             # proxy.kubeconfig leads through it
        proxy.weather(Weather(reads=0.05, writes=0.1, watches=0.3))
        proxy.cut()                                  # breaks all open connections
        proxy.shut(); proxy.open()                   # accepts no connections in between
        proxy.happened                               # how often each fault occurred

It is a real proxy in its own thread: TLS with the certificate of the cluster; everything else passes unchanged.
"""

import asyncio
import contextlib
import json
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.kube.identities import Access, write_kubeconfig
from tests.support.kube.mishaps import Asked, Draw, Mishap, Mishaps, Weather
from tests.support.kube.ports import Ports

T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
READS: Final = ("GET", "HEAD")
PASSED_ON: Final = ("Accept", "Accept-Encoding", "Authorization", "Content-Type", "User-Agent")
PASSED_BACK: Final = ("Content-Type", "Content-Encoding", "Retry-After")
CODES: Final = {Mishap.CONFLICT: 409, Mishap.TOO_MANY: 429, Mishap.BROKEN: 500, Mishap.DENIED: 500}
GONE: Final = 410
SENT_AT_MOST: Final = 64
"""Bytes of a line that pass before a watch breaks within it."""
SENT_WITHIN: Final = 0.05
"""Seconds for these bytes to be sent."""


class Proxy:
    """A proxy in front of one API server while its block runs."""

    def __init__(self, access: Access, certificate: tuple[Path, Path], kubeconfig: Path, seed: int) -> None:
        """Take the access to the API server, the certificate to show to clients, and the kubeconfig to write."""
        self._ports = Ports()
        self._port = self._ports.take()
        self.url = f"https://{LOOPBACK}:{self._port}"
        self.kubeconfig = write_kubeconfig(
            kubeconfig, [Access(access.context, self.url, access.ca, access.token)]
        )
        self._upstream = access.url
        self._trust = ssl.create_default_context(cafile=str(access.ca))
        self._shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._shown.load_cert_chain(*certificate)
        self._mishaps = Mishaps(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._session: aiohttp.ClientSession | None = None

    # --- lifecycle

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._ports.give_back()

    async def _begin(self) -> None:
        # Compressed answers pass unchanged.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._trust), auto_decompress=False
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await self._open()

    async def _end(self) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._shut()
        await self._runner.cleanup()
        # Handlers of clients that hung up still read the answer of the API server: cancel them.
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._session.close()
        await asyncio.sleep(0)  # aiohttp releases closed connections in the next turn

    # --- controls

    @property
    def happened(self) -> Counter[Mishap]:
        """Return how often each fault was drawn."""
        return Counter(self._mishaps.happened)

    def weather(self, weather: Weather) -> None:
        """Set how often faults occur from now on."""

        async def change() -> None:
            self._mishaps.weather = weather

        self._do(change())

    def cut(self) -> int:
        """Break all open connections; return their number."""
        return self._do(self._cut())

    def shut(self) -> None:
        """Break all open connections, and accept no new ones."""
        self._do(self._shut())

    def open(self) -> None:
        """Accept connections again."""
        self._do(self._open())

    async def _cut(self) -> int:
        assert self._runner is not None
        assert self._runner.server is not None
        connections = [each for each in self._runner.server.connections if each.transport is not None]
        for each in connections:
            assert each.transport is not None
            each.transport.abort()
        return len(connections)

    async def _shut(self) -> None:
        if self._site is not None:
            await self._site.stop()
            self._site = None
        await self._cut()

    async def _open(self) -> None:
        if self._site is None:
            assert self._runner is not None
            self._site = web.TCPSite(
                self._runner, LOOPBACK, self._port, ssl_context=self._shown, reuse_address=True
            )
            await self._site.start()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    # --- forwarding

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Handle one request."""
        watches = request.query.get("watch") in {"true", "1"}
        kind = Asked.WATCH if watches else Asked.READ if request.method in READS else Asked.WRITE
        draw = self._mishaps.draw(kind, f"{kind} {request.path}")
        match draw:
            case Draw(mishap=Mishap.CONFLICT | Mishap.TOO_MANY | Mishap.BROKEN as mishap):
                return refusal(CODES[mishap])
            case Draw(mishap=Mishap.SLOW) if not watches:
                await asyncio.sleep(draw.after)
            case _:
                pass
        try:
            async with self._ask(request, await request.read()) as told:
                match draw:
                    case Draw(mishap=Mishap.DENIED):
                        return refusal(CODES[Mishap.DENIED])
                    case Draw(mishap=Mishap.HUNG_UP):
                        return hang_up(request)
                    case _:
                        return await self._pass_back(request, told, draw if watches else None)
        except (aiohttp.ClientError, ConnectionError):  # if one side is gone, close the other
            return hang_up(request)

    @contextlib.asynccontextmanager
    async def _ask(self, request: web.Request, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        """Forward a request to the API server."""
        assert self._session is not None
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        address = URL(self._upstream + request.raw_path, encoded=True)
        patience = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self._session.request(
            request.method,
            address,
            data=body or None,
            headers=headers,
            timeout=patience,
            allow_redirects=False,
        ) as told:
            try:
                yield told
            except BaseException:  # an orderly close would need the API server
                if told.connection is not None and told.connection.transport is not None:
                    told.connection.transport.abort()
                raise

    async def _pass_back(
        self, request: web.Request, told: aiohttp.ClientResponse, draw: Draw | None
    ) -> web.StreamResponse:
        """Forward an answer as it comes, unless it is a watch with a fault."""
        answer = web.StreamResponse(status=told.status)
        for name in PASSED_BACK:
            if name in told.headers:
                answer.headers[name] = told.headers[name]
        await answer.prepare(request)
        loop = asyncio.get_running_loop()
        until = loop.time() + draw.after if draw is not None else None
        breaks = draw is not None and draw.mishap in {Mishap.CUT, Mishap.TOO_OLD}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until if breaks else None):
                async for chunk in told.content.iter_any():
                    if draw is not None and draw.mishap is Mishap.SLOW:
                        await asyncio.sleep(draw.after)
                    await answer.write(chunk)
                await answer.write_eof()
                return answer
        assert draw is not None
        return await self._break_off(request, answer, told, draw.mishap)

    async def _break_off(
        self, request: web.Request, answer: web.StreamResponse, told: aiohttp.ClientResponse, mishap: Mishap
    ) -> web.StreamResponse:
        """End a watch early."""
        if mishap is Mishap.TOO_OLD:
            await answer.write(json.dumps({"type": "ERROR", "object": status(GONE)}).encode() + b"\n")
            await answer.write_eof()
            return answer
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):  # for a line to break within
                piece = await told.content.readany()
                await answer.write(piece[:SENT_AT_MOST])
                await asyncio.sleep(SENT_WITHIN)
        hang_up(request)
        return answer


def status(code: int) -> dict[str, Any]:
    """Return the Status object of a refusal."""
    reasons = {409: "AlreadyExists", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "something happened on the way",
        "reason": reasons[code],
        "code": code,
    }


def refusal(code: int) -> web.Response:
    """Return a refusal."""
    headers = {"Retry-After": "1"} if code == CODES[Mishap.TOO_MANY] else {}
    return web.json_response(status(code), status=code, headers=headers)


def hang_up(request: web.Request) -> web.Response:
    """Break the connection of a request."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
