"""Translates requests to httpx, and httpx's errors to ours. Imports httpx with the first request."""

import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from spillover.client import asks
from spillover.client.asks import UNKNOWN, Ask
from spillover.client.errors import Refused, SpillError, Unreachable
from spillover.client.place import ServerPlace
from spillover.wire.keepalive import kept_alive

if TYPE_CHECKING:
    import httpx

    Connecting: TypeAlias = type[httpx.HTTPTransport | httpx.AsyncHTTPTransport]

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
CONNECT: Final = 5.0
WRITE: Final = 60.0
"""Seconds to connect, and to send a part of the body."""
_AGENTS: Final = "if that is the port for agents, use the HTTP port instead (default: 7070)"


def request(ask: Ask[Any], place: ServerPlace) -> dict[str, Any]:
    """Return arguments for `request` and `stream` of either httpx client."""
    import httpx  # noqa: PLC0415 - slow to import, and only needed for requests

    headers = place.headers() | dict(ask.headers)
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


def settings(place: ServerPlace, connecting: "Connecting") -> dict[str, Any]:
    """Return arguments for either httpx client; no proxy, redirect or other server may see the token."""
    # Loading the system's CA certificates takes longer than a request. Without https they are not needed.
    secure = place.url.startswith("https:")
    verify = _trusting(place) if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connections = connecting(verify=verify, trust_env=False, socket_options=kept_alive())
    return {"trust_env": False, "follow_redirects": False, "transport": connections}


def _trusting(place: ServerPlace) -> ssl.SSLContext | bool:
    """Return what to trust: one CA, or those of the system."""
    ca, named = place.ca, f"{place.ca_from}: " if place.ca_from else ""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise Unreachable(f"{named}{ca} has no CA certificate") from None
    except OSError as error:
        raise Unreachable(f"{named}{ca} cannot be read: {error.strerror}") from None


def answer(ask: Ask[T], place: ServerPlace, status: int, body: bytes) -> T:
    """Decode an answer, or raise its error."""
    if status not in ask.good:
        raise refusal(ask, place, status, body)
    return asks.answer(ask, status, body)


def refusal(ask: Ask[Any], place: ServerPlace, status: int, body: bytes) -> SpillError:
    """Return the error of a refusal, with advice that fits this server."""
    error = asks.refusal(ask, status, body)
    if not isinstance(error, Refused):
        return error
    told = ""
    if error.kind == "unauthorized":
        told = f"{str(error).partition(';')[0]}; {place.mending}"
    parts = urlsplit(place.url)
    if status == 404 and parts.path and error.kind != "unknown":
        bare = f"{parts.scheme}://{parts.netloc}"
        told = f"there is no server at {place.url}; write its address without a path: {bare}"
    return Refused(told, status=status, kind=error.kind) if told else error


def failure(ask: Ask[Any], place: ServerPlace, error: "httpx.TransportError") -> Unreachable:
    """Return the error for a missing answer."""
    import httpx  # noqa: PLC0415 - already imported at this point

    if (untrusted := _untrusted(place, error)) is not None:
        return Unreachable(untrusted)
    if _cause(error, socket.gaierror) is not None:
        return Unreachable(f"cannot resolve {urlsplit(place.url).hostname}; correct the address")
    if isinstance(error, httpx.RemoteProtocolError) and "peer closed" in str(error):
        return Unreachable(f"the server at {place.url} ended its answer too early", sent=True)
    if isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error):
        return Unreachable(f"the program at {place.url} does not speak HTTP; {_AGENTS}")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return Unreachable(
            f"no server answers at {place.url}; start it with `spill up`, or correct the address"
        )
    what = (
        "did not answer in time"
        if isinstance(error, httpx.TimeoutException)
        else "closed the connection before it answered"
    )
    told = f"the server at {place.url} {what}" + ("" if ask.repeatable else UNKNOWN)
    if place.url.startswith("http:") and isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
        told += "; if it speaks TLS, write https://"
    elif isinstance(error, httpx.RemoteProtocolError):
        told += f"; {_AGENTS}"
    return Unreachable(told, sent=True)


def _cause(error: BaseException, kind: type[E]) -> E | None:
    """Return the first error of a kind in the chain of causes."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause


def _untrusted(place: ServerPlace, error: BaseException) -> str | None:
    """Return what is wrong with the TLS of a server; None if something else failed."""
    cause = _cause(error, ssl.SSLError)
    if cause is None:
        return None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        if cause.reason in {
            "WRONG_VERSION_NUMBER",
            "RECORD_LAYER_FAILURE",
            "UNKNOWN_PROTOCOL",
            "HTTP_REQUEST",
        }:
            return f"the program at {place.url} does not speak TLS; write http:// if it is on this machine"
        return f"cannot open a TLS connection to {place.url}: {(cause.reason or str(cause)).lower().replace('_', ' ')}"
    match cause.verify_code:
        case 9 | 10:  # not valid yet, or expired
            return f"the certificate of {place.url} is not valid now: {cause.verify_message}; its server needs a new one"
        case 62 | 64:  # another name, or another address
            return f"the certificate of {place.url} is for another name: {cause.verify_message}; use a name from the certificate"
        case _:
            whom = f"{place.ca} did not sign it" if place.ca else "no CA of this system signed it"
            return f"the certificate of {place.url} is not trusted, because {whom}; name its CA with --ca FILE or SPILL_CA"
