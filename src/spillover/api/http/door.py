"""Answers requests while the server loads its state, and reports the progress."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from spillover.api.http.pages import read_pages
from spillover.api.http.problems import RequestRefused
from spillover.api.http.replies import Reply, as_json, as_problem, send_reply
from spillover.api.http.streams import Receive, Send
from spillover.wire.api import Health
from spillover.wire.endpoints import HEALTH, READY

RETRY: Final = 1.0
"""Seconds after which a client should retry."""


class Door:
    """An ASGI application that passes requests on once the real application exists."""

    def __init__(self, missing: Callable[[], str]) -> None:
        self._missing = missing
        """Returns what the server still waits for."""
        self._app: Any = None
        """The real application; None while the server starts."""

    def open(self, app: Any) -> None:
        """Pass requests to this application from now on."""
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._app is not None:
            await self._app(scope, receive, send)
        else:
            await send_reply(self._closed(scope), send)

    def _closed(self, scope: Any) -> Reply:
        """Return the answer of a starting server: alive, but not ready."""
        path = scope["path"]
        if path == HEALTH.path:
            return as_json(Health("ok"))
        if path == READY.path:
            return as_json(Health("not ready", self._missing()), HTTPStatus.SERVICE_UNAVAILABLE)
        page = read_pages().starting(scope["method"], path, dict(scope["headers"]), self._missing())
        if page is not None:
            return page
        return as_problem(
            RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the server is starting: {self._missing()}",
                headers={"retry-after": f"{RETRY:.0f}"},
                retry_after=RETRY,
            )
        )
