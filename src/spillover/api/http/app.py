"""Answers HTTP requests: checks the caller, finds the route, calls its handler, and turns errors into problems.

It implements ASGI itself, because the dispatch of a framework alone would cost more than a submission costs here.
"""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import structlog

from spillover.api.faults import logged_fault
from spillover.api.http.bodies import receive_body
from spillover.api.http.guard import Headers, RequestGuard
from spillover.api.http.openapi import describe
from spillover.api.http.pages import read_pages
from spillover.api.http.problems import REFUSED, RequestRefused, refused
from spillover.api.http.replies import Reply, as_json, as_problem, send_reply
from spillover.api.http.routes import ROUTES
from spillover.api.http.routing import Figures, Request, Router, Sent, Services
from spillover.api.http.signing_in import sign_in_at_provider
from spillover.api.http.streams import Cut, Receive, Send, Stream, send_stream
from spillover.api.http.uploads import Gone, pieces, told
from spillover.control.requests.limits import Gauge
from spillover.control.requests.signing_in import START
from spillover.model.tokens import TokenRole
from spillover.ports.blobs import BlobError, Blobs
from spillover.ports.callers import ADMIN, Caller, Callers, OneToken, Stranger
from spillover.ports.commands import CommandError, Commands, ErrorKind
from spillover.ports.journal import StoreError
from spillover.stores.blobs import MemoryBlobs
from spillover.wire.api import AgentsAddress
from spillover.wire.endpoints import ENDPOINTS, UPLOAD

log = structlog.get_logger(__name__)


class App:
    """An ASGI application over some commands."""

    def __init__(self, services: Services, guard: RequestGuard, gauge: Gauge | None = None) -> None:
        self._services = services
        self._gauge = gauge
        self._guard = guard
        self._router = Router(ROUTES)
        self._pages = read_pages()

    def answer_to(self, hosts: Collection[str]) -> None:
        """Accept more names of this server in Host headers."""
        self._guard.answer_to(hosts)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this server serves only HTTP, not {scope['type']}")
        try:
            answer = await self._answer(scope, receive)
            if isinstance(answer, Stream):
                await send_stream(answer, receive, send)
                return
        except Cut as error:
            _note_cut(scope["path"], error.__cause__)
            return
        except Gone:
            return
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - callers must not see a traceback
            scope[REFUSED] = True
            answer = as_problem(_refusal(scope, error))
        if answer is not None:
            await send_reply(answer, send)

    async def _answer(self, scope: Any, receive: Receive) -> Reply | Stream | None:
        """Decode, handle and encode; return None if the caller disconnected."""
        query = scope["query_string"]
        headers = self._guard.headers(scope["headers"], query)
        self._guard.check_host(headers)
        if (page := self._pages.answer(scope["method"], scope["path"], headers)) is not None:
            return page
        sent = Sent(scope, headers)
        if scope["path"].startswith(START):
            page = await sign_in_at_provider(
                self._services.commands, scope["method"], scope["path"], query, sent
            )
            if page is not None:
                return page
        found = self._router.find(scope["path"])
        route = found.routes.get(scope["method"]) if found is not None else None
        caller = ADMIN  # for endpoints that are open to everybody
        if route is None or not route.endpoint.open:
            caller = self._guard.caller(headers, scope["method"])
        if found is None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, "not found; /v1/openapi.json lists all paths")
        if route is None:
            allowed = ", ".join(sorted(found.routes))
            raise RequestRefused(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"method not allowed; use {allowed}",
                headers={"allow": allowed},
            )
        endpoint = route.endpoint
        if caller.role not in endpoint.roles:
            raise RequestRefused(HTTPStatus.FORBIDDEN, _not_for(caller, endpoint.roles))
        asked = route.parameters.read(found.parts, query)
        user = caller.user or self._guard.user(headers, caller.called)
        body: Any = pieces(receive) if endpoint.body is UPLOAD else None
        if route.read is not None:
            raw = await self._body(headers, receive)
            if raw is None:
                return None
            body = await route.read(raw)
        trace = headers.get(b"traceparent", b"").decode("latin-1")
        answer = await route.handler(Request(self._services, user, asked, body, caller, trace, sent))
        if isinstance(answer, Stream) and caller.token:
            chunks = self._guard.while_valid(caller, answer.chunks)
            return replace(answer, chunks=chunks, check=partial(self._guard.check_valid, caller))
        return answer if isinstance(answer, Reply | Stream) else as_json(answer, endpoint.status)

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """Return the body of a request, or None if the caller disconnected; refuse one that is too large."""
        gauge = self._gauge
        if gauge is None or gauge.body is None:
            return await receive_body(headers, receive)
        try:
            return await receive_body(headers, receive, gauge.body)
        except RequestRefused as refusal:
            if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                gauge.refused["body"] += 1
            raise


def _not_for(caller: Caller, roles: Collection[TokenRole]) -> str:
    """Return why a caller's role does not allow a request."""
    wanted = next(
        (role for role in TokenRole if role in roles), TokenRole.ADMIN
    )  # the one with the fewest rights
    return f"a token of role {caller.role} may not do this; use one of role {wanted}"


_STOPPING: Final = RequestRefused(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "the server is stopping; try again later",
    headers={"retry-after": "1", "connection": "close"},
    retry_after=1.0,
)


def _refusal(scope: Any, error: BaseException) -> RequestRefused:
    """Return the answer for an error."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, CommandError):
        return refused(error)
    if isinstance(error, Stranger):
        return RequestRefused(HTTPStatus.UNAUTHORIZED, str(error))
    if isinstance(error, BlobError):
        return refused(told(error))
    if isinstance(error, StoreError):
        return refused(CommandError(ErrorKind.UNAVAILABLE, str(error)))
    if isinstance(error, asyncio.CancelledError):
        # The server is stopping. This answer is the last thing that the task does.
        return _STOPPING
    fault = logged_fault("request failed", error, method=scope["method"], path=scope["path"])
    return RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, fault)


def _note_cut(path: str, cause: BaseException | None) -> None:
    """Log a stream that broke, unless the server is stopping or the token expired."""
    if isinstance(cause, CommandError | BlobError):
        # Not a bug of ours. For example, the agent whose output was followed is gone.
        log.warning("stream was cut", path=path, error=str(cause))
    elif not isinstance(cause, asyncio.CancelledError | RequestRefused):
        log.error("stream was cut", path=path, exc_info=cause)


async def _no_figures() -> bytes:
    """Return no metrics, for a server that has none."""
    return b""


def build_app(
    commands: Commands,
    callers: Callers | str,
    figures: Figures | None,
    hosts: Collection[str] = (),
    blobs: Blobs | None = None,
    address: AgentsAddress | None = None,
    gauge: Gauge | None = None,
) -> App:
    """Build the HTTP API, for some callers or for one token. `hosts` are its names besides those of loopback."""
    services = Services(
        commands,
        figures if figures is not None else _no_figures,
        describe(ENDPOINTS),
        blobs if blobs is not None else MemoryBlobs(),
        address,
    )
    return App(
        services, RequestGuard(OneToken(callers) if isinstance(callers, str) else callers, hosts), gauge
    )
