"""Answers of the API of Hetzner Cloud, with only the fields that we read, and what they say about offers."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from spillover.model.pools import Offer
from spillover.model.units import format_cpu, format_memory
from spillover.providers.rest import UNREADABLE, Answer, listed, one_line

Moment = Annotated[datetime, Meta(tz=True)]


class Pagination(Struct, frozen=True):
    """Where a page is in its list."""

    next_page: int | None = None
    """None on the last page."""
    total_entries: int | None = None


class PageMeta(Struct, frozen=True):
    """What is said about a page."""

    pagination: Pagination = Pagination()


class Page(Struct, frozen=True):
    """A page of a list."""

    meta: PageMeta = PageMeta()


class Server(Struct, frozen=True):
    """A server."""

    id: int
    name: str = ""
    status: str = ""
    created: Moment | None = None
    labels: dict[str, str] = {}


class ServerMade(Struct, frozen=True):
    """The answer to an order."""

    server: Server


class Servers(Page, frozen=True):
    """A page of servers."""

    servers: tuple[Server, ...] = ()


class Amount(Struct, frozen=True):
    """An amount of money."""

    net: str = ""


class Price(Struct, frozen=True):
    """What a type costs in a location."""

    location: str = ""
    price_hourly: Amount = Amount()


class Sold(Struct, frozen=True):
    """A location in which a type is sold."""

    name: str = ""


class ServerType(Struct, frozen=True):
    """A type of server."""

    name: str
    cores: int = 0
    memory: float = 0.0
    """GiB."""
    architecture: str = "x86"
    prices: tuple[Price, ...] = ()
    locations: tuple[Sold, ...] = ()

    @property
    def sold(self) -> list[str]:
        """The locations in which it is sold."""
        return [each.name for each in self.locations] or [each.location for each in self.prices]


class ServerTypes(Page, frozen=True):
    """A page of types of servers."""

    server_types: tuple[ServerType, ...] = ()


class Location(Struct, frozen=True):
    """A location."""

    name: str


class Locations(Page, frozen=True):
    """A page of locations."""

    locations: tuple[Location, ...] = ()


class Image(Struct, frozen=True):
    """An image."""

    id: int
    architecture: str = "x86"


class Images(Page, frozen=True):
    """A page of images."""

    images: tuple[Image, ...] = ()


class _Field(Struct, frozen=True):
    name: str = ""
    messages: tuple[str, ...] = ()


class _Details(Struct, frozen=True):
    fields: tuple[_Field, ...] = ()


class _Error(Struct, frozen=True):
    code: str = ""
    message: str = ""
    details: msgspec.Raw = msgspec.Raw(b"null")


class _Failed(Struct, frozen=True):
    error: _Error = _Error()


class Failure(Struct, frozen=True):
    """Why a request failed."""

    status: int
    code: str
    """Empty if the answer is not one of the API."""
    message: str
    after: float = 0.0

    @classmethod
    def of(cls, answer: Answer) -> "Failure":
        """Read an answer that is not a success."""
        try:
            error = msgspec.json.decode(answer.content, type=_Failed).error
        except UNREADABLE:
            error = _Error()
        try:
            fields = msgspec.json.decode(error.details, type=_Details).fields
        except UNREADABLE:
            fields = ()
        why = [f"{each.name}: {', '.join(each.messages)}" for each in fields]
        return cls(answer.status, error.code, "; ".join([error.message, *why]), answer.after)

    def __str__(self) -> str:
        if not self.code:
            return f"Hetzner answers {self.status}"
        return one_line(f"Hetzner: {self.message} ({self.code})")


def offer_flaws(offer: Offer, types: Mapping[str, ServerType], locations: Sequence[str]) -> Iterator[str]:
    """Return why an offer cannot be rented."""
    if offer.zone and offer.zone not in locations:
        yield f"Hetzner has no location {offer.zone!r}; it has {listed(sorted(locations))}"
    kind = types.get(offer.type)
    if kind is None:
        yield f"Hetzner has no server type {offer.type!r}; it has {listed(sorted(types))}"
        return
    if offer.zone in locations and offer.zone not in kind.sold:
        yield f"Hetzner does not sell {offer.type} in {offer.zone}; it does in {listed(kind.sold)}"
    wanted = offer.resources
    if wanted.cpu > kind.cores * 1000:
        yield f"the offer {offer.key} states {format_cpu(wanted.cpu)} CPUs, and the type has {kind.cores}"
    if wanted.memory > kind.memory * 2**30:
        yield f"the offer {offer.key} states {format_memory(wanted.memory)} of memory, and the type has {kind.memory:g}Gi"
    if wanted.gpu:
        yield f"the offer {offer.key} states GPUs, and Hetzner Cloud has none"
