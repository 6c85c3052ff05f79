"""Bodies that are taken as they come, piece by piece, because they may be larger than memory."""

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
    """The caller went away before all of it came."""


async def pieces(receive: Receive) -> AsyncIterator[bytes]:
    """A body as it comes; raises Gone when it breaks off."""
    more = True
    while more:
        try:
            async with asyncio.timeout(PATIENCE):
                message = await receive()
        except TimeoutError:
            raise RequestRefused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"nothing more of the body arrived within {PATIENCE:.0f} s",
                headers={"connection": "close"},
            ) from None
        if message["type"] == "http.disconnect":
            raise Gone
        more = message.get("more_body", False)
        if piece := message.get("body", b""):
            yield piece


def told(error: BlobError) -> CommandError:
    """What a caller is told of a blob that could not be had or kept."""
    return CommandError(_KINDS.get(type(error), ErrorKind.UNAVAILABLE), str(error))
