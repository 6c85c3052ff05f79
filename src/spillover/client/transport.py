"""How a request becomes one of httpx, and how httpx's failures become ours. httpx is loaded with the first request."""

import ssl
from typing import TYPE_CHECKING, Any, Final

from spillover.client.asks import UNKNOWN, Ask
from spillover.client.errors import Unreachable
from spillover.client.place import Place

if TYPE_CHECKING:
    import httpx

CONNECT: Final = 5.0
WRITE: Final = 60.0
"""Seconds to connect, and to get rid of a part of the body."""


def request(ask: Ask[Any], place: Place) -> dict[str, Any]:
    """Arguments for `request` and `stream` of either httpx client."""
    import httpx  # noqa: PLC0415 - heavy, and not every import of the client sends something

    headers = place.headers()
    if ask.body is not None:
        headers["Content-Type"] = "application/json"
    if ask.upload is not None:
        headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(ask.upload.size())}
    return {
        "method": ask.method,
        "url": place.url + ask.path,
        "params": dict(ask.query) or None,
        "content": ask.body,
        "headers": headers,
        "timeout": httpx.Timeout(connect=CONNECT, read=ask.seconds, write=WRITE, pool=None),
    }


def settings(place: Place) -> dict[str, Any]:
    """Arguments for either httpx client: no proxy, redirect or other server ever sees the token."""
    # Loading the certificates of all authorities takes longer than a request; without them no https address is trusted.
    verify = True if place.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {"trust_env": False, "follow_redirects": False, "verify": verify}


def failure(ask: Ask[Any], place: Place, error: "httpx.TransportError") -> Unreachable:
    """What it means that no answer came."""
    import httpx  # noqa: PLC0415 - loaded already when this is called

    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return Unreachable(
            f"no server answers at {place.url}; start it with `spill up`, or correct the address"
        )
    what = (
        "did not answer in time"
        if isinstance(error, httpx.TimeoutException)
        else "went away while it was asked"
    )
    return Unreachable(f"the server at {place.url} {what}" + ("" if ask.repeatable else UNKNOWN), sent=True)
