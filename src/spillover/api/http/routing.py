"""How endpoints come to be served: a handler is bound to its declaration, and a request finds its handler by method and path."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, overload

from msgspec import Struct

from spillover.api.http.bodies import json_reader
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
"""What Prometheus is told."""


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers may use."""

    commands: Commands
    figures: Figures
    document: bytes
    """The OpenAPI document."""
    blobs: Blobs
    address: AgentsAddress | None = None
    """Where agents find their service; None while there is none."""


@dataclass(frozen=True, slots=True)
class Request(Generic[P, B]):
    """One request, decoded."""

    services: Services
    user: str
    asked: P
    """The parameters of its path and its query."""
    body: B
    caller: Caller = ADMIN

    @property
    def commands(self) -> Commands:
        """What carries it out, as far as the caller may."""
        return self.services.commands.of(self.caller)


Handler: TypeAlias = Callable[[Request[P, B]], Awaitable[A | Reply | Stream]]
"""Answers with what its endpoint declares, or with a reply of its own where the status depends on it."""


@dataclass(frozen=True, slots=True)
class HttpRoute(Generic[P, B]):
    """An endpoint and who answers it."""

    endpoint: Endpoint[P, Any, Any]
    handler: Handler[P, B, Any]
    parameters: ParameterReader[P]
    read: Callable[[bytes], Awaitable[B]] | None
    """Decodes the body; None where there is none, or it is taken as it comes."""


@overload
def serves(endpoint: Endpoint[P, B, A]) -> Callable[[Handler[P, B, A]], HttpRoute[P, B]]: ...
@overload
def serves(
    endpoint: Endpoint[P, Any, A], read: Callable[[bytes], Awaitable[R]]
) -> Callable[[Handler[P, R, A]], HttpRoute[P, R]]: ...
def serves(
    endpoint: Endpoint[Any, Any, Any], read: Callable[[bytes], Awaitable[Any]] | None = None
) -> Callable[[Handler[Any, Any, Any]], HttpRoute[Any, Any]]:
    """Make a handler answer an endpoint; `read` decodes bodies that are more than JSON of one type."""
    if read is None and endpoint.body.media == JSON:
        (form,) = endpoint.body.types
        read = json_reader(form)
    return lambda handler: HttpRoute(endpoint, handler, ParameterReader(endpoint), read)


class Found(NamedTuple):
    """What there is at a path."""

    routes: Mapping[str, HttpRoute[Any, Any]]
    """By method."""
    parts: list[str]
    """What stands for each name in the path."""


class Router:
    """Finds routes by path, one part after the other. A part that is spelled out counts before one that varies."""

    def __init__(self, routes: Iterable[HttpRoute[Any, Any]]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.endpoint.path.split("/"):
                node = node.below(part)
            if node.routes.setdefault(route.endpoint.method, route) is not route:
                raise ValueError(f"{route.endpoint.method} {route.endpoint.path} is served twice")

    def find(self, path: str) -> Found | None:
        """What there is at a path; None if nothing is."""
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
    """A part of paths, and what may follow it."""

    __slots__ = ("routes", "spelled", "varying")

    def __init__(self) -> None:
        self.spelled: dict[str, _Node] = {}
        self.varying: _Node | None = None
        """Where a parameter stands; None if none may."""
        self.routes: dict[str, HttpRoute[Any, Any]] = {}
        """By method; none where the path goes on."""

    def below(self, part: str) -> "_Node":
        """What follows with a part of a declared path, made if it is new."""
        if not part.startswith("{"):
            return self.spelled.setdefault(part, _Node())
        if self.varying is None:
            self.varying = _Node()
        return self.varying
