"""Reads request bodies piece by piece, because uploads may be larger than memory."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from spillover.api.http.problems import RequestRefused
from spillover.api.http.streams import Receive
from spillover.ports.blobs import BlobError, Differs, NoBlob, NoSpace, TooLarge
from spillover.ports.commands import CommandError, ErrorKind

PATIENCE: Final = 60.0
"""Seconds that the next piece may take."""
_KINDS: Final[dict[type[BlobError], ErrorKind]] = {
    NoBlob: ErrorKind.UNKNOWN,
    Differs: ErrorKind.INVALID,
    TooLarge: ErrorKind.TOO_LARGE,
    NoSpace: ErrorKind.UNAVAILABLE,
}


class Gone(Exception):
    """The caller disconnected before the end of the body."""


async def pieces(receive: Receive) -> AsyncIterator[bytes]:
    """Yield a body as it arrives; raise Gone if the caller disconnects."""
    more = True
    while more:
        try:
            async with asyncio.timeout(PATIENCE):
                message = await receive()
        except TimeoutError:
            raise RequestRefused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the upload stalled for {PATIENCE:.0f} s",
                headers={"connection": "close"},
            ) from None
        if message["type"] == "http.disconnect":
            raise Gone
        more = message.get("more_body", False)
        if piece := message.get("body", b""):
            yield piece


def told(error: BlobError) -> CommandError:
    """Return the error for a blob that could not be read or stored."""
    return CommandError(_KINDS.get(type(error), ErrorKind.UNAVAILABLE), str(error))
