"""Encodes and sends answers that are complete in memory."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

import msgspec

from spillover.api.http.problems import MEDIA, RequestRefused

HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""On every answer that does not say otherwise: nobody may cache it, and no browser may guess its media type."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    body: bytes
    media: bytes = b"application/json"
    status: int = HTTPStatus.OK
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Besides HEADERS, or instead of one of them."""

    def with_header(self, name: bytes, value: bytes) -> "Reply":
        """Return the same answer with one more header."""
        return replace(self, headers=(*self.headers, (name, value)))


def as_json(value: object, status: int = HTTPStatus.OK) -> Reply:
    """Encode a value as a JSON answer."""
    return Reply(_encode(value), status=status)


def as_problem(refused: RequestRefused) -> Reply:
    """Encode an error as an answer."""
    headers = tuple((name.encode(), value.encode()) for name, value in refused.headers.items())
    return Reply(refused.body(), MEDIA.encode(), refused.status, headers)


def _usual(given: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    """Return those of HEADERS that an answer does not give itself."""
    names = {name for name, _ in given}
    return [pair for pair in HEADERS if pair[0] not in names]


async def send_reply(reply: Reply, send: Callable[[Any], Awaitable[None]]) -> None:
    """Send an answer."""
    headers = [
        (b"content-type", reply.media),
        (b"content-length", b"%d" % len(reply.body)),
        *(_usual(reply.headers) if reply.headers else HEADERS),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": int(reply.status), "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
