"""Binds handlers to declared endpoints, and finds the handler of a request by method and path."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

from msgspec import Struct

from spillover.api.http.bodies import json_reader
from spillover.api.http.guard import Headers
from spillover.api.http.parameters import ParameterReader
from spillover.api.http.replies import Reply
from spillover.api.http.streams import Stream
from spillover.ports.blobs import Blobs
from spillover.ports.callers import ADMIN, Caller
from spillover.ports.commands import Commands
from spillover.wire.api import AgentsAddress
from spillover.wire.endpoints import JSON, Endpoint

P = TypeVar("P", bound=Struct)
B = TypeVar("B")
A = TypeVar("A")
R = TypeVar("R")
Figures: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns the metrics for Prometheus."""


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers may use."""

    commands: Commands
    figures: Figures
    document: bytes
    """The OpenAPI document."""
    blobs: Blobs
    address: AgentsAddress | None = None
    """Address of the agents' service; None while there is none."""


@dataclass(frozen=True, slots=True)
class Sent:
    """How a request was sent, for handlers to which that matters."""

    scope: Any
    headers: Headers

    @property
    def is_secure(self) -> bool:
        """Whether the browser used TLS, to this server or to a proxy before it."""
        secure: bool = self.scope["scheme"] == "https"
        return secure or self.headers.get(b"origin", b"").lower().startswith(b"https://")

    @property
    def url(self) -> str:
        """The address of this server as the caller knows it."""
        scheme = "https" if self.is_secure else "http"
        return f"{scheme}://{self.headers.get(b'host', b'localhost').decode('latin-1')}"

    @property
    def peer(self) -> str:
        """The network address of the caller; empty if unknown."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def program(self) -> str:
        """What the program of the caller calls itself."""
        return self.headers.get(b"user-agent", b"").decode("latin-1")


UNSENT: Final = Sent({"scheme": "http"}, {})
"""For requests that did not come over a network."""


@dataclass(frozen=True, slots=True)
class Request(Generic[P, B]):
    """One decoded request."""

    services: Services
    user: str
    asked: P
    """The parameters of its path and query."""
    body: B
    caller: Caller = ADMIN
    traceparent: str = ""
    """The header of that name; empty if there is none."""
    sent: Sent = UNSENT

    @property
    def commands(self) -> Commands:
        """The commands, limited to what the caller may do."""
        return self.services.commands.of(self.caller)


Handler: TypeAlias = Callable[[Request[P, B]], Awaitable[A | Reply | Stream]]
"""Returns what its endpoint declares, or a complete reply where the status varies."""


@dataclass(frozen=True, slots=True)
class HttpRoute(Generic[P, B]):
    """An endpoint and its handler."""

    endpoint: Endpoint[P, Any, Any]
    handler: Handler[P, B, Any]
    parameters: ParameterReader[P]
    read: Callable[[bytes], Awaitable[B]] | None
    """Decodes the body; None if there is none, or if the handler reads it as a stream."""


@overload
def serves(endpoint: Endpoint[P, B, A]) -> Callable[[Handler[P, B, A]], HttpRoute[P, B]]: ...
@overload
def serves(
    endpoint: Endpoint[P, Any, A], read: Callable[[bytes], Awaitable[R]]
) -> Callable[[Handler[P, R, A]], HttpRoute[P, R]]: ...
def serves(
    endpoint: Endpoint[Any, Any, Any], read: Callable[[bytes], Awaitable[Any]] | None = None
) -> Callable[[Handler[Any, Any, Any]], HttpRoute[Any, Any]]:
    """Bind a handler to an endpoint. `read` decodes bodies that are more than JSON of one type."""
    if read is None and endpoint.body.media == JSON:
        (form,) = endpoint.body.types
        read = json_reader(form)
    return lambda handler: HttpRoute(endpoint, handler, ParameterReader(endpoint), read)


class Found(NamedTuple):
    """The routes at a path."""

    routes: Mapping[str, HttpRoute[Any, Any]]
    """By method."""
    parts: list[str]
    """The values of the parameters in the path."""


class Router:
    """Finds routes by path, one part after the other. A literal part takes precedence over a parameter."""

    def __init__(self, routes: Iterable[HttpRoute[Any, Any]]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.endpoint.path.split("/"):
                node = node.below(part)
            if node.routes.setdefault(route.endpoint.method, route) is not route:
                raise ValueError(f"{route.endpoint.method} {route.endpoint.path} is served twice")

    def find(self, path: str) -> Found | None:
        """Return the routes at a path; None if there are none."""
        node = self._root
        parts: list[str] = []
        for part in path.split("/"):
            below = node.spelled.get(part)
            if below is None and part:
                below = node.varying
                parts.append(part)
            if below is None:
                return None
            node = below
        return Found(node.routes, parts) if node.routes else None


class _Node:
    """A part of paths, and the parts that may follow."""

    __slots__ = ("routes", "spelled", "varying")

    def __init__(self) -> None:
        self.spelled: dict[str, _Node] = {}
        self.varying: _Node | None = None
        """The node after a parameter; None if no parameter may follow."""
        self.routes: dict[str, HttpRoute[Any, Any]] = {}
        """By method; empty if no path ends here."""

    def below(self, part: str) -> "_Node":
        """Return the node for the next part of a declared path; create it if it is new."""
        if not part.startswith("{"):
            return self.spelled.setdefault(part, _Node())
        if self.varying is None:
            self.varying = _Node()
        return self.varying
