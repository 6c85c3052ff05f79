"""Encodes and sends answers that are complete in memory."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from spillover.api.http.problems import MEDIA, RequestRefused

HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""On every answer: nobody may cache it, and no browser may guess its media type."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    body: bytes
    media: bytes = b"application/json"
    status: int = HTTPStatus.OK
    headers: tuple[tuple[bytes, bytes], ...] = ()


def as_json(value: object, status: int = HTTPStatus.OK) -> Reply:
    """Encode a value as a JSON answer."""
    return Reply(_encode(value), status=status)


def as_problem(refused: RequestRefused) -> Reply:
    """Encode an error as an answer."""
    headers = tuple((name.encode(), value.encode()) for name, value in refused.headers.items())
    return Reply(refused.body(), MEDIA.encode(), refused.status, headers)


async def send_reply(reply: Reply, send: Callable[[Any], Awaitable[None]]) -> None:
    """Send an answer."""
    headers = [
        (b"content-type", reply.media),
        (b"content-length", b"%d" % len(reply.body)),
        *HEADERS,
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": int(reply.status), "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
